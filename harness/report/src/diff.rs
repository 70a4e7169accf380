//! Compares two runs: checks with another outcome or verdict, new ones, and ones that are gone.
//!
//! Only a check that ran and passed counts as an improvement. A failure that the new run did not run, refused as
//! declared, or excused is in a list of its own, and a run that is not whole never compares well.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::check_set::CheckSet;
use super::details::summary_line;
use super::results::Results;
use super::text::{counted, grouped, one_line};
use allranks_model::names::CheckId;
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::CheckRecord;
use allranks_model::status::Status;

/// The result of one check in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckState {
    /// The outcome of the check.
    pub outcome: Outcome,
    /// The verdict on the outcome.
    pub verdict: Verdict,
    /// The summary line; empty for a pass.
    pub sentence: String,
}

impl CheckState {
    fn of(check: &CheckRecord) -> Self {
        let sentence = match check.status() {
            Status::Passed => String::new(),
            _ => summary_line(check),
        };
        Self {
            outcome: check.outcome,
            verdict: check.verdict,
            sentence,
        }
    }

    /// Returns the status of the check.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(self.outcome, self.verdict)
    }
}

/// A check whose outcome or verdict changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The id of the check.
    pub id: CheckId,
    /// The check in the old run.
    pub old: CheckState,
    /// The check in the new run.
    pub new: CheckState,
}

/// The differences between two runs; each list is in the order of ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Checks that fail now, and did not before.
    pub broken: Vec<Change>,
    /// Checks that were run before and not now.
    pub not_run: Vec<Change>,
    /// Checks that are refused as declared now, and were not before.
    pub skipped: Vec<Change>,
    /// Checks whose failure an expectation or a waiver excuses now, and did not before.
    pub excused: Vec<Change>,
    /// Checks that fail now, and failed in another way before.
    pub changed: Vec<Change>,
    /// Checks that pass now, and failed, were known to fail or were waived before.
    pub fixed: Vec<Change>,
    /// Checks that pass now, and were not run or were refused before.
    pub ran: Vec<Change>,
    /// Checks that only the new run has.
    pub added: Vec<(CheckId, CheckState)>,
    /// Checks that only the old run has.
    pub gone: Vec<(CheckId, CheckState)>,
    /// The number of checks that were run and have the same outcome and verdict in both.
    pub same: u64,
    /// The number of checks that were run in neither.
    pub never_run: u64,
    /// The reasons why a run is not whole, one line each: `new run: it was cut off`.
    pub incomplete: Vec<String>,
}

impl Diff {
    /// Returns true if something got worse: a check broke or is gone, or a failing one was added.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        let fails = |(_, state): &(CheckId, CheckState)| state.status().is_failing();
        !self.broken.is_empty() || !self.gone.is_empty() || self.added.iter().any(fails)
    }

    /// Returns true if both runs are whole and every check of the new one was run. Otherwise something may have got
    /// worse without being noticed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let not_run = |(_, state): &(CheckId, CheckState)| state.status() == Status::NotRun;
        self.incomplete.is_empty()
            && self.not_run.is_empty()
            && self.never_run == 0
            && !self.added.iter().any(not_run)
    }

    /// Returns true if nothing got worse and both runs are complete.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self.is_worse() && self.is_complete()
    }

    /// Writes the lists as plain lines, worst first, then the counts.
    ///
    /// # Errors
    /// The stream could not be written to.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for line in &self.incomplete {
            writeln!(out, "incomplete  {}", one_line(line))?;
        }
        let changes = [
            ("broken", &self.broken),
            ("not run", &self.not_run),
            ("skipped", &self.skipped),
            ("excused", &self.excused),
            ("changed", &self.changed),
            ("fixed", &self.fixed),
            ("ran", &self.ran),
        ];
        for (word, changes) in changes {
            for change in changes {
                let (old, new) = (&change.old, &change.new);
                write!(
                    out,
                    "{word:>10}  {}  {} → {}",
                    one_line(change.id.as_str()),
                    outcome_and_verdict(old),
                    outcome_and_verdict(new)
                )?;
                write_sentence(out, new)?;
            }
        }
        for (word, checks) in [("gone", &self.gone), ("added", &self.added)] {
            for (id, state) in checks {
                write!(
                    out,
                    "{word:>10}  {}  {}",
                    one_line(id.as_str()),
                    outcome_and_verdict(state)
                )?;
                write_sentence(out, state)?;
            }
        }
        let counts = [
            (self.broken.len(), "broken"),
            (self.not_run.len(), "not run any more"),
            (self.skipped.len(), "skipped"),
            (self.excused.len(), "excused"),
            (self.changed.len(), "changed"),
            (self.fixed.len(), "fixed"),
            (self.ran.len(), "ran again"),
            (self.gone.len(), "gone"),
            (self.added.len(), "added"),
        ];
        for (count, word) in counts {
            write!(out, "{} {word}, ", grouped(count as u64))?;
        }
        write!(out, "{} as before", counted(self.same, "check"))?;
        if self.never_run > 0 {
            write!(out, ", {} run in neither", grouped(self.never_run))?;
        }
        writeln!(out)
    }
}

