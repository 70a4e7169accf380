//! Estimates, from the plan alone, how much of the machine a scenario uses and for how long.

use std::time::Duration;

use allranks_suite::case::Afterwards;
use allranks_suite::plan::{Act, Check, CheckKind, Move, Scenario};
use allranks_suite::platform::Start;

/// Estimate of the time that a script with a hang takes: until the verdict is proved and the world is killed.
const HANG_TIME: Duration = Duration::from_secs(3);
/// Estimate of the time that a world takes that a script ends or initialises again.
const WORLD_TIME: Duration = Duration::from_secs(1);
/// Estimate of the time that a program takes: each of its ranks imports torch.
const PROGRAM_TIME: Duration = Duration::from_secs(15);

/// What a scenario's ranks do most of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// They compute and move data, this many of them.
    Computes(usize),
    /// They wait: for a rank that does not come, for a timeout, for each other.
    Waits {
        /// The number of ranks.
        ranks: usize,
        /// Whether each of them imports torch by itself, which keeps a core busy for seconds.
        imports: bool,
    },
}

impl Load {
    /// Returns the load of a scenario. A script waits, and so does a program.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        let ranks = scenario.world_size.count();
        let is_script = |check: &Check| check.script().is_some();
        let is_program = scenario.case.program.is_some();
        let waits = !scenario.checks.is_empty() && scenario.checks.iter().all(is_script);
        match is_program || waits {
            true => Self::Waits {
                ranks,
                imports: is_program || scenario.platform.start == Start::Fresh,
            },
            false => Self::Computes(ranks),
        }
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(self) -> usize {
        match self {
            Self::Computes(ranks) | Self::Waits { ranks, .. } => ranks,
        }
    }

    /// Returns what a scenario that waits is charged: one for a rank, two for a rank that imports torch first. None: it
    /// computes.
    #[must_use]
    pub fn waiting_charge(self) -> Option<usize> {
        match self {
            Self::Computes(_) => None,
            Self::Waits { ranks, imports } => Some(if imports { ranks * 2 } else { ranks }),
        }
    }
}

/// Estimates how long a scenario that waits takes: a guide to what should start first, and nothing more.
#[must_use]
pub fn estimate(scenario: &Scenario) -> Duration {
    if scenario.case.program.is_some() {
        return PROGRAM_TIME;
    }
    scenario.checks.iter().map(estimate_of_check).sum()
}

fn estimate_of_check(check: &Check) -> Duration {
    let CheckKind::Script(script) = &check.kind else {
        return Duration::ZERO;
    };
    let hang = match script.hang {
        Some(_) => HANG_TIME,
        None => Duration::ZERO,
    };
    let ends_world = script.afterwards != Afterwards::GoOn;
    let anew = ends_world
        || script
            .moves
            .iter()
            .any(|one| matches!(one.act, Act::Init(_)));
    let world = if anew { WORLD_TIME } else { Duration::ZERO };
    hang + world + time_asleep(&script.moves)
}

/// Returns how long the ranks sleep or are stopped, in all moves together.
fn time_asleep(moves: &[Move]) -> Duration {
    let of_move = |one: &Move| match &one.act {
        Act::Sleep(ms) | Act::Pause(ms) => Duration::from_millis(*ms),
        Act::Together(lists) => lists
            .iter()
            .map(|moves| time_asleep(moves))
            .max()
            .unwrap_or_default(),
        _ => Duration::ZERO,
    };
    moves.iter().map(of_move).sum()
}
