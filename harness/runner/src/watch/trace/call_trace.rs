//! Reads the call trace that a Python process writes of its torch.distributed calls;
//! `python/allranks_watch/allranks_trace.py` writes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::call::{Entry, Inside, since_1970};
use super::own_wait::OwnWait;
use super::recorder_counts::RecorderCounts;
use super::recorder_dump::read_dump;
use allranks_diagnose::Reads;
use allranks_model::flight_recorder::RecorderDump;
use allranks_model::names::Rank;

/// How long calls must have failed again and again before the process counts as retrying.
const RETRIES: Duration = Duration::from_secs(1);

/// A call trace, as it was at its last change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallTrace {
    /// Number of calls begun and ended so far, together.
    pub moves: u64,
    /// Number of worlds that the process has joined, or tried to join.
    pub epoch: u32,
    /// Groups by key, `EPOCH.NAME`.
    #[serde(default)]
    pub groups: BTreeMap<String, Group>,
    /// The calls that are kept, oldest first.
    #[serde(default)]
    pub entries: Vec<Entry>,
    /// Number of entries that are no longer kept.
    #[serde(default)]
    pub dropped: u64,
    /// The messages so far, by sort; empty if there are too many sorts.
    #[serde(default)]
    pub messages: Vec<MessageCount>,
    /// The call that the process is in; none if it is in none.
    pub inside: Option<Inside>,
    /// The line of the program's own code that it is at; none if it is not known.
    pub own: Option<Own>,
    /// Errors raised since the last call that returned.
    #[serde(default)]
    pub errors: Vec<String>,
    /// Keys of stores that the program has set, oldest first, as far as they are kept.
    #[serde(default)]
    pub keys_set: Vec<String>,
    /// How often it has set those that it has set more than once.
    #[serde(default)]
    pub keys_set_again: BTreeMap<String, u32>,
    /// Those that it has deleted and not set again, oldest first, as far as they are kept.
    #[serde(default)]
    pub keys_deleted: Vec<String>,
    /// What each line of the program, `FILE:LINE`, has read of stores, as far as it is kept.
    #[serde(default)]
    pub reads: BTreeMap<String, Reads>,
    /// The numbers of those of its threads that have made calls and have ended.
    #[serde(default)]
    pub ended_threads: Vec<u32>,
    /// The errors that have ended threads other than the main one, oldest first.
    #[serde(default)]
    pub thread_errors: Vec<String>,
    /// True if several threads have issued collectives or messages.
    #[serde(default)]
    pub calls_by_threads: bool,
    /// True if threads other than the main one have set keys.
    #[serde(default)]
    pub keys_by_threads: bool,
    /// The version of torch; none if it is not imported.
    #[serde(default)]
    pub torch: Option<String>,
    /// When the process last ended a call, in seconds since 1970; none if it has ended none, or if that is not known.
    #[serde(default)]
    pub left: Option<f64>,
    /// The calls whose works the program has waited for, oldest first.
    #[serde(default)]
    pub waited: Vec<Waited>,
    /// True if the Python interpreter has come to its end.
    #[serde(default)]
    pub ended: bool,
    /// True if the main thread has run its program to the end, and the process has not ended.
    #[serde(default)]
    pub finished: bool,
    /// The threads whose end the main thread waits for, as far as they are told of.
    #[serde(default)]
    pub threads: Vec<AwaitedThread>,
    /// The error that ended the main thread, or a task of its event loop that made calls; none if no error did.
    #[serde(default)]
    pub fatal: Option<String>,
    /// Number of calls begun and ended since the first error after the last call that returned; 0 without such an
    /// error.
    #[serde(default)]
    pub retries: u64,
    /// When that error came, in seconds since 1970; none without such an error.
    #[serde(default)]
    pub failing_since: Option<f64>,
    /// The counts of torch's flight recorder; none if there is no recorder.
    #[serde(default)]
    pub recorder: Option<RecorderCounts>,
    /// The dump of that recorder; none if it has written none.
    #[serde(skip)]
    pub dump: Option<Arc<RecorderDump>>,
    /// When the process last wrote its heartbeat.
    #[serde(skip)]
    pub beat: Option<SystemTime>,
    /// The file's content, to tell whether it has changed.
    #[serde(skip)]
    text: Arc<[u8]>,
}

/// The wait for the work of a call: the id of its entry; when the wait ended, in seconds since 1970; and the stream that alone has waited,
/// if it was one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waited(pub u64, pub f64, #[serde(default)] pub Option<i64>);

