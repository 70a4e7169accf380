//! What a Python process writes down of its torch.distributed calls: see `python/allranks_watch/allranks_trace.py`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::recorder::Record;
use allranks_model::names::Rank;

/// Calls that have failed for that long are tried again and again.
const RETRIES: Duration = Duration::from_secs(1);

/// The recorder's names for how many collectives of a group were issued, and have ended.
const ENQUEUED: &str = "last_enqueued_collective";
const COMPLETED: &str = "last_completed_collective";

/// A diary, as it was at its last change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Diary {
    /// Calls begun and ended so far.
    pub moves: u64,
    /// Worlds joined so far, or tried to.
    pub epoch: u32,
    /// Groups by key.
    #[serde(default)]
    pub groups: BTreeMap<String, Group>,
    /// Calls, oldest first.
    #[serde(default)]
    pub entries: Vec<Entry>,
    /// Entries that are no longer kept.
    #[serde(default)]
    pub dropped: u64,
    /// The call it is in.
    pub inside: Option<Inside>,
    /// The program's own line it is at.
    pub own: Option<Own>,
    /// Errors that it has not got over.
    #[serde(default)]
    pub errors: Vec<String>,
    /// The version of torch.
    #[serde(default)]
    pub torch: Option<String>,
    /// Whether Python has come to its end.
    #[serde(default)]
    pub ended: bool,
    /// Whether its main thread has, and other threads keep the process.
    #[serde(default)]
    pub finished: bool,
    /// The error that has ended its main thread.
    #[serde(default)]
    pub fatal: Option<String>,
    /// Calls begun and ended since the first error after the last call that returned.
    #[serde(default)]
    pub retries: u64,
    /// When that error came, in seconds since 1970.
    #[serde(default)]
    pub failing_since: Option<f64>,
    /// The counts of torch's flight recorder.
    #[serde(default)]
    pub recorder: Option<Counts>,
    /// What that recorder has written.
    #[serde(skip)]
    pub record: Option<Arc<Record>>,
    /// The last beat.
    #[serde(skip)]
    pub(super) beat: Option<SystemTime>,
    /// What the file said.
    #[serde(skip)]
    text: Arc<[u8]>,
}

/// A group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    /// `world`, or nothing.
    pub name: String,
    /// Global ranks.
    pub members: Vec<Rank>,
    /// Collectives so far.
    pub count: usize,
}

/// How many collectives torch's flight recorder has seen, by its number for the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Now.
    #[serde(default)]
    pub status: Value,
    /// When the record was written last.
    #[serde(default)]
    pub dumped: Value,
}

impl Counts {
    /// How many collectives were issued, or have ended.
    fn sum(counts: &Value, name: &str) -> u64 {
        let number = |value: &Value| match value {
            Value::String(text) => text.parse().unwrap_or(0),
            other => other.as_i64().unwrap_or(0),
        };
        let groups = counts
            .as_object()
            .into_iter()
            .flat_map(|groups| groups.values());
        groups.map(|one| number(&one[name]).max(0) as u64).sum()
    }
}

/// A call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number among the diary's entries.
    pub id: u64,
    /// The world it belongs to.
    pub epoch: u32,
    /// Where in the program.
    #[serde(default)]
    pub at: String,
    /// Whether it is the wait for that call.
    #[serde(default)]
    pub waits: bool,
    /// When it began, in seconds since 1970.
    #[serde(default)]
    pub t: Option<f64>,
    /// When it ended.
    #[serde(default)]
    pub end: Option<f64>,
    /// The error that ended it.
    #[serde(default)]
    pub raised: Option<String>,
    /// Whether the others can meet it there: what raised before it issued anything is no part of the group's sequence.
    #[serde(skip, default = "yes")]
    pub is_issued: bool,
    /// What.
    #[serde(flatten)]
    pub call: Call,
}

fn yes() -> bool {
    true
}

/// What was called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Call {
    /// `init_process_group`.
    Init {
        /// `env`, `tcp`, `file`, `store`.
        method: String,
        /// Host and port, or a file.
        place: String,
        /// The rank it says it is; negative if it says none.
        rank: Option<i64>,
        /// The size it says the world has; likewise.
        world_size: Option<i64>,
    },
    /// `new_group`.
    NewGroup {
        /// Global ranks.
        ranks: Vec<Rank>,
    },
    /// A collective.
    Collective {
        /// Key of its group.
        group: String,
        /// Its number in the group.
        number: usize,
        /// `all_reduce`.
        name: String,
        /// What must be alike on all members.
        nature: BTreeMap<String, String>,
    },
    /// One side of a message.
    Message {
        /// Key of its group.
        group: String,
        /// Whether it is the sender's.
        sends: bool,
        /// The other side.
        peer: Option<Rank>,
        /// The tag.
        #[serde(default)]
        tag: u32,
    },
    /// `destroy_process_group`.
    Destroy {
        /// `world`, or a key.
        group: String,
    },
    /// The wait for keys of a store.
    Store {
        /// Which.
        keys: Vec<String>,
    },
    /// Something that concerns no other rank.
    Own {
        /// What.
        text: String,
    },
    /// A call to join or leave the world has come back.
    End {
        /// `init` or `destroy`.
        of: String,
        /// Whether without an error.
        ok: bool,
    },
}

