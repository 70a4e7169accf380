//! Finds log files and reads them line by line, whatever bytes they hold, so that the size of a log does not matter.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::recorder_dump;
use super::records::{Records, are_records};

/// Bytes kept of a line; what is longer is no line about a phase.
const LONGEST: usize = 64 << 10;
/// Files in a folder that are no logs, unless they are dumps of a flight recorder.
const OTHER: &[&str] = &[
    "json", "jsonl", "ndjson", "yaml", "yml", "py", "md", "gz", "zst", "pt", "html", "xml", "csv",
    "tsv", "png", "sh",
];
/// Those of them that may be records of a log collector.
const RECORDS: &[&str] = &["json", "jsonl", "ndjson", "csv", "tsv"];
/// Bytes that are looked at for records.
const BEGINNING: u64 = 64 << 10;

/// One file, or the stream.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path; `-` for standard input.
    pub path: PathBuf,
    content: Content,
}

/// Where its bytes are.
#[derive(Clone, Debug)]
enum Content {
    /// At its path.
    File,
    /// In a file without a name, which has what came from the stream.
    Stream(Arc<Mutex<File>>),
    /// Here.
    #[cfg(test)]
    Text(Arc<str>),
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
                "give one file for each rank (rank0.log rank1.log ...), or begin lines with [Rank 0]; other numbers in names are ranks only if they are 0 to n-1"
            }
            Self::Silent => {
                "let ranks print lines such as `[Rank 0] Before barrier` and `[Rank 0] After barrier`, unbuffered"
            }
        }
    }
}

/// Finds files, and every log in folders. `-` is the stream, which is copied into a file without a name.
///
/// # Errors
/// A file is not there, or a folder holds none, or the stream cannot be read.
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
    let mut piped = None;
    let mut source = |path: PathBuf| {
        if path.as_os_str() != "-" {
            let content = Content::File;
            return Ok(Source { path, content });
        }
        let file = match &piped {
            Some(file) => Arc::clone(file),
            None => {
                let mut file = tempfile::tempfile()?;
                io::copy(stream, &mut file)?;
                Arc::clone(piped.insert(Arc::new(Mutex::new(file))))
            }
        };
        let content = Content::Stream(file);
        Ok(Source { path, content })
    };
    let sources = latest_attempts(files).into_iter();
    sources
        .map(|path| source(path).map_err(|error| LogError::Unreadable("-".into(), error)))
        .collect()
}

impl Source {
    /// Calls with every line until told to stop, without its end; a bar that writes over itself is a line each time. Returns
    /// whether the last line has no end.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn each_line(
        &self,
        mut call: impl FnMut(&str) -> ControlFlow<()>,
    ) -> io::Result<bool> {
        let mut records = Records::default();
        let mut read = |raw: &str| records.read(raw, &mut call);
        let is_torn = match &self.content {
            Content::File => lines(&mut BufReader::new(File::open(&self.path)?), &mut read),
            Content::Stream(file) => {
                let mut file = file
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                file.seek(SeekFrom::Start(0))?;
                lines(&mut BufReader::new(&mut *file), &mut read)
            }
            #[cfg(test)]
            Content::Text(text) => lines(&mut text.as_bytes(), &mut read),
        }?;
        _ = records.end(&mut call);
        Ok(is_torn)
    }

    /// Returns the bytes at its beginning.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn beginning(&self, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match &self.content {
            Content::File => drop(
                File::open(&self.path)?
                    .take(length)
                    .read_to_end(&mut bytes)?,
            ),
            Content::Stream(file) => {
                let mut file = file
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                file.seek(SeekFrom::Start(0))?;
                (&mut *file).take(length).read_to_end(&mut bytes)?;
            }
            #[cfg(test)]
            Content::Text(text) => bytes.extend(
                text.bytes()
                    .take(usize::try_from(length).unwrap_or(usize::MAX)),
            ),
        }
        Ok(bytes)
    }

    /// Returns a text with a name.
    #[cfg(test)]
    pub(super) fn of_text(path: &str, text: &str) -> Self {
        Self {
            path: path.into(),
            content: Content::Text(text.into()),
        }
    }
}

/// Calls with every line; whether the last has no end.
fn lines(
    from: &mut dyn BufRead,
    call: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> io::Result<bool> {
    let mut line = Vec::new();
    let mut was_overwritten = false;
    loop {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            break;
        }
        let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        let room = LONGEST.saturating_sub(line.len()).min(piece.len());
        line.extend_from_slice(&piece[..room]);
        let Some(end) = end else {
            let length = bytes.len();
            from.consume(length);
            continue;
        };
        was_overwritten = bytes[end] == b'\r';
        from.consume(end + 1);
        let flow = call(&String::from_utf8_lossy(&line));
        line.clear();
        if flow.is_break() {
            return Ok(false);
        }
    }
    if line.is_empty() {
        return Ok(false);
    }
    _ = call(&String::from_utf8_lossy(&line));
    // Bars that write over themselves end without a line's end, too.
    Ok(!was_overwritten)
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
            let is_one_of = |names: &[&str]| extension.is_some_and(|it| names.contains(&it));
            let may_hold = || is_one_of(RECORDS) && (is_dump(&path) || holds_records(&path));
            if !is_one_of(OTHER) || may_hold() {
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

/// Returns true if a file begins with records of a log collector.
fn holds_records(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let file = File::open(path);
    let read = file.and_then(|file| file.take(BEGINNING).read_to_end(&mut beginning));
    read.is_ok() && are_records(&beginning)
}

/// Returns true if a file begins as a dump of a flight recorder does.
fn is_dump(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let file = File::open(path);
    let read = file.and_then(|file| file.take(recorder_dump::SIGN).read_to_end(&mut beginning));
    read.is_ok() && recorder_dump::is_dump(&beginning)
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

    fn all(text: &[u8]) -> (Vec<String>, bool) {
        let mut all = Vec::new();
        let is_torn = lines(&mut &*text, &mut |line| {
            all.push(line.to_owned());
            ControlFlow::Continue(())
        });
        (all, is_torn.unwrap())
    }

    #[test]
    fn lines_end_in_several_ways() {
        let (lines, is_torn) = all(b"a\r\nb\n 1%\r 2%\xff\nrest");
        assert_eq!(lines, ["a", "", "b", " 1%", " 2%\u{fffd}", "rest"]);
        assert!(is_torn);
        assert!(!all(b"a\n").1 && !all(b"").1 && !all(b" 1%\r 2%").1);
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_another() {
        let (lines, _) = all(&b"x".repeat(1 << 20));
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].len(), LONGEST);
    }

    #[test]
    fn the_stream_can_be_read_twice() {
        let sources = read(&["-".into()], &mut &b"a\nb\n"[..]).unwrap();
        for _ in 0..2 {
            let mut count = 0;
            let count = &mut count;
            let is_torn = sources[0].each_line(|_| {
                *count += 1;
                ControlFlow::Continue(())
            });
            assert_eq!((*count, is_torn.unwrap()), (2, false));
        }
        assert_eq!(sources[0].beginning(3).unwrap(), b"a\nb");
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
