//! Scripts: what each rank does, move by move, for what a list of ops cannot say: a rank that comes late, a work that
//! is polled, a call that must raise, a rank that dies.
//!
//! In YAML a step `script:` with `moves:`, a list of maps with one key each. Every rank makes the moves that are `on`
//! it, in the order of the list. A move's `expect` says how it must go; without one the call must return. The oracle
//! checks the data of an op if every member has issued it and no rank was to fail.

use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize as DeserializeDerive, Serialize};
use serde_json::{Map, Value, json};

use super::entries::Entries;
use super::{MAX_SECONDS, Members, OneOrMany, Only, StepParams};
use allranks_model::diagnosis::HangKind;
use allranks_model::names::RequirementId;
use allranks_model::op::Op;
use allranks_model::store::StoreMethod;

/// The key of a step that is a script.
pub const SCRIPT: &str = "script";
/// The key of a move that issues the op which `over` names.
const IT: &str = "it";

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

/// An op with one value for each of its parameters: `all_reduce`, or `{broadcast: {root: last}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct OpSpec {
    /// The op that `it` issues.
    pub op: Op,
    /// The op's parameters, one value each.
    pub params: StepParams,
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

/// One move of a script: `{wait: {of: a}, on: first, expect: {raises: timeout}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct MoveSpec {
    /// What is done; its name is the key of the move.
    pub verb: Verb,
    /// The ranks that make the move. `None`: every rank, or every member of the group for an op.
    pub on: Option<Members>,
    /// How the move must go. `None`: it must return.
    pub expect: Option<ExpectSpec>,
}

/// What a move does, with its parameters.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are few, and they are not moved about"
)]
pub enum Verb {
    /// Issues an op. `None` is the key `it`: the op that `over` names.
    Issue(Option<Op>, IssueSpec),
    /// Sends a message, and blocks.
    Send(MessageMove),
    /// Receives a message, and blocks.
    Recv(MessageMove),
    /// Calls `isend` for a message. The name of its work is that of the message.
    Isend(MessageMove),
    /// Calls `irecv` for a message. The name of its work is that of the message.
    Irecv(MessageMove),
    /// Waits for one or several works.
    Wait(WaitSpec),
    /// Asks a work once whether it is completed.
    IsCompleted(CompletedSpec),
    /// Waits for the future of a work.
    Future(OfSpec),
    /// Drops the reference to a work without waiting for it.
    Drop(OfSpec),
    /// Tells the harness that the rank has come to this mark.
    Mark(NameSpec),
    /// Waits until every rank that has a `mark` of this name has come to it. In a loop, each turn has marks of its
    /// own.
    Hold(NameSpec),
    /// Sleeps for some milliseconds.
    Sleep(MillisSpec),
    /// Has the process stopped (SIGSTOP), and resumed after some milliseconds.
    Pause(MillisSpec),
    /// Has the process stopped (SIGSTOP) and never resumed.
    Freeze(NothingSpec),
    /// Ends the process by a signal.
    Die(DieSpec),
    /// Ends the process through the interpreter's shutdown, with an exit code.
    Exit(ExitMove),
    /// Counts what the process holds (files, threads, memory, ...), and keeps the counts under a name.
    Census(NameSpec),
    /// Compares two censuses, and fails if the process holds too much more at the second.
    Steady(SteadySpec),
    /// Asks a group for its rank, size and backend.
    WhoAmI(OfGroup),
    /// Sets or removes an environment variable of the process.
    Setenv(SetenvSpec),
    /// Calls `init_process_group`.
    Init(InitMove),
    /// Calls `destroy_process_group`.
    Destroy(OfGroup),
    /// Calls `new_group`.
    NewGroup(NewGroupMove),
    /// Aborts the backend of a group.
    Abort(OfGroup),
    /// Runs Python statements in the rank.
    Python(PythonSpec),
    /// Makes several lists of moves at the same time, each on a thread of its own.
    Together(TogetherSpec),
    /// Makes a list of moves several times, with new data each time.
    Repeat(RepeatSpec),
}

/// Parameters of a move that issues an op: `all_reduce: {as: a, with: {dtype: int8}}`.
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageMove {
    /// The name of the message in `messages`.
    pub message: String,
    /// For `recv`: `true` names no source, and checks the source that the call returns.
    #[serde(default)]
    pub any_source: bool,
}