/// The call a process is in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inside {
    /// Which.
    pub entry: Entry,
    /// Since when, in seconds since 1970.
    pub since: f64,
}

/// A line of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// The line.
    pub text: String,
    /// Its place.
    pub at: String,
    /// What it is in there: `breakpoint`, `data loader`, `lock`, `torch`, `backward`, or nothing.
    #[serde(default, rename = "in")]
    pub kind: String,
}

impl Diary {
    /// The diary of a process, given what is known of it already; none if it keeps none, or has not begun.
    #[must_use]
    pub fn read(folder: &Path, pid: u32, known: Option<&Self>) -> Option<Self> {
        let mut file = File::open(folder.join(format!("{pid}.json"))).ok()?;
        let beat = file.metadata().ok()?.modified().ok();
        let mut text = Vec::new();
        file.read_to_end(&mut text).ok()?;
        // Nothing but the text tells whether it has changed: a file system gives the number of a replaced file to the next.
        if let Some(known) = known.filter(|known| *known.text == *text) {
            return Some(Self {
                beat,
                ..known.clone()
            });
        }
        let mut diary: Self = serde_json::from_slice(&text).ok()?;
        let is_same = known.is_some_and(|known| {
            known.recorder.as_ref().map(|one| &one.dumped)
                == diary.recorder.as_ref().map(|one| &one.dumped)
        });
        diary.record = match known.filter(|_| is_same) {
            Some(known) => known.record.clone(),
            None => Record::read(folder, pid).map(Arc::new),
        };
        Some(Self {
            beat,
            text: text.into(),
            ..diary
        })
    }

    /// Adds the entries that a process wrote before it died and that are not in its file yet.
    pub fn add_last_entries(&mut self, folder: &Path, pid: u32) {
        let Ok(text) = std::fs::read(folder.join(format!("{pid}.json.last"))) else {
            return;
        };
        let known = self.entries.iter().map(|entry| entry.id).max().unwrap_or(0);
        let lines = text.split(|byte| *byte == b'\n' || *byte == 0);
        let mut last: Vec<Entry> = lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        last.retain(|entry| entry.id > known);
        last.sort_by_key(|entry| entry.id);
        for entry in last {
            self.epoch = self.epoch.max(entry.epoch);
            self.entries.push(entry);
        }
    }

    /// Moves all times by the seconds that have passed since it was read elsewhere, and gives it the record that it had there.
    /// `silence` is for how many seconds it had given no sign of life then.
    pub fn move_to_now(&mut self, passed: f64, silence: f64, record: Option<Record>) {
        let later = |time: &mut Option<f64>| {
            if let Some(time) = time {
                *time += passed;
            }
        };
        for entry in &mut self.entries {
            later(&mut entry.t);
            later(&mut entry.end);
        }
        if let Some(inside) = &mut self.inside {
            later(&mut inside.entry.t);
            later(&mut inside.entry.end);
            inside.since += passed;
        }
        later(&mut self.failing_since);
        self.beat = SystemTime::now().checked_sub(Duration::from_secs_f64(silence.max(0.0)));
        self.record = record.map(|record| Arc::new(record.later(passed)));
    }

    /// Whether collectives were issued after the record was written.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.recorder.as_ref().is_some_and(|one| {
            Counts::sum(&one.status, ENQUEUED) != Counts::sum(&one.dumped, ENQUEUED)
        })
    }

    /// A number that changes with all progress: calls begun and ended, and what the recorder counts. Calls that fail again and
    /// again are none.
    #[must_use]
    pub fn progress(&self) -> u64 {
        let recorded = self
            .recorder
            .as_ref()
            .filter(|_| self.retries == 0)
            .map_or(0, |one| {
                Counts::sum(&one.status, ENQUEUED) + Counts::sum(&one.status, COMPLETED)
            });
        (self.moves - self.retries.min(self.moves)) + recorded
    }

    /// Whether its calls have failed again and again for a second: what it does between two attempts is no progress.
    #[must_use]
    pub fn is_retrying(&self) -> bool {
        self.failing_since
            .is_some_and(|since| since_1970(since) >= RETRIES)
    }

    /// How long ago the last beat was.
    #[must_use]
    pub fn silence(&self) -> Duration {
        let beat = self.beat.and_then(|beat| beat.elapsed().ok());
        beat.unwrap_or_default()
    }

    /// Whether the process has had to do with torch.distributed.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.moves > 0
    }
}

impl Inside {
    /// For how long.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        since_1970(self.since)
    }
}

/// How long ago that was.
fn since_1970(moment: f64) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = now.unwrap_or_default().as_secs_f64() - moment;
    Duration::from_secs_f64(seconds.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_later_is_read_though_the_file_has_the_same_number() {
        let folder = tempfile::tempdir().unwrap();
        let write = |ended: bool| {
            let text = format!(r#"{{"moves": 1, "epoch": 0, "ended": {ended}}}"#);
            std::fs::write(folder.path().join("7.json"), text).unwrap();
        };
        write(false);
        let first = Diary::read(folder.path(), 7, None).unwrap();
        assert!(!first.ended);
        assert!(!Diary::read(folder.path(), 7, Some(&first)).unwrap().ended);
        write(true);
        assert!(Diary::read(folder.path(), 7, Some(&first)).unwrap().ended);
    }
}
