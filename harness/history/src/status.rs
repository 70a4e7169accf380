//! The numbers that stand for statuses in the file. They never change, although the order of [`Status`] may.

use allranks_model::status::Status;

/// Returns the number of a status.
pub(crate) const fn number(status: Status) -> i64 {
    match status {
        Status::Regression => 1,
        Status::HarnessError => 2,
        Status::UnexpectedPass => 3,
        Status::NotRun => 4,
        Status::Waived => 5,
        Status::KnownFailure => 6,
        Status::Refused => 7,
        Status::Passed => 8,
    }
}

/// Returns the status of a number; `None` if there is none.
pub(crate) fn of(wanted: i64) -> Option<Status> {
    Status::ALL
        .iter()
        .copied()
        .find(|status| number(*status) == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_comes_back() {
        for status in Status::ALL {
            assert_eq!(of(number(*status)), Some(*status));
        }
        assert_eq!(of(0), None);
    }
}
