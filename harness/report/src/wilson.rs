//! The confidence interval of a counted rate.

/// The 97.5th percentile of the normal distribution: both sides together leave out 5 %.
const Z: f64 = 1.959_963_984_540_054;

/// A rate: the number of runs in which something was seen, out of all runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How often it was seen.
    pub seen: u64,
    /// In how many runs it could have been seen.
    pub of: u64,
}

impl Rate {
    /// Returns the 95 % interval of the rate, between 0 and 1; all of it if there was no run. It is Wilson's score interval
    /// (Wilson, "Probable inference, the law of succession, and statistical inference", 1927), which holds for few runs and rates
    /// near 0.
    #[must_use]
    pub fn interval(self) -> (f64, f64) {
        if self.of == 0 {
            return (0.0, 1.0);
        }
        #[expect(clippy::cast_precision_loss, reason = "numbers of runs are small")]
        let (seen, of) = (self.seen as f64, self.of as f64);
        let rate = seen / of;
        let scale = 1.0 + Z * Z / of;
        let middle = rate + Z * Z / (2.0 * of);
        let half = Z * (rate * (1.0 - rate) / of + Z * Z / (4.0 * of * of)).sqrt();
        let low = ((middle - half) / scale).max(0.0);
        (low, ((middle + half) / scale).min(1.0))
    }

    /// Returns the rate as text: `3 of 30 runs (4–26 %)`.
    #[must_use]
    pub fn text(self) -> String {
        let (low, high) = self.interval();
        let noun = if self.of == 1 { "run" } else { "runs" };
        format!(
            "{} of {} {noun} ({:.0}–{:.0} %)",
            self.seen,
            self.of,
            low * 100.0,
            high * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Wilson's formula without correction, worked out by hand.
    #[test]
    fn the_interval_is_wilsons() {
        let close = |(low, high): (f64, f64), wanted: (f64, f64)| {
            assert!((low - wanted.0).abs() < 5e-4, "{low}");
            assert!((high - wanted.1).abs() < 5e-4, "{high}");
        };
        close(Rate { seen: 0, of: 10 }.interval(), (0.0, 0.2775));
        close(Rate { seen: 5, of: 10 }.interval(), (0.2366, 0.7634));
        close(Rate { seen: 1, of: 30 }.interval(), (0.0059, 0.1667));
        close(Rate { seen: 30, of: 30 }.interval(), (0.8865, 1.0));
        close(Rate { seen: 0, of: 0 }.interval(), (0.0, 1.0));
        assert_eq!(Rate { seen: 1, of: 30 }.text(), "1 of 30 runs (1–17 %)");
    }
}
