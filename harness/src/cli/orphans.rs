//! Kills the processes that a command leaves behind.

use std::io::{self, Write};

use allranks_runner::world;

/// Runs a command, and kills its orphans when it has ended, also by a panic. Meanwhile this process is a subreaper: processes
/// below it become its children when their parents end.
pub fn run_and_reap<T>(command: impl FnOnce() -> T) -> T {
    // If the kernel refuses, zygotes and supervisors still reap the processes below them.
    let _orphans = world::become_subreaper().ok().map(|()| Orphans);
    command()
}

/// Kills the orphans when it is dropped.
struct Orphans;

impl Drop for Orphans {
    fn drop(&mut self) {
        let (_, left) = world::end_children(None);
        if let Some(text) = world::unkilled(&left) {
            let _ = writeln!(io::stderr(), "warning: {text}");
        }
    }
}
