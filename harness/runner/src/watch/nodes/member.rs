//! The heartbeat file by which one watch of a job shows the watches on other nodes that it is running.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::evidence_paths::{file_name, host_name};
use allranks_model::diagnosis::Diagnosis;

/// Version of the file.
const FORMAT: u32 = 1;
/// How the name of every file ends.
const SUFFIX: &str = ".watch.json";

/// The heartbeat file of one watch, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Member {
    format: u32,
    /// The name of its host.
    pub host: String,
    /// Its process id on that host.
    pub pid: u32,
    /// The number of times the file was written. A number that no longer grows means that the watch is gone.
    pub beat: u64,
    /// When its command ended, in seconds since 1970 by its host's clock, and the exit code; none while that runs.
    pub ended: Option<(f64, u8)>,
    /// A verdict that this watch reached alone, on ranks that have not moved since; none if there is none.
    pub verdict: Option<Diagnosis>,
    /// Endpoints that its ranks dial and that cannot be reached from its host, each with the reason.
    #[serde(default)]
    pub unreached: Vec<(String, String)>,
}

impl Member {
    /// Makes the file's content for this process.
    pub fn here() -> Self {
        Self::on(host_name())
    }

    /// Makes the file's content for this process, on a host of this name.
    pub fn on(host: String) -> Self {
        Self {
            format: FORMAT,
            host,
            pid: std::process::id(),
            beat: 0,
            ended: None,
            verdict: None,
            unreached: Vec::new(),
        }
    }

    /// Returns a name for the watch that is unique in the job; the names of its evidence files end with it.
    pub fn name(&self) -> String {
        file_name(&format!("{}.{}", self.host, self.pid))
    }

    /// Writes the file again, with the next heartbeat number.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn write(&mut self, folder: &Path) -> io::Result<()> {
        self.beat += 1;
        let text = serde_json::to_vec(self)?;
        write_whole(folder, &format!("{}{SUFFIX}", self.name()), &text)
    }

    /// Removes its file.
    pub fn remove(&self, folder: &Path) {
        let _ = fs::remove_file(folder.join(format!("{}{SUFFIX}", self.name())));
    }

    /// Reads all of a folder. A file that is not whole, or of another version, is left out.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn all(folder: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if !path.to_string_lossy().ends_with(SUFFIX) {
                continue;
            }
            // It may be removed or replaced meanwhile.
            let Ok(text) = fs::read(&path) else { continue };
            if let Ok(one) = serde_json::from_slice::<Self>(&text)
                && one.format == FORMAT
            {
                found.push(one);
            }
        }
        Ok(found)
    }
}

/// Writes a file that is whole whenever it is read.
///
/// # Errors
/// The folder cannot be written to.
pub fn write_whole(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let draft = folder.join(format!("{name}.{}.new", std::process::id()));
    fs::write(&draft, text)?;
    fs::rename(draft, folder.join(name))
}
