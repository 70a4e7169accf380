//! The time of a world's state machine. Time in which the harness itself is late, or looks at the ranks, does not pass in it: what
//! ranks must do in time, and a verdict that must come in time, are held against what the ranks had.

use std::time::Duration;

use tokio::time::Instant;

/// How late the harness may wake up without taking that for a delay of its own.
const TOLERANCE: Duration = Duration::from_millis(200);

/// The time of a world's state machine.
#[derive(Debug)]
pub(super) struct WorldClock {
    /// The origin of the time.
    began: Instant,
    /// How far it is behind.
    behind: Duration,
    /// The time when the state machine was told of something last. It never goes back behind that.
    told: Duration,
    /// The deadline for which the harness has been late already.
    excused: Option<Duration>,
}

impl WorldClock {
    /// Makes a clock whose time begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            behind: Duration::ZERO,
            told: Duration::ZERO,
            excused: None,
        }
    }

    /// Returns the time.
    pub(super) fn time(&self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.began);
        passed.saturating_sub(self.behind)
    }

    /// Returns when a time is reached.
    pub(super) fn instant(&self, time: Duration) -> Instant {
        self.began + self.behind + time
    }

    /// Returns how long ago the time began, whatever did not pass.
    pub(super) fn since_beginning(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Notes that the state machine is given an event; returns the time.
    pub(super) fn tell(&mut self, now: Instant) -> Duration {
        self.told = self.time(now);
        self.told
    }

    /// Takes out what has passed since an instant: what the harness did meanwhile is no time of the ranks.
    pub(super) fn take_out(&mut self, since: Instant, now: Instant) {
        let taken = now.saturating_duration_since(since);
        let most = self.time(now).saturating_sub(self.told);
        self.behind += taken.min(most);
    }

    /// Takes out by how much the harness woke up too late for a deadline. Returns whether it did: then what the ranks have done
    /// meanwhile must be looked at first. For one deadline it can be late once.
    pub(super) fn excuse(&mut self, deadline: Duration, now: Instant) -> bool {
        let late = self.time(now).saturating_sub(deadline.max(self.told));
        if late <= TOLERANCE || self.excused == Some(deadline) {
            return false;
        }
        self.excused = Some(deadline);
        self.behind += late;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn a_harness_that_wakes_up_late_takes_no_time_from_the_ranks() {
        let began = Instant::now();
        let mut clock = WorldClock::new(began);
        assert_eq!(clock.tell(began + ms(1000)), ms(1000));
        let deadline = ms(1600);
        assert!(
            !clock.excuse(deadline, began + ms(1700)),
            "as late as any timer"
        );
        assert!(clock.excuse(deadline, began + ms(11_600)));
        assert_eq!(clock.time(began + ms(11_600)), deadline);
        assert_eq!(clock.instant(deadline), began + ms(11_600));
        // The same deadline is late for good now.
        assert!(!clock.excuse(deadline, began + ms(60_000)));
    }

    #[test]
    fn what_the_harness_does_itself_takes_no_time() {
        let began = Instant::now();
        let mut clock = WorldClock::new(began);
        clock.tell(began + ms(600));
        clock.take_out(began + ms(600), began + ms(5600));
        assert_eq!(clock.time(began + ms(5600)), ms(600));
        assert_eq!(clock.time(began + ms(6000)), ms(1000));
        assert_eq!(clock.since_beginning(began + ms(6000)), ms(6000));
    }

    #[test]
    fn the_time_never_goes_back_behind_what_was_told() {
        let began = Instant::now();
        let mut clock = WorldClock::new(began);
        clock.tell(began + ms(1000));
        clock.take_out(began, began + ms(1500));
        assert_eq!(clock.time(began + ms(1500)), ms(1000));
        assert!(
            clock.excuse(ms(400), began + ms(3000)),
            "a deadline that had passed"
        );
        assert_eq!(clock.time(began + ms(3000)), ms(1000));
    }
}
