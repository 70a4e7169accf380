//! Finds out which message of a batch a rank waits for. A device carries out a batch as one, so that the rank waits for all of its
//! messages; the one that matters is the one whose other side is missing.

use super::evidence::{EventKind, HangEvidence, Message, RankState};
use super::messages::{answers, messages};

/// Has each rank that waits for a batch wait for the message of it whose other side has not been issued: first for one of a rank that
/// does not itself wait for a message, as what that one waits for may come before.
pub fn settle(evidence: &mut HangEvidence) {
    let awaited: Vec<Option<(Message, usize)>> = (evidence.ranks.iter())
        .map(|state| {
            let missing = || {
                let batch = state.batch.iter();
                batch.filter(|(message, nth)| is_missing(evidence, state, message, *nth))
            };
            let is_held_up = |message: &Message| {
                let peer = message.peer.and_then(|peer| evidence.rank(peer));
                peer.is_some_and(RankState::waits_for_message)
            };
            let first = missing().find(|(message, _)| !is_held_up(message));
            first.or_else(|| missing().next()).cloned()
        })
        .collect();
    for (state, awaited) in evidence.ranks.iter_mut().zip(awaited) {
        if let (Some((event, _)), Some((message, nth))) = (&mut state.doing, awaited) {
            event.what = EventKind::AwaitMessage(message, nth);
        }
    }
}

/// Returns true if the peer of a message has not issued the other side of this one, counted from 1.
fn is_missing(evidence: &HangEvidence, state: &RankState, message: &Message, nth: usize) -> bool {
    let peer = message.peer.and_then(|peer| evidence.rank(peer));
    peer.is_some_and(|peer| {
        let sides = messages(peer).filter(|own| answers(own, message, state.rank));
        sides.count() < nth
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, message, rank};
    use crate::{TraceEvent, diagnose};
    use allranks_model::diagnosis::HangKind;
    use allranks_model::names::Rank;
    use std::time::Duration;

    /// Builds a rank of a ring of four that has sent to the next one and received from the one before so many times, and waits for the
    /// last such batch.
    fn waiting(number: u32, batches: usize) -> RankState {
        let next = message(true, (number + 1) % 4, 0);
        let before = message(false, (number + 3) % 4, 0);
        let event = |what: &EventKind| TraceEvent {
            what: what.clone(),
            at: String::new(),
        };
        let done = (0..batches).flat_map(|_| [event(&next), event(&before)]);
        let awaited = |what: &EventKind| match what {
            EventKind::Message(one) => Some((one.clone(), batches)),
            _ => None,
        };
        let batch: Vec<(Message, usize)> =
            [&next, &before].into_iter().filter_map(awaited).collect();
        let (first, nth) = batch[0].clone();
        let doing = event(&EventKind::AwaitMessage(first, nth));
        RankState {
            done: done.collect(),
            doing: Some((doing, Duration::from_secs(9))),
            batch,
            ..RankState::unknown(Rank(number))
        }
    }

    fn ring() -> HangEvidence {
        // Rank 3 leaves out its batches of the third step and is in the collective; what is small has left rank 2 all the same.
        let steps = (0..2).flat_map(|_| {
            [
                message(true, 0, 0),
                message(false, 2, 0),
                collective("world", &[0, 1, 2, 3]),
            ]
        });
        let steps: Vec<EventKind> = steps.chain([collective("world", &[0, 1, 2, 3])]).collect();
        HangEvidence {
            ranks: vec![waiting(0, 3), waiting(1, 4), waiting(2, 5), rank(3, steps)],
            is_whole: true,
            ..HangEvidence::default()
        }
    }

    #[test]
    fn a_rank_waits_for_the_message_of_its_batch_whose_other_side_is_missing() {
        let mut evidence = ring();
        settle(&mut evidence);
        let now = |number: usize| evidence.ranks[number].now().unwrap().to_string();
        assert_eq!(
            [now(0), now(1), now(2)],
            ["recv from rank 3", "recv from rank 0", "send to rank 3"]
        );
        let verdict = diagnose(&evidence);
        assert_eq!(
            (verdict.kind, verdict.culprits),
            (HangKind::MessageUnmatched, vec![Rank(3)])
        );
    }

    #[test]
    fn a_batch_that_all_others_have_issued_their_sides_of_is_left_as_it_is() {
        let mut evidence = ring();
        evidence.ranks = vec![waiting(0, 1), waiting(1, 1), waiting(2, 1), waiting(3, 1)];
        let before: Vec<_> = evidence
            .ranks
            .iter()
            .map(|state| state.doing.clone())
            .collect();
        settle(&mut evidence);
        let after = evidence.ranks.iter().map(|state| state.doing.clone());
        assert_eq!(before, after.collect::<Vec<_>>());
    }
}
