//! The state of one check over the runs, such as broken, flaky or fixed.

use allranks_model::status::Status;
use serde::Serialize;

use super::{Changes, Transition};
use crate::facts::KERNEL;
use crate::past_runs::{Mark, PastRun, Series};

/// The state of a check after all runs; the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrendState {
    /// It passed, and has failed in every later run.
    Broken,
    /// Its result changes again and again: there and back without a recorded change of the environment, or four times in all.
    Flaky,
    /// It failed, and has passed in every later run.
    Fixed,
    /// It failed in every run that counts.
    Failing,
    /// An earlier run counts, but not the newest.
    Lost,
    /// It fails as an expectation or a waiver says.
    Excused,
    /// No run counts.
    Unknown,
    /// It was right in every run that counts.
    Steady,
}

impl TrendState {
    /// Returns true if the state needs no attention.
    #[must_use]
    pub const fn is_steady(self) -> bool {
        matches!(self, Self::Excused | Self::Unknown | Self::Steady)
    }

    /// Returns one character for the state, so that reports do not depend on colour alone.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Broken | Self::Failing => "✗",
            Self::Flaky => "~",
            Self::Lost | Self::Unknown => "–",
            Self::Excused => "k",
            Self::Fixed | Self::Steady => "✓",
        }
    }

    /// Returns the name of the state in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Flaky => "flaky",
            Self::Fixed => "fixed",
            Self::Failing => "failing in every run",
            Self::Lost => "no result in the newest run",
            Self::Excused => "known to fail",
            Self::Unknown => "never run",
            Self::Steady => "steady",
        }
    }
}

/// Returns true if a check ran and was wrong, known or not.
pub(super) const fn has_failed(status: Status) -> bool {
    matches!(
        status,
        Status::Regression | Status::KnownFailure | Status::Waived
    )
}

/// Returns true if a check ran and was right, though a file may say that it is not.
pub(super) const fn has_passed(status: Status) -> bool {
    matches!(status, Status::Passed | Status::UnexpectedPass)
}

/// Returns true if a check was right, false if it was wrong, and `None` if the run does not count for it. A verified refusal is
/// right, but counts in no rate.
pub(super) fn is_good(status: Status) -> Option<bool> {
    match status {
        Status::Passed | Status::UnexpectedPass | Status::Refused => Some(true),
        Status::Regression | Status::KnownFailure | Status::Waived => Some(false),
        Status::NotRun | Status::HarnessError => None,
    }
}

/// Successive runs in which a check was right, or successive runs in which it was wrong.
struct Streak {
    is_good: bool,
    first: (usize, Mark),
    last: (usize, Mark),
    runs: usize,
}

/// Divides the runs that count into streaks.
fn streaks(marks: &[Option<Mark>]) -> Vec<Streak> {
    let mut streaks: Vec<Streak> = Vec::new();
    for (past_run, mark) in marks.iter().enumerate() {
        let Some((mark, is_good)) = mark.and_then(|mark| Some((mark, is_good(mark.status)?)))
        else {
            continue;
        };
        match streaks.last_mut() {
            Some(last) if last.is_good == is_good => {
                last.last = (past_run, mark);
                last.runs += 1;
            }
            _ => streaks.push(Streak {
                is_good,
                first: (past_run, mark),
                last: (past_run, mark),
                runs: 1,
            }),
        }
    }
    streaks
}

/// Returns the state of a check, and the transition that led to it; `None` for a state that no single change explains.
pub(super) fn of(
    series: &Series,
    past_runs: &[PastRun],
    changes: &mut Changes<'_>,
) -> (TrendState, Option<Transition>) {
    let streaks = streaks(&series.marks);
    let newest = series.marks.last().copied().flatten();
    let Some(last) = streaks.last() else {
        return (TrendState::Unknown, None);
    };
    if newest.is_none_or(|mark| is_good(mark.status).is_none()) {
        return (TrendState::Lost, None);
    }
    let is_excused =
        newest.is_some_and(|mark| matches!(mark.status, Status::KnownFailure | Status::Waived));
    let mut transition = |before: &Streak, after: &Streak| Transition {
        before: Some(before.last.0),
        after: after.first.0,
        changes: changes.between(before.last, after.first).to_vec(),
        is_known: [before.last.0, after.first.0]
            .iter()
            .all(|past_run| past_runs[*past_run].facts.contains_key(KERNEL)),
    };
    let [.., before, _] = streaks.as_slice() else {
        return match (last.is_good, is_excused) {
            (true, _) => (TrendState::Steady, None),
            (false, true) => (TrendState::Excused, None),
            (false, false) => (TrendState::Failing, None),
        };
    };
    let transitions: Vec<Transition> = streaks
        .windows(2)
        .map(|pair| transition(&pair[0], &pair[1]))
        .collect();
    // A result that changes there and back in the same environment does not depend on anything that is recorded. An unknown
    // environment does not prove that.
    let is_same = |transition: &Transition| transition.is_known && transition.changes.is_empty();
    let mut is_flaky = transitions.len() >= 4;
    for (pair, middle) in transitions.windows(2).zip(&streaks[1..]) {
        let within = changes.between(middle.first, middle.last).is_empty();
        is_flaky |= pair.iter().all(is_same) && within;
    }
    // A flaky check that now fails for longer than ever before, and for three runs at least, is broken.
    let earlier = streaks[..streaks.len() - 1].iter();
    let longest = earlier.filter(|one| !one.is_good).map(|one| one.runs).max();
    let stays_broken =
        !last.is_good && last.runs >= 3 && longest.is_none_or(|longest| last.runs > longest);
    if is_flaky && !stays_broken {
        return (TrendState::Flaky, None);
    }
    if is_excused {
        return (TrendState::Excused, None);
    }
    let last_transition = transitions.last().cloned();
    match before.is_good {
        true => (TrendState::Broken, last_transition),
        false => (TrendState::Fixed, last_transition),
    }
}
