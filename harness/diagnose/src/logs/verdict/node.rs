//! The verdict by a scheduler's word that a node has failed.

use super::Rules;
use crate::logs::logged::Logged;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Finds the ranks of a node that has failed, if none of them has written that it gave up, and ranks of other nodes have.
    pub(super) fn failed_node(&self) -> Option<Diagnosis> {
        let failures = &self.job.lines.node_failures.nodes;
        failures.iter().find_map(|(node, line)| {
            let is_there = |(_, logged): &(&u32, &Logged)| logged.log.node.as_deref() == Some(node);
            let (there, others): (Vec<_>, Vec<_>) = self.job.ranks.iter().partition(is_there);
            let gave_up = |(_, logged): &(&u32, &Logged)| logged.gave_up();
            if there.is_empty() || there.iter().any(gave_up) || !others.iter().any(gave_up) {
                return None;
            }
            let ranks = |all: &[(&u32, &Logged)]| -> Vec<Rank> {
                all.iter().map(|(rank, _)| Rank(**rank)).collect()
            };
            let culprits = ranks(&there);
            let summary = format!("node {node} failed, on which {} ran", named(&culprits));
            let facts = vec![line.trim().to_owned()];
            let (kind, confidence) = (HangKind::PeerDead, Confidence::Likely);
            let found = self.diagnosis(kind, confidence, culprits, summary, facts);
            let victims = ranks(&others);
            Some(Diagnosis { victims, ..found })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn the_ranks_of_a_failed_node_are_dead() {
        let on = |rank: u32, node: &str| format!("[rank{rank}]: start node={node}\n");
        let gave_up = |rank: u32| format!("[rank{rank}]: RuntimeError: Timed out waiting 5000ms\n");
        let ranks = format!("{}{}{}", on(0, "n5"), on(1, "n6"), gave_up(0));
        let down = "error: Nodes n6 not responding, setting DOWN\n";
        assert_eq!(
            said(&format!("{ranks}{down}")),
            (HangKind::PeerDead, vec![1])
        );
        // The node came back, or is another job's.
        let both = format!("{ranks}{down}{}", gave_up(1));
        assert_eq!(said(&both), (HangKind::Unknown, vec![]));
        let other = format!("{ranks}{}", down.replace("n6", "n9"));
        assert_eq!(said(&other), (HangKind::Unknown, vec![]));
    }
}
