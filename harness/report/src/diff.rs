//! What changed between two runs: checks with another outcome or verdict, new ones, and ones that are gone.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::details::summary_line;
use super::results::Results;
use super::text::{counted, grouped, one_line};
use allranks_model::names::CheckId;
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::CheckRecord;
use allranks_model::status::Status;

/// One check as a run left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// What happened.
    pub outcome: Outcome,
    /// What it meant.
    pub verdict: Verdict,
    /// The line for people; empty for a plain pass.
    pub sentence: String,
}

impl Side {
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

    /// Where the check stands.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(self.outcome, self.verdict)
    }
}

/// A check that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The check.
    pub id: CheckId,
    /// In the old run.
    pub old: Side,
    /// In the new run.
    pub new: Side,
}

/// What changed; each list in the order of ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Failing now, and not before.
    pub broken: Vec<Change>,
    /// Failing before, and not now.
    pub mended: Vec<Change>,
    /// Other changes of outcome or verdict.
    pub changed: Vec<Change>,
    /// Only in the new run.
    pub added: Vec<(CheckId, Side)>,
    /// Only in the old run.
    pub gone: Vec<(CheckId, Side)>,
    /// Checks with the same outcome and verdict in both.
    pub same: u64,
}

impl Diff {
    /// Whether nothing got worse: nothing broke, nothing failing was added, nothing is gone.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let fails = |(_, side): &(CheckId, Side)| side.status().is_failing();
        self.broken.is_empty() && self.gone.is_empty() && !self.added.iter().any(fails)
    }

    /// Writes the lists as plain lines, worst first, then the counts.
    ///
    /// # Errors
    /// The stream could not be written to.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let changes = [
            ("broken", &self.broken),
            ("changed", &self.changed),
            ("mended", &self.mended),
        ];
        for (word, changes) in changes {
            for change in changes {
                let (old, new) = (&change.old, &change.new);
                write!(
                    out,
                    "{word:>8}  {}  {} → {}",
                    one_line(change.id.as_str()),
                    phrase(old),
                    phrase(new)
                )?;
                write_sentence(out, new)?;
            }
        }
        for (word, checks) in [("gone", &self.gone), ("added", &self.added)] {
            for (id, side) in checks {
                write!(
                    out,
                    "{word:>8}  {}  {}",
                    one_line(id.as_str()),
                    phrase(side)
                )?;
                write_sentence(out, side)?;
            }
        }
        let count = |list: usize| grouped(list as u64);
        writeln!(
            out,
            "{} broken, {} changed, {} mended, {} gone, {} added, {} as before",
            count(self.broken.len()),
            count(self.changed.len()),
            count(self.mended.len()),
            count(self.gone.len()),
            count(self.added.len()),
            counted(self.same, "check")
        )
    }
}

/// Compares two runs check by check.
#[must_use]
pub fn diff(old: &Results, new: &Results) -> Diff {
    let by_id = |results: &Results| -> BTreeMap<CheckId, Side> {
        let checks = results.checks.iter();
        checks
            .map(|check| (check.id.clone(), Side::of(check)))
            .collect()
    };
    let mut before = by_id(old);
    let mut diff = Diff::default();
    for (id, new) in by_id(new) {
        let Some(old) = before.remove(&id) else {
            diff.added.push((id, new));
            continue;
        };
        if (old.outcome, old.verdict) == (new.outcome, new.verdict) {
            diff.same += 1;
            continue;
        }
        let fails = (old.status().is_failing(), new.status().is_failing());
        let list = match fails {
            (false, true) => &mut diff.broken,
            (true, false) => &mut diff.mended,
            (true, true) | (false, false) => &mut diff.changed,
        };
        list.push(Change { id, old, new });
    }
    diff.gone = before.into_iter().collect();
    diff
}

fn phrase(side: &Side) -> String {
    format!("{} ({})", side.outcome, side.verdict)
}

fn write_sentence(out: &mut impl Write, side: &Side) -> io::Result<()> {
    if side.sentence.is_empty() {
        return writeln!(out);
    }
    writeln!(out, "\n{:>8}  {}", "", side.sentence)
}
