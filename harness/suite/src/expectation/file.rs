//! Reads and validates files of expectations, lists of entries.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::{self, Deserialize, Deserializer, Visitor};

use super::failing_outcome::FailingOutcome;
use crate::case::{OneOrMany, is_name};
use crate::expectation::{Entry, EntryKind, Expectations, Match, Size};
use allranks_model::outcome::Outcome;
use allranks_yaml as yaml;
use allranks_yaml::{Diagnostic, Document, Focus, Segment, Source, way, yaml_files};

/// An entry as it is written; [`Checker::entry`] turns it into an [`Entry`].
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    rename = "Entry",
    description = "A failure that is known: of which checks, how exactly they fail, and why."
)]
pub(super) struct Written {
    /// Which checks. It names at least a case or an op, or another field besides platform and backend.
    #[serde(rename = "match")]
    pub(super) matches: Match,
    /// For which versions of torch. Absent: for all.
    #[serde(default)]
    pub(super) when: When,
    /// What happens.
    #[schemars(with = "OneOrMany<FailingOutcome>")]
    pub(super) outcome: OneOrMany<Outcome>,
    /// The class that a mismatch or an error has, or several of which it has one.
    #[serde(default)]
    pub(super) class: Option<OneOrMany<String>>,
    /// A text that the summary contains, or several of which it contains one.
    #[serde(default)]
    pub(super) message: Option<OneOrMany<String>>,
    /// Why, in one sentence.
    pub(super) reason: String,
    /// The public issue, `https://...`. Required unless `local` is true.
    #[serde(default)]
    pub(super) url: Option<String>,
    /// True if there is no public issue yet; the reason says why.
    #[serde(default)]
    pub(super) local: bool,
    /// True if the failure is accepted without end: the verdict is `waived` instead of `known-failure`.
    #[serde(default)]
    pub(super) waived: bool,
    /// True if the failure does not occur every time: the check is made again in a new world, and must not fail twice.
    #[serde(default)]
    pub(super) intermittent: bool,
    /// Which of the matched checks pass, in one sentence, where `match` cannot say it.
    #[serde(default)]
    pub(super) also_passes: Option<String>,
}

/// The conditions of an entry besides `match:`: the torch versions for which it holds.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct When {
    /// A requirement such as `">=2.9"` or `">=2.4, <2.9"`.
    torch: Option<String>,
}

impl Expectations {
    /// Loads files of expectations, and those in folders, in the order given; the files of a folder by name.
    ///
    /// # Errors
    ///
    /// All problems of all files.
    pub fn load(paths: &[PathBuf]) -> Result<Self, Vec<Diagnostic>> {
        let mut all = Self::default();
        let mut problems = Vec::new();
        for path in paths {
            let files = match yaml_files(path) {
                Ok(files) => files,
                Err(error) => {
                    let message = format!("there is no such file of expectations: {error}");
                    problems.push(Diagnostic::of_file(&path.display().to_string(), message));
                    continue;
                }
            };
            for file in files {
                let source = Source::read(&file);
                match source.and_then(Self::parse) {
                    Ok(found) => all.entries.extend(found.entries),
                    Err(found) => problems.extend(found),
                }
            }
        }
        if problems.is_empty() {
            Ok(all)
        } else {
            Err(problems)
        }
    }

    /// Parses the text of a file of expectations.
    ///
    /// # Errors
    ///
    /// All problems of the file.
    pub fn parse(source: Source) -> Result<Self, Vec<Diagnostic>> {
        let (list, document): (Vec<Written>, _) = yaml::decode(source)?;
        let mut checker = Checker {
            document: &document,
            problems: Vec::new(),
        };
        let mut entries = Vec::new();
        for (index, written) in list.into_iter().enumerate() {
            entries.extend(checker.entry(index, written));
        }
        let mut problems = checker.problems;
        if problems.is_empty() {
            return Ok(Self { entries });
        }
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Err(problems)
    }
}

/// Collects the problems of one file of expectations or of waivers.
pub(super) struct Checker<'a> {
    pub(super) document: &'a Document,
    pub(super) problems: Vec<Diagnostic>,
}

