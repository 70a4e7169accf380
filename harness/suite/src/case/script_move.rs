//! One move of a script: a key that says what is done, and beside it `on`, the ranks that make it, and `expect`, how it must go.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::Members;
use super::expect::ExpectSpec;
use super::move_params::{
    CompletedSpec, DieSpec, ExitMove, InitMove, IssueSpec, MessageMove, MillisSpec, NameSpec,
    NewGroupMove, NothingSpec, OfGroup, OfSpec, PythonSpec, SetenvSpec, SteadySpec, WaitSpec,
};
use super::step_schema::described;
use allranks_model::op::Op;

/// The key of a move that issues the op which `over` names.
const IT: &str = "it";

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

/// Parameters of `together`: lists of moves that are made at the same time.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TogetherSpec {
    /// The moves of each thread. Only calls: no `hold`, no `together`, and no move with an `expect` of its own.
    #[schemars(length(min = 1))]
    pub threads: Vec<Vec<MoveSpec>>,
}

/// Parameters of `repeat`: `{times: 100, moves: [all_reduce: {}]}`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepeatSpec {
    /// How many times the moves are made, 1 to 2000.
    pub times: u32,
    /// The moves of one turn.
    pub moves: Vec<MoveSpec>,
}

/// Makes [`Verb`] of a table of its variants: what each does, its parameters, and its key in a move. Ops are none of them.
macro_rules! verbs {
    ($($(#[doc = $doc:literal])+ $variant:ident($params:ty) = $name:literal),* $(,)?) => {
        /// What a move does, with its parameters.
        #[derive(Clone, Debug, PartialEq)]
        #[expect(
            clippy::large_enum_variant,
            reason = "there are few, and they are not moved about"
        )]
        pub enum Verb {
            /// Issues an op. `None` is the key `it`: the op that `over` names.
            Issue(Option<Op>, IssueSpec),
            $($(#[doc = $doc])+ $variant($params)),*
        }

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

        /// Reads the parameters of a verb.
        fn read<'de, A: MapAccess<'de>>(key: &Key, map: &mut A) -> Result<Verb, A::Error> {
            Ok(match key {
                Key::Op(op) => Verb::Issue(*op, map.next_value()?),
                $(Key::Verb($name) => Verb::$variant(map.next_value()?),)*
                Key::Verb(_) => unreachable!("every verb is listed"),
            })
        }

        /// Returns the key of each verb, and the schema of its parameters with what it does.
        fn schemas(generator: &mut SchemaGenerator) -> Vec<(&'static str, Value)> {
            vec![$((
                $name,
                described(generator.subschema_for::<$params>(), concat!($($doc),+)),
            )),*]
        }
    };
}

verbs! {
    /// Sends a message, and blocks.
    Send(MessageMove) = "send",
    /// Receives a message, and blocks.
    Recv(MessageMove) = "recv",
    /// Calls `isend` for a message. The name of its work is that of the message.
    Isend(MessageMove) = "isend",
    /// Calls `irecv` for a message. The name of its work is that of the message.
    Irecv(MessageMove) = "irecv",
    /// Waits for one or several works.
    Wait(WaitSpec) = "wait",
    /// Asks a work once whether it is completed.
    IsCompleted(CompletedSpec) = "is_completed",
    /// Waits for the future of a work.
    Future(OfSpec) = "future",
    /// Drops the reference to a work without waiting for it.
    Drop(OfSpec) = "drop",
    /// Tells the harness that the rank has reached this mark.
    Mark(NameSpec) = "mark",
    /// Waits until every rank that has a `mark` of this name has reached it. In a loop, each turn has marks of its
    /// own.
    Hold(NameSpec) = "hold",
    /// Sleeps for some milliseconds.
    Sleep(MillisSpec) = "sleep",
    /// Has the process stopped (SIGSTOP), and resumed after some milliseconds.
    Pause(MillisSpec) = "pause",
    /// Has the process stopped (SIGSTOP) and never resumed.
    Freeze(NothingSpec) = "freeze",
    /// Ends the process by a signal.
    Die(DieSpec) = "die",
    /// Ends the process through the interpreter's shutdown, with an exit code.
    Exit(ExitMove) = "exit",
    /// Counts what the process holds (files, threads, memory, ...), and keeps the counts under a name.
    Census(NameSpec) = "census",
    /// Compares two censuses, and fails if the process holds too much more at the second.
    Steady(SteadySpec) = "steady",
    /// Asks a group for its rank, size and backend.
    WhoAmI(OfGroup) = "who_am_i",
    /// Sets or removes an environment variable of the process.
    Setenv(SetenvSpec) = "setenv",
    /// Calls `init_process_group`.
    Init(InitMove) = "init",
    /// Calls `destroy_process_group`.
    Destroy(OfGroup) = "destroy",
    /// Calls `new_group`.
    NewGroup(NewGroupMove) = "new_group",
    /// Aborts the backend of a group.
    Abort(OfGroup) = "abort",
    /// Runs Python statements in the rank.
    Python(PythonSpec) = "python",
    /// Makes several lists of moves at the same time, each on a thread of its own.
    Together(TogetherSpec) = "together",
    /// Makes a list of moves several times, with new data each time.
    Repeat(RepeatSpec) = "repeat",
}

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
        let mut keys = Map::new();
        for op in Op::ALL {
            let issue = generator.subschema_for::<IssueSpec>();
            keys.insert(op.name().to_owned(), described(issue, op.meaning()));
        }
        let issue = generator.subschema_for::<IssueSpec>();
        keys.insert(
            IT.to_owned(),
            described(issue, "Issues the op which `over` names."),
        );
        for (name, schema) in schemas(generator) {
            keys.insert(name.to_owned(), schema);
        }
        let on = generator.subschema_for::<Members>();
        let meaning =
            "The ranks that make the move. Absent: every rank, or every member of the op's group.";
        keys.insert("on".to_owned(), described(on, meaning));
        let expect = generator.subschema_for::<ExpectSpec>();
        let meaning = "How the move must go. Absent: it must return.";
        keys.insert("expect".to_owned(), described(expect, meaning));
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
