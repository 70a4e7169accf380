//! The monotonic clock for the times at which calls are entered and left.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// Returns the monotonic time of this host, in nanoseconds.
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the name of the clock, which is equal on ranks whose times can be compared.
#[must_use]
pub fn name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    });
    format!("{}/monotonic", host.trim())
}
