//! The verdict by the ranks that could not connect to the store of their rendezvous.

use super::Rules;
use crate::evidence::verb;
use crate::logs::logged::Logged;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Finds the few ranks that could not connect to the store, if its rank has counted all others. If `rule`, the verdict of the rules
    /// on hanging jobs, says that just these use another endpoint, it says more.
    pub(super) fn unconnected(&self, rule: &Diagnosis) -> Option<Diagnosis> {
        let (came, of) = self.job.lines.counts.joined?;
        // A rank that connects after all may say nothing of it: its last error is another one, and one that never started is missing.
        if !self.job.absent().is_empty() {
            return None;
        }
        let is_last = |logged: &Logged| {
            let mut errors = logged.log.final_errors().peekable();
            errors.peek().is_none() || errors.any(|error| error.contains(" connect to "))
        };
        let failed = self.job.ranks.iter();
        let failed = failed.filter_map(|(rank, logged)| {
            let line = logged.log.connection.failed.as_ref()?;
            is_last(logged).then_some((Rank(*rank), line))
        });
        let (culprits, lines): (Vec<Rank>, Vec<&String>) = failed.unzip();
        let line = *lines.first()?;
        let missing = of.checked_sub(came)? as usize;
        if culprits.len() != missing || missing * 2 >= of as usize {
            return None;
        }
        let is_place = matches!(rule.kind, HangKind::PortMismatch | HangKind::PlaceMismatch);
        if is_place && rule.culprits == culprits {
            return Some(self.likely(rule.clone()));
        }
        let summary = format!(
            "{} {} not reached the store of the rendezvous, and all others have",
            named(&culprits),
            verb(&culprits, "has", "have")
        );
        let facts = vec![
            format!("the store counts {came} of {of} ranks"),
            format!("{} wrote: {line}", named(&culprits[..1])),
        ];
        let (kind, confidence) = (HangKind::MasterUnreachable, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    fn joins(rank: u32, port: u16) -> String {
        format!("[rank{rank}]: init_process_group tcp://n0:{port}\n")
    }

    #[test]
    fn the_rank_that_the_store_has_not_counted_and_that_could_not_connect_is_named() {
        let counted = "[rank0]: torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 2/3 clients joined.\n";
        let late = |rank: u32| {
            format!(
                "[rank{rank}]: [c10d] The client socket has timed out after 1800s while trying to connect to (n0, 29500).\n"
            )
        };
        let all = |port: u16| {
            let ranks = [joins(0, 29500), joins(1, port), joins(2, 29500)].concat();
            format!("{ranks}{}{counted}", late(1))
        };
        assert_eq!(said(&all(29500)), (HangKind::MasterUnreachable, vec![1]));
        assert_eq!(said(&all(29510)), (HangKind::PortMismatch, vec![1]));
        let both = format!("{}{}", late(2), all(29500));
        assert_eq!(said(&both), (HangKind::Unknown, vec![]));
    }
}
