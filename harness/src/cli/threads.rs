//! Refuses to start where the system gives this process too few threads, because a library that relies on them would abort in
//! the middle.

use std::io;
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread;

use super::Failure;

/// Threads that a command starts besides one for each core.
const OWN: usize = 8;

/// Returns an error if this process cannot have as many threads at a time as a command that plans or runs starts.
///
/// # Errors
/// The system refuses one of them; the error says which limit to look at.
pub fn check_available() -> Result<(), Failure> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    try_to_have(cores + OWN).map_err(|(had, error)| {
        Failure::Harness(format!(
            "a process of this user may start only {had} threads more here ({error}; ulimit -u, or a limit of the container); {} are needed at least",
            cores + OWN
        ))
    })
}

/// Starts so many threads that are all there at a time, and ends them. The error has the number that could be started.
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
        // It only waits.
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
