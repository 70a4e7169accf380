//! Keeps the hang verdicts on a world since something last moved, and decides which of them counts.

use std::time::Duration;

use allranks_model::diagnosis::Confidence;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::diagnosis::HangKind;

/// Time between two looks.
pub const LOOK_PERIOD: Duration = Duration::from_millis(400);

/// The looks at a world since something last moved.
#[derive(Debug, Default)]
pub struct HangChecks {
    /// When to look again; none if there was no look since something moved.
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

    /// Returns when to look again, `first` at the earliest.
    pub fn next_look(&self, first: Duration) -> Duration {
        self.next.map_or(first, |next| next.max(first))
    }

    /// Returns the last verdict that said a rank was only late; none if there was none.
    pub const fn late(&self) -> Option<&Diagnosis> {
        self.late.as_ref()
    }

    /// Takes a verdict. Returns it if it is proved and the verdict before had the same kind and culprits; otherwise
    /// none.
    pub fn accept(&mut self, diagnosis: Diagnosis, now: Duration) -> Option<Diagnosis> {
        self.next = Some(now + LOOK_PERIOD);
        if diagnosis.kind == HangKind::Slow {
            self.late = Some(diagnosis.clone());
        }
        let last = self.last.replace(diagnosis.clone())?;
        let same = last.kind == diagnosis.kind && last.culprits == diagnosis.culprits;
        (same && diagnosis.confidence == Confidence::Proved).then_some(diagnosis)
    }
}
