//! The parameters of each kind of move of a script that contains no other moves.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Members, OneOrMany, StepParams};
use allranks_model::store::StoreMethod;

/// Parameters of a move that issues an op: `all_reduce: {as: a, with: {dtype: int8}}`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IssueSpec {
    /// The name of its work: the op is issued with `async_op=True`, and the move `wait` waits for it. A second move
    /// with the same name issues the same op, on other ranks. Absent: the call is synchronous.
    #[serde(rename = "as")]
    pub label: Option<String>,
    /// The op's parameters, one value each.
    pub with: StepParams,
    /// Whether the oracle checks the data. Absent: if every member issues the op and no rank is to fail.
    pub judged: Option<bool>,
}

/// Parameters of a move that sends or receives a message.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageMove {
    /// The name of the message in `messages`.
    pub message: String,
    /// For `recv`: `true` names no source, and checks the source that the call returns.
    #[serde(default)]
    pub any_source: bool,
}

/// Parameters of `wait`: `{of: [a, b], timeout_ms: 500}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitSpec {
    /// Names of works. A rank that has no work of a name does not wait for it.
    pub of: OneOrMany<String>,
    /// The argument of `work.wait(timeout)`, in milliseconds. Absent: it is called without one.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// Parameters of `is_completed`: `{of: a, is: false}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompletedSpec {
    /// The name of the work.
    pub of: String,
    /// What `work.is_completed()` must return.
    pub is: bool,
}

/// Parameters of a move about one work: `{of: a}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfSpec {
    /// The name of the work.
    pub of: String,
}

/// Parameters of a move with a name: `{name: before}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NameSpec {
    /// The name of the mark or of the census.
    pub name: String,
}

/// Parameters of `sleep` and `pause`: `{ms: 500}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MillisSpec {
    /// Milliseconds, at most 30000.
    pub ms: u64,
}

/// A move without parameters: `freeze: {}`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NothingSpec {}

/// Parameters of `die`: `{signal: 9}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DieSpec {
    /// The number of the signal; 9 is SIGKILL.
    #[serde(default = "sigkill")]
    pub signal: i32,
}

fn sigkill() -> i32 {
    9
}

/// Parameters of `exit`: `{code: 3}`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExitMove {
    /// The exit code that the rank asks for; the process must end with it.
    #[serde(default)]
    pub code: i32,
}

/// Parameters of `steady`: how much more the process may hold at the second census than at the first, `{from: before,
/// to: after, files: 0}`. What is absent is not compared.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SteadySpec {
    /// The name of the first census.
    pub from: String,
    /// The name of the second census.
    pub to: String,
    /// Open file descriptors, sockets among them: how many more are allowed.
    #[serde(default)]
    pub files: Option<u64>,
    /// Threads of the process: how many more are allowed.
    #[serde(default)]
    pub threads: Option<u64>,
    /// Mappings of shared memory: how many more are allowed.
    #[serde(default)]
    pub shared_memory: Option<u64>,
    /// Child processes: how many more are allowed.
    #[serde(default)]
    pub processes: Option<u64>,
    /// Resident memory: how many MiB more are allowed.
    #[serde(default)]
    pub memory_mib: Option<u64>,
}

/// Parameters of a move about one group: `{group: evens}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfGroup {
    /// The name of the group, or `world`.
    #[serde(default = "world")]
    pub group: String,
}

fn world() -> String {
    "world".to_owned()
}

/// Parameters of `setenv`: `{name: TORCH_NCCL_BLOCKING_WAIT, value: "1"}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetenvSpec {
    /// The name of the environment variable.
    pub name: String,
    /// Its new value; `null` removes the variable.
    pub value: Option<String>,
}

/// Parameters of `init`, which calls `init_process_group`. What is absent is as it should be in this world.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InitMove {
    /// How ranks find each other. Absent: `env`.
    pub method: Option<StoreMethod>,
    /// The rank that the process claims to be. Absent: its own.
    pub rank: Option<u32>,
    /// The world size that it claims. Absent: that of the world.
    pub world_size: Option<u32>,
    /// The argument `timeout=`, in seconds. Absent: the case's.
    pub timeout_s: Option<f64>,
    /// Number of the endpoint, from 0, of those that the world has. Ranks that name different ones do not find each
    /// other. For all methods but `env`.
    pub point: u32,
    /// For method `store`: whether this rank hosts the store. Absent: if it is rank 0.
    pub hosts: Option<bool>,
    /// The argument `backend=`. Absent: that of the scenario.
    pub backend: Option<String>,
}

/// Parameters of `new_group`, which every rank that makes the move calls: `{name: pair, ranks: [0, 1]}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroupMove {
    /// The name that later moves use for the group.
    pub name: String,
    /// The members of the group.
    pub ranks: Members,
    /// The argument `backend=`. Absent: that of the world.
    #[serde(default)]
    pub backend: Option<String>,
    /// The argument `timeout=`, in seconds. Absent: the case's.
    #[serde(default)]
    pub timeout_s: Option<f64>,
    /// `true`: `use_local_synchronization=True` is passed, so that the members alone have to call it.
    #[serde(default)]
    pub local_sync: bool,
}

/// Parameters of `python`: statements that see `torch`, `dist`, `rank`, `world_size`, `device` and `group(name)`, and
/// may leave a value in `result`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PythonSpec {
    /// The statements, in one string.
    pub run: String,
    /// `true`: the statements communicate with no other rank, whatever they mention; hang evidence then still knows
    /// the rank's later calls. Absent: that is assumed only of statements that do not mention `torch`, `dist` or
    /// `group`.
    #[serde(default)]
    pub unnoticed: bool,
}
