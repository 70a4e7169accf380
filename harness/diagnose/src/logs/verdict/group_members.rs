//! The verdict by what ranks say of the members of their groups.

use std::collections::{BTreeMap, BTreeSet};

use super::{Rules, line, odd};
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

    /// Finds the ranks that expect another number of ranks in one of NCCL's communicators than most of its ranks: they have made the
    /// group with other members.
    pub(super) fn communicator_sizes(&self) -> Option<Diagnosis> {
        let mut communicators: BTreeMap<&str, Vec<(u32, u32)>> = BTreeMap::new();
        for (rank, logged) in &self.job.ranks {
            for (name, size) in &logged.log.group_members.communicators {
                communicators.entry(name).or_default().push((*rank, *size));
            }
        }
        communicators.into_iter().find_map(|(name, sizes)| {
            let largest = sizes.iter().map(|(_, size)| *size).max()?;
            let texts: Vec<(u32, String)> = sizes
                .iter()
                .map(|(rank, size)| {
                    (
                        *rank,
                        format!("expects {size} ranks in communicator {name}"),
                    )
                })
                .collect();
            let values = texts.iter().map(|(rank, text)| (*rank, text.as_str()));
            let culprits = odd(values.clone(), largest as usize)?;
            let lines: Vec<_> = values.map(|(rank, text)| line(rank, text)).collect();
            let facts = rank_set::places(&lines);
            let summary =
                "ranks make one communicator of NCCL with different numbers of ranks".to_owned();
            let (kind, confidence) = (HangKind::GroupMembersDiffer, Confidence::Likely);
            Some(self.diagnosis(kind, confidence, culprits, summary, facts))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn the_rank_that_expects_another_number_of_ranks_is_named() {
        let init = |rank: u32, number: u32, size: u32| {
            format!(
                "[rank{rank}]: n:1{rank}:2 [0] NCCL INFO ncclCommInitRank comm 0x{rank} rank {number} nranks {size} cudaDev 5 nvmlDev 5 busId a2 commId 0x99ee - Init START\n"
            )
        };
        let error = "[rank0]: RuntimeError: Connection closed by peer\n";
        let three = format!("{}{}{}", init(0, 0, 4), init(2, 1, 4), init(6, 3, 4));
        let odd = format!("{three}{}{error}", init(4, 0, 2));
        assert_eq!(said(&odd), (HangKind::GroupMembersDiffer, vec![4]));
        let right = format!("{three}{}{error}", init(4, 2, 4));
        assert_eq!(said(&right), (HangKind::Unknown, vec![]));
    }

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
