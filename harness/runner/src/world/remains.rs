//! Finding and killing what a world's processes left behind.
//!
//! A process started by a rank, however it detached itself, carries the world's token in its environment.

use rustix::process::{Pid, Signal, getpid, kill_process};

/// The variable that marks every process of a world, and of a watched command.
pub const TOKEN: &str = "ALLRANKS_TOKEN";

/// Kills every process, but for this one, whose environment holds a [`TOKEN`] that begins with this one; the
/// number found. Linux only; elsewhere 0.
#[must_use]
pub fn kill_remains(token: &str) -> u32 {
    let needle = format!("{TOKEN}={token}");
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let mut found = 0;
    for entry in processes.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .and_then(Pid::from_raw)
            .filter(|pid| *pid != getpid())
        else {
            continue;
        };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment
            .split(|byte| *byte == 0)
            .any(|variable| variable.starts_with(needle.as_bytes()))
            && kill_process(pid, Signal::KILL).is_ok()
        {
            found += 1;
        }
    }
    found
}
