//! Keeps the hang verdicts on a world since something last moved, and decides which of them counts.

use std::time::Duration;

use allranks_model::diagnosis::Confidence;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::diagnosis::HangKind;

/// Time between two hang checks of a world in which nothing moves.
pub const HANG_CHECK_PERIOD: Duration = Duration::from_millis(400);

/// The hang checks of a world since something last moved.
#[derive(Debug, Default)]
pub struct HangChecks {
    /// When the next check is; none if there was no check since something moved.
    next: Option<Duration>,
    /// The last verdict.
    last: Option<Diagnosis>,
    /// The last verdict that said a rank was only late.
    late: Option<Diagnosis>,
}

impl HangChecks {
    /// Forgets earlier verdicts, because something has moved.
    pub fn reset(&mut self) {
        self.next = None;
        self.last = None;
    }

    /// Returns when the next check is; `first` if there was none yet.
    pub fn next_check(&self, first: Duration) -> Duration {
        self.next.map_or(first, |next| next.max(first))
    }

    /// Returns the last verdict that said a rank was only late; none if there was none.
    pub const fn late(&self) -> Option<&Diagnosis> {
        self.late.as_ref()
    }

    /// Records a verdict. Returns it if it is proved and the verdict before had the same kind and culprits; otherwise none.
    pub fn accept(&mut self, diagnosis: Diagnosis, now: Duration) -> Option<Diagnosis> {
        self.next = Some(now + HANG_CHECK_PERIOD);
        if diagnosis.kind == HangKind::Slow {
            self.late = Some(diagnosis.clone());
        }
        let last = self.last.replace(diagnosis.clone())?;
        let same = last.kind == diagnosis.kind && last.culprits == diagnosis.culprits;
        (same && diagnosis.confidence == Confidence::Proved).then_some(diagnosis)
    }
}