impl Checker<'_> {
    /// Adds a problem about the value at a path.
    pub(super) fn report(&mut self, path: &[Segment], message: impl Into<String>, hint: &str) {
        let problem = self.document.problem(path, Focus::Value, message);
        self.problems.push(problem.hint(hint));
    }

    /// Validates the entry at this place in the file, from 0. Returns `None` if something is wrong with it, which has
    /// been reported.
    pub(super) fn entry(&mut self, index: usize, written: Written) -> Option<Entry> {
        let before = self.problems.len();
        self.outcomes(index, &written);
        self.texts(index, &written);
        self.also_passes(index, &written);
        self.narrow(index, &written.matches);
        self.sizes(index, &written.matches);
        self.reason(index, &written);
        let torch = self.torch(index, &written);
        if self.problems.len() > before {
            return None;
        }
        Some(Entry {
            at: format!(
                "{}:{}",
                self.document.source().path,
                self.document.line(way![index])
            ),
            outcomes: written.outcome.as_slice().to_vec(),
            torch,
            matches: written.matches,
            classes: listed(written.class.as_ref()),
            messages: listed(written.message.as_ref()),
            reason: written.reason,
            url: written.url,
            kind: match written.waived {
                true => EntryKind::Accepted,
                false => EntryKind::KnownFailure,
            },
            intermittent: written.intermittent,
            also_passes: written.also_passes,
        })
    }

    /// Checks the outcomes of an entry.
    fn outcomes(&mut self, index: usize, written: &Written) {
        let outcomes = written.outcome.as_slice();
        for (item, outcome) in outcomes.iter().enumerate() {
            let path = way![index, "outcome", item];
            match outcome {
                Outcome::Mismatch
                | Outcome::Error
                | Outcome::Hang
                | Outcome::Crash
                | Outcome::InitFailed
                | Outcome::Unsupported => {}
                Outcome::Pass => self.report(
                    path,
                    "a pass needs no entry",
                    "leave the entry out, or say `intermittent: true` beside the failure",
                ),
                Outcome::HarnessError | Outcome::NotRun => {
                    let message = format!("`{outcome}` says nothing about a backend");
                    self.report(
                        path,
                        message,
                        "one of mismatch, error, hang, crash, init-failed, unsupported",
                    );
                }
            }
            if outcomes[..item].contains(outcome) {
                self.report(path, "an outcome is given twice", "leave one out");
            }
        }
        if outcomes.contains(&Outcome::InitFailed) {
            self.about_init(index, written);
        }
        let with_class = [Outcome::Mismatch, Outcome::Error];
        if written.class.is_some() && !outcomes.iter().any(|outcome| with_class.contains(outcome)) {
            self.report(
                way![index, "class"],
                "only a mismatch or an error has a class",
                "pin the text with `message:`",
            );
        }
    }

    /// Checks the classes and messages of an entry.
    fn texts(&mut self, index: usize, written: &Written) {
        if listed(written.class.as_ref())
            .iter()
            .any(|class| !is_name(class))
        {
            self.report(
                way![index, "class"],
                "not a class of mismatch",
                "as in the report: `avg-divided-twice`",
            );
        }
        let messages = listed(written.message.as_ref());
        if messages.iter().any(|message| message.trim().is_empty()) {
            self.report(
                way![index, "message"],
                "an empty message pins nothing",
                "a part of the summary, or leave it out",
            );
        }
    }

    /// Checks what an entry says of the checks that pass.
    fn also_passes(&mut self, index: usize, written: &Written) {
        let Some(why) = &written.also_passes else {
            return;
        };
        let message = match (why.trim().is_empty(), written.intermittent) {
            (true, _) => "no word on which checks pass",
            (false, true) => "`also_passes` beside `intermittent`",
            (false, false) => return,
        };
        self.report(
            way![index, "also_passes"],
            message,
            "`also_passes` says which of the checks pass; `intermittent` that none always fails",
        );
    }

    /// Checks the reason of an entry and its public issue.
    fn reason(&mut self, index: usize, written: &Written) {
        if written.reason.trim().is_empty() {
            self.report(
                way![index, "reason"],
                "no reason",
                "one sentence: what is wrong, and where",
            );
        }
        match (&written.url, written.local) {
            (Some(url), false) if !is_url(url) => {
                self.report(
                    way![index, "url"],
                    "not a public link",
                    "it begins with `https://`",
                );
            }
            (Some(_), false) | (None, true) => {}
            (Some(_), true) => {
                self.report(
                    way![index, "local"],
                    "`local` although there is a link",
                    "leave `local` out",
                );
            }
            (None, false) => {
                let hint = "give the issue's `url:`, or `local: true` and in `reason:` why there is none yet";
                self.report(way![index], "an expectation without a public issue", hint);
            }
        }
    }

    /// Returns the versions of torch that an entry is for; none if it names none, or they cannot be read.
    fn torch(&mut self, index: usize, written: &Written) -> Option<semver::VersionReq> {
        match semver::VersionReq::parse(written.when.torch.as_deref()?) {
            Ok(wanted) => Some(wanted),
            Err(_) => {
                self.report(
                    way![index, "when", "torch"],
                    "not a version requirement",
                    "such as \">=2.9\" or \">=2.4, <2.9\"",
                );
                None
            }
        }
    }

    /// Reports an entry that matches every check of a platform or backend: it would hide everything.
    fn narrow(&mut self, index: usize, matches: &Match) {
        let rest = Match {
            platform: None,
            backend: None,
            ..matches.clone()
        };
        if rest == Match::default() {
            let hint = "name at least a case or an op";
            self.report(
                way![index, "match"],
                "an entry that matches every check",
                hint,
            );
        }
    }

    /// Reports an entry with `init-failed` that matches more than whole worlds, or has other outcomes as well.
    fn about_init(&mut self, index: usize, written: &Written) {
        let matches = &written.matches;
        let of_the_world = Match {
            platform: matches.platform.clone(),
            backend: matches.backend.clone(),
            case: matches.case.clone(),
            world_size: matches.world_size.clone(),
            device_id: matches.device_id.clone(),
            ..Match::default()
        };
        if *matches != of_the_world {
            self.report(
                way![index, "match"],
                "`init-failed` is said of a whole world",
                "of platform, backend, case, world_size and device_id alone",
            );
        }
        if written.outcome.as_slice().len() > 1 {
            self.report(
                way![index, "outcome"],
                "`init-failed` stands alone",
                "what becomes of checks when the world does initialise: an entry of its own",
            );
        }
    }

    /// Reports `scalar` where a size is a number of ranks.
    fn sizes(&mut self, index: usize, matches: &Match) {
        for (field, sizes) in [
            ("world_size", &matches.world_size),
            ("group_size", &matches.group_size),
        ] {
            for (item, size) in sizes.iter().flat_map(OneOrMany::as_slice).enumerate() {
                if *size == Size::Scalar {
                    self.report(
                        way![index, "match", field, item],
                        "a number of ranks is not `scalar`",
                        "4, \"2..8\" or \"2..\"",
                    );
                }
            }
        }
    }
}

/// Returns whether a text is a link that begins with `https://`.
fn is_url(url: &str) -> bool {
    url.strip_prefix("https://")
        .is_some_and(|rest| rest.contains('.') && !rest.contains(char::is_whitespace))
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;

        impl Visitor<'_> for Word {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size: 33, \"2..8\", \"2..\" or scalar")
            }

            fn visit_u64<E: de::Error>(self, size: u64) -> Result<Size, E> {
                Ok(Size::Between(size, size))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                parse_size(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(Word)
    }
}

/// Parses a range or `scalar`; `None` if the text is neither, or the range is empty.
fn parse_size(text: &str) -> Option<Size> {
    if text == "scalar" {
        return Some(Size::Scalar);
    }
    let (from, to) = text.split_once("..")?;
    let from = from.parse().ok()?;
    let to = if to.is_empty() {
        u64::MAX
    } else {
        to.parse().ok()?
    };
    (from <= to).then_some(Size::Between(from, to))
}

/// Returns the texts of a list that may be left out.
fn listed(list: Option<&OneOrMany<String>>) -> Vec<String> {
    list.map_or_else(Vec::new, |list| list.as_slice().to_vec())
}
