//! Ends a rank's process when the harness or its parent process ends.

use std::env;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::process::leave_at_once;

/// Exit code of a rank whose control connection closed.
pub const ORPHANED: i32 = 70;

/// The time between two polls of the watching thread.
const PERIOD: Duration = Duration::from_millis(300);

/// Asks the kernel to kill this process when its parent dies; `parent` is the process id of the parent as read before.
pub fn die_with_parent(parent: Pid) {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != Some(parent) {
        leave_at_once(ORPHANED);
    }
}

/// Calls [`die_with_parent`] if the harness says that the thread which started this process lives as long as the harness.
pub fn die_with_parent_if_asked() {
    if env::var_os("ALLRANKS_DIE_WITH_PARENT").is_some_and(|value| value == "1") {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}

/// A thread that ends the process as soon as the control connection is closed at the other end: a rank that is blocked in a
/// collective cannot poll the connection itself.
#[derive(Debug)]
pub struct HangupWatch(Arc<AtomicBool>);

impl HangupWatch {
    /// Starts the thread. It polls for hang-up only, so it reads no byte that the main thread waits for. Between two polls it
    /// calls `on_poll`, a few times a second.
    ///
    /// # Errors
    /// The process is out of threads.
    pub fn start(socket: File, mut on_poll: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let period = Timespec::try_from(PERIOD).map_err(io::Error::other)?;
        thread::Builder::new()
            .name("allranks-watch".to_owned())
            .spawn(move || {
                let mut polled = [PollFd::new(&socket, PollFlags::RDHUP)];
                // If a signal interrupts a poll, it polls again.
                while matches!(
                    poll(&mut polled, Some(&period)),
                    Ok(0) | Err(rustix::io::Errno::INTR)
                ) {
                    on_poll();
                }
                if !seen.load(Ordering::Acquire) {
                    leave_at_once(ORPHANED);
                }
            })?;
        Ok(Self(over))
    }

    /// Stops the watch: from here on a closed connection is expected.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }
}
