//! The course that one check took over the runs.

use allranks_model::status::Status;
use serde::Serialize;

use super::{Changes, Turn};
use crate::facts::KERNEL;
use crate::nights::{Mark, Night, Series};

/// What became of a check; the order is that in which people want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Course {
    /// It passed, and fails since.
    Broken,
    /// It passes and fails by turns: twice without any recorded change of the environment, or four times whatever changed.
    Flaky,
    /// It failed, and passes since.
    Fixed,
    /// It fails in every run that says anything.
    Failing,
    /// The newest run says nothing of it, and an earlier one does.
    Lost,
    /// It fails as an expectation or a waiver says.
    Excused,
    /// No run says anything.
    Unknown,
    /// It is as it must be in every run that says anything.
    Steady,
}

impl Course {
    /// Returns true if there is nothing to tell.
    #[must_use]
    pub const fn is_steady(self) -> bool {
        matches!(self, Self::Excused | Self::Unknown | Self::Steady)
    }

    /// Returns one character for the course, so that reports do not depend on colour alone.
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

    /// Returns the words for the course in reports.
    #[must_use]
    pub const fn words(self) -> &'static str {
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

/// Good, bad, or `None`: it says nothing. A verified refusal is as it must be, and so good; it counts in no rate.
pub(super) fn is_good(status: Status) -> Option<bool> {
    match status {
        Status::Passed | Status::UnexpectedPass | Status::Refused => Some(true),
        Status::Regression | Status::KnownFailure | Status::Waived => Some(false),
        Status::NotRun | Status::HarnessError => None,
    }
}

/// A stretch of runs that say the same: its first and its last, and how many.
struct Stretch {
    is_good: bool,
    first: (usize, Mark),
    last: (usize, Mark),
    runs: usize,
}

fn stretches(marks: &[Option<Mark>]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for (night, mark) in marks.iter().enumerate() {
        let Some((mark, is_good)) = mark.and_then(|mark| Some((mark, is_good(mark.status)?)))
        else {
            continue;
        };
        match stretches.last_mut() {
            Some(last) if last.is_good == is_good => {
                last.last = (night, mark);
                last.runs += 1;
            }
            _ => stretches.push(Stretch {
                is_good,
                first: (night, mark),
                last: (night, mark),
                runs: 1,
            }),
        }
    }
    stretches
}

pub(super) fn of(
    series: &Series,
    nights: &[Night],
    changes: &mut Changes<'_>,
) -> (Course, Option<Turn>) {
    let stretches = stretches(&series.marks);
    let newest = series.marks.last().copied().flatten();
    let Some(last) = stretches.last() else {
        return (Course::Unknown, None);
    };
    if newest.is_none_or(|mark| is_good(mark.status).is_none()) {
        return (Course::Lost, None);
    }
    let is_excused =
        newest.is_some_and(|mark| matches!(mark.status, Status::KnownFailure | Status::Waived));
    let mut turn = |before: &Stretch, after: &Stretch| Turn {
        before: Some(before.last.0),
        after: after.first.0,
        changes: changes.between(before.last, after.first).to_vec(),
        is_known: [before.last.0, after.first.0]
            .iter()
            .all(|night| nights[*night].facts.contains_key(KERNEL)),
    };
    let [.., before, _] = stretches.as_slice() else {
        return match (last.is_good, is_excused) {
            (true, _) => (Course::Steady, None),
            (false, true) => (Course::Excused, None),
            (false, false) => (Course::Failing, None),
        };
    };
    let turns: Vec<Turn> = stretches
        .windows(2)
        .map(|pair| turn(&pair[0], &pair[1]))
        .collect();
    // There and back without a change of the environment: what is recorded does not decide the result. An environment that is not
    // known is no proof of that.
    let is_same = |turn: &Turn| turn.is_known && turn.changes.is_empty();
    let mut is_flaky = turns.len() >= 4;
    for (pair, middle) in turns.windows(2).zip(&stretches[1..]) {
        let within = changes.between(middle.first, middle.last).is_empty();
        is_flaky |= pair.iter().all(is_same) && within;
    }
    // One that was flaky and now fails for longer than ever before, and for three runs at least, is broken.
    let earlier = stretches[..stretches.len() - 1].iter();
    let longest = earlier.filter(|one| !one.is_good).map(|one| one.runs).max();
    let stays =
        !last.is_good && last.runs >= 3 && longest.is_none_or(|longest| last.runs > longest);
    if is_flaky && !stays {
        return (Course::Flaky, None);
    }
    if is_excused {
        return (Course::Excused, None);
    }
    let last_turn = turns.last().cloned();
    match before.is_good {
        true => (Course::Broken, last_turn),
        false => (Course::Fixed, last_turn),
    }
}
