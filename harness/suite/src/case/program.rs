//! Programs: a user's own program as a case. The harness starts it under a launcher, lets it run, and judges what
//! every rank leaves behind: its exit code and the lines that it printed.
//!
//! In YAML a case has `program:` in place of `steps:`. The program initialises itself, from the variables that every
//! launcher sets (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, ...); all that it must do for allranks is to print what it has
//! done.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use regex::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize as DeserializeDerive;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::script::{HangSpec, Within};
use super::{Members, OneOrMany};
use allranks_model::launcher::Launcher;
use allranks_model::names::{Rank, WorldSize};

/// The key of a case that runs a program.
pub const PROGRAM: &str = "program";
/// The first word of `run` that stands for the Python of the run.
pub const PYTHON: &str = "python";
/// The names in braces that are filled in, in the words of `run`.
pub const ARGUMENTS: &[&str] = &["{backend}", "{device}", "{world_size}"];
/// Names of the signals that `exit:` may name, with their numbers, which are the same on all systems that torch
/// supports.
const SIGNALS: &[(&str, i32)] = &[
    ("SIGHUP", 1),
    ("SIGINT", 2),
    ("SIGQUIT", 3),
    ("SIGILL", 4),
    ("SIGABRT", 6),
    ("SIGFPE", 8),
    ("SIGKILL", 9),
    ("SIGSEGV", 11),
    ("SIGTERM", 15),
];

/// A user's own program, and what every rank must show: `{run: [python, ./train.py], lines: ["done"]}`.
#[derive(Clone, Debug, PartialEq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramSpec {
    /// The command of one rank, word by word, without a shell: `[python, ./train.py, --backend, "{backend}"]`.
    /// `python` as the first word is the Python of the run; a word that begins with `./` or `../` is a file, relative
    /// to the folder of the case; `{backend}`, `{device}` and `{world_size}` stand for the scenario's.
    #[schemars(length(min = 1))]
    pub run: Vec<String>,
    /// What starts the ranks; each launcher is a scenario.
    #[serde(default = "local")]
    pub launcher: OneOrMany<Launcher>,
    /// Lines that every rank must print, in this order.
    #[serde(default)]
    pub lines: Vec<LineSpec>,
    /// Lines that no rank may print.
    #[serde(default)]
    pub never: Vec<LineSpec>,
    /// How the ranks must end. Absent: all with exit code 0; beside `hang:`, in any way.
    #[serde(default)]
    pub exit: Option<ExitSpec>,
    /// How often torchrun starts all ranks anew because one of them failed (`--max-restarts`); each rank must be started
    /// once more than that. `lines` and `never` are about the output of all starts, `exit` about the last. Absent: 0.
    #[serde(default)]
    pub restarts: u32,
    /// How the ranks must end in each start before the last. Absent: in any way.
    #[serde(default)]
    pub exit_before: Option<ExitSpec>,
    /// How long the program may take in all; then it is killed. Absent: 60 s.
    #[serde(default = "a_minute")]
    pub within: Within,
    /// The hang verdict that must be given on the program; then it is killed. Absent: none is asked for.
    #[serde(default)]
    pub hang: Option<HangSpec>,
    /// Line in the file, from 1.
    #[serde(skip)]
    #[schemars(skip)]
    pub line: usize,
}

fn local() -> OneOrMany<Launcher> {
    OneOrMany::One(Launcher::Local)
}

fn a_minute() -> Within {
    Within(Duration::from_secs(60))
}

impl ProgramSpec {
    /// Returns how a rank must end; `None` if any end will do, which is so beside `hang:` without an `exit:`.
    #[must_use]
    pub fn exit_of(&self, rank: Rank, size: WorldSize) -> Option<ExitCode> {
        match &self.exit {
            None => self.hang.is_none().then_some(ExitCode::Code(0)),
            Some(spec) => {
                let own = spec.of(rank, size);
                Some(own.unwrap_or(ExitCode::Code(0)))
            }
        }
    }

    /// Returns how a rank must end in each start before the last.
    #[must_use]
    pub fn exit_before(&self, rank: Rank, size: WorldSize) -> ExitCode {
        let own = self.exit_before.as_ref();
        own.and_then(|spec| spec.of(rank, size))
            .unwrap_or(ExitCode::Any)
    }

