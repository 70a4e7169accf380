//! The checks of a scenario that have no record yet: a result is kept until nothing can change it, and then written.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rank_run::RankRun;
use super::record_writer::RecordWriter;
use super::scenario_run::ScenarioRun;
use crate::check_result::CheckResult;
use allranks_model::outcome::Outcome;
use allranks_suite::expectation::FAILED_TWICE;

/// The state of each check of a scenario, by its place, and the writer that writes the results.
pub struct OpenChecks {
    writer: Arc<RecordWriter>,
    states: Vec<CheckState>,
}

/// The state of a check.
#[derive(Clone, Debug, PartialEq)]
enum CheckState {
    /// No world has got to it.
    Open,
    /// It failed in an intermittent way, and is left to the next world.
    FailedOnce(CheckResult),
    /// It failed, and the sequence that failed must be cut down.
    ToShrink(CheckResult),
    /// Its record is written.
    Written,
}

/// What is known of a failure besides the failure.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// An expectation says that it is intermittent.
    is_intermittent: bool,
    /// It is the failure of a sequence that can be cut down, and no expectation is about it.
    can_be_shrunk: bool,
}

impl CheckState {
    /// Returns the state of a check after a world has decided it, and the result to write, if it is final. A failure of which an
    /// expectation says that it is intermittent is put aside, and its check is left to the next world. The result of the second
    /// try decides: a failure that occurs twice is not intermittent.
    fn after(self, check_result: CheckResult, known: Known) -> (Self, Option<CheckResult>) {
        let check_result = match self {
            Self::Open if known.is_intermittent => return (Self::FailedOnce(check_result), None),
            Self::Open => check_result,
            Self::FailedOnce(first) => second_try(&first, check_result),
            Self::ToShrink(_) | Self::Written => return (self, None),
        };
        match known.can_be_shrunk {
            true => (Self::ToShrink(check_result), None),
            false => (Self::Written, Some(check_result)),
        }
    }
}

impl OpenChecks {
    /// Makes the states before the first world: checks whose records an earlier run has written are written, all others open.
    pub fn new(writer: Arc<RecordWriter>) -> Self {
        let written = writer.written();
        let state = |is_written| match is_written {
            true => CheckState::Written,
            false => CheckState::Open,
        };
        Self {
            states: written.into_iter().map(state).collect(),
            writer,
        }
    }

    /// Records the result that a world of these ranks has given the check at this index, and writes it if nothing can change it
    /// any more.
    pub fn record(&mut self, ranks: &[RankRun], index: usize, check_result: CheckResult) {
        self.writer.learn(ranks);
        let known = Known {
            is_intermittent: self.writer.is_intermittent(index, &check_result),
            can_be_shrunk: self.writer.can_be_shrunk(index, &check_result),
        };
        let state = std::mem::replace(&mut self.states[index], CheckState::Written);
        let (state, settled) = state.after(check_result, known);
        self.states[index] = state;
        if let Some(settled) = settled {
            self.writer.check(index, settled);
        }
    }

    /// Returns the indices of the checks that a world is still to make.
    pub fn open(&self) -> Vec<usize> {
        let states = self.states.iter().enumerate();
        let is_open =
            |state: &CheckState| matches!(state, CheckState::Open | CheckState::FailedOnce(_));
        states
            .filter_map(|(index, state)| is_open(state).then_some(index))
            .collect()
    }

    /// Writes the open checks as not run, with the reason `why`, because no further world will be started. A check that failed
    /// once is written as failed. Init and teardown without a result are not run either.
    pub fn give_up(&mut self, run: &mut ScenarioRun, why: &str) {
        run.failure.get_or_insert_with(|| why.to_owned());
        for check_result in [&mut run.init, &mut run.end] {
            if check_result.outcome == Outcome::NotRun {
                *check_result = CheckResult::not_run(why);
            }
        }
        for (index, state) in self.states.iter_mut().enumerate() {
            let check_result = match std::mem::replace(state, CheckState::Written) {
                CheckState::Open => CheckResult::not_run(why),
                CheckState::FailedOnce(first) => first,
                kept @ (CheckState::ToShrink(_) | CheckState::Written) => {
                    *state = kept;
                    continue;
                }
            };
            self.writer.check(index, check_result);
        }
    }