/// How many messages of a sort a process has begun: the key of their group; true for sends; the other side's rank, none for receives from
/// any; the tag; and the number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCount(pub String, pub bool, pub Option<Rank>, pub u32, pub usize);

/// A process group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    /// The name of the group: `world`, or empty if it has none.
    pub name: String,
    /// Global ranks of its members.
    pub members: Vec<Rank>,
    /// Number of collectives in it so far.
    pub count: usize,
}

/// A thread of Python whose end the main thread waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedThread {
    /// The name of the thread.
    pub name: String,
    /// The text of the program's line that it is at.
    pub text: String,
    /// The location of that line: `FILE:LINE`.
    pub at: String,
}

/// The line of the program that a process is at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// The text of the line.
    pub text: String,
    /// The line of the program that made the call: `FILE:LINE`.
    pub at: String,
    /// What the process is in at that line.
    #[serde(default, rename = "in")]
    pub kind: OwnWait,
    /// The file whose lock the process asks for there again and again, without having it open; none if it asks for none.
    #[serde(default)]
    pub lock: Option<PathBuf>,
    /// Both ends, `HOST:PORT`, its own first, of the connection at which the process waits there; none if it waits at none that is known.
    #[serde(default)]
    pub connection: Option<[String; 2]>,
}

impl CallTrace {
    /// Reads the call trace of a process, given the one that was read before. None if the process writes no trace, or
    /// has not begun one.
    #[must_use]
    pub fn read(folder: &Path, pid: u32, known: Option<&Self>) -> Option<Self> {
        let mut file = File::open(folder.join(format!("{pid}.json"))).ok()?;
        let beat = file.metadata().ok()?.modified().ok();
        let mut text = Vec::new();
        file.read_to_end(&mut text).ok()?;
        // Only the content tells whether the file has changed: a file system may give the inode of a replaced file to
        // its successor.
        if let Some(known) = known.filter(|known| *known.text == *text) {
            return Some(Self {
                beat,
                ..known.clone()
            });
        }
        let mut call_trace: Self = serde_json::from_slice(&text).ok()?;
        let is_same = known.is_some_and(|known| {
            known.recorder.as_ref().map(|one| &one.dumped)
                == call_trace.recorder.as_ref().map(|one| &one.dumped)
        });
        call_trace.dump = match known.filter(|_| is_same) {
            Some(known) => known.dump.clone(),
            None => read_dump(folder, pid).map(Arc::new),
        };
        Some(Self {
            beat,
            text: text.into(),
            ..call_trace
        })
    }

    /// Adds the entries that a process wrote just before it died and that are not in its trace file.
    pub fn add_last_entries(&mut self, folder: &Path, pid: u32) {
        let Ok(text) = std::fs::read(folder.join(format!("{pid}.json.last"))) else {
            return;
        };
        let lines = text.split(|byte| *byte == b'\n' || *byte == 0);
        let last = lines.filter_map(|line| serde_json::from_slice(line).ok());
        self.append(last.collect());
    }

    /// Appends those of the entries that are newer than its own.
    fn append(&mut self, mut last: Vec<Entry>) {
        let known = self.entries.iter().map(|entry| entry.id).max().unwrap_or(0);
        last.retain(|entry| entry.id > known);
        last.sort_by_key(|entry| entry.id);
        let Some(first) = last.first() else { return };
        // The call that it was in when the trace was written has ended since; whether the newest one has is not known.
        self.inside = None;
        let missing = first.id - known - 1;
        if missing > 0 {
            // What was before has no place in the order of calls any more.
            let before = self.entries.len();
            self.entries.retain(|entry| !entry.call.is_numbered());
            self.dropped += missing + (before - self.entries.len()) as u64;
        }
        for entry in last {
            self.epoch = self.epoch.max(entry.epoch);
            self.entries.push(entry);
        }
    }

    /// Moves all times by the seconds that have passed since it was read elsewhere, and gives it the dump that it had there.
    /// `silence` is for how many seconds it had given no sign of life then.
    pub fn move_to_now(&mut self, passed: f64, silence: f64, dump: Option<RecorderDump>) {
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
        for waited in &mut self.waited {
            waited.1 += passed;
        }
        later(&mut self.failing_since);
        later(&mut self.left);
        self.beat = SystemTime::now().checked_sub(Duration::from_secs_f64(silence.max(0.0)));
        self.dump = dump.map(|dump| Arc::new(dump.later(passed)));
    }

