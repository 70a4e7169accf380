//! Scripts: what each rank does, move by move, for what a list of ops cannot say: a rank that comes late, a work that
//! is polled, a call that must raise, a rank that dies.
//!
//! In YAML a step `script:` with `moves:`, a list of maps with one key each. Every rank makes the moves that are `on`
//! it, in the order of the list. A move's `expect` says how it must go; without one the call must return. The oracle
//! checks the data of an op if every member has issued it and no rank was to fail.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::{Deserialize as DeserializeDerive, Serialize};

use super::entries::Entries;
use super::op_spec::OpSpec;
use super::script_move::MoveSpec;
use super::{MAX_SECONDS, Members, OneOrMany, Only, StepParams};
use allranks_model::diagnosis::HangKind;
use allranks_model::names::RequirementId;

/// The key of a step that is a script.
pub const SCRIPT: &str = "script";
/// A script: what each rank does, move by move, as one check, or one for each op of `over`.
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptSpec {
    /// Its name in the ids of its checks: `late-rank`.
    pub name: String,
    /// The moves, in order. A rank makes those that are `on` it: `{all_reduce: {as: a}, on: first}`.
    #[schemars(length(min = 1))]
    pub moves: Vec<MoveSpec>,
    /// Ops that the move `it` stands for, one check each: `[all_reduce, {broadcast: {root: last}}]`.
    #[serde(default)]
    pub over: Vec<OpSpec>,
    /// Messages by name, for the moves `send`, `recv`, `isend` and `irecv`: `{a: {from: first, to: last}}`.
    #[serde(default)]
    pub messages: Entries<MessageSpec>,
    /// What becomes of the world when the script is over.
    #[serde(default)]
    pub afterwards: Afterwards,
    /// The hang verdict that must be given on the script; its world is killed then. Absent: none is asked for.
    #[serde(default)]
    pub hang: Option<HangSpec>,
    /// Whether its Python statements receive without naming a source; a move `recv` says so itself. Absent: they do not.
    #[serde(default)]
    pub any_source: Option<AnySource>,
    /// World sizes that the script is for; the others leave it out. Absent: all of the case.
    #[serde(default)]
    pub size: Option<OneOrMany<u32>>,
    /// `full`: the script belongs to that profile only, because it takes long. Absent: to the profiles of its case.
    #[serde(default)]
    pub profile: Option<Only>,
    /// Requirements that the script covers besides the case's: `[ERR-001]`.
    #[serde(default)]
    pub covers: Vec<RequirementId>,
}

/// A hang verdict that must be given: `hang: {kind: port-mismatch, culprit: [0], within: 5s}`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HangSpec {
    /// What must be found to be wrong.
    pub kind: HangKind,
    /// The ranks that must be named as culprits, exactly these. Absent: the verdict must name none.
    #[serde(default)]
    pub culprit: Option<Members>,
    /// How long after the last progress the verdict may come: `5s`. Absent: 10 s. `ci/bench hangs` measures it.
    #[serde(default)]
    pub within: Within,
    /// `true`: no rank may hang or raise, although the calls of the ranks contradict each other. `false`: some rank
    /// must hang or raise. Absent: either is right.
    #[serde(default)]
    pub silent: Option<bool>,
}

/// A length of time, `5s` or `1500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within(pub Duration);

impl Default for Within {
    fn default() -> Self {
        Self(Duration::from_secs(10))
    }
}

impl<'de> Deserialize<'de> for Within {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = humantime::parse_duration(&text)
            .map_err(|_| de::Error::custom(format!("`{text}` is not a time such as `5s`")))?;
        match time.as_secs_f64() <= MAX_SECONDS {
            true => Ok(Self(time)),
            false => Err(de::Error::custom(format!(
                "`{text}` is longer than {MAX_SECONDS} s"
            ))),
        }
    }
}

impl JsonSchema for Within {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Within".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time: `5s`, `1500ms`.",
            "type": "string",
            "pattern": "^[0-9]+ ?(ms|s|m|min)$"
        })
    }
}

/// What becomes of the world when a script is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, DeserializeDerive, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Afterwards {
    /// It goes on with the next check.
    #[default]
    GoOn,
    /// Every rank that still runs says goodbye without destroying any group, and must exit with code 0.
    Leave,
    /// The harness kills all of its ranks.
    Abandon,
}

/// What a script does with receives that name no source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, DeserializeDerive, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnySource {
    /// It makes some. It is left out where the platform file declares named sources only.
    Used,
    /// It sees that they are refused. It is only for backends of which the platform file declares named sources only, and
    /// its outcome is then `unsupported`, not `pass`.
    Refused,
}

/// A message of a script: `{from: first, to: last, with: {tag: 7}}`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageSpec {
    /// The rank that sends it: one rank, such as `first` or `[1]`.
    pub from: Members,
    /// The rank that receives it: one rank.
    pub to: Members,
    /// The parameters of its `send` and `recv`, one value each: `{numel: 5, tag: 7}`.
    #[serde(default)]
    pub with: StepParams,
}
