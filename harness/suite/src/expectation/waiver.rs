//! Files of waivers: failures that somebody has approved, each of one requirement and until a day.
//!
//! A waiver is an entry with a term. It excuses one way of failing, for the checks of one requirement; what it excuses
//! is `waived` in every report, and never a pass. From the day after its last one it excuses nothing.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use schemars::JsonSchema;

use super::failing_outcome::FailingOutcome;
use super::file::{Checker, When, Written};
use super::{Entry, EntryKind, Expectations, Match};
use crate::case::{OneOrMany, is_well_formed};
use allranks_model::names::RequirementId;
use allranks_model::outcome::Outcome;
use allranks_yaml as yaml;
use allranks_yaml::{Diagnostic, Source, way, yaml_files};

/// The areas of requirements that every user relies on. Hangs and crashes of their checks cannot be waived.
const BASIC: &[&str] = &["INIT-", "COLL-"];

/// The length of a day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What an entry has besides if it is a waiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiver {
    /// The requirement whose checks it is about.
    pub requirement: RequirementId,
    /// The last day on which it holds, in UTC: `2026-12-31`.
    pub expiry: String,
    /// The person or team that approves of it.
    pub approver: String,
    /// Whether that day was over when the file was read.
    pub is_expired: bool,
}

impl fmt::Display for Waiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_expired {
            "expired on"
        } else {
            "until"
        };
        let Self {
            requirement,
            expiry,
            approver,
            ..
        } = self;
        write!(
            f,
            "waiver of {requirement} {word} {expiry}, approved by {approver}"
        )
    }
}

/// A waiver as it is written in its file.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    rename = "Waiver",
    description = "A failure of one requirement that is excused until a day, and who approves of that."
)]
pub(super) struct WrittenWaiver {
    /// The one requirement whose checks it is about: `NUM-001`.
    requirement: RequirementId,
    /// Which checks. It names the backend, and at least a case or an op.
    #[serde(rename = "match")]
    matches: Match,
    /// For which versions of torch. Absent: for all.
    #[serde(default)]
    when: When,
    /// What happens: neither `init-failed`, nor `hang` or `crash` of an `INIT` or `COLL` requirement.
    #[schemars(with = "OneOrMany<FailingOutcome>")]
    outcome: OneOrMany<Outcome>,
    /// The class that a mismatch or an error has, or several of which it has one.
    #[serde(default)]
    class: Option<OneOrMany<String>>,
    /// A text that the summary contains, or several of which it contains one.
    #[serde(default)]
    message: Option<OneOrMany<String>>,
    /// Why, in one sentence.
    reason: String,
    /// The public issue, `https://...`.
    url: String,
    /// The last day on which it holds, in UTC: `2026-12-31`.
    expiry: String,
    /// The person or team that approves of it.
    approver: String,
    /// True if the failure does not occur every time: the check is made again in a new world, and must not fail twice.
    #[serde(default)]
    intermittent: bool,
}

impl Expectations {
    /// Adds the waivers of files and folders. They come after the entries that are there: a failure that an
    /// expectation knows needs no waiver. `now` decides which have expired.
    ///
    /// # Errors
    ///
    /// All problems of all files.
    pub fn load_waivers(
        &mut self,
        paths: &[PathBuf],
        now: SystemTime,
    ) -> Result<(), Vec<Diagnostic>> {
        let mut problems = Vec::new();
        for path in paths {
            match yaml_files(path) {
                Ok(files) => {
                    for file in files {
                        let source = Source::read(&file);
                        match source.and_then(|source| parse(source, now)) {
                            Ok(entries) => self.entries.extend(entries),
                            Err(found) => problems.extend(found),
                        }
                    }
                }
                Err(error) => {
                    let message = format!("there is no such file of waivers: {error}");
                    problems.push(Diagnostic::of_file(&path.display().to_string(), message));
                }
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems)
        }
    }

    /// Iterates over the waivers that have expired.
    pub fn expired(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_expired())
    }
}