/// Parameters of `wait`: `{of: [a, b], timeout_ms: 500}`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitSpec {
    /// Names of works. A rank that has no work of a name does not wait for it.
    pub of: OneOrMany<String>,
    /// The argument of `work.wait(timeout)`, in milliseconds. Absent: it is called without one.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// Parameters of `is_completed`: `{of: a, is: false}`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompletedSpec {
    /// The name of the work.
    pub of: String,
    /// What `work.is_completed()` must return.
    pub is: bool,
}

/// Parameters of a move about one work: `{of: a}`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfSpec {
    /// The name of the work.
    pub of: String,
}

/// Parameters of a move with a name: `{name: before}`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NameSpec {
    /// The name of the mark or of the census.
    pub name: String,
}

/// Parameters of `sleep` and `pause`: `{ms: 500}`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MillisSpec {
    /// Milliseconds, at most 30000.
    pub ms: u64,
}

/// A move without parameters: `freeze: {}`.
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NothingSpec {}

/// Parameters of `die`: `{signal: 9}`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExitMove {
    /// The exit code that the rank asks for; the process must end with it.
    #[serde(default)]
    pub code: i32,
}

/// Parameters of `steady`: how much more the process may hold at the second census than at the first, `{from: before,
/// to: after, files: 0}`. What is absent is not compared.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetenvSpec {
    /// The name of the environment variable.
    pub name: String,
    /// Its new value; `null` removes the variable.
    pub value: Option<String>,
}

/// Parameters of `init`, which calls `init_process_group`. What is absent is as it should be in this world.
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
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

/// Parameters of `together`: lists of moves that are made at the same time.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TogetherSpec {
    /// The moves of each thread. Only calls: no `hold`, no `together`, and no move with an `expect` of its own.
    #[schemars(length(min = 1))]
    pub threads: Vec<Vec<MoveSpec>>,
}

/// Parameters of `repeat`: `{times: 100, moves: [all_reduce: {}]}`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepeatSpec {
    /// How many times the moves are made, 1 to 2000.
    pub times: u32,
    /// The moves of one turn.
    pub moves: Vec<MoveSpec>,
}

/// How a move must go: `{raises: "timed out", within_s: 10}`. Without `raises` and `either` it must return.
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectSpec {
    /// The call must raise, and the error (type and message) must match each of these regular expressions. Case is
    /// ignored.
    pub raises: Option<OneOrMany<String>>,
    /// `true`: it is enough if one of the ranks raises; the others may return.
    pub somewhere: bool,
    /// For `python` that must raise, `true`: the tensors that the statements passed to functions must be unchanged.
    pub untouched: bool,
    /// `true`: the call may raise or return.
    pub either: bool,
    /// The value that the move must have: the answer to `who_am_i`, the `result` of `python`.
    pub value: Option<Value>,
    /// The class that the check's record names if the value is another, in lower case with hyphens: `leaked`. Absent:
    /// `wrong-value`.
    #[schemars(regex(pattern = "^[a-z][a-z0-9-]*$"))]
    pub class: Option<String>,
    /// The move must end within this many seconds.
    pub within_s: Option<f64>,
    /// The move must take at least this many seconds.
    pub not_before_s: Option<f64>,
}

/// Calls `$each! { Variant(Parameters) = "key", ... }` with every verb but the ops.
macro_rules! verbs {
    ($each:ident) => {
        $each! {
            Send(MessageMove) = "send",
            Recv(MessageMove) = "recv",
            Isend(MessageMove) = "isend",
            Irecv(MessageMove) = "irecv",
            Wait(WaitSpec) = "wait",
            IsCompleted(CompletedSpec) = "is_completed",
            Future(OfSpec) = "future",
            Drop(OfSpec) = "drop",
            Mark(NameSpec) = "mark",
            Hold(NameSpec) = "hold",
            Sleep(MillisSpec) = "sleep",
            Pause(MillisSpec) = "pause",
            Freeze(NothingSpec) = "freeze",
            Die(DieSpec) = "die",
            Exit(ExitMove) = "exit",
            Census(NameSpec) = "census",
            Steady(SteadySpec) = "steady",
            WhoAmI(OfGroup) = "who_am_i",
            Setenv(SetenvSpec) = "setenv",
            Init(InitMove) = "init",
            Destroy(OfGroup) = "destroy",
            NewGroup(NewGroupMove) = "new_group",
            Abort(OfGroup) = "abort",
            Python(PythonSpec) = "python",
            Together(TogetherSpec) = "together",
            Repeat(RepeatSpec) = "repeat"
        }
    };
}

