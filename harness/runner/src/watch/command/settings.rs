//! What is watched, and how it ended.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What is watched, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Path of the allranks binary, which runs the subreaper.
    pub binary: PathBuf,
    /// True if Python processes write call traces.
    pub has_call_traces: bool,
    /// How long nothing moves before a verdict or a report that is not proved.
    pub patience: Duration,
    /// True if a verdict ends the program.
    pub kill_on_verdict: bool,
    /// The folder for what is seen of each world, to be judged together with what other nodes see.
    pub evidence: Option<PathBuf>,
    /// True if that folder is shared with the watches of the job's other nodes, and one verdict is reported for all.
    pub is_shared: bool,
}

/// How a watched command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself: its exit code, or 128 and the number of the signal.
    Own(u8),
    /// Killed because of a verdict.
    Verdict,
    /// Killed after two signals to the watcher: 128 and the number of the last.
    Interrupted(u8),
}
