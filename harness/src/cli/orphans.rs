//! Ends what commands that start ranks leave behind.

use std::io::{self, Write};

use allranks_runner::world;

/// Runs a command. Processes below this one become its children when their parents end, and those that are left when the command has
/// ended, also by a panic, are killed.
pub fn run_and_reap<T>(command: impl FnOnce() -> T) -> T {
    // Where the kernel refuses it, those who stand between this process and the ranks do what they can.
    let _orphans = world::become_subreaper().ok().map(|()| Orphans);
    command()
}

/// Kills them when it is dropped.
struct Orphans;

impl Drop for Orphans {
    fn drop(&mut self) {
        let (_, left) = world::end_children(None);
        if let Some(text) = world::unkilled(&left) {
            let _ = writeln!(io::stderr(), "warning: {text}");
        }
    }
}
