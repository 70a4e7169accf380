//! The evidence files of one watch: one for each world, written anew while it lives.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::node_evidence::{self, NodeEvidence};
use crate::watch::command::settings::Settings;
use crate::watch::detector::monitor::Monitor;
use crate::watch::evidence::whole_world::is_whole;

/// From one writing of evidence to the next, in looks.
pub const EVIDENCE_LOOKS: u32 = 8;

/// Writes what is seen of each world into files of a folder.
#[derive(Debug)]
pub struct EvidenceFiles<'a> {
    settings: &'a Settings,
    looks: u32,
    /// By world: its file, and when the first of its ranks was seen.
    files: BTreeMap<String, (PathBuf, f64)>,
    /// When worlds were first seen to have no living rank, by the lowest rank's process.
    ended: BTreeMap<u32, Instant>,
    /// Why nothing could be written the last time; `None` if something could.
    lost: Option<String>,
}

impl<'a> EvidenceFiles<'a> {
    /// Makes the files of a watch. None is written yet.
    pub fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            looks: 0,
            files: BTreeMap::new(),
            ended: BTreeMap::new(),
            lost: None,
        }
    }

    /// Writes every few looks, and when there is something to tell. Returns why that fails, unless it was told before: what
    /// cannot be written now may be written at the next look, and is no reason to end a job.
    pub fn write(&mut self, monitor: &Monitor, is_reported: bool) -> Option<String> {
        let folder = self.settings.evidence.as_deref()?;
        self.looks += 1;
        if !is_reported && !self.looks.is_multiple_of(EVIDENCE_LOOKS) {
            return None;
        }
        let result = self.write_worlds(folder, monitor);
        self.news(folder, result)
    }

    /// Returns the text about a result of writing; `None` if it is the same as the last time.
    fn news(&mut self, folder: &Path, result: io::Result<()>) -> Option<String> {
        let lost = result.err().map(|error| error.to_string());
        if lost == self.lost {
            return None;
        }
        self.lost.clone_from(&lost);
        let folder = folder.display();
        Some(match lost {
            Some(why) => {
                format!("evidence cannot be written to {folder}: {why}; the command goes on")
            }
            None => format!("evidence is written to {folder} again"),
        })
    }

    /// Writes the file of each world. A world of which no rank lives keeps the file that was written last, unless another
    /// one lives.
    fn write_worlds(&mut self, folder: &Path, monitor: &Monitor) -> io::Result<()> {
        let mut kept = BTreeMap::new();
        let mut worlds = monitor.detector.stills(&monitor.job);
        if self.settings.is_shared {
            // Ranks on other nodes may wait for those that have ended here.
            let ended = monitor.job.worlds().into_iter();
            let ended = ended.filter(|ranks| !ranks.iter().any(|(_, rank)| rank.lives()));
            for ranks in ended {
                let key = ranks.first().map_or(0, |(_, process)| process.pid);
                let since = *self.ended.entry(key).or_insert_with(Instant::now);
                worlds.push((ranks, since.elapsed()));
            }
        }
        for (ranks, still) in worlds {
            let Some(key) = ranks.first().map(|(_, process)| process.place()) else {
                continue;
            };
            let began = self
                .files
                .get(&key)
                .map_or_else(node_evidence::now, |(_, began)| *began);
            let is_whole = is_whole(&ranks, true);
            let one = NodeEvidence::of(&ranks, began, still, self.settings.patience, is_whole);
            kept.insert(key, (one.write(folder)?, began));
        }
        if !kept.is_empty() {
            let past = std::mem::replace(&mut self.files, kept);
            for (path, _) in past.values() {
                if !self.files.values().any(|(kept, _)| kept == path) {
                    let _ = std::fs::remove_file(path);
                }
            }
        }
        Ok(())
    }

    /// Removes all files: nothing hangs that has ended well.
    pub fn remove(&self) {
        for (path, _) in self.files.values() {
            let _ = std::fs::remove_file(path);
        }
    }
}
