//! Blames a cycle on a collective or a process group that a rank of it has left out.

use std::collections::BTreeSet;

use crate::collectives::issued;
use crate::conclude;
use crate::evidence::{EventKind, HangEvidence, RankState};
use crate::groups::{groups, leaves_out};
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Finds a minority of the cycle that waits in something other than `new_group`, has made fewer groups than those of all ranks that are
/// in `new_group`, as all others of the cycle are, and whose remaining calls are not known.
pub(super) fn group_left_out(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let is_making = |state: &&RankState| matches!(state.now(), Some(EventKind::NewGroup(_)));
    // Every rank makes each group, whether it is part of the cycle or not.
    let making: Vec<&RankState> = evidence.ranks.iter().filter(is_making).collect();
    let states = cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let others: Vec<&RankState> = states.filter(|state| !is_making(state)).collect();
    let fewest = making.iter().map(|state| groups(state)).min()?;
    let has_fewer = |state: &&RankState| state.coming().is_none() && groups(state) < fewest;
    if others.is_empty() || others.len() >= making.len() || !others.iter().all(has_fewer) {
        return None;
    }
    let culprits: Vec<Rank> = others.iter().map(|state| state.rank).collect();
    let first = others.iter().map(|state| groups(state)).min()?;
    let left = making
        .first()?
        .entered()
        .filter_map(|event| match &event.what {
            what @ EventKind::NewGroup(_) => Some(what),
            _ => None,
        });
    let left = left.skip(first).map(ToString::to_string).next()?;
    let summary = leaves_out(&culprits, first + 1, &left);
    let facts = (others.iter().chain(&making))
        .map(|one| one.place_of_rank())
        .collect();
    let verdict = conclude(
        evidence,
        HangKind::GroupSkipped,
        Confidence::Likely,
        culprits,
        summary,
    );
    Some(verdict.because(facts))
}

/// Finds a collective that a rank of the cycle has left out while others of the cycle wait for it in that collective's
/// group. The evidence is a habit: the rank issued the collectives of this group and of another one in turn until,
/// once, it issued one less of this group. Without such a habit the missing collective may still come, and the result
/// is `None`.
pub(super) fn left_out(
    evidence: &HangEvidence,
    cycle: &[Rank],
    state: &RankState,
) -> Option<Diagnosis> {
    if state.coming().is_some() {
        return None;
    }
    let here = state.now()?;
    let others = cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let mut missed = others.filter_map(|other| match other.now()? {
        EventKind::Collective(one) => {
            let is_missed = one.members.contains(&state.rank)
                && issued(state, &one.group) < issued(other, &one.group);
            is_missed.then_some(one)
        }
        _ => None,
    });
    let missed = missed.next()?;
    let groups: BTreeSet<&str> = groups_in_order(state).collect();
    let (other, place) = groups
        .into_iter()
        .filter(|group| *group != missed.group)
        .find_map(|group| Some((group, first_missing(state, &missed.group, group)?)))?;
    let before = |group: &str| evidence.forgotten.get(group).copied().unwrap_or(0);
    let number = before(&missed.group) + place.missed + 1;
    let summary = format!(
        "rank {} leaves out collective number {number} of group {}, {missed}",
        state.rank, missed.group
    );
    let facts = vec![
        format!(
            "up to number {} of group {other}, rank {} issued both groups' collectives in turn; then it issued number {} of group {other} without one of group {} before it",
            before(other) + place.other - 1,
            state.rank,
            before(other) + place.other,
            missed.group
        ),
        format!("rank {} is now in {here}", state.rank),
    ];
    let verdict = conclude(
        evidence,
        HangKind::CollectiveSkipped,
        Confidence::Likely,
        vec![state.rank],
        summary,
    );
    Some(verdict.because(facts))
}

/// Iterates over the groups of a rank's collectives, one entry for each collective, in the order of the calls.
fn groups_in_order(state: &RankState) -> impl Iterator<Item = &str> {
    state.entered().filter_map(|event| match &event.what {
        EventKind::Collective(one) => Some(one.group.as_str()),
        _ => None,
    })
}

/// Where a rank's habit ends: how many collectives it had issued in each of two groups.
struct HabitEnd {
    missed: usize,
    other: usize,
}

