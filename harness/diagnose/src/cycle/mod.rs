//! Finds the cause of a cycle of waiting ranks. Besides different orders of the same calls, a cycle comes from a message whose
//! other side has another peer, tag or group, or from a collective, a group or a store's key that one rank left out.

mod awaited_keys;
mod broken_round;
mod ended_thread;
mod fill_drain;
mod left_out;
mod message_row;
mod order;
mod partners;
mod short_round;
mod turned_away;
mod unmatched;

pub use message_row::broken as broken_row;
pub use order::{against_the_order, elsewhere, gone_on, may_go_on};
pub use short_round::short_round;

use super::evidence::{HangEvidence, RankState};
use super::other_key;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::Rank;

/// Returns the cause of a cycle other than the order of calls; `None` if nothing shows one.
#[must_use]
pub fn cause(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let states = || cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let unmatched =
        || of_all_pairs(states().filter_map(|state| unmatched::unmatched(evidence, state)));
    let waits = other_key::other_key(evidence)
        .or_else(|| ended_thread::ended_thread(evidence, cycle))
        .or_else(|| awaited_keys::key_not_set(evidence, cycle))
        .or_else(|| left_out::group_left_out(evidence, cycle));
    let waits = waits
        .or_else(|| partners::other_partners(evidence, cycle))
        .or_else(|| broken_round::broken_round(evidence, cycle))
        .or_else(|| turned_away::turned_away(evidence, cycle))
        .or_else(|| fill_drain::other_count(evidence, cycle));
    waits.or_else(unmatched).or_else(|| {
        let mut skips = states().filter_map(|state| left_out::left_out(evidence, cycle, state));
        let one = skips.next()?;
        match skips.next() {
            None => Some(one),
            Some(_) => None,
        }
    })
}

/// Returns the first of these verdicts on pairs of ranks. It names no rank if another of them is on other ranks alone: the same is wrong
/// of several pairs then, and no rank stands out.
fn of_all_pairs(mut verdicts: impl Iterator<Item = Diagnosis>) -> Option<Diagnosis> {
    let first = verdicts.next()?;
    let is_apart = |other: &Diagnosis| {
        let mut ranks = other.culprits.iter();
        ranks.all(|rank| !first.culprits.contains(rank))
    };
    let apart = verdicts.find(|other| !other.culprits.is_empty() && is_apart(other));
    Some(match apart {
        Some(apart) if !first.culprits.is_empty() => Diagnosis {
            summary: format!(
                "{}; {}; neither rank of a pair stands out",
                first.summary, apart.summary
            ),
            culprits: Vec::new(),
            ..first
        },
        _ => first,
    })
}

/// Finds the one rank whose messages of a round have other partners than the rest, where all ranks wait for messages: a device may wait for
/// those of which both sides are there, too, so that nothing shows a cycle.
#[must_use]
pub fn other_partners_of_all(evidence: &HangEvidence) -> Option<Diagnosis> {
    let all: Vec<Rank> = evidence.ranks.iter().map(|state| state.rank).collect();
    let may_be_it = evidence.is_whole && is_of_messages(evidence, &all);
    may_be_it.then(|| partners::other_partners(evidence, &all))?
}

/// Returns true if all ranks of a cycle wait for messages, and none for a collective.
#[must_use]
pub fn is_of_messages(evidence: &HangEvidence, cycle: &[Rank]) -> bool {
    let mut states = cycle.iter().filter_map(|rank| evidence.rank(*rank));
    states.all(RankState::waits_for_message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RankWait;
    use crate::builders::{collective, message, rank, verdict};
    use crate::evidence::EventKind;
    use allranks_model::diagnosis::{Confidence, HangKind};

    #[test]
    fn where_the_messages_of_several_pairs_differ_nobody_is_named() {
        let pair = |tag: u32| {
            let sends = |number| {
                rank(
                    number,
                    vec![message(true, number + 2, 7), message(true, number + 2, tag)],
                )
            };
            let takes = |number| {
                rank(
                    number,
                    vec![message(false, number - 2, 7), message(false, number - 2, 9)],
                )
            };
            vec![sends(0), sends(1), takes(2), takes(3)]
        };
        assert_eq!(
            verdict(pair(8)),
            (HangKind::MessageUnmatched, vec![], Confidence::Likely)
        );
        let mut one = pair(8);
        one[1] = rank(
            1,
            vec![
                message(true, 3, 7),
                message(true, 3, 9),
                collective("all", &[0, 1, 2, 3]),
            ],
        );
        one[3] = rank(
            3,
            vec![
                message(false, 1, 7),
                message(false, 1, 9),
                collective("all", &[0, 1, 2, 3]),
            ],
        );
        assert_eq!(verdict(one).1, [0, 2]);
    }

    #[test]
    fn a_cycle_through_a_lock_is_proved_and_one_through_an_answer_is_not() {
        let wait = |ranks: &[u32], is_proved| {
            EventKind::AwaitRanks(RankWait {
                text: format!("a wait for {ranks:?}"),
                ranks: ranks.iter().copied().map(Rank).collect(),
                is_proved,
            })
        };
        let barrier = || collective("world", &[0, 1, 2]);
        let ranks = |is_proved| {
            vec![
                rank(0, vec![barrier()]),
                rank(1, vec![wait(&[0], is_proved)]),
                rank(2, vec![barrier()]),
            ]
        };
        let (kind, _, confidence) = verdict(ranks(true));
        assert_eq!(
            (kind, confidence),
            (HangKind::CyclicWait, Confidence::Proved)
        );
        let (kind, _, confidence) = verdict(ranks(false));
        assert_eq!(
            (kind, confidence),
            (HangKind::CyclicWait, Confidence::Likely)
        );
        // Ranks that have come to one shutdown do not wait for each other there.
        let shutdown = |rank: u32| {
            EventKind::AwaitRanks(RankWait {
                text: "rpc.shutdown".into(),
                ranks: [0, 1, 2]
                    .map(Rank)
                    .into_iter()
                    .filter(|other| other.0 != rank)
                    .collect(),
                is_proved: false,
            })
        };
        let late = rank(0, vec![EventKind::Own("its own code".into())]);
        let ranks = vec![late, rank(1, vec![shutdown(1)]), rank(2, vec![shutdown(2)])];
        let (kind, culprits, _) = verdict(ranks);
        assert_eq!((kind, culprits), (HangKind::Slow, vec![0]));
    }
}
