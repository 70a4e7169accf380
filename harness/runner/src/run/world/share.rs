//! What ranks have had of the machine: tells a rank that is late from a machine that is.

use std::time::Duration;

use tokio::time::Instant;

/// The share of the time, as its denominator, for which a rank must have been let run, or have waited for that, to be given more.
const LEAST_SHARE: u32 = 50;
/// The share of the time, as its denominator, for which a rank must have waited for a processor to be given more.
const LEAST_WAIT: u32 = 10;

/// What ranks have had of the machine: of each time that of the rank that has most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    /// Processor time.
    pub(super) used: Duration,
    /// Time in which a thread was ready to run and another ran.
    pub(super) waited: Duration,
}

impl Share {
    /// Reads the shares of the processes below these, and of these themselves.
    pub(super) fn of(roots: &[u32]) -> Self {
        let used = roots.iter().copied().map(allranks_host::processor_time);
        Self {
            used: used.max().unwrap_or_default(),
            waited: time_ready(roots),
        }
    }

    /// Returns what has come since.
    pub(super) const fn since(self, earlier: Self) -> Self {
        Self {
            used: self.used.saturating_sub(earlier.used),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }

    /// Returns true if a rank was let run in the time that has passed.
    pub(super) fn has_run(self, passed: Duration) -> bool {
        self.used * LEAST_SHARE >= passed
    }

    /// Returns true if a rank was let run in the time that has passed, or was ready to.
    pub(super) fn could_run(self, passed: Duration) -> bool {
        (self.used + self.waited) * LEAST_SHARE >= passed
    }

    /// Returns true if others ran for much of the time that has passed although a rank was ready to.
    pub(super) fn was_kept_waiting(self, passed: Duration) -> bool {
        self.waited * LEAST_WAIT >= passed
    }
}

/// Returns how long a rank below these processes was at most ready to run, and was not let.
pub(super) fn time_ready(roots: &[u32]) -> Duration {
    let waited = roots.iter().copied().map(allranks_host::time_ready);
    waited.max().unwrap_or_default()
}

/// What ranks had had of the machine at some time.
#[derive(Debug)]
pub(super) struct ShareNote {
    at: Instant,
    had: Share,
}

impl ShareNote {
    /// Notes a share as that of now.
    pub(super) fn now(had: Share) -> Self {
        Self {
            at: Instant::now(),
            had,
        }
    }

    /// Returns how much time has passed since, and what came of the machine in it.
    pub(super) fn since(&self, has: Share) -> (Duration, Share) {
        (self.at.elapsed(), has.since(self.had))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(used: u64, waited: u64) -> Share {
        Share {
            used: Duration::from_millis(used),
            waited: Duration::from_millis(waited),
        }
    }

    #[test]
    fn a_rank_that_sleeps_is_late_and_one_that_others_keep_from_running_is_not() {
        let passed = Duration::from_secs(1);
        let told = |share: Share| {
            (
                share.has_run(passed),
                share.could_run(passed),
                share.was_kept_waiting(passed),
            )
        };
        assert_eq!(told(share(0, 0)), (false, false, false), "sleeps");
        assert_eq!(told(share(1000, 0)), (true, true, false), "polls, alone");
        assert_eq!(told(share(250, 750)), (true, true, true), "one of four");
        assert_eq!(told(share(5, 900)), (false, true, true), "hardly let run");
    }

    #[test]
    fn what_has_come_since_is_what_counts() {
        let note = ShareNote::now(share(100, 50));
        let (_, since) = note.since(share(300, 60));
        assert_eq!(since.used, Duration::from_millis(200));
        assert_eq!(since.waited, Duration::from_millis(10));
        // A process that has ended takes its times with it.
        let (_, since) = note.since(share(0, 0));
        assert_eq!((since.used, since.waited), Default::default());
    }
}
