//! A random sequence: many ops on overlapping groups, sync and async, with messages between them, drawn by a generator
//! whose seed stands in the case.
//!
//! The seed of a run (`--seed`) changes the data of every op and never the sequence: ids, known failures and the time it
//! takes stay what they are. Another sequence is another `seed:` in the file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{OneOrMany, Only};
use allranks_model::axes::Layout;
use allranks_model::names::RequirementId;
use allranks_model::op::Op;

/// The key of a step that is a random sequence.
pub const RANDOM: &str = "random";

/// Random sequences of ops and messages, each one check: `{name: mix, seed: 1, count: 3}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomSpec {
    /// What the names of the sequences begin with, in the ids of their checks: `mix` gives `mix-1`, `mix-2` and so on.
    pub name: String,
    /// The seed of the generator. The world size and the number of the sequence are mixed in.
    pub seed: u64,
    /// Number of ops and messages of a sequence, 1 to 2000; its waits are not counted.
    #[serde(default = "length")]
    pub length: u32,
    /// Number of sequences, 1 to 100.
    #[serde(default = "one")]
    pub count: u32,
    /// Ops to draw from, with parameters that the platform declares. Absent: all.
    #[serde(default)]
    pub ops: Option<OneOrMany<Op>>,
    /// Groups to draw from; those without members in a world are left out. Absent: the world and every group of the
    /// case.
    #[serde(default)]
    pub groups: Option<OneOrMany<String>>,
    /// Layouts of tensors to draw from.
    #[serde(default = "layouts")]
    pub layouts: OneOrMany<Layout>,
    /// Percentage, 0 to 100, of the ops that can be async that are. Their works are waited for later, in any order.
    #[serde(default = "half", rename = "async")]
    pub asynchronous: u32,
    /// Percentage, 0 to 100, of ops and messages that are a message from one rank to another.
    #[serde(default = "fifth")]
    pub messages: u32,
    /// World sizes that the sequences are for; the others leave them out. Absent: all of the case.
    #[serde(default)]
    pub size: Option<OneOrMany<u32>>,
    /// `full`: the step belongs to that profile only, because it takes long. Absent: to the profiles of its case.
    #[serde(default)]
    pub profile: Option<Only>,
    /// Requirements that the sequences cover besides the case's: `[ORD-001]`.
    #[serde(default)]
    pub covers: Vec<RequirementId>,
}

fn length() -> u32 {
    120
}

fn one() -> u32 {
    1
}

fn half() -> u32 {
    50
}

fn fifth() -> u32 {
    20
}

fn layouts() -> OneOrMany<Layout> {
    OneOrMany::Many(vec![Layout::Contiguous, Layout::Offset, Layout::Unaligned])
}