/// Finds where a rank left out a collective of group `missed`. Each time the rank issues a collective of `other`, the
/// number of its collectives of `missed` minus those of `other` is taken. It must be the same up to some point and one
/// less ever after; `None` if it changes in another way, or if `missed` was not used before that point.
fn first_missing(state: &RankState, missed: &str, other: &str) -> Option<HabitEnd> {
    let (mut counts, mut leads) = (
        HabitEnd {
            missed: 0,
            other: 0,
        },
        Vec::new(),
    );
    for group in groups_in_order(state) {
        if group == missed {
            counts.missed += 1;
        } else if group == other {
            counts.other += 1;
            leads.push((counts.missed as i64 - counts.other as i64, counts.missed));
        }
    }
    let (habit, _) = *leads.first()?;
    let kept = leads.iter().take_while(|(lead, _)| *lead == habit).count();
    let rest = &leads[kept..];
    let is_one_less = !rest.is_empty() && rest.iter().all(|(lead, _)| *lead == habit - 1);
    // In a group that had not been used there is no habit.
    let (_, issued) = *leads.get(kept.checked_sub(1)?)?;
    (is_one_less && issued > 0).then_some(HabitEnd {
        missed: issued,
        other: kept + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, message, rank, verdict};

    /// Builds a mesh of 2 by 2 ranks, each with `steps` times a collective in its row and one in its column, and then
    /// its `last` events.
    fn mesh(steps: usize, last: impl Fn(u32) -> Vec<EventKind>) -> Vec<RankState> {
        let step = |rank: u32| vec![row(rank), column(rank)];
        let events = |rank: u32| {
            let mut events: Vec<EventKind> = (0..steps).flat_map(|_| step(rank)).collect();
            events.extend(last(rank));
            events
        };
        (0..4).map(|number| rank(number, events(number))).collect()
    }

    fn row(rank: u32) -> EventKind {
        match rank / 2 {
            0 => collective("row 0", &[0, 1]),
            _ => collective("row 1", &[2, 3]),
        }
    }

    fn column(rank: u32) -> EventKind {
        match rank % 2 {
            0 => collective("column 0", &[0, 2]),
            _ => collective("column 1", &[1, 3]),
        }
    }

    #[test]
    fn a_collective_that_a_rank_has_always_issued_before_is_left_out() {
        // Rank 3 leaves out its row, rank 2 waits for it there, and rank 0 for rank 2.
        let last = |rank: u32| match rank {
            3 => vec![column(3), collective("world", &[0, 1, 2, 3])],
            1 => vec![row(1), column(1), collective("world", &[0, 1, 2, 3])],
            2 => vec![row(2)],
            _ => vec![row(0), column(0)],
        };
        let skipped = (HangKind::CollectiveSkipped, vec![3], Confidence::Likely);
        assert_eq!(verdict(mesh(2, last)), skipped);
        // It may go on for some steps in between.
        let later = |rank: u32| match rank {
            3 => vec![
                column(3),
                row(3),
                column(3),
                collective("world", &[0, 1, 2, 3]),
            ],
            1 => vec![
                row(1),
                column(1),
                row(1),
                column(1),
                collective("world", &[0, 1, 2, 3]),
            ],
            2 => vec![row(2), column(2), row(2)],
            _ => vec![row(0), column(0), row(0), column(0)],
        };
        assert_eq!(verdict(mesh(2, later)), skipped);
        // Without steps before, it may as well have another order.
        let (kind, ..) = verdict(mesh(0, last));
        assert_eq!(kind, HangKind::CyclicWait);
    }

    #[test]
    fn a_rank_that_makes_no_groups_while_the_others_do_leaves_them_out() {
        let group =
            |members: &[u32]| EventKind::NewGroup(members.iter().copied().map(Rank).collect());
        let world = || collective("world", &[0, 1, 2, 3]);
        let (a, b) = (|| group(&[0, 1]), || group(&[2, 3]));
        let ranks = vec![
            rank(0, vec![a()]),
            rank(1, vec![a()]),
            rank(2, vec![a(), b()]),
            rank(3, vec![world()]),
        ];
        let skipped = (HangKind::GroupSkipped, vec![3], Confidence::Likely);
        assert_eq!(verdict(ranks), skipped);
        // The cycle may have only two ranks: all that make the group show that it is one of all ranks.
        let everyone = || group(&[0, 1, 2, 3]);
        let ranks = vec![
            rank(0, vec![a(), everyone()]),
            rank(1, vec![a(), message(false, 3, 0)]),
            rank(2, vec![a(), everyone()]),
            rank(3, vec![a(), everyone()]),
        ];
        let skipped = (HangKind::GroupSkipped, vec![1], Confidence::Likely);
        assert_eq!(verdict(ranks), skipped);
        // Of two, either may be the one with another order.
        let (kind, ..) = verdict(vec![
            rank(0, vec![group(&[0, 1])]),
            rank(1, vec![collective("world", &[0, 1])]),
        ]);
        assert_eq!(kind, HangKind::CyclicWait);
    }
}
