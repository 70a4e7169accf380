//! Finds the one rank that is part of every cycle of waiting ranks. If two or more cycles have nothing but that rank in common,
//! either it alone has taken another way, or one rank of each cycle has: the first is far more likely, and never proved.

use std::collections::{BTreeMap, BTreeSet};

use super::collectives::{current, issued};
use super::evidence::{HangEvidence, RankState, named, verb};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Which ranks each rank of the cycles waits for.
pub type WaitsFor = BTreeMap<Rank, Vec<Rank>>;

/// Returns the rank without which no rank waits for another in a cycle; `None` if there is none, or more than one.
#[must_use]
pub fn common_rank(waits: &WaitsFor) -> Option<Rank> {
    match in_all_cycles(waits)?[..] {
        [one] => Some(one),
        _ => None,
    }
}

/// Returns the ranks through which all cycles go; `None` if there are none.
#[must_use]
pub fn in_all_cycles(waits: &WaitsFor) -> Option<Vec<Rank>> {
    let common = waits.keys().filter(|rank| !has_cycle(waits, **rank));
    let common: Vec<Rank> = common.copied().collect();
    (!common.is_empty()).then_some(common)
}

/// Returns true if ranks wait for each other in a cycle when one rank is left out.
fn has_cycle(waits: &WaitsFor, without: Rank) -> bool {
    let mut left: BTreeSet<Rank> = waits
        .keys()
        .copied()
        .filter(|rank| *rank != without)
        .collect();
    // A rank that waits for none of those left is in no cycle.
    loop {
        let ends = |rank: &Rank| !waits[rank].iter().any(|other| left.contains(other));
        let through: Vec<Rank> = left.iter().copied().filter(ends).collect();
        if through.is_empty() {
            return !left.is_empty();
        }
        for rank in through {
            left.remove(&rank);
        }
    }
}

/// Finds collectives of two or more groups that the common rank has left out: other ranks wait for it there, it is in something else,
/// and it has issued collectives of these groups before, fewer than they have. Its remaining calls must not be known.
#[must_use]
pub fn left_out(evidence: &HangEvidence, waits: &WaitsFor) -> Option<Diagnosis> {
    let common = evidence.rank(common_rank(waits)?)?;
    if common.coming().is_some() {
        return None;
    }
    let here = common.now()?;
    let waiting: Vec<(&RankState, &str, usize)> = waits
        .iter()
        .filter(|(rank, others)| **rank != common.rank && **others == [common.rank])
        .filter_map(|(rank, _)| {
            let state = evidence.rank(*rank)?;
            let (group, number) = current(state)?;
            Some((state, group, number))
        })
        .collect();
    let groups: BTreeSet<&str> = waiting.iter().map(|(_, group, _)| *group).collect();
    let is_used = |group: &&str| issued(common, group) > 0;
    let is_here = |group: &&str| current(common).is_some_and(|(own, _)| own == *group);
    if groups.len() < 2 || !groups.iter().all(is_used) || groups.iter().any(is_here) {
        return None;
    }
    let before = |group: &str| evidence.forgotten.get(group).copied().unwrap_or(0);
    let missed: BTreeSet<String> = waiting
        .iter()
        .map(|(_, group, number)| {
            format!(
                "collective number {} of group {group}",
                before(group) + number
            )
        })
        .collect();
    let ranks: Vec<Rank> = waiting.iter().map(|(state, ..)| state.rank).collect();
    let summary = format!(
        "rank {} leaves out {}, in which {} {} for it",
        common.rank,
        missed.into_iter().collect::<Vec<_>>().join(" and "),
        named(&ranks),
        verb(&ranks, "waits", "wait"),
    );
    let places = waiting.iter().map(|(state, ..)| *state).chain([common]);
    let facts = places
        .map(|state| format!("rank {} {}", state.rank, state.place()))
        .collect();
    let other = format!(
        "rank {} is in {here}, which the others reach only after that",
        common.rank
    );
    let verdict = conclude(
        evidence,
        HangKind::CollectiveSkipped,
        Confidence::Likely,
        vec![common.rank],
        summary,
    );
    Some(verdict.because([facts, vec![other]].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, rank, verdict};
    use crate::evidence::EventKind;

    fn waits(of: &[(u32, &[u32])]) -> WaitsFor {
        let ranks = |others: &[u32]| others.iter().copied().map(Rank).collect();
        of.iter()
            .map(|(rank, others)| (Rank(*rank), ranks(others)))
            .collect()
    }

    #[test]
    fn one_rank_in_all_cycles_is_common() {
        let pairs = waits(&[(1, &[3]), (2, &[3]), (3, &[0, 1, 2])]);
        assert_eq!(common_rank(&pairs), Some(Rank(3)));
        let chain = waits(&[(0, &[2]), (1, &[3]), (2, &[3]), (3, &[0, 1, 2])]);
        assert_eq!(common_rank(&chain), Some(Rank(3)));
    }

    #[test]
    fn of_one_cycle_no_rank_is_common_alone() {
        assert_eq!(common_rank(&waits(&[(0, &[1]), (1, &[0])])), None);
        assert_eq!(
            common_rank(&waits(&[(0, &[1]), (1, &[2]), (2, &[0])])),
            None
        );
        // A longer way to the same pair is no second cycle without it.
        assert_eq!(
            common_rank(&waits(&[(0, &[1, 2]), (1, &[0]), (2, &[1])])),
            None
        );
    }

    #[test]
    fn cycles_apart_have_no_common_rank() {
        let apart = waits(&[(0, &[1]), (1, &[0]), (2, &[3]), (3, &[2])]);
        assert_eq!(common_rank(&apart), None);
    }

    /// Builds two rows and two columns of two ranks, after `steps` steps of a gathering in the row and a sum in the column. Rank 3
    /// makes no further step and is in the world's barrier; the others have begun one.
    fn one_step_less(steps: usize) -> Vec<RankState> {
        let row = |rank: u32| {
            collective(
                ["row 0", "row 1"][rank as usize / 2],
                &[rank / 2 * 2, rank / 2 * 2 + 1],
            )
        };
        let column = |rank: u32| {
            collective(
                ["column 0", "column 1"][rank as usize % 2],
                &[rank % 2, rank % 2 + 2],
            )
        };
        (0..4)
            .map(|number| {
                let mut events: Vec<EventKind> = (0..steps)
                    .flat_map(|_| [row(number), row(number), column(number)])
                    .collect();
                match number {
                    3 => events.push(collective("world", &[0, 1, 2, 3])),
                    2 => events.push(row(number)),
                    _ => events.extend([row(number), row(number), column(number)]),
                }
                rank(number, events)
            })
            .collect()
    }

    #[test]
    fn a_rank_with_a_step_less_than_the_others_of_a_mesh_is_named_alone() {
        let skipped = (HangKind::CollectiveSkipped, vec![3], Confidence::Likely);
        assert_eq!(verdict(one_step_less(4)), skipped);
        // Without steps before, the others may as well have another order.
        let (kind, ..) = verdict(one_step_less(0));
        assert_eq!(kind, HangKind::CyclicWait);
    }
}
