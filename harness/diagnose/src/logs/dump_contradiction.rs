//! Finds where the flight recorder dumps of ranks contradict each other. Counts are compared before calls, and calls only under
//! the same number of the same group. A rank that waits in a collective is never late for another.

use std::collections::{BTreeMap, BTreeSet};

use super::recorder_dump::{Dump, RecordedCall, RecordedGroup};
use crate::evidence::verb;
use allranks_model::diagnosis::HangKind;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::names::Rank;

/// A contradiction between the ranks' dumps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contradiction {
    pub(super) kind: HangKind,
    pub(super) culprits: Vec<Rank>,
    pub(super) victims: Vec<Rank>,
    pub(super) summary: String,
    pub(super) facts: Vec<String>,
}

/// One group on the ranks whose dumps are here.
type DumpsOfGroup<'a> = BTreeMap<u32, &'a RecordedGroup>;

/// Returns the first contradiction, in the group of all ranks before others; none if nothing is under way, or nothing differs.
pub(super) fn contradiction(dumps: &BTreeMap<u32, Dump>) -> Option<Contradiction> {
    let mut groups: BTreeMap<(bool, &str), DumpsOfGroup<'_>> = BTreeMap::new();
    for (rank, dump) in dumps {
        for (name, group) in &dump.groups {
            let is_other = group.about != "default_pg" && name != "0";
            groups
                .entry((is_other, name))
                .or_default()
                .insert(*rank, group);
        }
    }
    let waits = |rank: &u32| dumps[rank].groups.values().any(RecordedGroup::waits);
    groups.iter().find_map(|((_, name), seen)| {
        let title = seen.values().next()?.title(name);
        mismatch(title, seen)
            .or_else(|| late(title, seen, &waits))
            .or_else(|| stuck(title, seen))
    })
}

/// Returns the first number under which members that have something under way issued different calls.
fn mismatch(title: &str, seen: &DumpsOfGroup<'_>) -> Option<Contradiction> {
    if !seen.values().any(|group| group.waits()) {
        return None;
    }
    let numbers: BTreeSet<u64> = seen
        .values()
        .flat_map(|group| group.calls.keys().copied())
        .collect();
    let (number, calls) = numbers.into_iter().find_map(|number| {
        let calls = seen
            .iter()
            .filter_map(|(rank, group)| Some((*rank, group.calls.get(&number)?)));
        let calls: BTreeMap<u32, &RecordedCall> = calls.collect();
        let differ = calls
            .values()
            .map(|call| call.signature())
            .collect::<BTreeSet<_>>();
        (differ.len() > 1).then_some((number, calls))
    })?;
    let mut votes: BTreeMap<String, Vec<Rank>> = BTreeMap::new();
    for (rank, call) in &calls {
        votes.entry(call.signature()).or_default().push(Rank(*rank));
    }
    let members = members(seen).len().max(seen.len());
    let common = votes.iter().find(|(_, ranks)| ranks.len() * 2 > members);
    let culprits: Vec<Rank> = match common {
        Some((common, _)) => votes
            .iter()
            .filter(|(call, _)| *call != common)
            .flat_map(|(_, ranks)| ranks.clone())
            .collect(),
        None => Vec::new(),
    };
    let differ = votes
        .iter()
        .map(|(call, ranks)| format!("{call} on {}", named(ranks)));
    let differ: Vec<String> = differ.collect();
    let ranks = calls.keys().copied().map(Rank);
    Some(Contradiction {
        kind: HangKind::CollectiveMismatch,
        victims: ranks.filter(|rank| !culprits.contains(rank)).collect(),
        culprits,
        summary: format!(
            "collective number {number} of {title} is {}",
            differ.join(", and ")
        ),
        facts: vec![format!(
            "flight recorders: numbers before {number} are the same on all ranks that have them"
        )],
    })
}

/// Members that have not issued what others wait in.
fn late(
    title: &str,
    seen: &DumpsOfGroup<'_>,
    waits: &dyn Fn(&u32) -> bool,
) -> Option<Contradiction> {
    // The one that a rank waits in is the first that is not over.
    let number = seen
        .values()
        .filter(|group| group.waits())
        .map(|group| group.over + 1)
        .min()?;
    let is_late = |group: &RecordedGroup| group.issued < number;
    let (late, rest): (Vec<_>, Vec<_>) = seen.iter().partition(|(_, group)| is_late(group));
    let waiting: Vec<Rank> = rest
        .iter()
        .filter(|(_, group)| group.waits())
        .map(|(rank, _)| Rank(**rank))
        .collect();
    let is_busy = late.iter().all(|(rank, _)| !waits(rank));
    if late.is_empty() || !is_busy || late.len() * 2 >= members(seen).len().max(seen.len()) {
        return None;
    }
    let culprits: Vec<Rank> = late.iter().map(|(rank, _)| Rank(**rank)).collect();
    let call = rest.iter().find_map(|(_, group)| group.calls.get(&number));
    let call = call.map_or_else(|| "a collective".to_owned(), RecordedCall::signature);
    let has = verb(&culprits, "has", "have");
    let facts = late.iter().map(|(rank, group)| {
        format!(
            "flight recorder of rank {rank}: the last that it has issued is number {}",
            group.issued
        )
    });
    Some(Contradiction {
        kind: HangKind::Behind,
        summary: format!(
            "{} {has} not issued collective number {number} of {title}, {call}, in which {} wait",
            named(&culprits),
            named(&waiting)
        ),
        facts: facts.collect(),
        culprits,
        victims: waiting,
    })
}

