//! The verdict by what ranks say of the members of their groups.

use std::collections::BTreeSet;

use super::{Rules, line};
use allranks_model::diagnosis::rank_set;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Ranks that must contradict one rank for it to be told from them.
const LEAST: usize = 2;

impl Rules<'_> {
    /// Finds the only rank that all contradictions are with: it says that it is in a group with ranks that say otherwise.
    pub(super) fn group_members(&self) -> Option<Diagnosis> {
        let of = |rank: u32| {
            self.job
                .ranks
                .get(&rank)
                .map(|logged| &logged.log.group_members.groups)
        };
        let names: BTreeSet<&String> = self
            .job
            .ranks
            .keys()
            .filter_map(|rank| of(*rank))
            .flat_map(|groups| groups.keys())
            .collect();
        let mut pairs: BTreeSet<(u32, u32)> = BTreeSet::new();
        let mut lines = Vec::new();
        for name in names {
            let members = |rank: u32| of(rank)?.get(name);
            let stated = self
                .job
                .ranks
                .keys()
                .filter_map(|rank| Some((*rank, members(*rank)?)));
            let stated: Vec<(u32, &Vec<u32>)> =
                stated.filter(|(rank, all)| all.contains(rank)).collect();
            let before = pairs.len();
            for (rank, all) in &stated {
                let differs = |other: &&u32| {
                    members(**other).is_some_and(|its| its.contains(*other) && its != *all)
                };
                pairs.extend(
                    all.iter()
                        .filter(differs)
                        .map(|other| (*rank.min(other), *rank.max(other))),
                );
            }
            if pairs.len() > before {
                lines.extend(
                    stated
                        .iter()
                        .map(|(rank, all)| line(*rank, &format!("{name} = {all:?}"))),
                );
            }
        }
        let mut common = self.job.ranks.keys().filter(|rank| {
            pairs
                .iter()
                .all(|(one, other)| one == *rank || other == *rank)
        });
        let (Some(rank), None) = (common.next(), common.next()) else {
            return None;
        };
        if pairs.len() < LEAST {
            return None;
        }
        let (culprit, _) = (Rank(*rank), ());
        let facts = rank_set::places(&lines);
        let summary = format!(
            "rank {rank} says of its groups that they have other members than those members say"
        );
        let (kind, confidence) = (HangKind::GroupMembersDiffer, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, vec![culprit], summary, facts))
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn the_rank_that_all_others_contradict_is_named() {
        let says = |rank: u32, members: &str| format!("[rank{rank}]: tp_group=[{members}]\n");
        let error = "[rank0]: RuntimeError: Connection closed by peer\n";
        let odd = format!(
            "{}{}{}{}{error}",
            says(0, "0,1"),
            says(1, "0,1"),
            says(2, "1,2"),
            says(3, "2,3")
        );
        assert_eq!(said(&odd), (HangKind::GroupMembersDiffer, vec![2]));
        let right = format!(
            "{}{}{}{}{error}",
            says(0, "0,1"),
            says(1, "0,1"),
            says(2, "2,3"),
            says(3, "2,3")
        );
        assert_eq!(said(&right), (HangKind::Unknown, vec![]));
    }
}