    /// Returns whether the end of some rank is checked.
    #[must_use]
    pub fn judges_exits(&self, size: WorldSize) -> bool {
        let asked = |rank| self.exit_of(rank, size).unwrap_or(ExitCode::Any);
        size.ranks().any(|rank| asked(rank) != ExitCode::Any)
    }

    /// Returns whether the launcher's own exit code must be 0 (`true`) or must not be (`false`); `None` if either is
    /// right.
    #[must_use]
    pub fn launcher_succeeds(&self, size: WorldSize) -> Option<bool> {
        let asked = |rank| self.exit_of(rank, size).unwrap_or(ExitCode::Any);
        if size.ranks().any(|rank| asked(rank).is_failure()) {
            return Some(false);
        }
        let all = size.ranks().all(|rank| asked(rank) == ExitCode::Code(0));
        all.then_some(true)
    }
}

/// A line: a regular expression that is searched for in it, on every rank or on some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSpec {
    /// The ranks it is about. `None`: every rank.
    pub on: Option<Members>,
    /// The expression; `{rank}` and `{world_size}` in it stand for those of the rank.
    pub line: String,
}

impl LineSpec {
    /// Returns whether the line is about this rank.
    #[must_use]
    pub fn is_for(&self, rank: Rank, size: WorldSize) -> bool {
        let members = self.on.as_ref().map(|on| on.in_world(size));
        members.is_none_or(|members| members.contains(&rank))
    }

    /// Returns the expression for one rank, compiled.
    ///
    /// # Errors
    ///
    /// The text is not a regular expression; validation has refused such a case.
    pub fn pattern(&self, rank: Rank, size: WorldSize) -> Result<Regex, regex::Error> {
        let own = self.line.replace("{rank}", &rank.to_string());
        Regex::new(&own.replace("{world_size}", &size.to_string()))
    }
}

/// How the ranks must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitSpec {
    /// All of them end in this way.
    Every(ExitCode),
    /// Each rank ends as the first entry says that is `on` it, the others with exit code 0.
    Each(Vec<ExitOf>),
}

impl ExitSpec {
    /// Returns how it says a rank must end; `None` if no entry is about the rank.
    fn of(&self, rank: Rank, size: WorldSize) -> Option<ExitCode> {
        match self {
            Self::Every(code) => Some(*code),
            Self::Each(entries) => {
                let own = entries
                    .iter()
                    .find(|entry| entry.on.in_world(size).contains(&rank));
                own.map(|entry| entry.is)
            }
        }
    }
}

/// How some ranks must end: `{on: last, is: 42}`.
#[derive(Clone, Debug, PartialEq, Eq, DeserializeDerive, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExitOf {
    /// The ranks it is about.
    pub on: Members,
    /// How these ranks must end.
    pub is: ExitCode,
}

/// How a rank must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCode {
    /// By exiting with this code.
    Code(u8),
    /// By the signal with this number.
    Signal(i32),
    /// By exiting with any code but 0, or by a signal.
    Failed,
    /// In any way, as long as it was recorded.
    Any,
}

impl ExitCode {
    /// Returns whether every end that this allows is a failure.
    #[must_use]
    pub fn is_failure(self) -> bool {
        match self {
            Self::Code(code) => code != 0,
            Self::Signal(_) | Self::Failed => true,
            Self::Any => false,
        }
    }
}

impl fmt::Display for ExitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(number) => {
                let name = SIGNALS.iter().find(|(_, known)| known == number);
                write!(f, "signal {number}")?;
                name.map_or(Ok(()), |(name, _)| write!(f, " ({name})"))
            }
            Self::Failed => f.write_str("any failure"),
            Self::Any => f.write_str("any end"),
        }
    }
}

