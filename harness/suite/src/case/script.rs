//! A script: what each rank does, move by move, where one op after another cannot say it: a rank that comes late, a work
//! that is polled, a call that must raise, a rank that dies.
//!
//! In YAML a step `script:` with `moves:`, a list of maps with one key each. Every rank makes the moves that are `on` it,
//! in the order of the list. A move's `expect` says how it must go; without one the call must return. Data are judged
//! by the oracle wherever every member has issued an op and nobody was to fail.

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

/// One script.
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptSpec {
    /// Its name, in the ids of its checks.
    pub name: String,
    /// What every rank does, in order.
    #[schemars(length(min = 1))]
    pub moves: Vec<MoveSpec>,
    /// Ops that `it` stands for, one check each: `[all_reduce, {broadcast: {root: last}}]`.
    #[serde(default)]
    pub over: Vec<OpSpec>,
    /// Messages that `send`, `recv`, `isend` and `irecv` name.
    #[serde(default)]
    pub messages: Entries<MessageSpec>,
    /// What becomes of the world.
    #[serde(default)]
    pub afterwards: Afterwards,
    /// The verdict that must be given on it; then its world is killed.
    #[serde(default)]
    pub hang: Option<HangSpec>,
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

/// A verdict that must be given on a script: `hang: {kind: port-mismatch, culprit: [0], within: 5s}`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HangSpec {
    /// What is wrong.
    pub kind: HangKind,
    /// Who must be blamed, and nobody else; absent: nobody.
    #[serde(default)]
    pub culprit: Option<Members>,
    /// How long after the last progress the verdict may come, `5s`; absent: 10 s. `ci/bench hangs` measures it.
    #[serde(default)]
    pub within: Within,
    /// `true`: nothing hangs and nobody raises, though the ranks contradict each other; `false`: something does; absent:
    /// that is the backend's business.
    #[serde(default)]
    pub silent: Option<bool>,
}

/// A time, as in `5s` or `1500ms`.
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
            "description": "A time, as in `5s` or `1500ms`.",
            "type": "string",
            "pattern": "^[0-9]+ ?(ms|s|m|min)$"
        })
    }
}

/// What becomes of the world after a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, DeserializeDerive, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Afterwards {
    /// It goes on with the next check.
    #[default]
    GoOn,
    /// Every rank that is still there says goodbye, without destroying any group, and must exit with code 0.
    Leave,
    /// The harness kills it.
    Abandon,
}

/// An op with one value for each of its parameters: `all_reduce`, or `{broadcast: {root: last}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct OpSpec {
    /// The op.
    pub op: Op,
    /// Its parameters.
    pub params: StepParams,
}

/// One message of a script.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageSpec {
    /// The sender: one rank.
    pub from: Members,
    /// The receiver: one rank.
    pub to: Members,
    /// Tag, size, element type and the like.
    #[serde(default)]
    pub with: StepParams,
}

/// One move.
#[derive(Clone, Debug, PartialEq)]
pub struct MoveSpec {
    /// What is done.
    pub verb: Verb,
    /// By whom; absent: by every rank (every member, for an op).
    pub on: Option<Members>,
    /// How it must go.
    pub expect: Option<ExpectSpec>,
}

