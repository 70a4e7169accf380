//! Tells a rank that is late from a machine that is busy, by the processor time that ranks used and waited for.

use std::time::Duration;

use tokio::time::Instant;

/// A rank gets more time only if it ran, or was ready to run, for one part in this many of the time that has passed.
const LEAST_RUN: u32 = 50;
/// A rank gets more time only if it waited for a processor for one part in this many of the time that has passed.
const LEAST_WAIT: u32 = 4;

/// The processor time that ranks used and waited for: of each the largest of all ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessorTimes {
    /// Time for which threads of the rank ran.
    pub(super) used: Duration,
    /// Time in which a thread was ready to run and another ran.
    pub(super) waited: Duration,
}

impl ProcessorTimes {
    /// Reads the times of these processes and of those below them.
    pub(super) fn of(roots: &[u32]) -> Self {
        let used = roots.iter().copied().map(allranks_host::processor_time);
        Self {
            used: used.max().unwrap_or_default(),
            waited: time_ready(roots),
        }
    }

    /// Returns the difference to earlier times.
    pub(super) const fn since(self, earlier: Self) -> Self {
        Self {
            used: self.used.saturating_sub(earlier.used),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }

    /// Returns true if the machine is why a rank in a step is late: the rank ran, and was kept waiting, or was ready to run for three
    /// quarters of the time that has passed. A rank that polls for something that never comes is hardly ever ready.
    pub(super) fn is_machine_late(self, passed: Duration) -> bool {
        let has_run = self.used * LEAST_RUN >= passed;
        (has_run && self.was_kept_waiting(passed)) || self.waited * 4 >= passed * 3
    }

    /// Returns true if a rank ran, or was ready to run, for some of the time that has passed.
    pub(super) fn could_run(self, passed: Duration) -> bool {
        (self.used + self.waited) * LEAST_RUN >= passed
    }

    /// Returns true if a rank was ready to run for much of the time that has passed, and others ran.
    pub(super) fn was_kept_waiting(self, passed: Duration) -> bool {
        self.waited * LEAST_WAIT >= passed
    }
}

/// Returns the longest time for which a rank below these processes was ready to run while others ran.
pub(super) fn time_ready(roots: &[u32]) -> Duration {
    let waited = roots.iter().copied().map(allranks_host::time_ready);
    waited.max().unwrap_or_default()
}

/// Processor times, and when they were read.
#[derive(Debug)]
pub(super) struct NotedTimes {
    at: Instant,
    times: ProcessorTimes,
}

impl NotedTimes {
    /// Takes these times as those of now.
    pub(super) fn now(times: ProcessorTimes) -> Self {
        Self {
            at: Instant::now(),
            times,
        }
    }

    /// Returns how much time has passed since, and the processor times in it.
    pub(super) fn since(&self, now: ProcessorTimes) -> (Duration, ProcessorTimes) {
        (self.at.elapsed(), now.since(self.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(used: u64, waited: u64) -> ProcessorTimes {
        ProcessorTimes {
            used: Duration::from_millis(used),
            waited: Duration::from_millis(waited),
        }
    }

    #[test]
    fn a_rank_that_sleeps_is_late_and_one_that_others_keep_from_running_is_not() {
        let passed = Duration::from_secs(1);
        let told = |one: ProcessorTimes| {
            (
                one.is_machine_late(passed),
                one.could_run(passed),
                one.was_kept_waiting(passed),
            )
        };
        assert_eq!(told(times(0, 0)), (false, false, false), "sleeps");
        assert_eq!(told(times(1000, 0)), (false, true, false), "polls, alone");
        assert_eq!(
            told(times(5, 300)),
            (false, true, true),
            "sleeps between polls"
        );
        assert_eq!(told(times(250, 750)), (true, true, true), "one of four");
        assert_eq!(told(times(5, 900)), (true, true, true), "hardly let run");
    }

    #[test]
    fn what_has_come_since_is_what_counts() {
        let note = NotedTimes::now(times(100, 50));
        let (_, since) = note.since(times(300, 60));
        assert_eq!(since.used, Duration::from_millis(200));
        assert_eq!(since.waited, Duration::from_millis(10));
        // A process that has ended takes its times with it.
        let (_, since) = note.since(times(0, 0));
        assert_eq!((since.used, since.waited), Default::default());
    }
}
