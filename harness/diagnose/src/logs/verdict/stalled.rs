//! The verdict by Horovod's last report of tensors that ranks have not submitted.

use std::collections::BTreeMap;

use super::Rules;
use crate::evidence::verb;
use crate::logs::logged::Logged;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Reports in a row, of one a minute, after which ranks that make no steps count as stuck.
const REPORTS: usize = 5;
/// Likewise, where the missing ranks wait for the others, too: no step of any rank can end that.
const MUTUAL_REPORTS: usize = 2;

impl Rules<'_> {
    /// Finds the few ranks for which the others waited until they gave up, or through many reports without a step of any rank. A few
    /// reports are no fault: one rank may evaluate.
    pub(super) fn stalled(&self) -> Option<Diagnosis> {
        let stalled = &self.job.lines.stalled_tensors;
        let all = self.job.least_size().max(stalled.missing.keys().max()? + 1);
        let divided = stalled.divided(all as usize);
        let is_missing = |rank: &u32| divided.as_ref().is_none_or(|few| few.contains(rank));
        let missing = stalled.missing.iter();
        let missing: BTreeMap<u32, &String> = missing
            .filter(|(rank, _)| is_missing(rank))
            .map(|(rank, line)| (*rank, line))
            .collect();
        let gave_up = |(_, logged): &(&u32, &Logged)| logged.gave_up();
        let reports = match divided {
            Some(_) => MUTUAL_REPORTS,
            None => REPORTS,
        };
        let is_stuck = stalled.reports() >= reports;
        let victims = self.job.ranks.iter();
        let victims = victims.filter(|one| is_stuck || gave_up(one));
        let victims: Vec<Rank> = victims
            .map(|(rank, _)| *rank)
            .filter(|rank| !missing.contains_key(rank))
            .map(Rank)
            .collect();
        let has_cause = |rank: &u32| {
            let logged = self.job.ranks.get(rank);
            logged.is_some_and(|logged| logged.log.cause().is_some())
        };
        let is_few = missing.len() * 2 < all as usize;
        if !is_few || victims.is_empty() || missing.keys().any(has_cause) {
            return None;
        }
        let line = *missing.values().next()?;
        let culprits: Vec<Rank> = missing.keys().copied().map(Rank).collect();
        let summary = format!(
            "{} {} not submitted tensors that all others have",
            named(&culprits),
            verb(&culprits, "has", "have")
        );
        let facts = vec![format!(
            "the last report says that these ranks are missing: {line}"
        )];
        let kind = match divided {
            Some(_) => HangKind::CollectiveMismatch,
            None => HangKind::Behind,
        };
        let confidence = Confidence::Likely;
        let found = self.diagnosis(kind, confidence, culprits, summary, facts);
        Some(Diagnosis { victims, ..found })
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn the_missing_rank_is_named_once_the_others_have_given_up() {
        let report = "[1,0]<stderr>:[2020-12-30 16:35:15.6: W stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks\n[1,0]<stderr>:Missing ranks:\n[1,0]<stderr>:1: [allreduce.a ...]\n";
        let down = |rank: u32| {
            format!(
                "[1,{rank}]<stderr>:horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception on one of the ranks\n"
            )
        };
        let step = "[1,1]<stdout>:Before x\n[1,1]<stdout>:After x\n";
        let ended = format!("{step}{report}{}{}", down(0), down(2));
        assert_eq!(said(&ended), (HangKind::Behind, vec![1]));
        assert_eq!(
            said(&format!("{step}{report}")),
            (HangKind::Unknown, vec![])
        );
        let reports = report.repeat(5);
        assert_eq!(
            said(&format!("{}{step}{reports}", step.replace("1,1", "1,2"))),
            (HangKind::Behind, vec![1])
        );
        // A rank makes steps: those that wait are not the same all the time.
        let steps = format!("{report}[1,0]<stdout>:step 7\n").repeat(5);
        assert_eq!(said(&format!("{step}{steps}")), (HangKind::Unknown, vec![]));
    }

    #[test]
    fn a_rank_that_waits_for_other_tensors_is_told_from_the_rest() {
        let report = |odd: u32| {
            let row = |rank: u32| {
                let tensors = if rank == odd {
                    "g.a, g.b ..."
                } else {
                    "m.loss"
                };
                format!("[1,0]<stderr>:{rank}: [{tensors}]\n")
            };
            let rows: String = (0..4).map(row).collect();
            format!(
                "[1,0]<stderr>:[2020-12-30 16:35:15.6: W stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks\n[1,0]<stderr>:Missing ranks:\n{rows}"
            )
        };
        let steps: String = (0..4)
            .map(|rank| format!("[1,{rank}]<stdout>:step 3\n"))
            .collect();
        let twice = format!("{steps}{}", report(2).repeat(2));
        assert_eq!(said(&twice), (HangKind::CollectiveMismatch, vec![2]));
        let once = format!("{steps}{}", report(2));
        assert_eq!(said(&once), (HangKind::Unknown, vec![]));
    }
}
