//! What a watch reports.

use std::time::Duration;

use crate::world::Orphan;
use allranks_model::diagnosis::{Diagnosis, HangKind};

/// What the hang detector reports.
#[derive(Clone, Debug)]
pub enum Event {
    /// A hang verdict.
    Verdict(Diagnosis),
    /// Nothing has moved for this long, and there is no verdict; the diagnosis says where each rank is.
    Still(Diagnosis, Duration),
    /// Ranks that a verdict has named as stopped are still stopped after 3 times the patience, in which a scheduler or a debugger
    /// could have let them go on.
    StillStopped,
    /// A world that was reported before moves again.
    Moves,
    /// A job that was attached to does not hang; what is seen of it.
    NotHung(String),
    /// What must be known of the program, and accuses no rank.
    Note(String),
    /// Processes of the command that could not be killed.
    Unkilled(Vec<Orphan>),
}

impl Event {
    /// Returns true if it is a verdict on ranks that a signal or a debugger has stopped, and may let go on.
    #[must_use]
    pub fn is_of_stopped(&self) -> bool {
        matches!(self, Self::Verdict(one) if one.kind == HangKind::PeerStopped)
    }
}
