//! The folders that one world of a program uses.

use std::io;
use std::path::{Path, PathBuf};

use crate::watch;

/// The folders that one world uses.
pub struct Folders {
    /// For the exit records of the rank wrappers.
    pub records: PathBuf,
    /// For the ranks' output.
    pub logs: PathBuf,
    /// For the call traces of Python processes.
    pub call_traces: PathBuf,
    /// For the Python modules that write call traces.
    pub modules: PathBuf,
    /// For files that the launcher writes.
    pub launcher: PathBuf,
}

impl Folders {
    /// Makes the folders below a scratch folder; `logs` is that of the ranks' output.
    pub fn make(scratch: &Path, logs: PathBuf) -> io::Result<Self> {
        let scratch = std::path::absolute(scratch)?;
        let folders = Self {
            records: scratch.join("records"),
            call_traces: scratch.join("diaries"),
            modules: scratch.join("python"),
            launcher: scratch.join("launcher"),
            logs,
        };
        for folder in [
            &folders.records,
            &folders.call_traces,
            &folders.launcher,
            &folders.logs,
        ] {
            std::fs::create_dir_all(folder)?;
        }
        watch::unpack_modules(&folders.modules)?;
        Ok(folders)
    }
}
