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

/// Some random sequences; each is one check.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomSpec {
    /// What their names begin with, in the ids of the checks: `mix` gives `mix-1`, `mix-2`, ...
    pub name: String,
    /// Where the generator begins. World size and number of the sequence are mixed in.
    pub seed: u64,
    /// Ops and messages of a sequence, its waits not counted.
    #[serde(default = "length")]
    pub length: u32,
    /// How many sequences.
    #[serde(default = "one")]
    pub count: u32,
    /// Ops to draw from, with whatever parameters the platform declares; absent: all.
    #[serde(default)]
    pub ops: Option<OneOrMany<Op>>,
    /// Groups to draw from; absent: the world and every group of the case. Those without members are left out.
    #[serde(default)]
    pub groups: Option<OneOrMany<String>>,
    /// Layouts to draw from. Those that are not dense are the business of other cases.
    #[serde(default = "layouts")]
    pub layouts: OneOrMany<Layout>,
    /// Of a hundred ops that can be async, how many are; their works are waited for later, in any order.
    #[serde(default = "half", rename = "async")]
    pub asynchronous: u32,
    /// Of a hundred units, how many are a message from one rank to another.
    #[serde(default = "fifth")]
    pub messages: u32,
    /// World sizes it is for; absent: all of the case.
    #[serde(default)]
    pub size: Option<OneOrMany<u32>>,
    /// `full`: it belongs to that profile only, because it takes long.
    #[serde(default)]
    pub profile: Option<Only>,
    /// Requirements it covers besides the case's.
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