impl<'de> Deserialize<'de> for LineSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(DeserializeDerive)]
        #[serde(deny_unknown_fields)]
        struct LineOnRanks {
            on: Members,
            line: String,
        }

        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = LineSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a line: a regular expression, or `{on: last, line: \"...\"}`")
            }

            fn visit_str<E: de::Error>(self, line: &str) -> Result<LineSpec, E> {
                Ok(LineSpec {
                    on: None,
                    line: line.to_owned(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LineSpec, A::Error> {
                let LineOnRanks { on, line } =
                    LineOnRanks::deserialize(MapAccessDeserializer::new(map))?;
                Ok(LineSpec { on: Some(on), line })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for LineSpec {
    fn schema_name() -> Cow<'static, str> {
        "LineSpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let members = generator.subschema_for::<Members>();
        json_schema!({
            "description": "A line, as a regular expression that is searched for in it: `\"rank {rank}: done\"` for every rank, `{on: last, line: \"all done\"}` for some. `{rank}` and `{world_size}` are filled in.",
            "anyOf": [
                {"type": "string", "minLength": 1, "description": "A line of every rank."},
                {
                    "description": "A line of some ranks.",
                    "type": "object",
                    "properties": {"on": members, "line": {"type": "string", "minLength": 1}},
                    "required": ["on", "line"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

impl<'de> Deserialize<'de> for ExitCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;

        impl Visitor<'_> for Word {
            type Value = ExitCode;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "an exit code from 0 to 255, a signal such as SIGKILL, `failed` or `any`",
                )
            }

            fn visit_u64<E: de::Error>(self, code: u64) -> Result<ExitCode, E> {
                let code = u8::try_from(code)
                    .map_err(|_| E::custom(format!("{code} is no exit code; they are 0 to 255")))?;
                Ok(ExitCode::Code(code))
            }

            fn visit_i64<E: de::Error>(self, code: i64) -> Result<ExitCode, E> {
                match u64::try_from(code) {
                    Ok(code) => self.visit_u64(code),
                    Err(_) => Err(E::custom(format!(
                        "{code} is no exit code; they are 0 to 255, and a signal goes by its name"
                    ))),
                }
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<ExitCode, E> {
                let signal = SIGNALS.iter().find(|(name, _)| *name == word);
                match (word, signal) {
                    (_, Some((_, number))) => Ok(ExitCode::Signal(*number)),
                    ("failed", None) => Ok(ExitCode::Failed),
                    ("any", None) => Ok(ExitCode::Any),
                    _ => Err(E::custom(format!(
                        "`{word}` is no way to end; there are codes, signals such as SIGKILL, `failed` and `any`"
                    ))),
                }
            }
        }

        deserializer.deserialize_any(Word)
    }
}

impl JsonSchema for ExitCode {
    fn schema_name() -> Cow<'static, str> {
        "ExitCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let signals: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
        let words: Vec<&str> = signals.into_iter().chain(["failed", "any"]).collect();
        json_schema!({
            "description": "How a rank must end: with an exit code, by a signal, with any code but 0 or by any signal (`failed`), or in any way (`any`).",
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 255, "description": "This exit code."},
                {"enum": words, "description": "By this signal, or as the word says."}
            ]
        })
    }
}

impl<'de> Deserialize<'de> for ExitSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = ExitSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an exit code for all ranks, or a list such as `[{on: last, is: 42}]`")
            }

            fn visit_u64<E: de::Error>(self, code: u64) -> Result<ExitSpec, E> {
                ExitCode::deserialize(de::value::U64Deserializer::new(code)).map(ExitSpec::Every)
            }

            fn visit_i64<E: de::Error>(self, code: i64) -> Result<ExitSpec, E> {
                ExitCode::deserialize(de::value::I64Deserializer::new(code)).map(ExitSpec::Every)
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<ExitSpec, E> {
                ExitCode::deserialize(de::value::StrDeserializer::new(word)).map(ExitSpec::Every)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ExitSpec, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = list.next_element()? {
                    entries.push(entry);
                }
                Ok(ExitSpec::Each(entries))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for ExitSpec {
    fn schema_name() -> Cow<'static, str> {
        "ExitSpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let code = generator.subschema_for::<ExitCode>();
        let entry = generator.subschema_for::<ExitOf>();
        json_schema!({
            "description": "How every rank must end, `failed`, or a list for some of them, `[{on: last, is: 42}]`; the others must exit with code 0.",
            "anyOf": [
                code,
                {
                    "type": "array",
                    "items": entry,
                    "minItems": 1,
                    "description": "How some ranks must end; the others, with exit code 0."
                }
            ]
        })
    }
}
