//! What torch's flight recorder, the backends' own record of their ops, says: its dumps, and an op of one as it is reported.
//!
//! `FlightRecorder.hpp` and `FlightRecorderDetail.hpp` of torch write dumps, as JSON (`_dump_nccl_trace_json`, `_dump_fr_trace_json`) and
//! as pickles of the same fields (`TORCH_FR_DUMP_TEMP_FILE`). Entries are a ring: the first may be far from a rank's first op.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::excerpt::excerpt_within;

/// An op that a rank has issued and that has not completed, as the flight recorder describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedOp {
    /// The op's name: `all_reduce`.
    pub op: String,
    /// The backend's name of the process group: `0 default_pg`.
    pub group: String,
    /// The op's sequence number among the group's collectives, or among its messages, from 1.
    pub number: u64,
    /// Dtype and shape of each input: `float[33]`.
    pub inputs: Vec<String>,
    /// The op's state: `scheduled` or `started`.
    pub state: String,
}

impl RecordedOp {
    /// Describes an entry of a dump.
    #[must_use]
    pub fn of(entry: &RecorderEntry) -> Self {
        let inputs = entry.input_dtypes.iter().zip(&entry.input_sizes);
        Self {
            op: entry.op().to_owned(),
            group: entry.process_group.join(" "),
            number: match entry.is_p2p {
                true => entry.p2p_seq_id,
                false => entry.collective_seq_id,
            },
            inputs: inputs
                .map(|(dtype, sizes)| format!("{}{sizes:?}", dtype.to_lowercase()))
                .collect(),
            state: entry.state.clone(),
        }
    }

    /// Cuts its texts to lengths that no op of a backend needs, and its inputs to the first sixteen.
    #[must_use]
    pub fn cut(self) -> Self {
        let cut = |text: String| excerpt_within(text, 256);
        Self {
            op: cut(self.op),
            group: cut(self.group),
            number: self.number,
            inputs: self.inputs.into_iter().take(16).map(cut).collect(),
            state: cut(self.state),
        }
    }
}

impl fmt::Display for RecordedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            op,
            group,
            number,
            inputs,
            state,
        } = self;
        write!(f, "{op} number {number} of group {group}")?;
        if !inputs.is_empty() {
            write!(f, ", {}", inputs.join(" and "))?;
        }
        write!(f, ", is {state}")
    }
}

/// The entries of a flight recorder's dump.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecorderDump {
    /// The ops, in the order in which they were issued.
    #[serde(default)]
    pub entries: Vec<RecorderEntry>,
}

/// One op that a backend issued; of coalesced ops, one entry each with the same number. Fields that a version of torch does not write,
/// or writes otherwise, have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecorderEntry {
    /// The op's number among the group's collectives, from 1.
    pub collective_seq_id: u64,
    /// The backend and the op: `nccl:all_reduce`.
    pub profiling_name: String,
    /// The library's name of the group, and its description: `0`, `default_pg`.
    pub process_group: Vec<String>,
    /// The shape of each input.
    #[serde(deserialize_with = "or_default")]
    pub input_sizes: Vec<Vec<u64>>,
    /// C++'s name of the dtype of each input: `Float`.
    #[serde(deserialize_with = "or_default")]
    pub input_dtypes: Vec<String>,
    /// True if the recorder has seen its end.
    pub retired: bool,
    /// True for a message, and for the entry that stands for a batch of messages.
    pub is_p2p: bool,
    /// Its number among the messages of the group, from 1; messages of one batch, and the entry for their end, share it.
    pub p2p_seq_id: u64,
    /// `scheduled`, `started` or `completed`. Some backends never say more than `scheduled`: `retired` tells what is over.
    pub state: String,
    /// The name of the thread that issued it; `None` if that is not recorded.
    pub thread_name: Option<String>,
    /// When it was issued: nanoseconds since 1970; 0 if that is not recorded.
    pub time_created_ns: u64,
    /// The recorder's number for the group, as in the counts (`pg_status`) of a dump.
    #[serde(deserialize_with = "or_default", skip_serializing)]
    pub pg_id: Option<u64>,
}

/// The recorder's name for the entry that stands for all ops of a batch, after those.
const BATCH: &str = "coalesced";

impl RecorderEntry {
    /// Returns the backend and the op: `nccl` and `recv 1<-0`; an empty backend if none is named.
    #[must_use]
    pub fn backend_and_op(&self) -> (&str, &str) {
        let name = &self.profiling_name;
        name.split_once(':').unwrap_or(("", name))
    }

    /// Returns the op without the backend: `recv 1<-0`.
    #[must_use]
    pub fn op(&self) -> &str {
        self.backend_and_op().1
    }

    /// Returns the library's name of its group; empty if there is none.
    #[must_use]
    pub fn group(&self) -> &str {
        self.process_group.first().map_or("", String::as_str)
    }

    /// Returns when it was issued, in seconds since 1970.
    #[must_use]
    pub fn time(&self) -> f64 {
        self.time_created_ns as f64 / 1e9
    }

    /// Returns true if it stands for a batch.
    #[must_use]
    pub fn is_batch(&self) -> bool {
        self.op().starts_with(BATCH)
    }
}

impl RecorderDump {
    /// Returns the entries of collectives, in the order in which they were issued. An entry that stands for a batch of messages is
    /// none of them, although it has the number of the collective before the batch.
    pub fn collectives(&self) -> impl Iterator<Item = &RecorderEntry> {
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

    /// Returns the same dump with all times this many seconds later.
    #[must_use]
    pub fn later(mut self, seconds: f64) -> Self {
        for entry in &mut self.entries {
            let time = entry.time_created_ns as f64 + seconds * 1e9;
            entry.time_created_ns = time.max(0.0) as u64;
        }
        self
    }
}

/// Reads a value, or its default from a value of another type.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Lenient<T> {
        Read(T),
        Other(IgnoredAny),
    }
    Ok(match Lenient::deserialize(from)? {
        Lenient::Read(value) => value,
        Lenient::Other(_) => T::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_of_another_type_is_as_absent() {
        let entry =
            json!({"collective_seq_id": 3, "input_sizes": null, "input_dtypes": 7, "pg_id": -1});
        let read: RecorderEntry = serde_json::from_value(entry).unwrap();
        let expected = RecorderEntry {
            collective_seq_id: 3,
            ..RecorderEntry::default()
        };
        assert_eq!(read, expected);
    }

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
        let dump: RecorderDump = serde_json::from_value(json!({ "entries": entries })).unwrap();
        let ops: Vec<(&str, &str)> = (dump.collectives())
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
