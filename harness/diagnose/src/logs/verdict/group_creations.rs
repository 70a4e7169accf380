//! Verdicts by the groups that ranks create one after another.

use super::{Rules, line, odd};
use crate::logs::group_creations::GroupCreations;
use allranks_model::diagnosis::rank_set;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    fn creations(&self) -> impl Iterator<Item = (u32, &GroupCreations)> {
        let ranks = self.job.ranks.iter();
        ranks.map(|(rank, logged)| (*rank, &logged.log.group_creations))
    }

    /// Finds the ranks whose groups are not those of most others, by the first one that differs. Ranks that write only of the groups
    /// to which they belong have different ones.
    pub(super) fn group_creations(&self) -> Option<Diagnosis> {
        let all: Vec<(u32, &GroupCreations)> = self
            .creations()
            .filter(|(_, creations)| !creations.members.is_empty())
            .collect();
        let most = all
            .iter()
            .map(|(_, creations)| creations.members.len())
            .max()?;
        let texts = |number: usize| -> Vec<(u32, String)> {
            let here = all.iter();
            here.filter_map(|(rank, creations)| {
                let groups = creations.members.get(number)?.iter();
                let groups: Vec<String> = groups.map(|members| format!("{members:?}")).collect();
                Some((*rank, groups.join(" and ")))
            })
            .collect()
        };
        let (number, texts, culprits) = (0..most).find_map(|number| {
            let texts = texts(number);
            let values = texts.iter().map(|(rank, text)| (*rank, text.as_str()));
            let culprits = odd(values, self.job.least_size() as usize)?;
            Some((number, texts, culprits))
        })?;
        let is_culprit = |rank: u32| culprits.contains(&Rank(rank));
        let others: Vec<&(u32, &GroupCreations)> = all
            .iter()
            .filter(|(rank, _)| !is_culprit(*rank) && texts.iter().any(|(one, _)| one == rank))
            .collect();
        if !others
            .iter()
            .all(|(rank, creations)| creations.are_all(*rank))
        {
            return None;
        }
        // A log whose beginning is cut shows a part of the same groups.
        let is_part = |(rank, own): &(u32, &GroupCreations)| {
            let part = |(_, other): &&(u32, &GroupCreations)| {
                let mut parts = other.members.windows(own.members.len());
                parts.any(|part| part == own.members)
            };
            is_culprit(*rank) && others.iter().any(part)
        };
        if all.iter().any(is_part) {
            return None;
        }
        let lines: Vec<_> = texts
            .iter()
            .map(|(rank, text)| {
                let nth = number + 1;
                line(*rank, &format!("creates {text} as its group number {nth}"))
            })
            .collect();
        let facts = rank_set::places(&lines);
        let kind = match culprits.first() {
            Some(culprit) => self.kind_of(*culprit, others.iter().map(|(_, one)| *one)),
            None => HangKind::GroupMembersDiffer,
        };
        let summary = match (culprits.is_empty(), kind) {
            (true, _) => "ranks do not create the same groups in the same order".to_owned(),
            (false, HangKind::GroupOrder) => format!(
                "{} created the groups of the others in another order",
                named(&culprits)
            ),
            (false, HangKind::GroupSkipped) => {
                format!(
                    "{} did not create a group that the others created",
                    named(&culprits)
                )
            }
            (false, _) => format!("{} created other groups than the rest", named(&culprits)),
        };
        Some(self.diagnosis(kind, Confidence::Likely, culprits, summary, facts))
    }

    /// Returns in what the groups of a rank differ from those of the others.
    fn kind_of<'a>(
        &self,
        rank: Rank,
        others: impl Iterator<Item = &'a GroupCreations>,
    ) -> HangKind {
        let Some((_, own)) = self.creations().find(|(one, _)| *one == rank.0) else {
            return HangKind::GroupMembersDiffer;
        };
        let Some(other) = others.max_by_key(|other| other.members.len()) else {
            return HangKind::GroupMembersDiffer;
        };
        let are_theirs = own.members.iter().all(|one| other.members.contains(one));
        let are_own = other.members.iter().all(|one| own.members.contains(one));
        match (are_theirs, are_own) {
            (true, true) => HangKind::GroupOrder,
            (true, false) if own.members.len() < other.members.len() => HangKind::GroupSkipped,
            _ => HangKind::GroupMembersDiffer,
        }
    }

    /// Finds the few ranks that have waited for a group with a lower number than all others: they have created fewer groups before.
    pub(super) fn group_numbers(&self) -> Option<Diagnosis> {
        let awaited: Vec<(u32, u32)> = self
            .creations()
            .filter_map(|(rank, creations)| Some((rank, creations.awaited?)))
            .collect();
        // Of a rank that waits for none it is not known how many it has created.
        if awaited.len() < self.job.least_size() as usize {
            return None;
        }
        let most = awaited.iter().map(|(_, number)| *number).max()?;
        let texts: Vec<(u32, String)> = awaited
            .iter()
            .map(|(rank, number)| (*rank, format!("waited for its group number {number}")))
            .collect();
        let values = texts.iter().map(|(rank, text)| (*rank, text.as_str()));
        let culprits = odd(values.clone(), self.job.least_size() as usize)?;
        let number_of = |rank: &Rank| {
            let mut all = awaited.iter();
            all.find(|(one, _)| *one == rank.0)
                .map(|(_, number)| *number)
        };
        // One that has created more may be right.
        if culprits.is_empty() || culprits.iter().any(|rank| number_of(rank) == Some(most)) {
            return None;
        }
        let lines: Vec<_> = values.map(|(rank, text)| line(rank, text)).collect();
        let facts = rank_set::places(&lines);
        let summary = format!(
            "{} did not create a group that the others created",
            named(&culprits)
        );
        let (kind, confidence) = (HangKind::GroupSkipped, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    fn groups(rank: u32, all: &[&str]) -> String {
        let lines = all
            .iter()
            .map(|group| format!("[rank{rank}]: par.py:41 new_group ranks={group}\n"));
        lines.collect()
    }

    fn timed_out(rank: u32) -> String {
        format!(
            "[rank{rank}]:[E324 11:10:11.2 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
        )
    }

    #[test]
    fn the_rank_that_creates_groups_in_another_order_is_named() {
        let own = ["[0, 1]", "[2, 3]", "[0, 2]"];
        let job = |odd: &[&str]| {
            let ranks = [0, 2, 3].map(|rank| groups(rank, &own)).concat();
            format!("{ranks}{}{}", groups(1, odd), timed_out(0))
        };
        assert_eq!(
            said(&job(&["[0, 2]", "[0, 1]", "[2, 3]"])),
            (HangKind::GroupOrder, vec![1])
        );
        assert_eq!(
            said(&job(&["[0, 1]", "[0, 2]"])),
            (HangKind::GroupSkipped, vec![1])
        );
        assert_eq!(
            said(&job(&["[0, 1, 2, 3]"])),
            (HangKind::GroupMembersDiffer, vec![1])
        );
        // Logs begin and end earlier or later.
        assert_eq!(said(&job(&own[1..])).1, Vec::<u32>::new());
        assert_eq!(said(&job(&own[..2])).1, Vec::<u32>::new());
    }

    #[test]
    fn groups_of_which_only_members_write_differ() {
        let pairs = [
            (0, "[0, 1]"),
            (1, "[0, 1]"),
            (2, "[2, 3]"),
            (3, "[2, 3]"),
            (4, "[4]"),
        ];
        let lines = pairs.map(|(rank, group)| groups(rank, &[group])).concat();
        let all = format!("{lines}{}", timed_out(0));
        assert_eq!(said(&all), (HangKind::Unknown, vec![]));
    }

    #[test]
    fn the_rank_that_waits_for_an_earlier_group_has_skipped_one() {
        let waits = |rank: u32, number: u32| {
            format!(
                "[rank{rank}]: torch.distributed.DistStoreError: wait timeout after 20000ms, keys: /default_pg/0//{number}//cpu//0/0\n"
            )
        };
        let all = |odd: u32| [waits(0, odd), waits(1, 2), waits(2, 2), waits(3, 2)].concat();
        assert_eq!(said(&all(1)), (HangKind::GroupSkipped, vec![0]));
        assert_eq!(said(&all(3)).1, Vec::<u32>::new());
        let unseen = format!("[rank0]: world_size=5\n{}", all(1));
        assert_ne!(said(&unseen).0, HangKind::GroupSkipped);
    }
}
