//! A world: ranks that are started together, their sockets, and their processes.
//!
//! In: a [`LaunchSpec`] (a command and an environment for each rank). Out: [`Event`]s: hellos, frames, broken
//! connections, exits. It knows nothing of checks, and has no deadlines: those are [`crate::run`]'s. The asynchronous
//! code (tokio) of the library is here, in `run` and in `watch`.
//!
//! The ranks of a user's program speak no protocol: they are [`Commands`], and a [`rank_wrapper`] beside each rank
//! records how it began and ended.
//!
//! Nothing survives a world: ranks lead their own sessions and are killed with everything they started; if the
//! harness itself is killed, its zygote or the ranks' supervisors see a closed connection and do the same.

mod commands;
mod control_server;
mod devices;
mod driver;
mod exhaustion;
mod frame;
mod launch_spec;
mod launcher;
mod orphans;
mod port;
mod rank_exit;
mod rank_wrapper;
mod spawned;
mod supervise;
mod zygote;

pub use commands::Commands;
pub use devices::{Device, DeviceLease, devices, held_devices, lease_devices};
pub use driver::Driver;
pub use exhaustion::{is_exhaustion, names_exhaustion};
pub(crate) use launch_spec::prepend_path;
pub use launch_spec::{LaunchSpec, RankLaunchSpec};
pub use launcher::{LaunchError, LocalLauncher};
pub use orphans::{Remnant, TOKEN, adopt, end_children, end_remains, unkilled, until_gone};
pub use port::{PortLease, lease_port};
pub use rank_exit::RankExit;
pub use rank_wrapper::{ExitRecord, witness};
pub use supervise::supervise;
pub(crate) use supervise::{ORPHANED, end_as, kill_all};

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;

use allranks_model::names::Rank;
use allranks_protocol::{FromRank, Hello, ToRank, VERSION};
pub use frame::{Frame, FrameError, read_frame, write_frame};

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
}

/// Ranks that were started together. Dropping it kills them.
#[derive(Debug)]
pub struct World {
    events: mpsc::Receiver<Event>,
    /// For each rank, the queue of frames to it; none before its hello.
    writers: Vec<Option<Orders>>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    sender: mpsc::Sender<Event>,
    processes: Box<dyn Processes>,
    /// Keeps the token known to the control server.
    place: control_server::WorldSlot,
    /// Whether it has been said that no connection can be accepted.
    is_deaf: bool,
}

/// A frame for a rank: header and payload.
type Message = (ToRank, Vec<u8>);

/// The queue of frames to one rank.
type Orders = mpsc::UnboundedSender<Message>;

/// A connection that said hello with the token of a rank of this world.
#[derive(Debug)]
struct Arrival {
    /// The rank that the token names.
    rank: Rank,
    hello: Hello,
    stream: UnixStream,
}

/// The processes of a world, forked or spawned.
trait Processes: std::fmt::Debug + Send + Sync {
    /// Sends a signal to a rank and everything that it started, if the rank still runs.
    fn signal(&self, rank: Rank, signal: i32);
    /// Returns the processes that each rank is in or below; none where that is not known.
    fn roots(&self) -> Vec<u32>;
    /// Kills what ranks left behind, when all of them have ended. Returns the processes found.
    fn sweep(&self) -> Vec<Remnant>;
}

const EVENTS: usize = 1024;
const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;

impl World {
    /// Returns the next event, in the order of arrival. Cancel-safe.
    pub async fn next(&mut self) -> Event {
        loop {
            tokio::select! {
                biased;
                Some(arrival) = self.arrivals.recv() => {
                    if let Some(event) = self.admit(arrival) {
                        return event;
                    }
                }
                Some(event) = self.events.recv() => return event,
                why = self.place.deaf(), if !self.is_deaf => {
                    self.is_deaf = true;
                    // Those that are connected need no other connection.
                    if let Some(rank) = self.writers.iter().position(Option::is_none) {
                        let why = format!("its connection cannot be accepted: {why}");
                        return Event::Ended(Rank(rank as u32), RankExit::MachineFault(why));
                    }
                }
            }
        }
    }

    fn admit(&mut self, arrival: Arrival) -> Option<Event> {
        let Arrival {
            rank,
            hello,
            stream,
        } = arrival;
        // Tokens are made only for ranks that exist; a connection with an invented one is dropped.
        let writer = self.writers.get_mut(rank.index())?;
        let refusal = if hello.version != VERSION {
            let version = hello.version;
            Some(format!(
                "it speaks protocol version {version}, not {VERSION}"
            ))
        } else if hello.rank != rank {
            Some(format!("it claims to be rank {}", hello.rank))
        } else {
            writer.as_ref().map(|_| "it connected twice".to_owned())
        };
        if let Some(refusal) = refusal {
            return Some(Event::Refused(rank, refusal));
        }
        let (to_writer, orders) = mpsc::unbounded_channel();
        *writer = Some(to_writer);
        let (reader, to) = stream.into_split();
        // Most frames are small: one read brings several.
        let mut reader = BufReader::new(reader);
        tokio::spawn(write_all(to, orders));
        let events = self.sender.clone();
        tokio::spawn(async move {
            loop {
                let event = match read_frame(&mut reader).await {
                    Ok(frame) => Event::Frame(rank, frame),
                    Err(error) => Event::Broken(rank, error),
                };
                let last = matches!(event, Event::Broken(..));
                if events.send(event).await.is_err() || last {
                    return;
                }
            }
        });
        Some(Event::Hello(rank, hello))
    }

    /// Queues a frame for a rank. A rank that has ended is reported by [`Event::Broken`], not here.
    pub fn send(&self, rank: Rank, header: ToRank, payload: Vec<u8>) {
        if let Some(writer) = &self.writers[rank.index()] {
            // The writer is gone only if the connection is; the reader reports that.
            let _ = writer.send((header, payload));
        }
    }

    /// Kills a rank and everything that it started.
    pub fn kill(&self, rank: Rank) {
        self.processes.signal(rank, SIGKILL);
    }

    /// Returns the processes that each rank is in or below; none where that is not known.
    #[must_use]
    pub fn roots(&self) -> Vec<u32> {
        self.processes.roots()
    }

    /// Lets a stopped rank go on.
    pub fn resume(&self, rank: Rank) {
        self.processes.signal(rank, SIGCONT);
    }

    /// Kills what ranks left behind, when all of them have ended. Returns the processes found.
    #[must_use]
    pub fn sweep(&self) -> Vec<Remnant> {
        self.processes.sweep()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for rank in 0..self.writers.len() {
            self.kill(Rank(rank as u32));
        }
        let _ = self.processes.sweep();
    }
}

async fn write_all(mut to: OwnedWriteHalf, mut orders: mpsc::UnboundedReceiver<Message>) {
    while let Some((header, payload)) = orders.recv().await {
        if write_frame(&mut to, &header, &[&payload]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