/// Few members within a collective that all others have completed, if all members are seen.
fn stuck(title: &str, seen: &DumpsOfGroup<'_>) -> Option<Contradiction> {
    let least = seen.values().map(|group| group.over).min()?;
    let number = least + 1;
    let (inside, others): (Vec<_>, Vec<_>) =
        seen.iter().partition(|(_, group)| group.over == least);
    let is_inside = inside.iter().all(|(_, group)| group.issued >= number);
    let others_wait = others.iter().any(|(_, group)| group.waits());
    let is_whole = !members(seen).is_empty() && members(seen).len() == seen.len();
    if !is_whole || !is_inside || !others_wait || inside.len() * 2 >= seen.len() {
        return None;
    }
    let ranks = |all: &[(&u32, &&RecordedGroup)]| -> Vec<Rank> {
        all.iter().map(|(rank, _)| Rank(**rank)).collect()
    };
    let (culprits, victims) = (ranks(&inside), ranks(&others));
    let call = inside.first()?.1.calls.get(&number);
    let call = call.map_or_else(|| "a collective".to_owned(), RecordedCall::signature);
    let has = verb(&culprits, "has", "have");
    Some(Contradiction {
        kind: HangKind::StuckInCall,
        summary: format!(
            "{} {has} not come out of collective number {number} of {title}, {call}, which all others have completed",
            named(&culprits)
        ),
        facts: vec![format!(
            "flight recorders: number {number} is over on {}, and under way on {}",
            named(&victims),
            named(&culprits)
        )],
        culprits,
        victims,
    })
}

fn members(seen: &DumpsOfGroup<'_>) -> BTreeSet<u32> {
    seen.values()
        .flat_map(|group| group.members.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dump of one group of `size` ranks with these calls, of which so many are over.
    fn dump(size: u32, calls: &[&str], over: u64) -> Dump {
        let call = |op: &&str| RecordedCall {
            op: (*op).to_owned(),
            inputs: Vec::new(),
        };
        let calls: BTreeMap<u64, RecordedCall> = (1..).zip(calls.iter().map(call)).collect();
        let group = RecordedGroup {
            about: "default_pg".to_owned(),
            members: (0..size).collect(),
            issued: calls.len() as u64,
            over,
            calls,
        };
        Dump {
            groups: [("0".to_owned(), group)].into(),
        }
    }

    fn verdict(dumps: &[(u32, Dump)]) -> Option<(HangKind, Vec<u32>)> {
        let dumps = dumps.iter().cloned().collect();
        contradiction(&dumps).map(|verdict| {
            (
                verdict.kind,
                verdict.culprits.iter().map(|rank| rank.0).collect(),
            )
        })
    }

    #[test]
    fn the_rank_that_differs_or_has_not_come_is_named_if_most_agree() {
        let two = dump(4, &["a", "b"], 1);
        assert_eq!(
            verdict(&[
                (0, two.clone()),
                (1, two.clone()),
                (2, dump(4, &["a"], 1)),
                (3, two.clone())
            ]),
            Some((HangKind::Behind, vec![2]))
        );
        assert_eq!(
            verdict(&[
                (0, two.clone()),
                (1, two.clone()),
                (2, dump(4, &["a", "c"], 1)),
                (3, two.clone())
            ]),
            Some((HangKind::CollectiveMismatch, vec![2]))
        );
    }

    #[test]
    fn a_collective_that_all_others_have_completed_keeps_a_rank() {
        let next = dump(3, &["a", "b", "c"], 2);
        let inside = dump(3, &["a", "b"], 1);
        assert_eq!(
            verdict(&[(0, next.clone()), (1, inside.clone()), (2, next.clone())]),
            Some((HangKind::StuckInCall, vec![1]))
        );
        assert_eq!(
            verdict(&[(0, next.clone()), (1, inside.clone()), (2, inside)]),
            None
        );
        // The third may be in it, too.
        assert_eq!(verdict(&[(0, next), (1, dump(3, &["a", "b"], 1))]), None);
    }

    #[test]
    fn ties_excerpts_and_finished_jobs_accuse_no_rank() {
        let two = dump(4, &["a", "b"], 1);
        let other = dump(4, &["a", "c"], 1);
        // Two that are not seen may agree with either.
        assert_eq!(
            verdict(&[(0, two.clone()), (1, two.clone()), (2, other.clone())]),
            Some((HangKind::CollectiveMismatch, vec![]))
        );
        assert_eq!(verdict(&[(0, two.clone()), (3, two.clone())]), None);
        assert_eq!(
            verdict(&[
                (0, two.clone()),
                (1, dump(4, &["a"], 1)),
                (2, dump(4, &["a"], 1))
            ]),
            None
        );
        let done = dump(2, &["a", "b"], 2);
        assert_eq!(verdict(&[(0, done.clone()), (1, done)]), None);
    }
}