macro_rules! name {
    ($($variant:ident($params:ty) = $name:literal),*) => {
        impl Verb {
            /// Returns the key of the move: the name of its op, `it`, or the verb's.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    Self::Issue(Some(op), _) => op.name(),
                    Self::Issue(None, _) => IT,
                    $(Self::$variant(_) => $name),*
                }
            }
        }

        /// The keys of all moves but ops.
        const VERBS: &[&str] = &[$($name),*];

        fn read<'de, A: MapAccess<'de>>(key: &Key, map: &mut A) -> Result<Verb, A::Error> {
            Ok(match key {
                Key::Op(op) => Verb::Issue(*op, map.next_value()?),
                $(Key::Verb($name) => Verb::$variant(map.next_value()?),)*
                Key::Verb(_) => unreachable!("every verb is listed"),
            })
        }

        /// Returns the schema of each verb's parameters.
        fn schemas(generator: &mut SchemaGenerator) -> Vec<(&'static str, Value)> {
            vec![$(($name, generator.subschema_for::<$params>().to_value())),*]
        }
    };
}

verbs!(name);

/// The key that says what a move does.
enum Key {
    Op(Option<Op>),
    Verb(&'static str),
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an op or of a move")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Key, E> {
                if name == IT {
                    return Ok(Key::Op(None));
                }
                if let Some(verb) = VERBS.iter().find(|verb| **verb == name) {
                    return Ok(Key::Verb(verb));
                }
                name.parse::<Op>()
                    .map(|op| Key::Op(Some(op)))
                    .map_err(|_| E::unknown_variant(name, VERBS))
            }
        }

        deserializer.deserialize_str(Name)
    }
}

impl<'de> Deserialize<'de> for MoveSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = MoveSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a move: such as `wait: {of: a}` with `on:` and `expect:` beside it")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut verb, mut on, mut expect) = (None, None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "on" => on = Some(map.next_value()?),
                        "expect" => expect = Some(map.next_value()?),
                        _ if verb.is_some() => {
                            return Err(de::Error::custom(format!(
                                "`{key}` is a second move; hint: begin another list item"
                            )));
                        }
                        name => {
                            let name: de::value::StrDeserializer<'_, A::Error> =
                                name.into_deserializer();
                            verb = Some(read(&Key::deserialize(name)?, &mut map)?);
                        }
                    }
                }
                let verb = verb.ok_or_else(|| de::Error::custom("a move that does nothing"))?;
                Ok(MoveSpec { verb, on, expect })
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

impl JsonSchema for MoveSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Move".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let issue = generator.subschema_for::<IssueSpec>().to_value();
        let mut keys: Map<String, Value> = Op::ALL
            .iter()
            .map(|op| op.name())
            .chain([IT])
            .map(|name| (name.to_owned(), issue.clone()))
            .collect();
        for (name, schema) in schemas(generator) {
            keys.insert(name.to_owned(), schema);
        }
        keys.insert(
            "on".to_owned(),
            generator.subschema_for::<Members>().to_value(),
        );
        keys.insert(
            "expect".to_owned(),
            generator.subschema_for::<ExpectSpec>().to_value(),
        );
        json_schema!({
            "description": "One move of a script: a key that says what is done, and beside it `on:`, the ranks that make the move (absent: every rank, or every member of the op's group), and `expect:`, how it must go (absent: it must return).",
            "type": "object",
            "properties": keys,
            "additionalProperties": false,
            "minProperties": 1,
            "maxProperties": 3
        })
    }
}

impl<'de> Deserialize<'de> for OpSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = OpSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an op: `all_reduce` or `{broadcast: {root: last}}`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<OpSpec, E> {
                let op = Op::deserialize(name.into_deserializer())?;
                Ok(OpSpec {
                    op,
                    params: StepParams::default(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OpSpec, A::Error> {
                let op = map
                    .next_key::<Op>()?
                    .ok_or_else(|| de::Error::custom("a map without an op"))?;
                let params = map.next_value()?;
                match map.next_key::<String>()? {
                    None => Ok(OpSpec { op, params }),
                    Some(second) => Err(de::Error::custom(format!("`{second}` is a second op"))),
                }
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for OpSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OpSpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let op = generator.subschema_for::<Op>();
        let params = generator.subschema_for::<StepParams>().to_value();
        let ops: Map<String, Value> = Op::ALL
            .iter()
            .map(|op| (op.name().to_owned(), params.clone()))
            .collect();
        json_schema!({
            "description": "An op with one value for each of its parameters: `all_reduce`, `{broadcast: {root: last}}`.",
            "anyOf": [op, json!({
                "type": "object",
                "properties": ops,
                "additionalProperties": false,
                "minProperties": 1,
                "maxProperties": 1
            })]
        })
    }
}
