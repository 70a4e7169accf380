//! What moves in a world: what changes of a rank, and which ranks are held in a call.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::watch::evidence::world_view::Ranks;
use crate::watch::ranks::rank_process::RankProcess;
use crate::watch::trace::call_trace::CallTrace;
use allranks_host::{Activity, main_thread};
use allranks_model::names::Rank;

/// Time without a move of the ranks that a proof blames after which it is reported, and in a call after which that call holds a rank.
pub const STANDSTILL: Duration = Duration::from_millis(1000);

/// By rank: its process id, and its progress (see [`CallTrace::progress`]).
pub type Calls = BTreeMap<Rank, (u32, u64)>;

/// What changes of a rank when it moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankMoves {
    pub pid: u32,
    pub moves: u64,
    /// The lines of its own code that its main thread is at, and the threads that this one waits for.
    pub places: Vec<String>,
    /// Number of times that its main thread has begun to wait, while it waits for data at a connection of the program's own: each part of
    /// the data that comes adds one. `None` if it waits at none.
    pub receives: Option<u64>,
    pub is_stopped: bool,
    pub is_gone: bool,
}

/// Returns the lines of its own code that a rank's main thread is at, and the threads that this one waits for.
fn places(call_trace: &CallTrace) -> Vec<String> {
    let own = call_trace.own.iter().map(|line| line.at.clone());
    let threads = call_trace.threads.iter().map(|thread| thread.at.clone());
    own.chain(threads).collect()
}

/// Returns true if a rank's main thread waits for data at a connection of the program's own.
fn is_at_connection(call_trace: &CallTrace) -> bool {
    let own = call_trace.own.as_ref();
    own.is_some_and(|own| own.connection.is_some())
}

impl RankMoves {
    /// Describes a rank as it is now.
    pub fn of(process: &RankProcess) -> Self {
        let call_trace = process.call_trace.as_ref();
        Self {
            pid: process.pid,
            moves: call_trace.map_or(0, CallTrace::progress),
            places: call_trace.map_or_else(Vec::new, places),
            receives: call_trace
                .filter(|call_trace| is_at_connection(call_trace))
                .and_then(|_| main_thread(process.pid))
                .map(|thread| thread.waits),
            is_stopped: process.activity == Some(Activity::Stopped),
            is_gone: process.activity == Some(Activity::Gone),
        }
    }

    /// Returns its process id and its progress.
    pub fn calls(&self) -> (u32, u64) {
        (self.pid, self.moves)
    }
}

/// Returns true if a rank has run its program to the end, and its process has not ended.
pub fn is_at_end(process: &RankProcess) -> bool {
    let call_trace = process.call_trace.as_ref();
    process.lives() && call_trace.is_some_and(|call_trace| call_trace.finished)
}

/// Returns true if a rank has been in one call, or in retries, for a moment.
pub fn is_held(ranks: &Ranks<'_>) -> bool {
    held(ranks).next().is_some()
}

/// Returns the ranks that have been in one call, or in retries, for a moment.
pub fn held<'a>(ranks: &'a Ranks<'_>) -> impl Iterator<Item = Rank> + 'a {
    ranks.iter().filter_map(|(rank, process)| {
        let call_trace = process.call_trace.as_ref()?;
        let is_inside = call_trace
            .inside
            .as_ref()
            .is_some_and(|inside| inside.lasts() >= STANDSTILL);
        (process.lives() && (is_inside || call_trace.is_retrying())).then_some(*rank)
    })
}
