//! Dumps of torch's flight recorder, one a rank: JSON (`_dump_nccl_trace_json`, `_dump_fr_trace_json`) and the pickles that
//! torch writes when a collective times out (`TORCH_FR_DUMP_TEMP_FILE`).
//!
//! Entries are a ring: a rank's first entry may be far from its first collective. `state` is not believed, as some backends
//! never say more than `scheduled`; `retired` and the counters of a group are.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::pickle;
use allranks_model::flight_recorder::RecorderEntry;

/// Bytes from which a dump is known.
pub(super) const SIGN: u64 = 4096;
/// Bytes that a dump has at most; a ring of 2,000 entries with their stacks has about ten million.
pub(super) const LARGEST: u64 = 256 << 20;

/// What one rank's recorder held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dump {
    /// By the name of the group.
    pub(super) groups: BTreeMap<String, RecordedGroup>,
}

/// Collectives of one group on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordedGroup {
    /// The description of the group: `default_pg`.
    pub(super) about: String,
    /// Its members, by their ranks in the world; empty if they are not known.
    pub(super) members: BTreeSet<u32>,
    /// The number of the last that was issued.
    pub(super) issued: u64,
    /// The number of the last that is over.
    pub(super) over: u64,
    /// By number, as far as the ring goes back.
    pub(super) calls: BTreeMap<u64, RecordedCall>,
}

/// A collective as one rank issued it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedCall {
    /// The name of the op: `all_reduce`.
    pub(super) op: String,
    /// `Float[18696]`, one for each input.
    pub(super) inputs: Vec<String>,
}

/// Returns true if bytes begin as a dump does.
pub(super) fn is_dump(beginning: &[u8]) -> bool {
    let has = |word: &[u8]| beginning.windows(word.len()).any(|window| window == word);
    let is_json = beginning.trim_ascii_start().first() == Some(&b'{');
    let is_pickle = beginning.starts_with(b"\x80");
    (is_json && (has(b"\"entries\"") || has(b"\"pg_config\"")))
        || (is_pickle && (has(b"entries") || has(b"pg_config") || has(b"collective_seq_id")))
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default, deserialize_with = "or_default")]
    entries: Vec<Value>,
    #[serde(default, deserialize_with = "or_default")]
    pg_config: BTreeMap<String, Value>,
    #[serde(default, deserialize_with = "or_default")]
    pg_status: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    desc: String,
    /// A list as a text.
    ranks: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    last_enqueued_collective: i64,
    #[serde(default)]
    last_completed_collective: i64,
}

fn or_default<'de, D: serde::Deserializer<'de>, T: Default + DeserializeOwned>(
    from: D,
) -> Result<T, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

