//! What a Python process writes down of its torch.distributed calls: see `python/allranks_watch/allranks_trace.py`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Deserialize;

use allranks_model::names::Rank;

/// A diary, as it was at its last change.
#[derive(Clone, Debug, Deserialize)]
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
    /// The last beat.
    #[serde(skip)]
    pub(super) beat: Option<SystemTime>,
    /// What the file said.
    #[serde(skip)]
    text: Arc<[u8]>,
}

/// A group.
#[derive(Clone, Debug, Deserialize)]
pub struct Group {
    /// `world`, or nothing.
    pub name: String,
    /// Global ranks.
    pub members: Vec<Rank>,
    /// Collectives so far.
    pub count: usize,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
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
    /// What.
    #[serde(flatten)]
    pub call: Call,
}

/// What was called.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
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
#[derive(Clone, Debug, Deserialize)]
pub struct Inside {
    /// Which.
    pub entry: Entry,
    /// Since when, in seconds since 1970.
    pub since: f64,
}

/// A line of the program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Own {
    /// The line.
    pub text: String,
    /// Its place.
    pub at: String,
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
        let diary: Self = serde_json::from_slice(&text).ok()?;
        Some(Self {
            beat,
            text: text.into(),
            ..diary
        })
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
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seconds = now.unwrap_or_default().as_secs_f64() - self.since;
        Duration::from_secs_f64(seconds.max(0.0))
    }
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
