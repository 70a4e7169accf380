//! What the watch of one node has seen of one world, as a file.
//!
//! A file holds facts, not conclusions: which rank made which calls. So nodes are merged before the rules are asked. Times are those
//! of the node's clock, and are moved to the reader's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::evidence_paths::{SUFFIX, file_name, host_name};
use super::seen_place::SeenPlace;
use super::stored_rank::StoredRank;
use crate::watch::ranks::rank_process::RankProcess;
use crate::watch::trace::call::Call;
use allranks_model::names::Rank;

/// Version of the file.
const FORMAT: u32 = 1;

/// What one node saw of one world.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeEvidence {
    format: u32,
    /// Where its ranks meet, and the attempt of their launcher: `10.0.0.1:29500 0`.
    world: String,
    /// The node's name.
    host: String,
    /// When the first of its ranks was seen, in seconds since 1970.
    began: f64,
    /// When it was written last, likewise.
    at: f64,
    /// For how many seconds nothing had moved then.
    still_s: f64,
    /// After how many seconds without progress its user wants to hear what is only likely.
    patience_s: f64,
    /// Whether all ranks of the world are on this node.
    is_whole: bool,
    ranks: Vec<StoredRank>,
    /// The process id of the watch that wrote it; 0 if that is not known.
    #[serde(default)]
    writer: u32,
    /// Whether the command of that watch has ended, and nothing more will come.
    #[serde(skip)]
    is_over: bool,
}

impl NodeEvidence {
    /// Collects what this node sees of a world now.
    pub fn of(
        ranks: &[(Rank, &RankProcess)],
        began: f64,
        still: Duration,
        patience: Duration,
        is_whole: bool,
    ) -> Self {
        let stored = ranks
            .iter()
            .map(|(rank, process)| StoredRank::of(*rank, process));
        Self {
            format: FORMAT,
            world: (ranks.first()).map_or_else(String::new, |(_, process)| process.place()),
            host: host_name(),
            began,
            at: now(),
            still_s: still.as_secs_f64(),
            patience_s: patience.as_secs_f64(),
            is_whole,
            ranks: stored.collect(),
            writer: std::process::id(),
            is_over: false,
        }
    }

    /// Adds where ranks are by their stacks.
    #[must_use]
    pub fn with_places(mut self, places: &BTreeMap<Rank, SeenPlace>) -> Self {
        for rank in &mut self.ranks {
            rank.seen = places.get(&Rank(rank.rank)).cloned();
        }
        self
    }

    /// Writes it into a folder, in the place of what this process wrote of the same world before.
    ///
    /// # Errors
    /// The folder cannot be made or written to.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let name = format!("{}.{}.{}", self.world.trim(), self.host, self.writer);
        let name = file_name(&name);
        let path = folder.join(format!("{name}{SUFFIX}"));
        let draft = folder.join(format!("{name}.new"));
        let written = fs::write(&draft, serde_json::to_vec(self)?);
        let written = written.and_then(|()| fs::rename(&draft, &path));
        if let Err(error) = written {
            // Half of it, on a full disk.
            let _ = fs::remove_file(draft);
            return Err(error);
        }
        Ok(path)
    }

    /// Returns where its ranks meet.
    pub fn world(&self) -> &str {
        self.world.trim()
    }

    /// Returns what tells the watch that wrote it from others of the job.
    pub fn writer(&self) -> String {
        file_name(&format!("{}.{}", self.host, self.writer))
    }

    /// Returns when it was written, in seconds since 1970 by the writer's clock.
    pub fn at(&self) -> f64 {
        self.at
    }

    /// Returns for how many seconds nothing had moved when it was written.
    pub fn still_s(&self) -> f64 {
        self.still_s
    }

    /// Returns the name of its host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns true if all ranks of the world are on this node.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns after how many seconds without progress its user wants to hear what is only likely.
    pub fn patience_s(&self) -> f64 {
        self.patience_s
    }

    /// Returns the places of those ranks whose stacks were seen, by rank.
    pub fn seen_places(&self) -> impl Iterator<Item = (u32, &SeenPlace)> {
        let ranks = self.ranks.iter();
        ranks.filter_map(|rank| Some((rank.rank, rank.seen.as_ref()?)))
    }

    /// Returns its ranks, in order.
    pub fn ranks(&self) -> Vec<Rank> {
        self.numbers().into_iter().map(Rank).collect()
    }

    /// Returns true if rank 0 is here and waits for the others in `init_process_group`.
    pub fn waits_as_first(&self) -> bool {
        let first = self.ranks.iter().find(|rank| rank.rank == 0);
        let inside = first.and_then(|rank| rank.trace.as_ref()?.inside.as_ref());
        inside.is_some_and(|inside| matches!(inside.entry.call, Call::Init { .. }))
    }

    /// Returns true if the command of its watch has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes it as written at this time of this host's clock, whatever the writer's clock said.
    pub fn move_to(&mut self, at: f64) {
        self.began += at - self.at;
        self.at = at;
    }

    /// Takes it as true until this time: the command has ended, and no rank of it moves any more.
    pub fn last_until(&mut self, now: f64) {
        self.still_s += (now - self.at).max(0.0);
        // What goes on is newer.
        self.at = self.at.max(now - 0.001);
        self.is_over = true;
    }

    /// Its ranks, with all times moved to the clock of this machine, and to now.
    pub fn processes(&self) -> impl Iterator<Item = RankProcess> + '_ {
        let passed = now() - self.at;
        self.ranks.iter().map(move |rank| rank.process(passed))
    }

    /// Returns the numbers of its ranks.
    pub fn numbers(&self) -> BTreeSet<u32> {
        self.ranks.iter().map(|rank| rank.rank).collect()
    }

    /// Returns true if both were written in the time of one run.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.began <= other.at && other.began <= self.at
    }
}

/// Returns the time in seconds since 1970, by this host's clock.
pub fn now() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

/// Files of evidence could not be used.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// It is there and cannot be read.
    #[error("cannot read {path}: {1}", path = .0.display())]
    Unreadable(PathBuf, io::Error),
    /// It is no evidence, or that of a newer version.
    #[error("{path} is no evidence of format 1: {1}", path = .0.display())]
    Strange(PathBuf, String),
}

/// Reads one file of evidence.
///
/// # Errors
/// It cannot be read, or is no evidence of this version.
pub fn read(path: &Path) -> Result<NodeEvidence, EvidenceError> {
    let text = fs::read(path).map_err(|error| EvidenceError::Unreadable(path.to_owned(), error))?;
    let one: NodeEvidence = serde_json::from_slice(&text)
        .map_err(|error| EvidenceError::Strange(path.to_owned(), error.to_string()))?;
    match one.format {
        FORMAT => Ok(one),
        other => {
            let format = format!("it has format {other}");
            Err(EvidenceError::Strange(path.to_owned(), format))
        }
    }
}
