//! Requests flight recorder dumps from a running job by torch's own named pipes: a job that was started with
//! `TORCH_NCCL_DEBUG_INFO_PIPE_FILE` has one for each rank (`struct DumpPipe` in torch's ProcessGroupNCCL.hpp). When something
//! is written to the pipe, torch's watchdog writes the rank's record into a file, within about a second, where it would also
//! write the record of a collective that timed out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};

use crate::watch::ranks::rank_process::RankProcess;
use allranks_diagnose::HangEvidence;
use allranks_diagnose::logs::Dumps;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::Rank;

/// The variable that says how the names of the pipes begin; the rank and `.pipe` follow.
const PIPE: &str = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE";
/// The variables that say how the names of the files begin, the first that is set counts; the rank follows.
const FILES: [&str; 2] = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"];
/// Looks after which an answer is not waited for any longer. Torch looks at its pipe once a second (`TORCH_NCCL_COORD_CHECK_MILSEC`).
const LOOKS: u32 = 20;
/// The longest record that is read.
const LARGEST: u64 = 256 << 20;

/// What tells one content of a file from another: inode, size, and nanoseconds of its last change.
type Stamp = (u64, u64, i64, i64);

/// One request for the records of all ranks that have a pipe.
#[derive(Debug, Default)]
struct DumpRequest {
    open: BTreeMap<Rank, Expected>,
    looks: u32,
    /// What has come.
    dumps: Dumps,
    /// Ranks whose record did not come, and why.
    failures: BTreeMap<Rank, String>,
}

/// The records of a world at two times: what is under way at both, and has not changed on any rank, is stuck.
#[derive(Debug)]
pub struct DumpRequests {
    earlier: DumpRequest,
    later: Option<DumpRequest>,
    began: Instant,
}

impl DumpRequests {
    /// Asks for the first time.
    #[must_use]
    pub fn ask(ranks: &[(Rank, &RankProcess)]) -> Self {
        Self {
            earlier: DumpRequest::send(ranks),
            later: None,
            began: Instant::now(),
        }
    }

    /// Reads what has come since the last look, and asks again after `patience`. Returns true if nothing more is waited for: at once if
    /// no rank has a pipe.
    pub fn look(&mut self, patience: Duration, ranks: &[(Rank, &RankProcess)]) -> bool {
        if self.is_empty() {
            return true;
        }
        match &mut self.later {
            Some(later) => later.look(),
            None if self.earlier.look() && self.began.elapsed() >= patience => {
                self.later = Some(DumpRequest::send(ranks));
                false
            }
            None => false,
        }
    }

    /// Returns true if no rank has a pipe.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.earlier.open.is_empty() && self.earlier.looks == 0 && self.earlier.failures.is_empty()
    }

    /// Returns what the records contradict each other in; `None` if something has gone on, or nothing differs.
    #[must_use]
    pub fn diagnose(&self, evidence: &HangEvidence) -> Option<Diagnosis> {
        let later = &self.later.as_ref()?.dumps;
        later
            .is_still_since(&self.earlier.dumps)
            .then(|| later.diagnose(evidence))?
    }

    /// Returns the ranks whose record did not come, with the reasons.
    pub fn failures(&self) -> impl Iterator<Item = (Rank, &str)> {
        let last = self.later.as_ref().unwrap_or(&self.earlier);
        last.failures
            .iter()
            .map(|(rank, why)| (*rank, why.as_str()))
    }
}

/// A record that is to come.
#[derive(Debug)]
struct Expected {
    /// The user of the rank's process: files of others are not read.
    user: u32,
    /// Where it may come, with what was there before.
    places: Vec<(PathBuf, Option<Stamp>)>,
}

impl DumpRequest {
    /// Asks each of these ranks that has a pipe for its record.
    fn send(ranks: &[(Rank, &RankProcess)]) -> Self {
        let mut request = Self::default();
        for (rank, process) in ranks {
            let Some(stem) = process
                .environment
                .get(PIPE)
                .filter(|stem| !stem.is_empty())
            else {
                continue;
            };
            let asked = user(process.pid).and_then(|user| {
                let places = places(*rank, process)
                    .into_iter()
                    .map(|path| (path.clone(), stamp(&path)))
                    .collect();
                ask(&within(process.pid, &format!("{stem}{rank}.pipe")), user)?;
                Ok(Expected { user, places })
            });
            match asked {
                Ok(expected) => drop(request.open.insert(*rank, expected)),
                Err(error) => drop(request.failures.insert(*rank, error.to_string())),
            }
        }
        request
    }

    /// Reads what has come since the last look. Returns true if nothing more is waited for.
    fn look(&mut self) -> bool {
        self.looks += 1;
        let mut open = std::mem::take(&mut self.open);
        open.retain(|rank, expected| {
            let has_changed = |(path, before): &&(PathBuf, Option<Stamp>)| {
                stamp(path).is_some_and(|now| Some(now) != *before)
            };
            let Some((path, _)) = expected.places.iter().find(has_changed) else {
                return true;
            };
            // A record of which only the beginning has been written is read again at the next look.
            let read = read(path, expected.user).map_err(|error| error.to_string());
            read.and_then(|bytes| self.dumps.add(*rank, &bytes))
                .is_err()
        });
        self.open = open;
        if self.looks < LOOKS {
            return self.open.is_empty();
        }
        for rank in std::mem::take(&mut self.open).into_keys() {
            let why = "nothing came of what was written to its pipe".to_owned();
            self.failures.insert(rank, why);
        }
        true
    }
}

