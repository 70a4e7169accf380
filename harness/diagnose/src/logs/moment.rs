//! Compares times at the start of lines. Only differences count, so zones and years do not matter as long as all logs
//! of a job are written alike.

/// A time, comparable with others of the same form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moment {
    form: Form,
    seconds: f64,
}

/// How a time was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `2026-11-20 14:00:00,123`.
    Iso,
    /// `I1120 14:00:00.123456`, without a year.
    Glog,
    /// `1795183200.123`.
    Epoch,
}

impl Moment {
    /// Builds a moment from a date (year 0 if none is written) and a time of day, `14:00:00.123`; `None` if that is not
    /// a time.
    pub(super) fn of_date(
        form: Form,
        year: i64,
        month: i64,
        day: i64,
        clock: &str,
    ) -> Option<Self> {
        let mut parts = clock.split(':');
        let hours: f64 = parts.next()?.parse().ok()?;
        let minutes: f64 = parts.next()?.parse().ok()?;
        let seconds: f64 = parts.next()?.replace(',', ".").parse().ok()?;
        let of_day = hours * 3600.0 + minutes * 60.0 + seconds;
        Some(Self {
            form,
            seconds: days(year, month, day) as f64 * 86400.0 + of_day,
        })
    }

    /// Builds a moment from seconds since 1970.
    pub(super) fn of_epoch(seconds: f64) -> Self {
        Self {
            form: Form::Epoch,
            seconds,
        }
    }

    /// Returns the seconds from another moment to this one, negative if it is later; `None` if they are written in
    /// different forms.
    pub(super) fn since(self, other: Self) -> Option<f64> {
        (self.form == other.form).then_some(self.seconds - other.seconds)
    }
}

/// Returns the days since a fixed day, in the proleptic Gregorian calendar (Howard Hinnant, `days_from_civil`).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year
}

/// Returns true if a prefix of a line, such as `12:`, is the hour of a time that the rest of the line goes on with.
pub(super) fn is_clock(prefix: &str, rest: &str) -> bool {
    prefix.ends_with(':') && matches!(rest.as_bytes(), [b'0'..=b'9', b'0'..=b'9', b':', ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_and_years_pass() {
        let at = |year, month, day, clock| Moment::of_date(Form::Iso, year, month, day, clock);
        let seconds = at(2027, 1, 1, "00:00:01,5")
            .unwrap()
            .since(at(2026, 12, 31, "23:59:59.25").unwrap());
        assert_eq!(seconds, Some(2.25));
        assert_eq!(days(2028, 3, 1) - days(2028, 2, 28), 2);
        assert_eq!(
            Moment::of_epoch(1.0).since(at(2026, 1, 1, "0:0:0").unwrap()),
            None
        );
    }

    #[test]
    fn an_hour_is_told_from_a_label() {
        assert!(is_clock("12:", "17:01.10 x"));
        assert!(!is_clock("12: ", "17:01:02 x"));
        assert!(!is_clock("12:", "text"));
        assert!(!is_clock("[12] ", "17:01:02 x"));
    }
}
