//! Which version of each file of evidence was read when: clocks of other hosts are not used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::evidence_paths::files;
use super::node_evidence::{self, NodeEvidence};
use super::other_watches::OtherWatches;

/// The newest version of each file of evidence.
#[derive(Debug, Default)]
pub struct EvidenceVersions(BTreeMap<PathBuf, Version>);

/// One version of a file.
#[derive(Clone, Copy, Debug)]
struct Version {
    /// When it says that it was written, in seconds since 1970.
    at: f64,
    /// When it was first read here, likewise.
    read: f64,
    /// The same by this process's clock.
    since: Instant,
}

impl EvidenceVersions {
    /// Reads the evidence in a folder of all watches that count, with times of this host's clock. `own` is the name of this watch.
    pub fn read(
        &mut self,
        folder: &Path,
        others: &OtherWatches,
        own: &str,
    ) -> Vec<(PathBuf, NodeEvidence)> {
        let now = node_evidence::now();
        let mut found = Vec::new();
        let paths = files(folder);
        self.0.retain(|path, _| paths.contains(path));
        for path in paths {
            // It may be removed meanwhile.
            let Ok(mut one) = node_evidence::read(&path) else {
                continue;
            };
            let writer = one.writer();
            let is_over = match others.has_ended(&writer) {
                Some(is_over) => is_over,
                None if writer == own => false,
                None => continue,
            };
            let fresh = Version {
                at: one.at(),
                read: now,
                since: Instant::now(),
            };
            let version = self.0.entry(path.clone()).or_insert(fresh);
            if version.at.to_bits() != fresh.at.to_bits() {
                *version = fresh;
            }
            one.move_to(version.read);
            if is_over {
                // Its ranks have ended, and do not move any more.
                one.last_until(now);
            }
            found.push((path, one));
        }
        found
    }

    /// Returns for each world for how many seconds nothing has moved on any node that goes on, and when the oldest evidence was read.
    pub fn stillness(
        &self,
        evidence: &[(PathBuf, NodeEvidence)],
    ) -> BTreeMap<String, (f64, Instant)> {
        let mut found: BTreeMap<String, (f64, Instant)> = BTreeMap::new();
        for (path, one) in evidence {
            let Some(version) = self.0.get(path) else {
                continue;
            };
            let since = match one.is_over() {
                true => Instant::now(),
                false => version.since,
            };
            let entry = found
                .entry(one.world().trim().to_owned())
                .or_insert((f64::INFINITY, since));
            entry.0 = entry.0.min(one.still_s());
            entry.1 = entry.1.min(since);
        }
        found
    }
}
