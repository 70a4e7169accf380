//! Reads log files: of a long one the first MiB and the last sixteen, whatever bytes they hold.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

/// Bytes read at the beginning of a long file, where it says how the job was started.
const HEAD: u64 = 1 << 20;
/// Bytes read at the end of a long file, where it says what the job did last.
const TAIL: u64 = 16 << 20;
/// Extensions of files in a folder that are not logs.
const OTHER: &[&str] = &[
    "json", "jsonl", "yaml", "yml", "py", "md", "gz", "zst", "pt", "html", "xml", "csv", "png",
    "sh",
];

/// What was read of one file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path; `-` for standard input.
    pub path: PathBuf,
    /// Its text; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Whether its middle was left out.
    pub is_cut: bool,
}

/// Why there are no logs to read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// There is no such file or folder.
    #[error("no such file or folder: {}", .0.display())]
    Absent(PathBuf),
    /// The file or folder cannot be read.
    #[error("cannot read {path}: {1}", path = .0.display())]
    Unreadable(PathBuf, io::Error),
    /// The folder holds no log.
    #[error("no logs in {}", .0.display())]
    Empty(PathBuf),
    /// No line and no file name names a rank.
    #[error("nothing says which rank wrote these lines")]
    NoRank,
    /// The logs name no phase and no error.
    #[error("these logs do not say where any rank is")]
    Silent,
}

impl LogError {
    /// Returns what to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Absent(_) => {
                "name log files, folders of them, or torchrun's --log-dir; `-` is standard input"
            }
            Self::Unreadable(..) => "ask its owner for read access, or copy it",
            Self::Empty(_) => "logs are files such as rank0.log, 0/stderr.log or job.0000.out",
            Self::NoRank => {
                "give one file for each rank (rank0.log rank1.log ...), or begin lines with [Rank 0]"
            }
            Self::Silent => {
                "let ranks print lines such as `[Rank 0] Before barrier` and `[Rank 0] After barrier`, unbuffered"
            }
        }
    }
}

/// Reads files, and every log in folders. The path `-` reads `stream`.
///
/// # Errors
/// A file is not there or cannot be read, or a folder holds none.
pub fn read(paths: &[PathBuf], stream: &mut dyn Read) -> Result<Vec<Source>, LogError> {
    let mut files = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            files.push(path.clone());
        } else if path.is_dir() {
            let before = files.len();
            collect(path, &mut files).map_err(|error| LogError::Unreadable(path.clone(), error))?;
            if files.len() == before {
                return Err(LogError::Empty(path.clone()));
            }
        } else if path.exists() {
            files.push(path.clone());
        } else {
            return Err(LogError::Absent(path.clone()));
        }
    }
    let files = latest_attempts(files);
    let mut piped = String::new();
    if files.iter().any(|file| file.as_os_str() == "-") {
        let mut bytes = Vec::new();
        stream
            .read_to_end(&mut bytes)
            .map_err(|error| LogError::Unreadable("-".into(), error))?;
        piped = String::from_utf8_lossy(&bytes).into_owned();
    }
    files
        .into_par_iter()
        .map(|path| {
            let read = match path.as_os_str() == "-" {
                true => Ok((piped.clone(), false)),
                false => text(&path),
            };
            match read {
                Ok((text, is_cut)) => Ok(Source { path, text, is_cut }),
                Err(error) => Err(LogError::Unreadable(path, error)),
            }
        })
        .collect()
}

/// Collects every file below a folder that may be a log, in the order of their names.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    entries.sort();
    for path in entries {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            let extension = path.extension().and_then(OsStr::to_str);
            if !extension.is_some_and(|extension| OTHER.contains(&extension)) {
                files.push(path);
            }
        }
    }
    Ok(())
}

/// Removes the logs of attempts that torchrun has given up: those below `attempt_0` if there is an `attempt_1`.
fn latest_attempts(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let split = |path: &Path| -> Option<(PathBuf, u32)> {
        path.ancestors().find_map(|part| {
            let name = part.file_name()?.to_str()?;
            let number = name.strip_prefix("attempt_")?.parse().ok()?;
            Some((part.parent()?.to_owned(), number))
        })
    };
    let attempts: Vec<Option<(PathBuf, u32)>> = files.iter().map(|file| split(file)).collect();
    let mut latest = std::collections::HashMap::new();
    for (run, number) in attempts.iter().flatten() {
        let known = latest.entry(run).or_insert(*number);
        *known = (*known).max(*number);
    }
    files
        .iter()
        .zip(&attempts)
        .filter(|(_, attempt)| match attempt {
            Some((run, number)) => latest.get(run) == Some(number),
            None => true,
        })
        .map(|(file, _)| file.clone())
        .collect()
}

fn text(path: &Path) -> io::Result<(String, bool)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    if length <= HEAD + TAIL {
        file.read_to_end(&mut bytes)?;
        return Ok((String::from_utf8_lossy(&bytes).into_owned(), false));
    }
    (&mut file).take(HEAD).read_to_end(&mut bytes)?;
    // The lines that the cut goes through are left out.
    bytes.truncate(
        bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1),
    );
    file.seek(SeekFrom::Start(length - TAIL))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    let start = tail
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    bytes.extend_from_slice(&tail[start..]);
    Ok((String::from_utf8_lossy(&bytes).into_owned(), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_read_without_given_up_attempts() {
        let folder = tempfile::tempdir().unwrap();
        for file in [
            "attempt_0/0/stderr.log",
            "attempt_1/0/stderr.log",
            "attempt_1/0/error.json",
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let sources = read(&[folder.path().into()], &mut io::empty()).unwrap();
        assert_eq!(sources.len(), 1);
        assert!(sources[0].path.ends_with("attempt_1/0/stderr.log"));
    }

    #[test]
    fn the_middle_of_a_long_file_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rank0.log");
        let line = b"[Rank 0] a line of some length, \xff\n";
        let mut bytes = b"first\n".to_vec();
        bytes.extend(line.repeat(600_000));
        bytes.extend(b"last\n");
        fs::write(&path, &bytes).unwrap();
        let sources = read(&[path], &mut io::empty()).unwrap();
        assert!(sources[0].is_cut);
        assert!(sources[0].text.starts_with("first\n"));
        assert!(sources[0].text.ends_with("\nlast\n"));
        assert!(sources[0].text.lines().all(|line| line.len() < 50));
    }

    #[test]
    fn what_is_not_there_is_told() {
        let nowhere = [PathBuf::from("no/such/rank0.log")];
        let error = read(&nowhere, &mut io::empty()).unwrap_err();
        assert!(matches!(error, LogError::Absent(_)));
        let folder = tempfile::tempdir().unwrap();
        let error = read(&[folder.path().into()], &mut io::empty()).unwrap_err();
        assert!(matches!(error, LogError::Empty(_)));
    }
}
