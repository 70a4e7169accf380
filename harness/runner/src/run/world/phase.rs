//! The phases of a world, what else it may wait for, and why it is left early.

use std::time::Duration;

use super::failure::WorldFailure;
use super::step_frame::StepFrame;
use crate::run::pending::Pending;
use allranks_diagnose::RankState;
use allranks_model::names::Rank;
use allranks_model::record::RankLine;

/// The phase of a world. The documentation of [`super`] says what each phase waits for.
#[derive(Debug)]
pub enum Phase {
    /// Waits for the hello of every rank.
    Connecting,
    /// The imports have been sent.
    Importing,
    /// Rank 0 has been sent the opening, the others have not.
    HostEntering {
        /// When the others are sent the opening at the latest.
        until: Duration,
        /// Number of steps that rank 0 had answered before.
        answered: u32,
        /// The opening of the other ranks.
        held: Vec<StepFrame>,
    },
    /// Rank 0 has entered the opening, and is given time to listen.
    HostPause {
        /// When the others are sent the opening.
        until: Duration,
        /// The opening of the other ranks.
        held: Vec<StepFrame>,
    },
    /// Every rank has been sent the opening.
    Opening,
    /// Checks are being sent.
    Checks,
    /// A script is under way, and nothing else.
    Script,
    /// The teardown has been sent.
    Closing,
    /// `finish` has been sent.
    Shutdown {
        /// The ranks that were sent it.
        leaving: Vec<Rank>,
        /// The index of the script that ends the world in this way; none at the world's own end.
        script: Option<usize>,
    },
    /// A rank is lost; late answers of the others may still count.
    LateAnswers {
        /// The rank that is lost.
        lost: Rank,
        /// Why it is lost.
        why: String,
        /// The time after which no answer counts.
        until: Duration,
    },
    /// Every process that still ran has been killed.
    Reaping {
        /// The time after which processes that have not ended are given up.
        until: Duration,
    },
    /// The result has been given.
    Finished,
}

/// An answer without which the phase does not go on.
#[derive(Debug)]
pub enum Wait {
    /// The host's facts. Events of ranks are deferred meanwhile.
    Host {
        /// What is known of the ranks without them.
        states: Vec<RankState>,
        /// What the facts are needed for.
        wanted: Wanted,
    },
    /// The available memory, for the check at this index. Events of ranks are deferred meanwhile.
    Memory(usize),
    /// The processes that the ranks left behind; the lines say what else is wrong with how ranks ended. Events of ranks
    /// are deferred meanwhile.
    Orphans(Vec<RankLine>),
    /// The exit of a process whose connection broke.
    RankExit {
        /// The rank of that process.
        rank: Rank,
        /// How its connection broke.
        why: String,
        /// The time after which the exit is not waited for any more.
        until: Duration,
    },
}

/// What a verdict on a world in which nothing moves is needed for.
#[derive(Debug)]
pub enum Wanted {
    /// To see whether it is proved that nothing will move again.
    HangCheck,
    /// Nothing has moved for the whole deadline.
    Deadline,
    /// The world has failed, and the script under way demands a verdict.
    Failure(WorldFailure),
    /// Every rank has answered a script that demands a verdict.
    Script(Box<Pending>),
}

/// Why a world is left before its end.
#[derive(Debug)]
pub enum Stop {
    /// It failed.
    Failed(WorldFailure),
    /// The result of a check, or of init, ends it.
    Decided,
    /// The script at this index ends it by making every rank leave.
    Leave(usize),
}

impl Stop {
    /// Returns the stop for a rank that died, closed its connection, or broke the protocol.
    pub fn crash(rank: Rank, why: String) -> Self {
        Self::Failed(WorldFailure::Crash(rank, why))
    }
}