/// Returns where a rank's torch writes its record.
fn places(rank: Rank, process: &RankProcess) -> Vec<PathBuf> {
    let variable = |name: &str| {
        process
            .environment
            .get(name)
            .filter(|value| !value.is_empty())
    };
    let path = |stem: String| within(process.pid, &format!("{stem}{rank}"));
    if let Some(stem) = FILES.iter().find_map(|name| variable(name)) {
        return vec![path(stem.clone())];
    }
    // By the version of torch.
    let home = variable("HOME").map_or("/tmp", String::as_str);
    let cache =
        variable("XDG_CACHE_HOME").map(|cache| format!("{cache}/torch/comm_lib_trace_rank_"));
    let stems = cache.into_iter().chain([
        format!("{home}/.cache/torch/comm_lib_trace_rank_"),
        "/tmp/nccl_trace_rank_".to_owned(),
    ]);
    stems.map(path).collect()
}

/// Returns a path of a process, which may have other mounts and another current folder than this one.
fn within(pid: u32, path: &str) -> PathBuf {
    match path.strip_prefix('/') {
        Some(path) => Path::new(&format!("/proc/{pid}/root")).join(path),
        None => Path::new(&format!("/proc/{pid}/cwd")).join(path),
    }
}

fn user(pid: u32) -> io::Result<u32> {
    Ok(std::fs::metadata(format!("/proc/{pid}"))?.uid())
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}

/// Writes a request to a named pipe of this user. Fails at once if no process reads from the pipe.
fn ask(path: &Path, user: u32) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Without a reader it fails at once.
    let mut pipe = File::from(open(path, flags, Mode::empty())?);
    let found = pipe.metadata()?;
    if !found.file_type().is_fifo() || found.uid() != user {
        return Err(io::Error::other("it is no pipe of the rank's user"));
    }
    pipe.write_all(b"1\n")
}

fn read(path: &Path, user: u32) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != user || found.len() > LARGEST {
        return Err(io::Error::other("it is no record of the rank's user"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};

    const RECORD: &str =
        r#"{"pg_config":{"0":{"desc":"default_pg","ranks":"[0, 1]"}},"entries":[]}"#;

    fn rank(variables: &[(&str, &Path)]) -> RankProcess {
        let text = |(name, path): &(&str, &Path)| ((*name).to_owned(), path.display().to_string());
        RankProcess {
            more_may_start: false,
            pid: std::process::id(),
            environment: variables.iter().map(text).collect(),
            activity: None,
            call_trace: None,
            traced: None,
        }
    }

    #[test]
    fn a_rank_with_a_pipe_is_asked_and_its_record_is_read_once_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, stem) = (folder.path().join("pipe"), folder.path().join("record"));
        let own = folder.path().join("pipe3.pipe");
        mknodat(CWD, &own, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let reader = open(&own, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        let record = folder.path().join("record3");
        // Of an earlier request.
        std::fs::write(&record, RECORD).unwrap();
        let process = rank(&[(PIPE, &pipe), (FILES[0], &stem)]);
        let mut request = DumpRequest::send(&[(Rank(3), &process)]);
        let mut asked = [0; 8];
        assert_eq!(rustix::io::read(&reader, &mut asked).unwrap(), 2);
        assert!(!request.look() && !request.dumps.has(Rank(3)));
        std::fs::write(&record, &RECORD[..20]).unwrap();
        assert!(!request.look() && !request.dumps.has(Rank(3)));
        std::fs::remove_file(&record).unwrap();
        std::fs::write(&record, RECORD).unwrap();
        assert!(request.look() && request.dumps.has(Rank(3)));
        assert!(request.failures.is_empty());
    }

    #[test]
    fn what_is_no_pipe_is_not_written_to_and_no_answer_is_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let stem = folder.path().join("pipe");
        std::fs::write(folder.path().join("pipe0.pipe"), "kept").unwrap();
        let own = folder.path().join("pipe1.pipe");
        mknodat(CWD, &own, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Without the reader that torch is.
        let process = rank(&[(PIPE, &stem)]);
        let ranks = [
            (Rank(0), &process),
            (Rank(1), &process),
            (Rank(2), &process),
        ];
        let mut request = DumpRequest::send(&ranks);
        assert_eq!(request.failures.len(), 3, "{:?}", request.failures);
        assert!(request.look());
        let kept = std::fs::read(folder.path().join("pipe0.pipe")).unwrap();
        assert_eq!(kept, b"kept");
        let reader = open(&own, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        let mut request = DumpRequest::send(&ranks[1..2]);
        assert!(!request.look());
        assert!((1..LOOKS).any(|_| request.look()));
        assert!(request.failures.contains_key(&Rank(1)));
        drop(reader);
    }

    #[test]
    fn ranks_without_a_pipe_are_not_asked() {
        let process = rank(&[]);
        let ranks = [(Rank(0), &process)];
        let mut records = DumpRequests::ask(&ranks);
        assert!(records.look(Duration::MAX, &ranks) && records.is_empty());
    }
}
