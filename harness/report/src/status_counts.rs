//! Where a check stands, for people: outcome and verdict put together, worst first, with a word and a symbol. A
//! verified refusal, a known failure and a check that did not run each stand apart from a pass: none of them is one.

use std::collections::BTreeMap;

use super::results::Results;
use super::text::{counted, grouped};
use allranks_model::record::{CheckRecord, Column};
use allranks_model::status::Status;

/// Checks by standing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusCounts {
    counts: BTreeMap<Status, u64>,
}

impl StatusCounts {
    /// The tally of some checks.
    pub fn of<'a>(checks: impl IntoIterator<Item = &'a CheckRecord>) -> Self {
        let mut tally = Self::default();
        for check in checks {
            tally.add(check.status());
        }
        tally
    }

    /// The tally of each column's checks.
    pub fn by_column(checks: &[CheckRecord]) -> BTreeMap<&Column, Self> {
        let mut tallies = BTreeMap::<_, Self>::new();
        for check in checks {
            let tally = tallies.entry(&check.column).or_default();
            tally.add(check.status());
        }
        tallies
    }

    /// Counts one more check with this status.
    pub fn add(&mut self, standing: Status) {
        *self.counts.entry(standing).or_default() += 1;
    }

    /// Returns how many checks have this status.
    #[must_use]
    pub fn count(&self, standing: Status) -> u64 {
        self.counts.get(&standing).copied().unwrap_or(0)
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
            .filter(|standing| standing.is_failing())
            .map(|standing| self.count(standing))
            .sum()
    }

    /// `2 regression, 1 known failure, 97 passed`: worst first, zeros left out.
    #[must_use]
    pub fn line(&self) -> String {
        let parts: Vec<String> = Status::ALL
            .iter()
            .copied()
            .filter(|standing| self.count(*standing) > 0)
            .map(|standing| format!("{} {}", grouped(self.count(standing)), standing.word()))
            .collect();
        if parts.is_empty() {
            "no checks".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

/// What a whole run came to: the first line of every report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// Whether the run may be called good: it ended, nothing is failing, something passed.
    pub good: bool,
    /// The headline as one sentence.
    pub sentence: String,
}

impl Headline {
    /// Returns the headline of a run.
    #[must_use]
    pub fn of(results: &Results) -> Self {
        let tally = StatusCounts::of(&results.checks);
        let failing = tally.failing();
        let total = counted(tally.total(), "check");
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
            None if tally.total() == 0 => bad("no check was run".to_owned()),
            None if tally.count(Status::NotRun) == tally.total() => {
                bad(format!("none of {total} was run"))
            }
            None => {
                let code = results.end.as_ref().map_or(0, |end| end.exit_code);
                if code == 0 {
                    Self {
                        good: true,
                        sentence: format!("nothing unexpected in {total}: {}", tally.line()),
                    }
                } else {
                    bad(exit_meaning(code).to_owned())
                }
            }
        }
    }
}

/// What an exit code of `allranks run` says.
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
    fn standings_are_listed_from_worst_to_best() {
        assert!(Status::ALL.is_sorted());
        let mut tally = StatusCounts::default();
        tally.add(Status::Passed);
        tally.add(Status::Regression);
        tally.add(Status::KnownFailure);
        assert_eq!(tally.line(), "1 regression, 1 known failure, 1 passed");
        assert_eq!((tally.failing(), tally.total()), (1, 3));
    }
}
