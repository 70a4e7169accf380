//! Counts checks by status. A verified refusal, a known failure and a check that did not run have statuses of their own; none of
//! them is a pass.

use std::collections::BTreeMap;

use super::check_set::CheckSet;
use super::results::Results;
use super::text::{counted, grouped};
use allranks_model::record::Column;
use allranks_model::status::Status;

/// The number of checks by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusCounts {
    counts: BTreeMap<Status, u64>,
}

impl StatusCounts {
    /// Counts these checks by status.
    pub fn of(checks: &impl CheckSet) -> Self {
        let mut counts = Self::default();
        for check in checks.briefs() {
            counts.add(check.status());
        }
        counts
    }

    /// Counts the checks of each column by status.
    pub fn by_column(checks: &impl CheckSet) -> BTreeMap<&Column, Self> {
        let mut by_column = BTreeMap::<_, Self>::new();
        for check in checks.briefs() {
            let counts = by_column.entry(check.column).or_default();
            counts.add(check.status());
        }
        by_column
    }

    /// Counts one more check with this status.
    pub fn add(&mut self, status: Status) {
        *self.counts.entry(status).or_default() += 1;
    }

    /// Returns how many checks have this status.
    #[must_use]
    pub fn count(&self, status: Status) -> u64 {
        self.counts.get(&status).copied().unwrap_or(0)
    }

    /// Returns how many checks are counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns how many checks have a failing status.
    #[must_use]
    pub fn failing(&self) -> u64 {
        Status::ALL
            .iter()
            .copied()
            .filter(|status| status.is_failing())
            .map(|status| self.count(status))
            .sum()
    }

    /// Returns the counts as a line, worst first and without zeros: `2 regression, 1 known failure, 97 passed`.
    #[must_use]
    pub fn line(&self) -> String {
        let parts: Vec<String> = Status::ALL
            .iter()
            .copied()
            .filter(|status| self.count(*status) > 0)
            .map(|status| format!("{} {}", grouped(self.count(status)), status.word()))
            .collect();
        if parts.is_empty() {
            "no checks".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

/// The result of a run, which is the first line of every report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// True if the run ended, no check fails, and some check passed.
    pub good: bool,
    /// The headline as one sentence.
    pub sentence: String,
}

impl Headline {
    /// Returns the headline of a run.
    #[must_use]
    pub fn of<C: CheckSet>(results: &Results<C>) -> Self {
        let counts = StatusCounts::of(&results.checks);
        let failing = counts.failing();
        let total = counted(counts.total(), "check");
        let cut_off = match results.missing() {
            _ if results.is_whole() => None,
            _ if results.end.is_some() => Some("some of its records cannot be read".to_owned()),
            0 => Some("the run was cut off".to_owned()),
            missing => Some(format!(
                "the run was cut off: {} never recorded",
                counted(missing, "check")
            )),
        };
        let bad = |sentence: String| Self {
            good: false,
            sentence,
        };
        match cut_off {
            Some(cut_off) if failing > 0 => bad(format!(
                "{} of {total} unexpected, and {cut_off}",
                grouped(failing)
            )),
            Some(cut_off) => bad(cut_off),
            None if failing > 0 => bad(format!("{} of {total} unexpected", grouped(failing))),
            None if counts.total() == 0 => bad("no check was run".to_owned()),
            None if counts.count(Status::NotRun) == counts.total() => {
                bad(format!("none of {total} was run"))
            }
            None => {
                let code = results.end.as_ref().map_or(0, |end| end.exit_code);
                if code == 0 {
                    Self {
                        good: true,
                        sentence: format!("nothing unexpected in {total}: {}", counts.line()),
                    }
                } else {
                    bad(exit_meaning(code).to_owned())
                }
            }
        }
    }
}

/// Returns the meaning of an exit code of `allranks run`.
#[must_use]
pub fn exit_meaning(code: u8) -> &'static str {
    match code {
        0 => "everything as expected",
        1 => "unexpected results",
        2 => "usage error or bad case file",
        3 => "nothing selected",
        4 => "incomplete: a required cell was not run",
        10 => "harness or machine error",
        _ => "not an exit code of allranks",
    }
}

#[cfg(test)]
mod tests {
    use allranks_model::outcome::{Outcome, Verdict};

    use super::*;

    #[test]
    fn nothing_but_an_expected_result_with_proof_passes() {
        for verdict in [
            Verdict::Regression,
            Verdict::KnownFailure,
            Verdict::UnexpectedPass,
            Verdict::Waived,
            Verdict::NotRun,
        ] {
            assert_ne!(Status::of(Outcome::Pass, verdict), Status::Passed);
        }
        for outcome in [Outcome::Unsupported, Outcome::NotRun, Outcome::HarnessError] {
            assert_ne!(Status::of(outcome, Verdict::Expected), Status::Passed);
        }
        assert_eq!(Status::of(Outcome::Pass, Verdict::Expected), Status::Passed);
    }

    #[test]
    fn statuses_are_listed_from_worst_to_best() {
        assert!(Status::ALL.is_sorted());
        let mut counts = StatusCounts::default();
        counts.add(Status::Passed);
        counts.add(Status::Regression);
        counts.add(Status::KnownFailure);
        assert_eq!(counts.line(), "1 regression, 1 known failure, 1 passed");
        assert_eq!((counts.failing(), counts.total()), (1, 3));
    }
}
