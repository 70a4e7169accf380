//! A watched command: started in a session of its own, signalled as a whole, and killed with all it started.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use include_dir::{Dir, include_dir};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::settings::Settings;
use crate::world::{Orphan, TOKEN, end_remains};
use allranks_host as host;

static MODULES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/python/allranks_watch");

/// Variable that names the folder for call traces.
pub const FOLDER: &str = "ALLRANKS_WATCH";

/// A running command. Dropping it kills it and everything that it started.
#[derive(Debug)]
pub struct Program {
    subreaper: Child,
    token: String,
    call_traces: PathBuf,
    _folder: TempDir,
}

impl Program {
    /// Starts the command under the subreaper.
    pub fn start(settings: &Settings) -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("allranks-watch-")
            .tempdir()?;
        let call_traces = folder.path().join("diaries");
        std::fs::create_dir(&call_traces)?;
        let name = folder.path().file_name().unwrap_or_default();
        let token = format!("{}.{}", name.to_string_lossy(), std::process::id());
        let mut command = Command::new(&settings.binary);
        command
            .arg("subreaper")
            .arg(std::process::id().to_string())
            .arg(folder.path())
            .arg("--")
            .args(&settings.command)
            .env(TOKEN, &token);
        if settings.has_call_traces {
            let modules = folder.path().join("python");
            unpack_modules(&modules)?;
            command
                .env(FOLDER, &call_traces)
                .env("PYTHONPATH", search_path(&modules));
        }
        Ok(Self {
            subreaper: command.spawn()?,
            token,
            call_traces,
            _folder: folder,
        })
    }

    /// Returns the token that its processes carry in [`TOKEN`].
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the folder of its call traces.
    pub fn call_traces(&self) -> &Path {
        &self.call_traces
    }

    /// Waits for its end. Returns its exit code, or 128 and the number of the signal.
    pub async fn wait(&mut self) -> io::Result<u8> {
        Ok(code(self.subreaper.wait().await?))
    }

    /// Sends a signal to the command's process group, as a terminal does.
    pub fn pass_on(&self, signal: Signal) {
        let Some(subreaper) = self.subreaper.id() else {
            return;
        };
        // The subreaper has started the command before it adopted anything.
        let children = host::descendants(subreaper).into_iter();
        let command = children
            .filter(|process| process.parent == subreaper)
            .min_by_key(|process| process.started);
        if let Some(group) = command.and_then(|command| Pid::from_raw(command.pid.cast_signed())) {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Kills everything that runs, or that the command has left behind. Returns what could not be killed (see
    /// [`end_remains`]).
    pub async fn kill(&mut self) -> Vec<Orphan> {
        let left = end_remains(&self.token);
        // The subreaper carries the token too, and never waits in a way that a signal cannot interrupt.
        let _ = self.subreaper.wait().await;
        left
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = end_remains(&self.token);
    }
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => 1,
    }
}

/// Writes the modules that write call traces into a folder, for PYTHONPATH.
///
/// # Errors
/// The modules cannot be written.
pub fn unpack_modules(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    MODULES.extract(folder)
}

/// Returns a PYTHONPATH with the folder before those that Python searches already.
fn search_path(folder: &Path) -> std::ffi::OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(known) = std::env::var_os("PYTHONPATH").filter(|known| !known.is_empty()) {
        path.push(":");
        path.push(known);
    }
    path
}
