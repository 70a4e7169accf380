//! The state of a script besides its calls: marks, ranks that hold for them, and ranks that are stopped for a while.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::script::CompiledScript;
use allranks_model::names::Rank;

/// Interval at which a stopped rank is told to go on: the first time may come before it has stopped.
pub const RESUME_AGAIN: Duration = Duration::from_millis(100);

/// The state of a script besides its calls.
#[derive(Debug, Default)]
pub struct ScriptEvents {
    /// For each mark, the ranks that have made it.
    marked: BTreeMap<String, BTreeSet<Rank>>,
    /// Ranks that hold, each with the mark that it waits for.
    holding: Vec<(Rank, String)>,
    /// Stopped ranks, each with the time at which it is told to go on.
    paused: Vec<(Rank, Duration)>,
}

impl ScriptEvents {
    /// Returns true if the rank is stopped and will be told to go on.
    pub fn is_paused(&self, rank: Rank) -> bool {
        self.paused.iter().any(|(paused, _)| *paused == rank)
    }

    /// Returns when the next stopped rank is told to go on; none if no rank is stopped.
    pub fn next_resume(&self) -> Option<Duration> {
        self.paused.iter().map(|(_, when)| *when).min()
    }

    /// Returns the stopped ranks that must be told to go on now. A rank is returned again every [`RESUME_AGAIN`] until it runs.
    pub fn ranks_to_resume(&mut self, now: Duration) -> Vec<Rank> {
        let due = self.paused.iter_mut().filter(|(_, when)| *when <= now);
        due.map(|(rank, when)| {
            *when = now + RESUME_AGAIN;
            *rank
        })
        .collect()
    }

    /// Removes and returns the ranks that hold for a mark which every rank that must make it has made.
    pub fn released(&mut self, script: &CompiledScript) -> Vec<Rank> {
        let marked = &self.marked;
        let is_free = |(_, name): &mut (Rank, String)| script.is_marked(name, marked);
        let free = self.holding.extract_if(.., is_free);
        free.map(|(rank, _)| rank).collect()
    }

    /// Notes that a rank enters a call. If it was stopped, it is running again.
    pub fn enter(&mut self, rank: Rank) {
        self.paused.retain(|(paused, _)| *paused != rank);
    }

    /// Notes that a rank has made a mark.
    pub fn mark(&mut self, rank: Rank, name: &str) {
        self.marked.entry(name.to_owned()).or_default().insert(rank);
    }

    /// Notes that a rank waits until a mark has been made.
    pub fn hold(&mut self, rank: Rank, name: &str) {
        self.holding.push((rank, name.to_owned()));
    }

    /// Notes that a rank is stopped until `when`.
    pub fn pause(&mut self, rank: Rank, when: Duration) {
        self.paused.push((rank, when));
    }
}
