//! Where a world is, what it waits for besides, and why it is left early.

use std::time::Duration;

use super::failure::WorldFailure;
use super::sending::StepFrame;
use crate::run::pending::Pending;
use allranks_diagnose::RankState;
use allranks_model::names::Rank;
use allranks_model::record::RankLine;

/// Where a world is; the module's documentation says what each phase waits for.
#[derive(Debug)]
pub enum Phase {
    /// Every rank is to say hello.
    Connecting,
    /// Imports have been sent.
    Importing,
    /// Rank 0 has been sent the opening.
    HostEntering {
        /// When the others get it at the latest.
        until: Duration,
        /// Steps that rank 0 had answered before.
        answered: u32,
        /// The opening of the others.
        held: Vec<StepFrame>,
    },
    /// Rank 0 has entered the opening.
    HostPause {
        /// When the others get it.
        until: Duration,
        /// The opening of the others.
        held: Vec<StepFrame>,
    },
    /// Every rank has been sent the opening.
    Opening,
    /// Checks are being sent.
    Checks,
    /// A script is under way, and nothing else.
    Script,
    /// Teardown has been sent.
    Closing,
    /// Ranks have been sent `finish`.
    Shutdown {
        /// Which.
        leaving: Vec<Rank>,
        /// The script that ends the world so, by its place in the scenario; none at the world's own end.
        script: Option<usize>,
    },
    /// A rank is lost.
    LateAnswers {
        /// Which.
        lost: Rank,
        /// Why.
        why: String,
        /// When no answer counts any more.
        until: Duration,
    },
    /// Every process that still ran has been killed.
    Reaping {
        /// When they are given up.
        until: Duration,
    },
    /// The result has been given.
    Finished,
}

/// Something without which the phase does not go on.
#[derive(Debug)]
pub enum Wait {
    /// What the host tells; ranks' events are deferred meanwhile.
    Host {
        /// What is known of the ranks without it.
        sights: Vec<RankState>,
        /// What it is wanted for.
        wanted: Wanted,
    },
    /// How much memory there is, for the check at this place; ranks' events are deferred meanwhile.
    Memory(usize),
    /// How many processes the ranks have left behind, besides what is wrong with how they ended; ranks' events are deferred
    /// meanwhile.
    Sweep(Vec<RankLine>),
    /// How the process ended whose connection broke.
    RankExit {
        /// Whose.
        rank: Rank,
        /// How its connection broke.
        why: String,
        /// When it is given up.
        until: Duration,
    },
}

/// What a verdict on a world in which nothing moves is wanted for.
#[derive(Debug)]
pub enum Wanted {
    /// To see whether it is proved that nothing will move any more.
    HangCheck,
    /// Nothing has moved for the whole deadline.
    Deadline,
    /// A script under way says which verdict must come, and the world has failed.
    Failure(WorldFailure),
    /// A script that every rank has answered says which verdict must come.
    Script(Box<Pending>),
}

/// Why a world is left before it has done everything.
#[derive(Debug)]
pub enum Stop {
    /// It failed.
    Failed(WorldFailure),
    /// A finding has been made that ends it.
    Decided,
    /// The script at that place ends it by every rank's leaving.
    Leave(usize),
}

impl Stop {
    /// A rank died, closed its connection, or broke the protocol.
    pub fn crash(rank: Rank, why: String) -> Self {
        Self::Failed(WorldFailure::Crash(rank, why))
    }
}
