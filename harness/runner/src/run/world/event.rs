//! The events that go into the state machine of a world, and the actions that it gives.

use super::result::WorldResult;
use crate::world::Event as RankEvent;
use crate::world::HostFacts;
use crate::world::HostQuery;
use crate::world::Orphan;
use allranks_model::names::Rank;
use allranks_protocol::ToRank;

/// Something that the state machine must know.
#[derive(Debug)]
pub enum Event {
    /// A frame of a rank, or the end of its connection or process.
    Rank(RankEvent),
    /// The time that [`super::state::WorldState::deadline`] returned is reached.
    Deadline,
    /// The run is being interrupted.
    Interrupted,
    /// The machine has let the ranks run so little that waiting for them is given up; the text says how little.
    GivenUp(String),
    /// The answer to [`Action::AskHost`].
    Host(HostFacts),
    /// The answer to [`Action::AskMemory`]: bytes available to programs; none if the host does not report it.
    Memory(Option<u64>),
    /// The answer to [`Action::ReapOrphans`]: the processes that ranks had left behind.
    OrphansReaped(Vec<Orphan>),
}

/// Something that the world runner must do.
#[derive(Debug)]
pub enum Action {
    /// Sends a frame to a rank: header and payload.
    Send(Rank, ToRank, Vec<u8>),
    /// Lets a stopped rank go on.
    Resume(Rank),
    /// Kills a rank and everything that it started.
    Kill(Rank),
    /// Asks what the host sees of a world in which nothing moves.
    AskHost(HostQuery),
    /// Asks how much memory is available.
    AskMemory,
    /// Kills what ranks left behind, when all of them have ended.
    ReapOrphans,
    /// Ends the world. No action follows it.
    Finish(Box<WorldResult>),
}