/// Compares two runs check by check. Where a run holds several results of one check (it was merged from runs with several
/// versions of torch, drivers or launchers), results with the same torch, driver and launcher are compared.
#[must_use]
pub fn diff<C: CheckSet>(old: &Results<C>, new: &Results<C>) -> Diff {
    let ambiguous: BTreeSet<CheckId> = repeated(old).into_iter().chain(repeated(new)).collect();
    let keyed = |results: &Results<C>| -> BTreeMap<(CheckId, String), CheckState> {
        let checks = results.checks.records();
        checks
            .map(|check| {
                let column = &check.column;
                let ran = match ambiguous.contains(&check.id) {
                    true => format!("{} {} {}", column.driver, column.launcher, column.torch),
                    false => String::new(),
                };
                ((check.id.clone(), ran), CheckState::of(&check))
            })
            .collect()
    };
    let mut before = keyed(old);
    let mut diff = Diff {
        incomplete: incompleteness_of("old run", old)
            .into_iter()
            .chain(incompleteness_of("new run", new))
            .collect(),
        ..Diff::default()
    };
    for ((id, ran), new) in keyed(new) {
        let Some(old) = before.remove(&(id.clone(), ran)) else {
            diff.added.push((id, new));
            continue;
        };
        if (old.outcome, old.verdict) == (new.outcome, new.verdict) {
            match new.status() {
                Status::NotRun => diff.never_run += 1,
                _ => diff.same += 1,
            }
            continue;
        }
        let list = diff.list_for(old.status(), new.status());
        list.push(Change { id, old, new });
    }
    diff.gone = before
        .into_iter()
        .map(|((id, _), state)| (id, state))
        .collect();
    diff
}

impl Diff {
    /// Returns the list that a change of status belongs to.
    fn list_for(&mut self, old: Status, new: Status) -> &mut Vec<Change> {
        match new {
            Status::Regression | Status::HarnessError | Status::UnexpectedPass
                if old.is_failing() =>
            {
                &mut self.changed
            }
            Status::Regression | Status::HarnessError | Status::UnexpectedPass => &mut self.broken,
            Status::NotRun if old == Status::NotRun => &mut self.changed,
            Status::NotRun => &mut self.not_run,
            Status::Refused if old == Status::Refused => &mut self.changed,
            Status::Refused => &mut self.skipped,
            Status::Waived | Status::KnownFailure => match old {
                Status::Waived | Status::KnownFailure => &mut self.changed,
                Status::Regression
                | Status::HarnessError
                | Status::UnexpectedPass
                | Status::NotRun
                | Status::Refused
                | Status::Passed => &mut self.excused,
            },
            Status::Passed => match old {
                Status::Passed => &mut self.changed,
                Status::NotRun | Status::Refused => &mut self.ran,
                Status::Regression
                | Status::HarnessError
                | Status::UnexpectedPass
                | Status::Waived
                | Status::KnownFailure => &mut self.fixed,
            },
        }
    }
}

/// Returns the checks of which a run holds several results.
fn repeated<C: CheckSet>(results: &Results<C>) -> Vec<CheckId> {
    let ids = results.checks.records().map(|check| check.id.clone());
    let mut ids: Vec<CheckId> = ids.collect();
    ids.sort_unstable();
    let pairs = ids.windows(2).filter(|pair| pair[0] == pair[1]);
    pairs.map(|pair| pair[0].clone()).collect()
}

/// Returns the reasons why a run is not whole; empty if it is.
fn incompleteness_of<C: CheckSet>(which: &str, results: &Results<C>) -> Vec<String> {
    let mut reasons = results.remarks.clone();
    if results.end.is_none() && reasons.is_empty() {
        reasons.push("it was cut off: its results have no end record".to_owned());
    }
    if results.missing() > 0 {
        let missing = counted(results.missing(), "planned check");
        reasons.push(format!("{missing} left no record"));
    }
    if let Some(end) = &results.end
        && !matches!(end.exit_code, 0 | 1)
        && !results
            .checks
            .briefs()
            .any(|check| check.status() == Status::NotRun)
    {
        let why = match end.issues.is_empty() {
            true => String::new(),
            false => format!(": {}", end.issues.join("; ")),
        };
        reasons.push(format!("it ended with exit code {}{why}", end.exit_code));
    }
    reasons
        .into_iter()
        .map(|reason| format!("{which}: {reason}"))
        .collect()
}

fn outcome_and_verdict(state: &CheckState) -> String {
    format!("{} ({})", state.outcome, state.verdict)
}

fn write_sentence(out: &mut impl Write, state: &CheckState) -> io::Result<()> {
    if state.sentence.is_empty() {
        return writeln!(out);
    }
    writeln!(out, "\n{:>10}  {}", "", state.sentence)
}
