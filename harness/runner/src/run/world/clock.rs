//! The time of a world's state machine. It stands still while the harness itself is late or looks at the ranks, so that none of
//! this time counts against deadlines of the ranks or of a verdict.

use std::time::Duration;

use tokio::time::Instant;

/// How late the harness may wake up before that counts as a delay of its own.
const TOLERANCE: Duration = Duration::from_millis(200);

/// The time of a world's state machine.
#[derive(Debug)]
pub(super) struct WorldClock {
    /// The origin of the time.
    began: Instant,
    /// How far it is behind real time.
    behind: Duration,
    /// The time of the state machine's last event. The clock never goes back behind it.
    last_event: Duration,
    /// The deadline for which the harness has been late already.
    excused: Option<Duration>,
}

impl WorldClock {
    /// Makes a clock whose time begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            behind: Duration::ZERO,
            last_event: Duration::ZERO,
            excused: None,
        }
    }

    /// Returns this clock's time at an instant.
    pub(super) fn time(&self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.began);
        passed.saturating_sub(self.behind)
    }

    /// Returns the instant at which this clock reaches a time, if it does not stand still before.
    pub(super) fn instant(&self, time: Duration) -> Instant {
        self.began + self.behind + time
    }

    /// Returns the real time since the clock began.
    pub(super) fn since_beginning(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Records that the state machine gets an event; returns the time of the event.
    pub(super) fn record_event(&mut self, now: Instant) -> Duration {
        self.last_event = self.time(now);
        self.last_event
    }

    /// Sets the clock back by the time since an instant, in which the harness did something else than wait for the ranks.
    pub(super) fn exclude_since(&mut self, since: Instant, now: Instant) {
        let taken = now.saturating_duration_since(since);
        let most = self.time(now).saturating_sub(self.last_event);
        self.behind += taken.min(most);
    }

    /// Sets the clock back by the delay of the harness, if it woke up too late for a deadline. Returns true if it did: the
    /// caller must then look first at what the ranks have done meanwhile. Does so once for each deadline.
    pub(super) fn exclude_delay(&mut self, deadline: Duration, now: Instant) -> bool {
        let late = self.time(now).saturating_sub(deadline.max(self.last_event));
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
        assert_eq!(clock.record_event(began + ms(1000)), ms(1000));
        let deadline = ms(1600);
        assert!(
            !clock.exclude_delay(deadline, began + ms(1700)),
            "as late as any timer"
        );
        assert!(clock.exclude_delay(deadline, began + ms(11_600)));
        assert_eq!(clock.time(began + ms(11_600)), deadline);
        assert_eq!(clock.instant(deadline), began + ms(11_600));
        // The same deadline is late for good now.
        assert!(!clock.exclude_delay(deadline, began + ms(60_000)));
    }

    #[test]
    fn what_the_harness_does_itself_takes_no_time() {
        let began = Instant::now();
        let mut clock = WorldClock::new(began);
        clock.record_event(began + ms(600));
        clock.exclude_since(began + ms(600), began + ms(5600));
        assert_eq!(clock.time(began + ms(5600)), ms(600));
        assert_eq!(clock.time(began + ms(6000)), ms(1000));
        assert_eq!(clock.since_beginning(began + ms(6000)), ms(6000));
    }

    #[test]
    fn the_time_never_goes_back_behind_what_was_told() {
        let began = Instant::now();
        let mut clock = WorldClock::new(began);
        clock.record_event(began + ms(1000));
        clock.exclude_since(began, began + ms(1500));
        assert_eq!(clock.time(began + ms(1500)), ms(1000));
        assert!(
            clock.exclude_delay(ms(400), began + ms(3000)),
            "a deadline that had passed"
        );
        assert_eq!(clock.time(began + ms(3000)), ms(1000));
    }
}