    /// Returns true if collectives were issued after the flight recorder's dump was written.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.recorder.as_ref().is_some_and(|one| one.is_stale())
    }

    /// Returns a number that changes with all progress: calls begun and ended, and the flight recorder's counts. Calls
    /// that fail again and again are no progress.
    #[must_use]
    pub fn progress(&self) -> u64 {
        let recorded = self
            .recorder
            .as_ref()
            .filter(|_| self.retries == 0)
            .map_or(0, |one| one.progress());
        (self.moves - self.retries.min(self.moves)) + recorded
    }

    /// Returns true if the process's calls have failed again and again for at least a second: what it does between two
    /// attempts is no progress.
    #[must_use]
    pub fn is_retrying(&self) -> bool {
        self.failing_since
            .is_some_and(|since| since_1970(since) >= RETRIES)
    }

    /// Returns how long ago the last heartbeat was; zero if that is not known.
    #[must_use]
    pub fn silence(&self) -> Duration {
        let beat = self.beat.and_then(|beat| beat.elapsed().ok());
        beat.unwrap_or_default()
    }

    /// Returns how long the process has been in no call: the time since it last ended one, or since C++ code of it began one. Zero
    /// if no time is known.
    #[must_use]
    pub fn since_last_call(&self) -> Duration {
        let begun = self.entries.iter().filter_map(|entry| entry.t);
        let last = begun.chain(self.left).reduce(f64::max);
        last.map_or(Duration::ZERO, since_1970)
    }

    /// Returns true if the process has called torch.distributed.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.moves > 0
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
        let first = CallTrace::read(folder.path(), 7, None).unwrap();
        assert!(!first.ended);
        assert!(
            !CallTrace::read(folder.path(), 7, Some(&first))
                .unwrap()
                .ended
        );
        write(true);
        assert!(
            CallTrace::read(folder.path(), 7, Some(&first))
                .unwrap()
                .ended
        );
    }

    #[test]
    fn what_a_process_did_last_comes_after_the_call_that_it_was_in() {
        let call = |id: u64| {
            let call = serde_json::json!({"id": id, "epoch": 1, "what": "collective", "group": "1.0", "number": id - 1,
                "name": "all_reduce", "nature": {}});
            serde_json::from_value::<Entry>(call).unwrap()
        };
        let in_third = || CallTrace {
            entries: (1..=3).map(call).collect(),
            inside: Some(Inside {
                entry: call(3),
                since: 0.0,
                batch: Vec::new(),
            }),
            ..serde_json::from_str(r#"{"moves": 5, "epoch": 1}"#).unwrap()
        };
        let ids = |trace: &CallTrace| trace.entries.iter().map(|one| one.id).collect::<Vec<_>>();
        let mut died_there = in_third();
        died_there.append((1..=3).map(call).collect());
        assert_eq!(ids(&died_there), [1, 2, 3]);
        assert!(died_there.inside.is_some());
        let mut went_on = in_third();
        went_on.append((2..=5).map(call).collect());
        assert_eq!(ids(&went_on), [1, 2, 3, 4, 5]);
        assert!(went_on.inside.is_none());
        // The file of the last entries holds only so many: those between are not known.
        let mut gap = in_third();
        gap.append((7..=8).map(call).collect());
        assert_eq!((ids(&gap), gap.dropped), (vec![7, 8], 6));
    }

    #[test]
    fn a_rank_is_in_its_own_code_since_its_last_call_of_any_kind() {
        let since = |text: &str| {
            let trace: CallTrace = serde_json::from_str(text).unwrap();
            trace.since_last_call().as_secs_f64()
        };
        let ago = |seconds: f64| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.unwrap().as_secs_f64() - seconds
        };
        let begun =
            |t: f64| format!(r#"{{"id": 1, "epoch": 1, "what": "own", "text": "x", "t": {t}}}"#);
        let trace = |left: f64, t: f64| {
            let entry = begun(t);
            since(&format!(
                r#"{{"moves": 1, "epoch": 1, "left": {left}, "entries": [{entry}]}}"#
            ))
        };
        // It has waited for an older call since; or C++ code has begun a collective, whose end is not known.
        assert!((40.0..100.0).contains(&trace(ago(40.0), ago(500.0))));
        assert!((40.0..100.0).contains(&trace(ago(500.0), ago(40.0))));
        assert_eq!(since(r#"{"moves": 1, "epoch": 1}"#), 0.0);
    }
}
