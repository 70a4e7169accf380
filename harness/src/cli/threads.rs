//! Checks that the system lets this process start enough threads. Otherwise a library would abort in the middle of a run.

use std::io;
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread;

use super::Failure;

/// The number of threads that a command starts, besides one for each core.
const OWN: usize = 8;

/// Checks that this process can have as many threads at once as a command that plans or runs needs.
///
/// # Errors
/// The system refuses a thread. The error names the limits to check.
pub fn check_available() -> Result<(), Failure> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    try_to_have(cores + OWN).map_err(|(had, error)| {
        Failure::Harness(format!(
            "a process of this user may start only {had} more threads here ({error}; ulimit -u, or a limit of the container); {} are needed at least",
            cores + OWN
        ))
    })
}

/// Starts `count` threads that live at the same time, and ends them. The error has the number that could be started.
fn try_to_have(count: usize) -> Result<(), (usize, io::Error)> {
    let mut waiting = Vec::new();
    for had in 0..count {
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::Builder::new().spawn(move || {
            // They end when the sender is dropped.
            let _ = ended.recv();
        });
        match thread {
            Ok(thread) => waiting.push((end, thread)),
            Err(error) => {
                drop_all(waiting);
                return Err((had, error));
            }
        }
    }
    drop_all(waiting);
    Ok(())
}

/// Ends the threads, and waits until they are gone.
fn drop_all(waiting: Vec<(mpsc::Sender<()>, thread::JoinHandle<()>)>) {
    for (end, thread) in waiting {
        drop(end);
        // The thread only waits, so it cannot panic.
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_threads_can_be_had() {
        assert!(try_to_have(3).is_ok());
    }
}
