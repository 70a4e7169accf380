//! Finds the cause of a cycle of waiting ranks. Besides different orders of the same calls, a cycle comes from a message whose
//! other side has another peer, tag or group, or from a collective, a group or a store's key that one rank left out.

mod awaited_keys;
mod broken_round;
mod left_out;
mod message_row;
mod order;
mod short_round;
mod unmatched;

pub use message_row::broken as broken_row;
pub use order::{against_the_order, elsewhere, gone_on, may_go_on};
pub use short_round::short_round;

use super::evidence::{EventKind, HangEvidence};
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::Rank;

/// Returns the cause of a cycle other than the order of calls; `None` if nothing shows one.
#[must_use]
pub fn cause(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let states = || cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let unmatched = || states().find_map(|state| unmatched::unmatched(evidence, state));
    let waits = awaited_keys::key_not_set(evidence, cycle)
        .or_else(|| left_out::group_left_out(evidence, cycle));
    let waits = waits.or_else(|| broken_round::broken_round(evidence, cycle));
    waits.or_else(unmatched).or_else(|| {
        let mut skips = states().filter_map(|state| left_out::left_out(evidence, cycle, state));
        let one = skips.next()?;
        match skips.next() {
            None => Some(one),
            Some(_) => None,
        }
    })
}

/// Returns true if all ranks of a cycle wait for messages, and none for a collective.
#[must_use]
pub fn is_of_messages(evidence: &HangEvidence, cycle: &[Rank]) -> bool {
    let mut states = cycle.iter().filter_map(|rank| evidence.rank(*rank));
    states.all(|state| {
        matches!(
            state.now(),
            Some(EventKind::Message(_) | EventKind::AwaitMessage(..))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RankWait;
    use crate::builders::{collective, rank, verdict};
    use allranks_model::diagnosis::{Confidence, HangKind};

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
