//! The rank wrapper: a process between the launcher, whichever it is, and one rank of a program. It sends the rank's
//! output into a file, and records that the rank began and how it ended.
//!
//! A launcher's exit code says little about a single rank. The exit record is what the kernel reported to the rank's
//! parent, so a rank without an [`ExitRecord`] has no known end, whatever its launcher reports.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::RankExit;
use super::dialect::RankAssignment;
use super::supervise::end_as;
use allranks_model::launcher::Launcher;
use allranks_model::names::Rank;

/// Exit code of a rank that could not be started: the code that a shell gives for a command that does not exist.
const NOT_FOUND: i32 = 127;

/// What a rank wrapper recorded of its rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// The rank's process id; none if it could not be started.
    #[serde(default)]
    pub pid: Option<u32>,
    /// Its exit code; none if it has not exited.
    #[serde(default)]
    pub code: Option<i32>,
    /// The signal that ended it; none if no signal did.
    #[serde(default)]
    pub signal: Option<i32>,
    /// When it ended, in microseconds since 1970; none if it has not.
    #[serde(default)]
    pub ended_us: Option<u64>,
    /// Why it could not be started; none if it was started.
    #[serde(default)]
    pub error: Option<String>,
    /// What its launcher assigned to it; none in a record of an earlier version.
    #[serde(default)]
    pub slot: Option<RankAssignment>,
}

impl ExitRecord {
    /// Reads the record of a rank's start, from 0, in this folder; none if there is none, because the rank was not started so
    /// often.
    #[must_use]
    pub fn read(folder: &Path, rank: Rank, start: u32) -> Option<Self> {
        let text = fs::read(folder.join(file(&rank.to_string(), start))).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Returns how the rank ended; none if that is not recorded.
    #[must_use]
    pub fn end(&self) -> Option<RankExit> {
        match (&self.error, self.code, self.signal) {
            (Some(error), ..) => Some(RankExit::NotStarted(error.clone())),
            (None, Some(code), _) => Some(RankExit::Exited {
                code,
                left_behind: 0,
            }),
            (None, None, Some(signal)) => Some(RankExit::Signalled(signal)),
            (None, None, None) => None,
        }
    }

    /// Replaces the record file; a reader never sees half of it.
    fn write(&self, folder: &Path, rank: &str, start: u32) -> io::Result<()> {
        let path = folder.join(file(rank, start));
        let draft = path.with_extension("new");
        fs::write(&draft, serde_json::to_vec(self)?)?;
        fs::rename(draft, path)
    }
}

fn file(rank: &str, start: u32) -> String {
    format!("rank{rank}.{start}.json")
}

/// Variable in which torchrun says how often it has started the ranks anew.
const RESTARTS: &str = "TORCHELASTIC_RESTART_COUNT";

/// Returns which start of the rank this is, from 0.
fn start() -> u32 {
    let count = std::env::var(RESTARTS).ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Runs a command as the rank that `launcher` says it is, with its output in `logs/rankN.log`. Its record goes into `records`.
/// Under `local` and `torchrun` it ends with the rank's exit code or signal, as these launchers expect, and returns only if the
/// command cannot be started: the code to exit with. Under an engine it returns 0 in any case: engines kill all other ranks for
/// one that failed, before they could be judged.
///
/// Signals that ask a process to end are left to the rank: launchers send them to the whole process group, and the
/// wrapper stays to record how the rank ends.
///
/// # Errors
/// The launcher does not say which rank this is, or files cannot be written.
pub fn run_wrapped(
    launcher: Launcher,
    records: &Path,
    logs: &Path,
    argv: &[OsString],
) -> io::Result<i32> {
    let environment = std::env::vars().collect();
    let slot = RankAssignment::read(launcher, &environment).map_err(io::Error::other)?;
    let rank = slot.rank.to_string();
    let log = open(&logs.join(format!("rank{rank}.log")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // A handler, not `SIG_IGN`: the rank itself gets the default actions.
    let _deaf: Vec<_> = runtime.block_on(async {
        [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
            SignalKind::quit(),
        ]
        .into_iter()
        .map(signal)
        .collect::<io::Result<_>>()
    })?;
    let record = ExitRecord {
        slot: Some(slot),
        ..ExitRecord::default()
    };
    let is_engine = match launcher {
        Launcher::Local | Launcher::Torchrun => false,
        Launcher::Slurm | Launcher::Mpi => true,
    };
    match run(record.clone(), records, &rank, log, argv)? {
        Ok(_) if is_engine => Ok(0),
        Ok(status) => end_as(status),
        Err(error) => {
            ExitRecord {
                error: Some(error),
                ..record
            }
            .write(records, &rank, start())?;
            Ok(if is_engine { 0 } else { NOT_FOUND })
        }
    }
}

fn open(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Runs the command. Returns its exit status, or why it could not be started.
fn run(
    mut exit_record: ExitRecord,
    records: &Path,
    rank: &str,
    log: File,
    argv: &[OsString],
) -> io::Result<Result<ExitStatus, String>> {
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(log.try_clone()?)
        .stdout(log)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Ok(Err(format!("{}: {error}", program.to_string_lossy()))),
    };
    exit_record.pid = Some(child.id());
    exit_record.write(records, rank, start())?;
    let status = child.wait()?;
    exit_record.code = status.code();
    exit_record.signal = status.signal();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    exit_record.ended_us = now.ok().map(|now| now.as_micros() as u64);
    exit_record.write(records, rank, start())?;
    Ok(Ok(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(ExitRecord::read(folder.path(), Rank(0), 0), None);
        let mut exit_record = ExitRecord {
            pid: Some(7),
            ..ExitRecord::default()
        };
        exit_record.write(folder.path(), "0", 1).unwrap();
        assert_eq!(ExitRecord::read(folder.path(), Rank(0), 0), None);
        let read = ExitRecord::read(folder.path(), Rank(0), 1).unwrap();
        assert_eq!((read.pid, read.end()), (Some(7), None));
        exit_record.signal = Some(9);
        assert_eq!(exit_record.end(), Some(RankExit::Signalled(9)));
        exit_record.code = Some(3);
        let left_behind = 0;
        assert_eq!(
            exit_record.end(),
            Some(RankExit::Exited {
                code: 3,
                left_behind
            })
        );
    }
}