impl Dump {
    /// Reads a dump; what is wrong with it, in words.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let value = match bytes.first() {
            Some(0x80) => pickle::read(bytes)
                .map_err(|error| error.to_string())?
                .into_json(),
            _ => serde_json::from_slice(bytes).map_err(|error| error.to_string())?,
        };
        let raw: Raw = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let mut dump = Self::default();
        let mut names: BTreeMap<u64, String> = BTreeMap::new();
        for entry in raw.entries {
            let Ok(entry) = serde_json::from_value::<RecorderEntry>(entry) else {
                continue;
            };
            let [name, about] = entry.process_group.as_slice() else {
                continue;
            };
            if let Some(id) = entry.pg_id {
                names.insert(id, name.clone());
            }
            let group = dump.groups.entry(name.clone()).or_default();
            group.about.clone_from(about);
            if entry.is_p2p {
                continue;
            }
            group.issued = group.issued.max(entry.collective_seq_id);
            let sizes = entry.input_sizes.iter().zip(&entry.input_dtypes);
            let call = RecordedCall {
                op: entry.op().to_owned(),
                inputs: sizes
                    .map(|(size, dtype)| format!("{dtype}{size:?}"))
                    .collect(),
            };
            group.calls.insert(entry.collective_seq_id, call);
            if entry.retired {
                group.over = group.over.max(entry.collective_seq_id);
            }
        }
        for (name, config) in raw.pg_config {
            let Ok(config) = serde_json::from_value::<Config>(config) else {
                continue;
            };
            // The group of all ranks has no name here, and number 0 where it is used.
            let name = if name.is_empty() {
                "0".to_owned()
            } else {
                name
            };
            let group = dump.groups.entry(name).or_default();
            let ranks = config.ranks.split(|c: char| !c.is_ascii_digit());
            group.members = ranks.filter_map(|rank| rank.parse().ok()).collect();
            if group.about.is_empty() {
                group.about = config.desc;
            }
        }
        for (id, status) in raw.pg_status {
            let Ok(status) = serde_json::from_value::<Status>(status) else {
                continue;
            };
            let name = id.parse().ok().and_then(|id| names.get(&id));
            let Some(group) = name.and_then(|name| dump.groups.get_mut(name)) else {
                continue;
            };
            let number = |number: i64| u64::try_from(number).unwrap_or(0);
            group.issued = group.issued.max(number(status.last_enqueued_collective));
            group.over = group.over.max(number(status.last_completed_collective));
        }
        match dump.groups.is_empty() {
            true => Err("it holds no group".to_owned()),
            false => Ok(dump),
        }
    }
}

impl RecordedGroup {
    /// Returns the name of the group for reports: `default_pg`, or its own name.
    pub(super) fn title<'a>(&'a self, name: &'a str) -> &'a str {
        if self.about.is_empty() {
            name
        } else {
            &self.about
        }
    }

    /// Returns true if something is under way.
    pub(super) fn waits(&self) -> bool {
        self.over < self.issued
    }
}

impl RecordedCall {
    /// Returns the call as every member must issue it, as text: inputs only of those collectives to which all bring the same.
    pub(super) fn signature(&self) -> String {
        let is_alike = [
            "all_reduce",
            "allreduce",
            "broadcast",
            "reduce",
            "_all_gather_base",
            "all_gather_into_tensor",
            "allgather",
        ];
        match is_alike.contains(&self.op.as_str()) && !self.inputs.is_empty() {
            true => format!("{} of {}", self.op, self.inputs.join(" and ")),
            false => self.op.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"version":"2.10","pg_config":{"":{"desc":"","name":"","ranks":"[0, 1]"}},
        "pg_status":{"0":{"last_enqueued_collective":3,"last_started_collective":-1,"last_completed_collective":2}},
        "entries":[{"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":2,"profiling_name":"gloo:all_reduce","input_sizes":[[4]],"input_dtypes":["Float"],"retired":true,"is_p2p":false},
        {"broken":1},
        {"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":3,"profiling_name":"gloo:barrier","input_sizes":[],"input_dtypes":[],"retired":false,"is_p2p":false}]}"#;

    #[test]
    fn json_is_read() {
        assert!(is_dump(JSON.as_bytes()) && !is_dump(b"{\"a\": 1}") && !is_dump(b"entries"));
        let dump = Dump::read(JSON.as_bytes()).unwrap();
        let group = &dump.groups["0"];
        assert_eq!((group.issued, group.over, group.waits()), (3, 2, true));
        assert_eq!(group.members, [0, 1].into());
        assert_eq!(group.title("0"), "default_pg");
        assert_eq!(group.calls[&2].signature(), "all_reduce of Float[4]");
        assert_eq!(group.calls[&3].signature(), "barrier");
    }

    #[test]
    fn what_is_no_dump_is_refused() {
        for bytes in [
            &b"{"[..],
            b"[]",
            b"{}",
            b"\x80\x02}.",
            b"\x80\x02cos\nsystem\n.",
        ] {
            assert!(Dump::read(bytes).is_err(), "{bytes:?}");
        }
    }
}
