//! The verdict by the time at which a rank's own launcher was told to stop.

use super::Rules;
use crate::evidence::verb;
use crate::logs::logged::Logged;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// A rank counts as the first to be stopped if this many seconds pass before any other rank gives up or is stopped. A scheduler
/// that ends a whole job takes less.
const FIRST: f64 = 10.0;

impl Rules<'_> {
    /// Finds the ranks whose launchers were told to stop (by SIGTERM, as in a preemption) before any other rank gave up. Launchers
    /// that stop their ranks because another one failed do so afterwards.
    pub(super) fn told_to_stop(&self) -> Option<Diagnosis> {
        let all = &self.job.ranks;
        let is_stopped = |(_, logged): &(&u32, &Logged)| logged.log.told_to_stop.is_some();
        let (stopped, others): (Vec<_>, Vec<_>) = all.iter().partition(is_stopped);
        let last = stopped
            .iter()
            .filter_map(|(_, logged)| logged.log.told_to_stop);
        let last = last.reduce(|one, other| match other.since(one) {
            Some(seconds) if seconds > 0.0 => other,
            _ => one,
        })?;
        let gave_up: Vec<_> = others
            .iter()
            .filter(|(_, logged)| logged.log.final_errors().next().is_some())
            .collect();
        let is_later = |logged: &Logged| {
            let seconds = logged.log.failed.and_then(|failed| failed.since(last));
            seconds.is_some_and(|seconds| seconds >= FIRST) && logged.log.cause().is_none()
        };
        let is_first = !gave_up.is_empty() && gave_up.iter().all(|(_, logged)| is_later(logged));
        if !is_first || stopped.len() >= others.len() {
            return None;
        }
        let culprits: Vec<Rank> = stopped.iter().map(|(rank, _)| Rank(**rank)).collect();
        let victims: Vec<Rank> = gave_up.iter().map(|(rank, _)| Rank(**rank)).collect();
        let summary = format!(
            "{} {} stopped by SIGTERM before the others gave up",
            named(&culprits),
            verb(&culprits, "was", "were")
        );
        let facts = vec![format!(
            "the launcher of {} received SIGTERM, and {} gave up more than {FIRST} s later",
            named(&culprits),
            named(&victims)
        )];
        let (kind, confidence) = (HangKind::PeerDead, Confidence::Likely);
        let found = self.diagnosis(kind, confidence, culprits, summary, facts);
        Some(Diagnosis { victims, ..found })
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn the_first_to_be_stopped_is_the_cause() {
        let gave_up = |rank: u32, clock: &str| {
            format!(
                "[rank{rank}]:[E1114 {clock}.0 a.cpp:1] RuntimeError: Timed out waiting 5000ms for recv operation\n"
            )
        };
        let stopped = "[rank2]:W1114 06:48:31.6 1 a/b.py:7] Received 15 death signal, shutting down workers\n";
        let late = format!("{}{}", gave_up(0, "06:58:31"), gave_up(1, "06:58:32"));
        assert_eq!(
            said(&format!("{stopped}{late}")),
            (HangKind::PeerDead, vec![2])
        );
        // The scheduler ends the whole job, or the launcher its ranks because of another one.
        let soon = format!("{}{}", gave_up(0, "06:48:30"), gave_up(1, "06:48:32"));
        assert_eq!(
            said(&format!("{soon}{stopped}")),
            (HangKind::Unknown, vec![])
        );
    }
}
