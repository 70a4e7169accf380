//! Reads the file that torch's flight recorder has written for a process.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Seconds by which the times of the record and of the call trace may differ; both come from the machine's clock.
pub(super) const CLOCK: f64 = 0.000_01;

/// The fields that count of what torch's recorder wrote.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    #[serde(default)]
    pub(super) entries: Vec<RecordEntry>,
}

/// One op that a backend issued; of coalesced ops, one entry each with the same number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordEntry {
    pub(super) collective_seq_id: u64,
    pub(super) profiling_name: String,
    /// The library's name of the group, and its description.
    pub(super) process_group: Vec<String>,
    #[serde(default)]
    pub(super) input_sizes: Value,
    #[serde(default)]
    pub(super) input_dtypes: Vec<String>,
    #[serde(default)]
    pub(super) retired: bool,
    #[serde(default)]
    pub(super) is_p2p: bool,
    /// Its number among the messages of the group, from 1; messages of one batch, and the entry for their end, share it.
    #[serde(default)]
    pub(super) p2p_seq_id: u64,
    #[serde(default)]
    pub(super) state: String,
    #[serde(default)]
    pub(super) thread_name: Option<String>,
    /// When it was issued: nanoseconds since 1970.
    pub(super) time_created_ns: u64,
}

impl Record {
    /// Reads the record that a process has written beside its call trace; none if there is none.
    #[must_use]
    pub fn read(folder: &Path, pid: u32) -> Option<Self> {
        let text = fs::read(folder.join(format!("{pid}.json.recorder"))).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Returns the same record with all times this many seconds later.
    #[must_use]
    pub fn later(mut self, seconds: f64) -> Self {
        for entry in &mut self.entries {
            let time = entry.time_created_ns as f64 + seconds * 1e9;
            entry.time_created_ns = time.max(0.0) as u64;
        }
        self
    }
}
