//! Blames a cycle on ranks that had a round with fewer collectives of a group than all their others: between two calls from one line, of
//! which each round has one.

use std::collections::BTreeSet;

use crate::collectives::{current, issued};
use crate::conclude;
use crate::evidence::{
    Collective, HangEvidence, RankState, TraceEvent, as_collective, named, verb,
};
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// The fewest whole rounds that make a habit, and how many there must be for each short one.
const ROUNDS: usize = 3;

/// A rank that had short rounds, and another one that waits in the group for what they lacked.
struct Short<'a> {
    rank: Rank,
    waiting: Rank,
    group: &'a str,
    /// The collective of the group that the rank has not issued, counted from 1.
    number: usize,
    /// The call that each round begins with.
    start: &'a TraceEvent,
    /// How many collectives of the group whole rounds have, and the first short one.
    usual: usize,
    fewer: usize,
}

/// Finds the ranks of a cycle that had rounds with fewer collectives of a group than all their others, while another member of that group,
/// which has had the same number in each of its rounds, waits for the next one that they have not issued. `None` if there are none.
#[must_use]
pub fn short_round(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let states = || cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let all: Vec<Short<'_>> = states()
        .filter_map(|state| states().find_map(|waiting| Short::of(evidence, state, waiting)))
        .collect();
    let culprits: Vec<Rank> = all.iter().map(|one| one.rank).collect();
    if all.is_empty() || all.iter().any(|one| culprits.contains(&one.waiting)) {
        return None;
    }
    let groups: BTreeSet<String> = (all.iter())
        .map(|one| format!("collective number {} of {}", one.number, one.group))
        .collect();
    let waiting: BTreeSet<Rank> = all.iter().map(|one| one.waiting).collect();
    let waiting: Vec<Rank> = waiting.into_iter().collect();
    let summary = format!(
        "{} {} out {}, for which {} {}",
        named(&culprits),
        verb(&culprits, "leaves", "leave"),
        groups.into_iter().collect::<Vec<_>>().join(" and "),
        named(&waiting),
        verb(&waiting, "waits", "wait"),
    );
    let habits = all.iter().map(|one| {
        format!(
            "rank {} issued {} of {} between one {} and the next, and once {}; on rank {} it was always {}",
            one.rank, one.usual, one.group, one.start, one.fewer, one.waiting, one.usual
        )
    });
    let places = states().map(|one| format!("rank {} {}", one.rank, one.place()));
    let facts = habits.chain(places).collect();
    let kind = HangKind::CollectiveSkipped;
    let verdict = conclude(evidence, kind, Confidence::Likely, culprits, summary);
    Some(verdict.because(facts))
}

impl<'a> Short<'a> {
    /// Returns what shows that `state` has left out collectives that `waiting` waits for; `None` if nothing does.
    fn of(
        evidence: &'a HangEvidence,
        state: &'a RankState,
        waiting: &'a RankState,
    ) -> Option<Self> {
        let (group, number) = current(waiting).filter(|_| state.coming().is_none())?;
        let is_member = state.entered().chain(waiting.entered()).any(|event| {
            as_collective(&event.what)
                .is_some_and(|one| one.group == group && one.members.contains(&state.rank))
        });
        let is_next = state.rank != waiting.rank && issued(state, group) + 1 == number;
        if !is_member || !is_next || current(state).is_some_and(|(own, _)| own == group) {
            return None;
        }
        let before = evidence.forgotten.get(group).copied().unwrap_or(0);
        starts(state, group).into_iter().find_map(|start| {
            let own = rounds(state, group, start);
            let usual = *own.iter().max()?;
            let short: Vec<usize> = own.iter().copied().filter(|count| *count < usual).collect();
            let whole = own.len() - short.len();
            let theirs = rounds(waiting, group, start);
            let is_habit = whole >= ROUNDS
                && whole >= ROUNDS * short.len()
                && theirs.len() >= ROUNDS
                && theirs.iter().all(|count| *count == usual);
            is_habit.then_some(Self {
                rank: state.rank,
                waiting: waiting.rank,
                group,
                number: before + number,
                start,
                usual,
                fewer: *short.first()?,
            })
        })
    }
}

/// Returns an event of each line from which a rank has made collectives on other groups than this one.
fn starts<'a>(state: &'a RankState, group: &str) -> Vec<&'a TraceEvent> {
    let mut found: Vec<&TraceEvent> = Vec::new();
    for (event, one) in state.collectives() {
        let is_known = found.iter().any(|known| is_same(known, event, one));
        if one.group != group && !event.at.is_empty() && !is_known {
            found.push(event);
        }
    }
    found
}