/// What a move does.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are few, and they are not moved about"
)]
pub enum Verb {
    /// Issues an op; none: the one `over` names.
    Issue(Option<Op>, IssueSpec),
    /// Blocking send of a message.
    Send(MessageMove),
    /// Blocking receive of a message.
    Recv(MessageMove),
    /// `isend` of a message; its work is named like the message.
    Isend(MessageMove),
    /// `irecv` of a message; its work is named like the message.
    Irecv(MessageMove),
    /// Waits for works.
    Wait(WaitSpec),
    /// Polls a work once.
    IsCompleted(CompletedSpec),
    /// Waits for a work's future.
    Future(OfSpec),
    /// Forgets a work.
    Drop(OfSpec),
    /// Tells the harness that the rank is here.
    Mark(NameSpec),
    /// Waits until every rank that marks this name has done so. In a loop, each turn has marks of its own.
    Hold(NameSpec),
    /// Sleeps.
    Sleep(MillisSpec),
    /// Is stopped (SIGSTOP) for this long.
    Pause(MillisSpec),
    /// Is stopped and never resumed.
    Freeze(NothingSpec),
    /// Dies of a signal.
    Die(DieSpec),
    /// Leaves through the interpreter's shutdown with this code.
    Exit(ExitSpec),
    /// Counts what the process holds.
    Census(NameSpec),
    /// Compares two censuses.
    Steady(SteadySpec),
    /// Asks a group who this is.
    WhoAmI(OfGroup),
    /// Changes the environment.
    Setenv(SetenvSpec),
    /// `init_process_group`.
    Init(InitMove),
    /// `destroy_process_group`.
    Destroy(OfGroup),
    /// `new_group`.
    NewGroup(NewGroupMove),
    /// Aborts a group's backend.
    Abort(OfGroup),
    /// Runs Python statements.
    Python(PythonSpec),
    /// Runs lists of moves on threads of their own.
    Together(TogetherSpec),
    /// Runs moves several times, with new data each time.
    Repeat(RepeatSpec),
}

/// Parameters of a move that issues an op.
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IssueSpec {
    /// The name of its work: it is issued with `async_op`, and `wait` waits for it. A second move of the same name
    /// issues the same op on other ranks.
    #[serde(rename = "as")]
    pub label: Option<String>,
    /// The op's parameters, one value each.
    pub with: StepParams,
    /// Whether the oracle judges the data; absent: if every member issues it and nobody is to fail.
    pub judged: Option<bool>,
}

/// Which message.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageMove {
    /// Its name in `messages`.
    pub message: String,
    /// For `recv`: name no source, and see who sent it.
    #[serde(default)]
    pub any_source: bool,
}

/// Which works, and how long.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitSpec {
    /// Names of works; a rank that has none of a name makes no call.
    pub of: OneOrMany<String>,
    /// `wait(timeout)`, milliseconds.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// Which work, and what it must say.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompletedSpec {
    /// Its name.
    pub of: String,
    /// What `is_completed()` must answer.
    pub is: bool,
}

/// Which work.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfSpec {
    /// Its name.
    pub of: String,
}

/// A name.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NameSpec {
    /// The name.
    pub name: String,
}

/// A time.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MillisSpec {
    /// Milliseconds.
    pub ms: u64,
}

/// No parameters.
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NothingSpec {}

/// A signal.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DieSpec {
    /// Its number; 9 is SIGKILL.
    #[serde(default = "sigkill")]
    pub signal: i32,
}

fn sigkill() -> i32 {
    9
}

/// An exit code.
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExitSpec {
    /// The code the rank asks for; the process must end with it.
    #[serde(default)]
    pub code: i32,
}

/// How much more a process may hold at the second census than at the first. What is absent is not compared.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SteadySpec {
    /// The first census.
    pub from: String,
    /// The second.
    pub to: String,
    /// Open file descriptors, sockets among them.
    #[serde(default)]
    pub files: Option<u64>,
    /// Threads.
    #[serde(default)]
    pub threads: Option<u64>,
    /// Mappings of shared memory.
    #[serde(default)]
    pub shared_memory: Option<u64>,
    /// Child processes.
    #[serde(default)]
    pub processes: Option<u64>,
    /// Resident memory, MiB.
    #[serde(default)]
    pub memory_mib: Option<u64>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfGroup {
    /// `world`, or its name.
    #[serde(default = "world")]
    pub group: String,
}

fn world() -> String {
    "world".to_owned()
}

/// A variable.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetenvSpec {
    /// Its name.
    pub name: String,
    /// Its value; `null` removes it.
    pub value: Option<String>,
}

