//! A world: ranks that are started together, their sockets, and their processes.
//!
//! In: a [`LaunchSpec`] (a command and an environment for each rank). Out: [`Event`]s: hellos, frames, broken
//! connections, exits. It knows nothing of checks, and has no deadlines: those are [`crate::run`]'s. The asynchronous
//! code (tokio) of the library is here, in `run` and in `watch`.
//!
//! A world is started by a [`Launcher`]: on this machine, or by the node agents of [`node`], each of which is a local launcher
//! behind a connection.
//!
//! The ranks of a user's program speak no protocol: they are [`Commands`], and a [`rank_wrapper`] beside each rank
//! records how it began and ended.
//!
//! Nothing survives a world: ranks lead their own sessions and are killed with everything they started; if the
//! harness itself is killed, its zygote or the ranks' supervisors see a closed connection and do the same.

mod commands;
mod control_server;
mod devices;
mod dialect;
mod driver;
mod exhaustion;
mod forked_interpreter;
mod frame;
mod host_facts;
mod launch_spec;
mod launcher;
mod local_world;
mod mpirun;
pub mod node;
mod orphans;
mod port;
mod rank_wrapper;
mod spawned;
mod supervise;
mod zygote;

pub use allranks_protocol::RankExit;
pub use commands::Commands;
pub use devices::{Device, DeviceLease, devices, held_devices, lease_devices};
pub use dialect::{Dialect, OF_OTHER_LAUNCHERS, RankAssignment};
pub use driver::{Driver, python_files};
pub use exhaustion::{is_exhaustion, names_exhaustion};
pub use forked_interpreter::ForkedInterpreter;
pub(crate) use host_facts::{HostFacts, HostQuery, MeetingHost};
pub use launch_spec::base_environment;
pub(crate) use launch_spec::prepend_path;
pub use launch_spec::{LaunchSpec, RankLaunchSpec};
pub use launcher::{LOOPBACK, LaunchError, Launcher, LocalLauncher, Reservation};
pub use local_world::LocalWorld;
pub use mpirun::Mpirun;
pub use orphans::{
    Orphan, TOKEN, become_subreaper, end_children, end_remains, unkilled, until_gone,
};
pub use port::{PortLease, lease_port};
pub use rank_wrapper::{ExitRecord, run_wrapped};
pub use supervise::supervise;
pub(crate) use supervise::{ORPHANED, end_as, kill_all, wait};

use tokio::task::block_in_place;

use allranks_model::names::Rank;
use allranks_protocol::{FromRank, Hello, ToRank};
pub use frame::{Frame, FrameError, read_frame, write_frame};
use host_facts::{facts, memory_available};

/// An event of one rank.
#[derive(Debug)]
pub enum Event {
    /// The rank connected and said hello.
    Hello(Rank, Hello),
    /// The rank connected and was refused, because of something wrong in its hello; the text says what.
    Refused(Rank, String),
    /// The rank sent a frame.
    Frame(Rank, Frame<FromRank>),
    /// The rank's connection has ended; nothing more will come from it.
    Broken(Rank, FrameError),
    /// The rank's process has ended.
    Ended(Rank, RankExit),
    /// A node with ranks of this world is lost; the text names it and says why. Nothing more comes from these ranks.
    NodeLost(String),
}

/// Ranks that were started together. Dropping it kills them.
#[derive(Debug)]
pub enum World {
    /// Those of this process.
    Local(LocalWorld),
    /// Those of node agents.
    Nodes(node::NodesWorld),
}

const EVENTS: usize = 1024;
const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;

impl World {
    /// Returns the next event, in the order of arrival. Cancel-safe.
    pub async fn next(&mut self) -> Event {
        match self {
            Self::Local(world) => world.next().await,
            Self::Nodes(world) => world.next().await,
        }
    }

    /// Queues a frame for a rank. A rank that has ended is reported by [`Event::Broken`], not here.
    pub fn send(&self, rank: Rank, header: ToRank, payload: Vec<u8>) {
        match self {
            Self::Local(world) => world.send(rank, header, payload),
            Self::Nodes(world) => world.send(rank, header, payload),
        }
    }

    /// Kills a rank and everything that it started.
    pub fn kill(&self, rank: Rank) {
        self.signal(rank, SIGKILL);
    }

    /// Returns the processes that each rank is in or below, empty where that is not known; `None` if the ranks are on other
    /// hosts.
    #[must_use]
    pub fn roots(&self) -> Option<Vec<u32>> {
        match self {
            Self::Local(world) => Some(world.roots()),
            Self::Nodes(_) => None,
        }
    }

    /// Lets a stopped rank go on.
    pub fn resume(&self, rank: Rank) {
        self.signal(rank, SIGCONT);
    }

    fn signal(&self, rank: Rank, signal: i32) {
        match self {
            Self::Local(world) => world.signal(rank, signal),
            Self::Nodes(world) => world.signal(rank, signal),
        }
    }

    /// Kills what ranks left behind, when all of them have ended. Returns the processes found.
    pub async fn reap_orphans(&self) -> Vec<Orphan> {
        match self {
            Self::Local(world) => world.reap_orphans(),
            Self::Nodes(world) => world.reap_orphans().await,
        }
    }

    /// Asks the host of each rank what it sees. May take seconds.
    pub(crate) async fn facts(&self, query: &HostQuery) -> HostFacts {
        match self {
            Self::Local(_) => block_in_place(|| facts(query)),
            Self::Nodes(world) => world.facts(query).await,
        }
    }

    /// Waits until every node of this world has shown that it is alive. A failure in a world may be due to the loss of a node
    /// that has not been noticed yet.
    ///
    /// # Errors
    /// Names a node that is lost, and says why.
    pub(crate) async fn confirm(&self) -> Result<(), String> {
        match self {
            Self::Local(_) => Ok(()),
            Self::Nodes(world) => world.confirm().await,
        }
    }

    /// Returns the bytes available to programs, on the host that has fewest; none if a host does not report it.
    pub(crate) async fn memory(&self) -> Option<u64> {
        match self {
            Self::Local(_) => memory_available(),
            Self::Nodes(world) => world.memory().await,
        }
    }
}
