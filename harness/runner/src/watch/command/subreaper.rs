//! The subreaper: a process between the watcher and the watched command. What the command starts stays below it, however it
//! detaches itself and whatever environment it has. If the watcher ends, the subreaper kills all of it, removes the watcher's
//! folder, and ends.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, getppid, setsid};

use crate::world::{
    ORPHANED, TOKEN, become_subreaper, end_as, end_children, kill_all, unkilled, wait,
};

/// Interval at which the subreaper checks that the watcher is still there.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs a command in a new session and a process group of its own, and ends with its exit code or signal. The command
/// inherits the standard streams. Returns only if the command cannot be started.
#[must_use]
pub fn subreaper(watcher: u32, folder: PathBuf, argv: &[OsString]) -> io::Error {
    let Some((program, arguments)) = argv.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no command to watch");
    };
    if let Err(error) = setsid() {
        return error.into();
    }
    if let Err(error) = become_subreaper() {
        return error;
    }
    let spawned = Command::new(program)
        .args(arguments)
        .process_group(0)
        .spawn();
    let child = match spawned {
        Ok(child) => child,
        Err(error) => {
            let program = program.to_string_lossy();
            return io::Error::new(error.kind(), format!("cannot run {program}: {error}"));
        }
    };
    let command = Pid::from_child(&child);
    let watcher = Pid::from_raw(watcher.cast_signed());
    let token = std::env::var(TOKEN).ok();
    let own = token.clone();
    let cleaner = thread::spawn(move || {
        // A process whose parent has ended gets another parent.
        while getppid() == watcher {
            thread::sleep(PERIOD);
        }
        kill_all(command, own.as_deref());
        let _ = std::fs::remove_dir_all(folder);
        std::process::exit(ORPHANED);
    });
    let status = match wait(command) {
        Ok(status) => status,
        Err(error) => return error,
    };
    // If the watcher has ended too, the cleaner thread has more to do, and ends the process.
    if getppid() != watcher {
        let _ = cleaner.join();
    }
    // What carries the token the watcher kills.
    let (_, left) = end_children(token.as_deref());
    if let Some(text) = unkilled(&left) {
        let _ = writeln!(io::stderr(), "allranks: {text}");
    }
    end_as(status)
}
