//! `results.jsonl`: one [`Record`] on each line. [`Writer`] appends them as they come; [`read`] takes them back, also
//! from a run that was killed in the middle of a line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::check_set::CheckSet;
use super::results::{PackedResults, Results};
use allranks_model::record::{CheckRecord, FORMAT, Record};

/// The name of the file in a run's folder.
pub const FILE_NAME: &str = "results.jsonl";

/// The beginning of a check's line, as [`Writer`] writes it.
const CHECK: &[u8] = b"{\"type\":\"check\",";

/// Appends records to `results.jsonl`. Every line reaches the operating system before [`append`](Self::append)
/// returns, so a killed harness loses at most the line that it was writing.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    /// The number of bytes in whole lines.
    whole: u64,
}

impl Writer {
    /// Starts the file in the run's folder.
    ///
    /// # Errors
    /// The file exists (a run's results are never overwritten), or cannot be made.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE_NAME);
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(&path)
            .map_err(|error| at(&path, &error))?;
        Ok(Self {
            file,
            path,
            whole: 0,
        })
    }

    /// Appends one record as a line.
    ///
    /// # Errors
    /// The line could not be written, for example because the disk is full. A part of it that was written is removed, so
    /// that the file stays readable and appending can be tried again.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record).map_err(io::Error::other)?;
        line.push(b'\n');
        match self.file.write_all(&line) {
            Ok(()) => {
                self.whole += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Best effort: the error that matters is the one that led here.
                let _ = self.file.set_len(self.whole);
                Err(at(&self.path, &error))
            }
        }
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Why results could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file does not exist or cannot be read.
    #[error("cannot read {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file was written in another format.
    #[error("{}:{line}: result format {found}, this allranks reads format {FORMAT}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The format number in the line.
        found: u64,
    },
    /// The first line is not a record.
    #[error("{}:{line}: not a record of results", .path.display())]
    DetailLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Records are in an order that no run writes.
    #[error("{}:{line}: {what}", .path.display())]
    Order {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// Reads the results of a run from its folder, or from the file itself.
///
/// A last line without a newline was cut off when the run was killed. It is ignored with a remark, and so is any other line
/// that is not a record. Without an end record, [`Results::end`] is `None`, with a remark.
///
/// # Errors
/// See [`ReadError`].
pub fn read(folder_or_file: &Path) -> Result<Results, ReadError> {
    read_into(folder_or_file)
}

/// Reads the results of a run as [`read`] does, in packed form.
///
/// # Errors
/// See [`ReadError`].
pub fn read_packed(folder_or_file: &Path) -> Result<PackedResults, ReadError> {
    read_into(folder_or_file)
}

fn read_into<C: CheckSet>(folder_or_file: &Path) -> Result<Results<C>, ReadError> {
    let path = if folder_or_file.is_dir() {
        folder_or_file.join(FILE_NAME)
    } else {
        folder_or_file.to_owned()
    };
    let unreadable = |source| ReadError::Io {
        path: path.clone(),
        source,
    };
    // Lines are read one by one: a run of a million checks has half a gigabyte of text.
    let mut file = BufReader::new(File::open(&path).map_err(unreadable)?);
    let mut line = Vec::new();
    let mut results: Option<Results<C>> = None;
    let mut half = false;
    let mut broken = Vec::new();
    for line_number in 1.. {
        line.clear();
        if file.read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
            break;
        }
        let whole = line.ends_with(b"\n");
        let record = match parse(&line) {
            Ok(record) => record,
            Err(_) if !whole => {
                half = true;
                break;
            }
            // The first line has the format of the file.
            Err(problem) if results.is_some() => {
                let why = match problem {
                    Problem::Syntax(error) => error.to_string(),
                    Problem::Format(found) => format!("it has format {found}"),
                };
                broken.push(format!(
                    "line {line_number} is no record and was left out: {why}"
                ));
                continue;
            }
            Err(problem) => return Err(problem.into_error(path, line_number)),
        };
        let order = |what| ReadError::Order {
            path: path.clone(),
            line: line_number,
            what,
        };
        match (&mut results, record) {
            (None, Record::Run(run)) => {
                let folder = path.parent().unwrap_or(Path::new("")).to_owned();
                results = Some(Results::begin(folder, run));
            }
            (None, _) => return Err(order("the first record is not the run's")),
            (Some(_), Record::Run(_)) => return Err(order("a second run begins in the same file")),
            (Some(results), _) if results.end.is_some() => {
                return Err(order("a record after the end"));
            }
            (Some(results), record) => results.push(record),
        }
    }
    let Some(mut results) = results else {
        return Err(ReadError::Order {
            path,
            line: 1,
            what: "no run record: the run was cut off before it began",
        });
    };
    results.arrange();
    results.remarks.extend(broken);
    if half {
        let remark = "the last line is cut in half and was left out";
        results.remarks.push(remark.to_owned());
    }
    if results.end.is_none() {
        let remark = "the run was cut off: its results have no end record";
        results.remarks.push(remark.to_owned());
    }
    Ok(results)
}

/// What is wrong with one line.
enum Problem {
    Format(u64),
    Syntax(serde_json::Error),
}

impl Problem {
    fn into_error(self, path: PathBuf, line: usize) -> ReadError {
        match self {
            Self::Format(found) => ReadError::Format { path, line, found },
            Self::Syntax(source) => ReadError::DetailLine { path, line, source },
        }
    }
}

fn parse(line: &[u8]) -> Result<Record, Problem> {
    /// The field that lines of every format have.
    #[derive(Deserialize)]
    struct Head {
        format: u64,
    }
    let head: Head = serde_json::from_slice(line).map_err(Problem::Syntax)?;
    if head.format != u64::from(FORMAT) {
        return Err(Problem::Format(head.format));
    }
    // Nearly every line is a check. Parsing it as one takes half the time of parsing a [`Record`], whose type may be anywhere in the line.
    if line.starts_with(CHECK)
        && let Ok(check) = serde_json::from_slice::<CheckRecord>(line)
    {
        return Ok(Record::Check(Box::new(check)));
    }
    serde_json::from_slice(line).map_err(Problem::Syntax)
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_model::record::EndRecord;

    /// `/dev/full` refuses every byte, as a full disk does.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        let mut writer = Writer {
            file,
            path,
            whole: 0,
        };
        let end = EndRecord {
            format: FORMAT,
            duration_ms: 0,
            verdicts: std::collections::BTreeMap::new(),
            outcomes: std::collections::BTreeMap::new(),
            issues: Vec::new(),
            exit_code: 0,
        };
        let error = writer.append(&Record::End(end)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("/dev/full: "), "{error}");
    }
}