/// Parses the text of a file of waivers.
///
/// # Errors
///
/// All problems of the file.
fn parse(source: Source, now: SystemTime) -> Result<Vec<Entry>, Vec<Diagnostic>> {
    let (list, document): (Vec<WrittenWaiver>, _) = yaml::decode(source)?;
    let mut checker = Checker {
        document: &document,
        problems: Vec::new(),
    };
    let mut entries = Vec::new();
    for (index, written) in list.into_iter().enumerate() {
        let waiver = checker.waiver(index, &written, now);
        let entry = checker.entry(
            index,
            Written {
                matches: written.matches,
                when: written.when,
                outcome: written.outcome,
                class: written.class,
                message: written.message,
                reason: written.reason,
                url: Some(written.url),
                local: false,
                waived: false,
                intermittent: written.intermittent,
                also_passes: None,
            },
        );
        entries.extend(entry.zip(waiver).map(|(entry, waiver)| Entry {
            kind: EntryKind::Waiver(waiver),
            ..entry
        }));
    }
    let mut problems = checker.problems;
    if problems.is_empty() {
        return Ok(entries);
    }
    problems.sort_by_key(|problem| (problem.line, problem.column));
    Err(problems)
}

impl Checker<'_> {
    /// Validates what only waivers have. Returns `None` if `expiry` is not a day, which has been reported.
    fn waiver(&mut self, index: usize, written: &WrittenWaiver, now: SystemTime) -> Option<Waiver> {
        let WrittenWaiver {
            requirement,
            matches,
            outcome,
            expiry,
            approver,
            ..
        } = written;
        if !is_well_formed(requirement) {
            self.report(
                way![index, "requirement"],
                "not the id of a requirement",
                "one such as `COLL-014`: `allranks list --requirements`",
            );
        }
        for (item, outcome) in outcome.as_slice().iter().enumerate() {
            if !is_forbidden(requirement, *outcome) {
                continue;
            }
            let (message, hint) = match outcome {
                Outcome::InitFailed => (
                    "a world that does not initialise cannot be waived".to_owned(),
                    "declare what the platform does not support, or expect it in a file of expectations",
                ),
                _ => (
                    format!("a {outcome} of {requirement} cannot be waived"),
                    "hangs and crashes of INIT and COLL requirements are never excused",
                ),
            };
            self.report(way![index, "outcome", item], message, hint);
        }
        if is_too_broad(matches) {
            self.report(
                way![index, "match"],
                "too broad for a waiver",
                "name the backend, and at least a case or an op",
            );
        }
        if approver.trim().is_empty() {
            self.report(
                way![index, "approver"],
                "no approver",
                "the person or team that approves of the waiver",
            );
        }
        let Some(end) = end_of_day(expiry) else {
            self.report(way![index, "expiry"], "not a day", "such as 2026-12-31");
            return None;
        };
        Some(Waiver {
            requirement: requirement.clone(),
            expiry: expiry.clone(),
            approver: approver.clone(),
            is_expired: now >= end,
        })
    }
}

/// Returns whether no waiver may excuse this outcome of a requirement's checks: worlds that do not initialise, and hangs and
/// crashes of what every user relies on.
#[must_use]
pub fn is_forbidden(requirement: &RequirementId, outcome: Outcome) -> bool {
    let mut areas = BASIC.iter();
    match outcome {
        Outcome::InitFailed => true,
        Outcome::Hang | Outcome::Crash => areas.any(|area| requirement.as_str().starts_with(area)),
        _ => false,
    }
}

/// Returns whether a waiver matches too much: it must name the backend, and at least a case or an op.
#[must_use]
pub fn is_too_broad(matches: &Match) -> bool {
    matches.backend.is_none() || (matches.case.is_none() && matches.op.is_none())
}

