//! Why a world fails.

use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::Rank;

/// Why a world fails.
#[derive(Debug)]
pub enum WorldFailure {
    /// Nothing moved for the whole deadline, or it is proved that nothing will; with the diagnosis.
    Hang(Box<Diagnosis>),
    /// The rank died, closed its connection, or broke the protocol; the text says which.
    Crash(Rank, String),
    /// The machine did not let the rank run; the text says how.
    Machine(Rank, String),
    /// The run is being interrupted.
    Interrupted,
    /// The machine hardly let the ranks run, for many times as long as they may take; the text says how little. Nothing is said
    /// of what they were doing.
    GivenUp(String),
    /// A node with ranks of the world is lost; the text names it and says why. Nothing is said of what the ranks were doing.
    NodeLost(String),
}
