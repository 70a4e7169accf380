//! What comes into the state machine of a world, and what comes out of it.

use super::evidence::HostFacts;
use super::evidence::HostQuery;
use super::result::WorldResult;
use crate::world::Event as RankEvent;
use crate::world::Remnant;
use allranks_model::names::Rank;
use allranks_protocol::ToRank;

/// Something that the state machine must know.
#[derive(Debug)]
pub enum Event {
    /// A rank did something, or something befell it.
    Rank(RankEvent),
    /// The time that [`super::state::WorldState::deadline`] named has come.
    Deadline,
    /// The run is being interrupted.
    Interrupted,
    /// The answer to [`Action::AskHost`].
    Host(HostFacts),
    /// The answer to [`Action::AskMemory`]: bytes that programs can have; none if the host does not tell.
    Memory(Option<u64>),
    /// The answer to [`Action::Sweep`]: processes that ranks had left behind.
    Swept(Vec<Remnant>),
}

/// Something to be done in the world.
#[derive(Debug)]
pub enum Action {
    /// Sends a frame to a rank: header and payload.
    Send(Rank, ToRank, Vec<u8>),
    /// Lets a stopped rank go on.
    Resume(Rank),
    /// Kills a rank and all it started.
    Kill(Rank),
    /// Asks what the host sees of a world in which nothing moves.
    AskHost(HostQuery),
    /// Asks how much memory can be used.
    AskMemory,
    /// Kills what ranks left behind after they all ended.
    Sweep,
    /// Ends the world: nothing more comes out of the state machine.
    Finish(Box<WorldResult>),
}
