//! The verdict by the one rank whose watchdog says nothing.

use std::collections::BTreeSet;

use super::Rules;
use crate::logs::logged::Logged;
use crate::logs::phase::{Edge, Mark, Nature};
use crate::logs::watchdog::WORLD;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Ranks that must have timed out for the one that signs no line to be told from them.
const SIGNED: usize = 3;
/// Ranks that a world must have for one of them to be told from the rest.
const LEAST: usize = 3;

impl Rules<'_> {
    /// Finds rank 0 where it signs no line: all others have timed out in one collective of the world, and unsigned lines show that it
    /// was at work until then. Other loggers than NCCL's often write on rank 0 only, and without its number. The log must go on after the
    /// timeouts: where it is cut, rank 0 may have timed out, too.
    pub(super) fn unsigned(&self) -> Option<Diagnosis> {
        let stray = &self.job.stray;
        let is_own = |(mark, _): &(Mark, _)| mark.edge == Edge::Begin && mark.nature == Nature::Own;
        let is_at_work = stray.step.is_some() || stray.marks.last().is_some_and(is_own);
        let goes_on = !self.job.lines.launcher.exits.is_empty() || {
            let mut errors = stray.final_errors();
            errors.next().is_some()
        };
        let has_failed = || {
            let exit = self.job.lines.launcher.exits.get(&0);
            let mut errors = stray.final_errors();
            exit.is_some_and(|code| *code != -15)
                || errors.any(|error| error.to_lowercase().contains("rank 0"))
        };
        if self.job.absent() != [Rank(0)] || !is_at_work || !goes_on || has_failed() {
            return None;
        }
        let ranks = &self.job.ranks;
        let work = ranks.values().next()?.timed_out_work()?;
        let is_same = ranks
            .values()
            .all(|logged| logged.timed_out_work() == Some(work));
        if ranks.len() < SIGNED || !is_same {
            return None;
        }
        let victims: Vec<Rank> = ranks.keys().copied().map(Rank).collect();
        let summary = format!(
            "rank 0 has not come to work {work} of group {WORLD}, in which all others timed out"
        );
        let facts = vec![
            format!(
                "{} timed out in work {work}, and rank 0 did not",
                named(&victims)
            ),
            "lines that no rank signs show what it did".to_owned(),
        ];
        let (kind, confidence) = (HangKind::Behind, Confidence::Likely);
        let found = self.diagnosis(kind, confidence, vec![Rank(0)], summary, facts);
        Some(Diagnosis { victims, ..found })
    }

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
        let numbers: BTreeSet<Option<i64>> = waiting
            .iter()
            .map(|(_, logged)| logged.timed_out_work())
            .collect();
        let (here, others) = match (numbers.first().copied()?, numbers.len()) {
            (Some(work), 1) => {
                let place = format!("work {work} of group {WORLD}");
                (place.clone(), place)
            }
            // The peer of a message may be any rank, and wait elsewhere itself.
            (None, 1)
                if !waiting
                    .iter()
                    .any(|(_, logged)| logged.log.watchdog.waits_for_message()) =>
            {
                (
                    "a collective of its groups".to_owned(),
                    "collectives of smaller groups".to_owned(),
                )
            }
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
        let environment = |rank: u32| format!("start RANK={rank} WORLD_SIZE=3\n");
        let only_started = format!("{}{two}", [0, 1, 2].map(environment).concat());
        assert_eq!(said(&only_started), (HangKind::Unknown, vec![]));
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

    #[test]
    fn rank_0_that_signs_no_line_is_at_work_while_all_others_time_out() {
        let works = "epoch 2 iter 3400\nRunning evaluation...\n";
        let down = "RuntimeError: NCCL communicator was aborted on rank 3.\n";
        let others = [timed_out(1, 7), timed_out(2, 7), timed_out(3, 7)].concat();
        let all = format!("{works}{others}{down}");
        assert_eq!(said(&all), (HangKind::Behind, vec![0]));
        // The log is cut, or nothing shows that rank 0 wrote it, or it has failed, too.
        let cut = format!("{works}{others}");
        assert_eq!(said(&cut), (HangKind::Unknown, vec![]));
        assert_eq!(
            said(&format!("{others}{down}")),
            (HangKind::Unknown, vec![])
        );
        let failed = format!("{all}RuntimeError: NCCL communicator was aborted on rank 0.\n");
        assert_eq!(said(&failed), (HangKind::Unknown, vec![]));
        // Rank 2 may be where nobody has kept the lines.
        let two = format!("{works}{}{}{down}", timed_out(1, 7), timed_out(3, 7));
        assert_eq!(said(&two), (HangKind::Unknown, vec![]));
    }
}
