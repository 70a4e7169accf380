//! The verdict on ranks that do not come out of a work that all others have completed, by the lines of NCCL's watchdog.

use super::Rules;
use crate::evidence::verb;
use crate::logs::watchdog::{WORLD, Works};
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Finds the few ranks that timed out in a work of the world which all others have completed: they have all that they need of the
    /// others, and wait for their own device or link.
    pub(super) fn stuck(&self) -> Option<Diagnosis> {
        if !self.job.absent().is_empty() {
            return None;
        }
        let mut all: Vec<(Rank, &Works, i64)> = Vec::new();
        for (rank, logged) in &self.job.ranks {
            let works = logged.log.watchdog.groups.get(WORLD)?;
            all.push((Rank(*rank), works, works.completed?));
        }
        let least = all.iter().map(|(.., completed)| *completed).min()?;
        let number = least + 1;
        let (inside, others): (Vec<_>, Vec<_>) =
            all.iter().partition(|(.., completed)| *completed == least);
        let timed_out = |works: &Works| works.timed_out.as_ref().map(|work| work.number);
        let is_inside = inside
            .iter()
            .all(|(_, works, _)| timed_out(works) == Some(number));
        let others_wait = others
            .iter()
            .any(|(_, works, _)| timed_out(works).is_some());
        if !is_inside || !others_wait || inside.len() * 2 >= all.len() {
            return None;
        }
        let culprits: Vec<Rank> = inside.iter().map(|(rank, ..)| *rank).collect();
        let victims: Vec<Rank> = others.iter().map(|(rank, ..)| *rank).collect();
        let work = inside.first()?.1.timed_out.as_ref()?;
        let summary = format!(
            "{} {} not come out of work {number} of group {WORLD}, {}, which all others have completed",
            named(&culprits),
            verb(&culprits, "has", "have"),
            work.title()
        );
        let facts = vec![format!(
            "{} timed out in work {number}; {} have completed it",
            named(&culprits),
            named(&victims)
        )];
        let (kind, confidence) = (HangKind::StuckInCall, Confidence::Likely);
        let found = self.diagnosis(kind, confidence, culprits, summary, facts);
        Some(Diagnosis { victims, ..found })
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn a_work_that_all_others_have_completed_keeps_a_rank() {
        let line = |rank: u32, work: u32| {
            format!(
                "[rank{rank}]: [PG ID 0 PG GUID 0(default_pg) Rank {rank}] failure detected by watchdog at work sequence id: {work} PG status: last enqueued work: {work}, last completed work: {}\n",
                work - 1
            )
        };
        let all = |works: &[u32]| -> String {
            (0..)
                .zip(works)
                .map(|(rank, work)| line(rank, *work))
                .collect()
        };
        assert_eq!(
            said(&all(&[902, 901, 902])),
            (HangKind::StuckInCall, vec![1])
        );
        assert_eq!(said(&all(&[901, 901, 902])), (HangKind::Unknown, vec![]));
        assert_eq!(said(&all(&[902, 902, 902])), (HangKind::Unknown, vec![]));
    }
}