    /// Removes and returns the failures whose sequences must be cut down, by index; each must be given to
    /// [`settle`](Self::settle) afterwards.
    pub fn take_to_shrink(&mut self) -> BTreeMap<usize, CheckResult> {
        let states = self.states.iter_mut().enumerate();
        let mut taken = BTreeMap::new();
        for (index, state) in states {
            match std::mem::replace(state, CheckState::Written) {
                CheckState::ToShrink(check_result) => {
                    taken.insert(index, check_result);
                }
                kept => *state = kept,
            }
        }
        taken
    }

    /// Writes the final result of a check.
    pub fn settle(&mut self, index: usize, check_result: CheckResult) {
        self.states[index] = CheckState::Written;
        self.writer.check(index, check_result);
    }
}

/// Returns the result of a check that failed and was tried a second time.
fn second_try(first: &CheckResult, second: CheckResult) -> CheckResult {
    match second.outcome {
        Outcome::Pass => CheckResult {
            summary: format!("{}; the second time it passed", first.summary),
            ..first.clone()
        },
        // Nothing is known of the second time.
        Outcome::NotRun => first.clone(),
        Outcome::Mismatch
        | Outcome::Error
        | Outcome::Hang
        | Outcome::Crash
        | Outcome::InitFailed
        | Outcome::Unsupported
        | Outcome::HarnessError => CheckResult {
            summary: format!(
                "failed in two worlds, one after the other: {}",
                second.summary
            ),
            class: Some(FAILED_TWICE.to_owned()),
            ..second
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERMITTENT: Known = Known {
        is_intermittent: true,
        can_be_shrunk: false,
    };

    #[test]
    fn a_failure_that_comes_twice_is_not_intermittent() {
        let first = CheckResult::bare(Outcome::Crash, Some("crash"), "SIGABRT");
        let second = |outcome| second_try(&first, CheckResult::bare(outcome, Some("c"), "again"));
        let passed = second(Outcome::Pass);
        assert_eq!(passed.outcome, Outcome::Crash);
        assert_eq!(passed.class.as_deref(), Some("crash"));
        assert_eq!(passed.summary, "SIGABRT; the second time it passed");
        for outcome in [Outcome::Crash, Outcome::Mismatch, Outcome::Hang] {
            let failed = second(outcome);
            assert_eq!(failed.outcome, outcome);
            assert_eq!(failed.class.as_deref(), Some(FAILED_TWICE));
            assert!(failed.summary.ends_with("again"), "{}", failed.summary);
        }
        assert_eq!(second(Outcome::NotRun), first);
    }

    #[test]
    fn what_a_second_try_came_to_is_written_and_stands_whatever_later_worlds_decide() {
        let crash = CheckResult::bare(Outcome::Crash, None, "SIGABRT");
        let passed = CheckResult::passed(Vec::new());
        let (state, written) = CheckState::Open.after(crash.clone(), INTERMITTENT);
        assert_eq!(state, CheckState::FailedOnce(crash.clone()));
        assert_eq!(written, None, "it can still change");
        let (state, written) = state.after(passed.clone(), Known::default());
        assert_eq!(state, CheckState::Written);
        let settled = written.map(|check_result| check_result.summary);
        assert_eq!(
            settled.as_deref(),
            Some("SIGABRT; the second time it passed")
        );
        assert_eq!(state.after(crash, INTERMITTENT).1, None);
        let (state, written) = CheckState::Open.after(passed.clone(), Known::default());
        assert_eq!((state, written), (CheckState::Written, Some(passed)));
    }

    #[test]
    fn a_failed_sequence_is_written_once_it_is_cut_down() {
        let known = Known {
            can_be_shrunk: true,
            ..Known::default()
        };
        let failed = CheckResult::bare(Outcome::Mismatch, None, "wrong");
        let (state, written) = CheckState::Open.after(failed.clone(), known);
        assert_eq!((state, written), (CheckState::ToShrink(failed), None));
    }
}
