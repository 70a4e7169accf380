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

    /// Records a verdict. Returns it if it is proved and the verdict before had the same kind and culprits; otherwise none. Where one rank
    /// has raised, and the machine keeps another one from running, that one may be about to raise the same, and nothing is proved.
    pub fn accept(
        &mut self,
        diagnosis: Diagnosis,
        now: Duration,
        is_machine_busy: bool,
    ) -> Option<Diagnosis> {
        self.next = Some(now + HANG_CHECK_PERIOD);
        if is_machine_busy && diagnosis.kind == HangKind::PeerRaised {
            self.last = None;
            return None;
        }
        if diagnosis.kind == HangKind::Slow {
            self.late = Some(diagnosis.clone());
        }
        let last = self.last.replace(diagnosis.clone())?;
        let same = last.kind == diagnosis.kind && last.culprits == diagnosis.culprits;
        (same && diagnosis.confidence == Confidence::Proved).then_some(diagnosis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_model::names::Rank;

    fn verdict(kind: HangKind) -> Diagnosis {
        Diagnosis {
            kind,
            after_s: 1.0,
            confidence: Confidence::Proved,
            culprits: vec![Rank(1)],
            victims: Vec::new(),
            summary: String::new(),
            evidence: Vec::new(),
            refuted_by: String::new(),
            advice: Vec::new(),
            places: Vec::new(),
        }
    }

    #[test]
    fn that_a_rank_has_raised_is_no_verdict_while_the_machine_keeps_others_from_running() {
        let accepted = |kind: HangKind, busy: [bool; 3]| {
            let mut checks = HangChecks::default();
            let mut times = (1_u64..).map(|turn| Duration::from_millis(400 * turn));
            busy.map(|is_busy| {
                let now = times.next().unwrap();
                checks.accept(verdict(kind), now, is_busy).is_some()
            })
        };
        let raised = HangKind::PeerRaised;
        assert_eq!(accepted(raised, [false; 3]), [false, true, true]);
        assert_eq!(accepted(raised, [true; 3]), [false; 3]);
        assert_eq!(accepted(raised, [false, true, false]), [false; 3]);
        assert_eq!(accepted(HangKind::PeerDead, [true; 3]), [false, true, true]);
    }
}