/// Counts the collectives of a group between one such call and the next. What came before the first of them, or after the last, does not
/// count. Where such calls always come in twos or more, as those that one call on objects is made of, that many are one.
fn rounds(state: &RankState, group: &str, start: &TraceEvent) -> Vec<usize> {
    // How many such calls follow each other at once, and the group's collectives after them.
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut follows = false;
    for (event, one) in state.collectives() {
        let is_start = is_same(start, event, one);
        match runs.last_mut() {
            Some((calls, _)) if is_start && follows => *calls += 1,
            _ if is_start => runs.push((1, 0)),
            Some((_, count)) if one.group == group => *count += 1,
            _ => {}
        }
        follows = is_start;
    }
    // The last of them may not be complete.
    let complete = &runs[..runs.len().saturating_sub(1)];
    let of_one = complete.iter().map(|(calls, _)| *calls).min().unwrap_or(1);
    let empty = |calls: usize| std::iter::repeat_n(0, calls.div_ceil(of_one) - 1);
    let each = runs
        .iter()
        .flat_map(|(calls, count)| empty(*calls).chain([*count]));
    let mut counts: Vec<usize> = each.collect();
    counts.pop();
    counts
}

/// Returns true if a call is one like this, on whatever group: other ranks make it on theirs.
fn is_same(start: &TraceEvent, event: &TraceEvent, one: &Collective) -> bool {
    let name = as_collective(&start.what).map(|start| start.name.as_str());
    start.at == event.at && name == Some(&one.name)
}

#[cfg(test)]
mod tests {
    use crate::builders::{collective, rank_at, verdict};
    use crate::evidence::{EventKind, RankState};
    use allranks_model::diagnosis::{Confidence, HangKind};

    /// Builds two replicas of two shards: each step agrees in the shard group, and sums twice in the replicas' group. The ranks of
    /// `short` leave the sums of one step out. All end in the barrier of all, if they come to it.
    fn replicas(steps: usize, short: &[u32]) -> Vec<RankState> {
        let agree = |rank: u32| {
            let first = rank / 2 * 2;
            (
                "train.py:62",
                collective(&format!("shard {first}"), &[first, first + 1]),
            )
        };
        let sum = |rank: u32| {
            let first = rank % 2;
            (
                "fsdp.py:582",
                collective(&format!("replicas {first}"), &[first, first + 2]),
            )
        };
        let barrier = || ("train.py:96", collective("end", &[0, 1, 2, 3]));
        let rank = |number: u32| {
            let mut calls: Vec<(&str, EventKind)> = Vec::new();
            for step in 0..steps {
                calls.push(agree(number));
                if step != 2 || !short.contains(&number) {
                    calls.extend([sum(number), sum(number)]);
                }
            }
            if short.contains(&number) {
                calls.push(barrier());
            } else {
                // Their last two sums have no other side.
                calls.pop();
            }
            rank_at(number, calls)
        };
        (0..4).map(rank).collect()
    }

    #[test]
    fn a_replica_with_a_short_round_is_named_whole() {
        let skipped = (HangKind::CollectiveSkipped, vec![2, 3], Confidence::Likely);
        assert_eq!(verdict(replicas(8, &[2, 3])), skipped);
        // Too few rounds make no habit.
        let (kind, culprits, _) = verdict(replicas(3, &[2, 3]));
        assert_eq!((kind, culprits), (HangKind::CyclicWait, vec![]));
    }

    #[test]
    fn a_rank_of_a_majority_that_leaves_out_what_it_always_had_there_skips() {
        let all = [0, 1, 2];
        let step = || {
            let sum = || ("model.py:7, in backward", collective("world", &all));
            let report = || ("train.py:9", collective("stats", &all));
            // A call on objects is made of two.
            vec![sum(), sum(), report(), report()]
        };
        let steps = |count: usize| (0..count).flat_map(|_| step()).collect::<Vec<_>>();
        let usual = |number| rank_at(number, [steps(5), step()[..2].to_vec()].concat());
        let short = [steps(5), vec![step()[0].clone(), step()[2].clone()]].concat();
        let ranks = vec![usual(0), usual(1), rank_at(2, short)];
        let skipped = (HangKind::CollectiveSkipped, vec![2], Confidence::Proved);
        assert_eq!(verdict(ranks), skipped);
    }
}