/// How to initialise. What is absent is as it should be.
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InitMove {
    /// How ranks find each other; absent: `env`.
    pub method: Option<StoreMethod>,
    /// The rank it claims to be.
    pub rank: Option<u32>,
    /// The world size it claims.
    pub world_size: Option<u32>,
    /// `timeout=`, seconds; absent: the case's.
    pub timeout_s: Option<f64>,
    /// Which of the world's rendezvous points is meant: ranks that name different ones do not meet. From 0; for all
    /// methods but `env`.
    pub point: u32,
    /// For `store`: whether this rank hosts it; absent: rank 0 does.
    pub hosts: Option<bool>,
    /// Backend string; absent: the scenario's.
    pub backend: Option<String>,
}

/// A group to be made by every rank that makes the move.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroupMove {
    /// What later moves call it.
    pub name: String,
    /// Members.
    pub ranks: Members,
    /// Its backend, if not the world's.
    #[serde(default)]
    pub backend: Option<String>,
    /// `timeout=`, seconds; absent: the case's.
    #[serde(default)]
    pub timeout_s: Option<f64>,
    /// With `use_local_synchronization=True`: only members make it.
    #[serde(default)]
    pub local_sync: bool,
}

/// Python statements. They see `torch`, `dist`, `rank`, `world_size`, `device` and `group(name)`, and may leave a value in `result`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PythonSpec {
    /// The statements.
    pub run: String,
    /// `true`: they do nothing that other ranks notice, so that the rank's later moves are what they say; absent: that is
    /// so if they do not mention torch, `dist` or a group.
    #[serde(default)]
    pub unnoticed: bool,
}

/// Threads.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TogetherSpec {
    /// What each does. Only calls: no `hold`, no `together`, nothing with an `expect` of its own.
    #[schemars(length(min = 1))]
    pub threads: Vec<Vec<MoveSpec>>,
}

/// A loop.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepeatSpec {
    /// How often.
    pub times: u32,
    /// What.
    pub moves: Vec<MoveSpec>,
}

/// How a move must go.
#[derive(Clone, Debug, Default, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectSpec {
    /// It raises, and the error (type and message) matches each of these regular expressions, whatever the case of letters.
    pub raises: Option<OneOrMany<String>>,
    /// It is enough if one of the ranks raises; the others may return.
    pub somewhere: bool,
    /// For `python` that raises: the tensors that it gave to functions are as they were.
    pub untouched: bool,
    /// It may raise or return.
    pub either: bool,
    /// Its value (`who_am_i`, `python`).
    pub value: Option<Value>,
    /// It is over within so many seconds.
    pub within_s: Option<f64>,
    /// It takes at least so many seconds.
    pub not_before_s: Option<f64>,
}

/// Calls `$each!(Variant, Parameters, "name")` for every verb but ops.
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
            Exit(ExitSpec) = "exit",
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
            /// The key of the move.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    Self::Issue(Some(op), _) => op.name(),
                    Self::Issue(None, _) => IT,
                    $(Self::$variant(_) => $name),*
                }
            }
        }

        /// The verbs besides ops.
        const VERBS: &[&str] = &[$($name),*];

        fn read<'de, A: MapAccess<'de>>(key: &Key, map: &mut A) -> Result<Verb, A::Error> {
            Ok(match key {
                Key::Op(op) => Verb::Issue(*op, map.next_value()?),
                $(Key::Verb($name) => Verb::$variant(map.next_value()?),)*
                Key::Verb(_) => unreachable!("every verb is listed"),
            })
        }

        /// The schema of each verb's parameters.
        fn schemas(generator: &mut SchemaGenerator) -> Vec<(&'static str, Value)> {
            vec![$(($name, generator.subschema_for::<$params>().to_value())),*]
        }
    };
}

verbs!(name);

/// The first key of a move.
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
            "description": "One move of a script, by whom, and how it must go.",
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
