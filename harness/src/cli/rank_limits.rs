//! How many ranks may run at a time on this machine.

use super::Failure;
use allranks_runner::run::Capacity;

/// Returns the default of `--ranks-at-once`. A Gloo rank mostly waits for its peers, so a core can run several: on 2 cores,
/// profile `core` takes a fifth less time with 16 ranks at once than with 8, and no less with 32. Ranks of scripts and programs
/// use little processor time, and have a budget of their own.
#[must_use]
pub fn ranks_at_once() -> Capacity {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    Capacity {
        computing: cores * 8,
        waiting: Some(cores * 12),
    }
}

/// The number of files that this process has open besides those of ranks.
const OWN_FILES: u64 = 48;
/// The number of files that this process opens for each rank: two connections (rank, supervisor), and those that wait for its
/// end.
const FILES_PER_RANK: u64 = 4;

/// Returns how many files a process may have open at a time here.
pub(super) fn open_files() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// Returns how many ranks may run at a time where a process may have this many files open.
pub(super) fn ranks_within(files: u64) -> Result<usize, Failure> {
    match files.saturating_sub(OWN_FILES) / FILES_PER_RANK {
        0..4 => Err(Failure::Harness(format!(
            "a process may have only {files} files open at a time here (ulimit -n); {} are needed at least",
            OWN_FILES + 4 * FILES_PER_RANK
        ))),
        ranks => Ok(usize::try_from(ranks).unwrap_or(usize::MAX)),
    }
}
