//! The verdict by the one rank whose watchdog says nothing.

use std::collections::BTreeSet;

use super::Rules;
use crate::logs::logged::Logged;
use crate::logs::watchdog::WORLD;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Ranks that a world must have for one of them to be told from the rest.
const LEAST: usize = 3;

impl Rules<'_> {
    /// Finds the only rank of the world that has not timed out where all others have: it has not come to a collective. A rank of
    /// which there are no logs may have timed out, too. All others are in one collective of the world, or in collectives of smaller
    /// groups: then each of those waits for one that waits elsewhere, or for the rank.
    pub(super) fn silent(&self) -> Option<Diagnosis> {
        if self.job.ranks.len() < LEAST || !self.job.absent().is_empty() {
            return None;
        }
        let timed_out = |(_, logged): &(&u32, &Logged)| logged.log.watchdog.timed_out();
        let (waiting, rest): (Vec<_>, Vec<_>) = self.job.ranks.iter().partition(timed_out);
        let [(silent, logged)] = rest[..] else {
            return None;
        };
        if !self.could_write(*silent) {
            return None;
        }
        let number = |logged: &Logged| {
            let works = logged.log.watchdog.groups.get(WORLD)?;
            works.timed_out.as_ref().map(|work| work.number)
        };
        let numbers: BTreeSet<Option<i64>> =
            waiting.iter().map(|(_, logged)| number(logged)).collect();
        let (here, others) = match (numbers.first().copied()?, numbers.len()) {
            (Some(work), 1) => {
                let place = format!("work {work} of group {WORLD}");
                (place.clone(), place)
            }
            (None, 1) => (
                "a collective of its groups".to_owned(),
                "collectives of smaller groups".to_owned(),
            ),
            _ => return None,
        };
        let victims: Vec<Rank> = waiting.iter().map(|(rank, _)| Rank(**rank)).collect();
        let mut facts = vec![format!(
            "{} timed out in {others}, and rank {silent} did not",
            named(&victims)
        )];
        if logged.log.watchdog.is_stuck {
            facts.push(format!(
                "the watchdog of rank {silent} hung: a call of CUDA or a thread that keeps Python's lock did not let it run"
            ));
        }
        let summary =
            format!("rank {silent} has not come to {here}; all others timed out in {others}");
        let culprits = vec![Rank(*silent)];
        let (kind, confidence) = (HangKind::Behind, Confidence::Likely);
        let found = self.diagnosis(kind, confidence, culprits, summary, facts);
        Some(Diagnosis { victims, ..found })
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    fn timed_out(rank: u32, work: u32) -> String {
        format!(
            "[rank{rank}]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum={work}, OpType=ALLREDUCE) ran for 600020 milliseconds\n[rank{rank}]: [PG ID 0 PG GUID 0(default_pg) Rank {rank}] failure detected by watchdog at work sequence id: {work} PG status: last enqueued work: {work}, last completed work: 6\n"
        )
    }

    #[test]
    fn the_rank_without_a_timeout_has_not_come() {
        let two = format!("{}{}", timed_out(0, 7), timed_out(1, 7));
        let silent = format!("{two}[rank2]: step 3\n");
        assert_eq!(said(&silent), (HangKind::Behind, vec![2]));
        // It may have timed out where nobody has kept the lines.
        let without_logs = format!("[rank0]: world_size=3\n{two}");
        assert_eq!(said(&without_logs), (HangKind::Unknown, vec![]));
        let all = format!("{two}{}", timed_out(2, 7));
        assert_eq!(said(&all), (HangKind::Unknown, vec![]));
        let group = |rank: u32, guid: u32, work: u32| {
            timed_out(rank, work)
                .replace("(default_pg)", "(tp)")
                .replace("GUID 0", &format!("GUID {guid}"))
        };
        let groups = format!(
            "{}{}{}[rank3]: step 3\n",
            group(0, 5, 7),
            group(1, 6, 9),
            group(2, 5, 7)
        );
        assert_eq!(said(&groups), (HangKind::Behind, vec![3]));
        // One group waits for another: which of them, nothing says.
        let mixed = format!(
            "{}{}{}[rank3]: step 3\n",
            group(0, 5, 7),
            timed_out(1, 9),
            group(2, 5, 7)
        );
        assert_eq!(said(&mixed), (HangKind::Unknown, vec![]));
        let two_silent = format!("{two}[rank2]: step 3\n[rank3]: step 3\n");
        assert_eq!(said(&two_silent), (HangKind::Unknown, vec![]));
    }
}
