//! Reads the file that torch's flight recorder has written for a process.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Seconds by which the times of the record and of the call trace may differ; both come from the machine's clock.
pub const CLOCK: f64 = 0.000_01;

/// The fields that count of what torch's recorder wrote.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    #[serde(default)]
    pub entries: Vec<RecordEntry>,
}

/// One op that a backend issued; of coalesced ops, one entry each with the same number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordEntry {
    pub collective_seq_id: u64,
    pub profiling_name: String,
    /// The library's name of the group, and its description.
    pub process_group: Vec<String>,
    #[serde(default)]
    pub input_sizes: Value,
    #[serde(default)]
    pub input_dtypes: Vec<String>,
    #[serde(default)]
    pub retired: bool,
    #[serde(default)]
    pub is_p2p: bool,
    /// Its number among the messages of the group, from 1; messages of one batch, and the entry for their end, share it.
    #[serde(default)]
    pub p2p_seq_id: u64,
    #[serde(default)]
    pub state: String,
    #[serde(default)]
    pub thread_name: Option<String>,
    /// When it was issued: nanoseconds since 1970.
    pub time_created_ns: u64,
}

/// The record's name for the entry that stands for all ops of a batch, after those.
const BATCH: &str = "coalesced";

impl RecordEntry {
    /// Returns the op without the backend: `recv 1<-0`.
    pub fn op(&self) -> &str {
        let name = &self.profiling_name;
        name.split_once(':').map_or(name, |(_, op)| op)
    }

    /// Returns the library's name of its group; empty if the record has none.
    pub fn group(&self) -> &str {
        self.process_group.first().map_or("", String::as_str)
    }

    /// Returns when it was issued, in seconds since 1970.
    pub fn time(&self) -> f64 {
        self.time_created_ns as f64 / 1e9
    }

    /// Returns true if it stands for a batch.
    pub fn is_batch(&self) -> bool {
        self.op().starts_with(BATCH)
    }
}

impl Record {
    /// Returns the entries of collectives, in the order in which they were issued. An entry that stands for a batch of messages is
    /// none of them, although it has the number of the collective before the batch.
    pub fn collectives(&self) -> impl Iterator<Item = &RecordEntry> {
        let mut of_messages: BTreeMap<&str, bool> = BTreeMap::new();
        self.entries.iter().filter(move |entry| {
            let after_message = of_messages.entry(entry.group()).or_default();
            if entry.is_batch() {
                return !entry.is_p2p && !*after_message;
            }
            *after_message = entry.is_p2p;
            !entry.is_p2p
        })
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_batch_of_messages_is_no_part_of_the_collective_before_it() {
        let entry = |name: &str, group: &str, is_p2p: bool| {
            json!({
                "collective_seq_id": 1, "profiling_name": format!("nccl:{name}"), "process_group": [group, ""],
                "is_p2p": is_p2p, "time_created_ns": 1,
            })
        };
        let entries = [
            entry("all_reduce", "0", false),
            entry("all_reduce", "1", false),
            entry("recv 1<-0", "0", true),
            entry("coalesced", "1", false),
            entry("coalesced", "0", false),
            entry("broadcast", "0", false),
        ];
        let record: Record = serde_json::from_value(json!({ "entries": entries })).unwrap();
        let ops: Vec<(&str, &str)> = (record.collectives())
            .map(|entry| (entry.process_group[0].as_str(), entry.op()))
            .collect();
        let expected = [
            ("0", "all_reduce"),
            ("1", "all_reduce"),
            ("1", "coalesced"),
            ("0", "broadcast"),
        ];
        assert_eq!(ops, expected);
    }
}
