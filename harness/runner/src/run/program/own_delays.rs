//! Records delays of the harness itself while a program runs: it was not scheduled, was stopped, or took long to look at the
//! ranks. This time is not charged to the program.

use std::time::Duration;

use tokio::time::Instant;

/// The delays since a program began.
#[derive(Debug)]
pub(super) struct OwnDelays {
    /// The time between two looks.
    period: Duration,
    /// When the last look ended.
    looked: Instant,
    /// When each delay ended, and how long it was.
    delays: Vec<(Instant, Duration)>,
}

impl OwnDelays {
    /// Makes an empty record for a program that begins now and is looked at once in each period.
    pub(super) fn new(period: Duration, now: Instant) -> Self {
        Self {
            period,
            looked: now,
            delays: Vec::new(),
        }
    }

    /// Notes that a look begins, which was due one period after the last.
    pub(super) fn begin(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.looked + self.period);
        self.note(late, now);
    }

    /// Notes that the look which began at an instant has ended.
    pub(super) fn end(&mut self, began: Instant, now: Instant) {
        self.note(now.saturating_duration_since(began), now);
    }

    fn note(&mut self, delay: Duration, now: Instant) {
        self.looked = now;
        if !delay.is_zero() {
            self.delays.push((now, delay));
        }
    }

    /// Returns the sum of the delays in the time `last` before an instant.
    pub(super) fn within(&self, last: Duration, now: Instant) -> Duration {
        let delays = self.delays.iter();
        let counted = delays.map(|(ended, delay)| {
            let age = now.saturating_duration_since(*ended);
            (*delay).min(last.saturating_sub(age))
        });
        counted.sum::<Duration>().min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_delays_count_and_only_as_far_as_they_are_recent() {
        let ms = Duration::from_millis;
        let began = Instant::now();
        let mut delays = OwnDelays::new(ms(400), began);
        let at = |time| began + ms(time);
        // In time, and at once.
        delays.begin(at(400));
        delays.end(at(400), at(400));
        assert_eq!(delays.within(ms(1000), at(400)), Duration::ZERO);
        // Stopped for 10 s, then a look of 2 s.
        delays.begin(at(10_800));
        delays.end(at(10_800), at(12_800));
        assert_eq!(delays.within(ms(60_000), at(12_800)), ms(12_000));
        // Of the last 3 s, the look took 2, and the delay before it 1.
        assert_eq!(delays.within(ms(3000), at(12_800)), ms(3000));
        assert_eq!(delays.within(ms(5000), at(15_800)), ms(2000));
    }
}