/// Returns when a day is over, in UTC; `None` if the text is not a day of the calendar.
#[must_use]
pub fn end_of_day(day: &str) -> Option<SystemTime> {
    let is_short = day.len() == "2026-12-31".len();
    let begin = humantime::parse_rfc3339(&format!("{day}T00:00:00Z")).ok()?;
    is_short.then_some(begin + DAY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expectation::Point;
    use crate::plan::{Check, example_check};
    use allranks_model::dtype::{DType, ReduceOp};
    use allranks_model::names::{CaseId, WorldSize};
    use allranks_model::op::Op;
    use allranks_model::outcome::Verdict;
    use allranks_model::recipe::DeviceId;

    const WAIVER: &str = "- {requirement: NUM-001, match: {backend: gloo, op: all_reduce}, outcome: mismatch, \
        reason: It rounds twice., url: \"https://example.org/1\", expiry: 2026-11-30, approver: numerics team}";

    fn on(day: &str) -> SystemTime {
        humantime::parse_rfc3339(&format!("{day}T12:00:00Z")).unwrap()
    }

    fn waivers(text: &str, day: &str) -> Expectations {
        let entries = parse(Source::new("w.yaml", text), on(day));
        Expectations {
            entries: entries.unwrap_or_else(|problems| panic!("{}", problems[0])),
        }
    }

    fn check(covers: &str) -> Check {
        Check {
            covers: [RequirementId::from(covers)].into(),
            ..example_check(Op::AllReduce, DType::Float32, Some(ReduceOp::Sum), 3)
        }
    }

    fn judged(waivers: &Expectations, check: &Check, outcome: Outcome) -> (Verdict, String) {
        let case = CaseId::from("a");
        let point = Point {
            platform: "cpu",
            backend: "gloo",
            made_of: None,
            torch: "2.11.0",
            case: &case,
            world_size: WorldSize(3),
            device_id: DeviceId::Absent,
            check: Some(check),
        };
        let judged = waivers.judge(&point, outcome, None, "wrong".to_owned());
        let reason = judged
            .expectation
            .map_or(judged.summary, |reason| reason.text);
        (judged.verdict, reason)
    }

    #[test]
    fn a_waived_failure_says_until_when_and_is_no_pass() {
        let waivers = waivers(WAIVER, "2026-11-30");
        let check = check("NUM-001");
        let (verdict, reason) = judged(&waivers, &check, Outcome::Mismatch);
        assert_eq!(verdict, Verdict::Waived);
        assert_eq!(
            reason,
            "It rounds twice. (waiver of NUM-001 until 2026-11-30, approved by numerics team)"
        );
        for (outcome, verdict) in [
            (Outcome::Pass, Verdict::UnexpectedPass),
            (Outcome::Hang, Verdict::Regression),
            (Outcome::HarnessError, Verdict::Regression),
            (Outcome::NotRun, Verdict::NotRun),
        ] {
            assert_eq!(judged(&waivers, &check, outcome).0, verdict);
        }
        assert_eq!(waivers.expired().count(), 0);
    }

    #[test]
    fn a_waiver_is_about_its_requirement_alone() {
        let waivers = waivers(WAIVER, "2026-11-30");
        let other = check("NUM-002");
        assert_eq!(
            judged(&waivers, &other, Outcome::Mismatch).0,
            Verdict::Regression
        );
    }

    #[test]
    fn a_waiver_of_another_requirement_of_a_check_does_not_excuse_what_no_waiver_may() {
        let text = WAIVER.replace("outcome: mismatch", "outcome: [mismatch, hang, crash]");
        let waivers = waivers(&text, "2026-11-30");
        let both = Check {
            covers: ["NUM-001", "COLL-001"].map(RequirementId::from).into(),
            ..check("NUM-001")
        };
        for (outcome, alone, of_both) in [
            (Outcome::Mismatch, Verdict::Waived, Verdict::Waived),
            (Outcome::Hang, Verdict::Waived, Verdict::Regression),
            (Outcome::Crash, Verdict::Waived, Verdict::Regression),
        ] {
            assert_eq!(judged(&waivers, &check("NUM-001"), outcome).0, alone);
            assert_eq!(judged(&waivers, &both, outcome).0, of_both);
        }
    }

    #[test]
    fn an_expired_waiver_excuses_nothing() {
        let waivers = waivers(WAIVER, "2026-12-01");
        assert_eq!(waivers.expired().count(), 1);
        let check = check("NUM-001");
        let (verdict, reason) = judged(&waivers, &check, Outcome::Mismatch);
        assert_eq!(verdict, Verdict::Regression);
        assert!(reason.contains("expired on 2026-11-30"), "{reason}");
        assert_eq!(judged(&waivers, &check, Outcome::Pass).0, Verdict::Expected);
    }

    #[test]
    fn days_are_days_of_the_calendar() {
        for day in ["2026-02-30", "2026-13-01", "tomorrow", "2026-1-1", ""] {
            assert_eq!(end_of_day(day), None, "{day}");
        }
        assert!(end_of_day("2028-02-29").is_some());
    }
}
