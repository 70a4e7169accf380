//! The verdict by torch's own reports of ranks that have not joined a collective.

use super::{Rules, differs};
use crate::evidence::verb;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Finds the few ranks of which all reports say that they have not joined, if none of them has timed out or raised an error.
    pub(super) fn lagging(&self) -> Option<Diagnosis> {
        let report = self.job.lines.lagging_ranks.agreed()?;
        let has_failed = |rank: &u32| {
            let logged = self.job.ranks.get(rank);
            logged.is_some_and(|logged| logged.gave_up())
        };
        let has_finished = |rank: &u32| {
            let logged = self.job.ranks.get(rank);
            logged.is_some_and(|logged| logged.log.is_finished)
        };
        let all = report.expected.max(self.job.least_size() as usize);
        let is_few = report.missing.len() * 2 < all;
        let missing = || report.missing.iter();
        if !is_few || missing().any(has_failed) || missing().any(has_finished) {
            return None;
        }
        let culprits: Vec<Rank> = report.missing.iter().copied().map(Rank).collect();
        let summary = format!(
            "{} {} not joined a collective that the others are in",
            named(&culprits),
            verb(&culprits, "has", "have")
        );
        let facts = vec![format!("torch reports: {}", report.line)];
        let (kind, confidence) = (HangKind::Behind, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }
}

impl Rules<'_> {
    /// Finds the few ranks that the analyzer of flight recorders says have called something else. It compares each rank with the first of
    /// the group, so that all others would be named if that one differed.
    pub(super) fn mismatched(&self) -> Option<Diagnosis> {
        let lines = &self.job.lines.lagging_ranks;
        let line = lines.mismatched.values().next()?.clone();
        let culprits: Vec<Rank> = lines.mismatched.keys().copied().map(Rank).collect();
        if culprits.len() * 2 >= lines.compared.max(self.job.least_size() as usize) {
            return None;
        }
        let summary = differs(&culprits);
        let facts = vec![format!("torch reports: {line}")];
        let (kind, confidence) = (HangKind::CollectiveMismatch, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn a_rank_that_the_analysis_of_dumps_names_has_called_something_else() {
        let analysis = |culprits: &str| {
            format!(
                "[rank0]: step 1\nCollective sequence number: 3 has errors\nexpected ranks: {{0, 1, 2, 3}}\nerror msg: {culprits}\n"
            )
        };
        let culprit = |rank: u32| {
            format!(
                "Culprit rank {rank}; Error type: COLLECTIVE_DTYPE_MISMATCH, Expected dtypes: '{{'Float'}}'"
            )
        };
        assert_eq!(
            said(&analysis(&culprit(2))),
            (HangKind::CollectiveMismatch, vec![2])
        );
        // The first differs.
        let all = [culprit(1), culprit(2), culprit(3)].join(", ");
        assert_eq!(said(&analysis(&all)), (HangKind::Unknown, vec![]));
    }

    #[test]
    fn a_rank_that_a_desync_report_names_is_behind() {
        let report = |rank: u32| {
            format!(
                "[rank{rank}]:[E516 18:36:12.39 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=6, NumelOut=6, Timeout(ms)=600000) ran for 600101 milliseconds before timing out.\n\t - [{rank}] Timeout at collective: ALLREDUCE, #9\n\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n\t     [1] finished collective #8, but didn't join collective #9 (count from 1)\n"
            )
        };
        let both = format!("{}{}", report(0), report(2));
        assert_eq!(said(&both), (HangKind::Behind, vec![1]));
        // It has timed out itself.
        let all = format!("{both}{}", report(1));
        assert_eq!(said(&all), (HangKind::Unknown, vec![]));
    }

    #[test]
    fn a_rank_without_lines_may_be_missing_in_the_analysis_of_dumps() {
        let analysis = |missing: &str| {
            format!(
                "loaded 4 files in 0.4s\nNot all ranks joining collective, sequence number: 31\ncollective: nccl:all_reduce\nmissing ranks: {missing}\nexpected ranks: {{0, 1, 2, 3}}\n"
            )
        };
        assert_eq!(said(&analysis("{3}")), (HangKind::Behind, vec![3]));
        assert_eq!(said(&analysis("{2, 3}")), (HangKind::Unknown, vec![]));
    }
}
