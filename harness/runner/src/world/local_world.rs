//! The ranks of a world that this process has started: their sockets and their processes.

use std::collections::BTreeMap;

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;

use super::control_server::{Arrival, ExpectedToken};
use super::frame::{read_frame, write_frame};
use super::orphans::Orphan;
use super::{Event, RankExit, SIGKILL};
use allranks_model::names::Rank;
use allranks_protocol::{ToRank, VERSION};

/// Ranks that were started together. Dropping it kills them.
#[derive(Debug)]
pub struct LocalWorld {
    events: mpsc::Receiver<Event>,
    /// For each rank of this world that was started here, the queue of frames to it; none before its hello.
    writers: BTreeMap<Rank, Option<Orders>>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    sender: mpsc::Sender<Event>,
    processes: Box<dyn Processes>,
    /// Keeps the token known to the control server.
    place: ExpectedToken,
    /// Whether it has been said that no connection can be accepted.
    is_refusal_reported: bool,
}

/// A frame for a rank: header and payload.
type Message = (ToRank, Vec<u8>);

/// The queue of frames to one rank.
type Orders = mpsc::UnboundedSender<Message>;

/// The processes of a world, forked or spawned.
pub(super) trait Processes: std::fmt::Debug + Send + Sync {
    /// Sends a signal to a rank and everything that it started, if the rank still runs.
    fn signal(&self, rank: Rank, signal: i32);
    /// Returns the processes that each rank is in or below; none where that is not known.
    fn roots(&self) -> Vec<u32>;
    /// Kills what ranks left behind, when all of them have ended. Returns the processes found.
    fn reap_orphans(&self) -> Vec<Orphan>;
}

impl LocalWorld {
    /// Puts a world together from what a launcher has started.
    pub(super) fn new(
        ranks: impl IntoIterator<Item = Rank>,
        arrivals: mpsc::UnboundedReceiver<Arrival>,
        (sender, events): (mpsc::Sender<Event>, mpsc::Receiver<Event>),
        processes: Box<dyn Processes>,
        place: ExpectedToken,
    ) -> Self {
        Self {
            events,
            writers: ranks.into_iter().map(|rank| (rank, None)).collect(),
            arrivals,
            sender,
            processes,
            place,
            is_refusal_reported: false,
        }
    }

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
                why = self.place.accept_error(), if !self.is_refusal_reported => {
                    self.is_refusal_reported = true;
                    // Those that are connected need no other connection.
                    if let Some((rank, _)) = self.writers.iter().find(|(_, writer)| writer.is_none()) {
                        let why = format!("its connection cannot be accepted: {why}");
                        return Event::Ended(*rank, RankExit::MachineFault(why));
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
        let writer = self.writers.get_mut(&rank)?;
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
        if let Some(Some(writer)) = self.writers.get(&rank) {
            // The writer is gone only if the connection is; the reader reports that.
            let _ = writer.send((header, payload));
        }
    }

    /// Sends a signal to a rank and everything that it started, if the rank still runs.
    pub fn signal(&self, rank: Rank, signal: i32) {
        self.processes.signal(rank, signal);
    }

    /// Returns the processes that each rank is in or below; none where that is not known.
    #[must_use]
    pub fn roots(&self) -> Vec<u32> {
        self.processes.roots()
    }

    /// Kills what ranks left behind, when all of them have ended. Returns the processes found.
    #[must_use]
    pub fn reap_orphans(&self) -> Vec<Orphan> {
        self.processes.reap_orphans()
    }
}

impl Drop for LocalWorld {
    fn drop(&mut self) {
        for rank in self.writers.keys() {
            self.signal(*rank, SIGKILL);
        }
        let _ = self.processes.reap_orphans();
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
