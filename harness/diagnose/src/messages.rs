//! The messages between ranks, and which two calls are the two sides of one.

use super::evidence::{EventKind, HangEvidence, Message, RankState};
use allranks_model::names::Rank;

/// The message that an event is one side of; none if it is something else.
pub(crate) fn as_message(what: &EventKind) -> Option<&Message> {
    match what {
        EventKind::Message(message) => Some(message),
        _ => None,
    }
}

/// Every message of which a rank has begun its own side, in order.
pub(crate) fn messages(state: &RankState) -> impl Iterator<Item = &Message> {
    state.entered().filter_map(|event| as_message(&event.what))
}

/// A rank's messages of the same kind, to or from the same peer.
pub(crate) fn sides<'a>(
    state: &'a RankState,
    like: &'a Message,
) -> impl Iterator<Item = &'a Message> + 'a {
    messages(state).filter(move |one| *one == like)
}

/// Returns true if `own` is the other side of `other`, a message of `rank`.
pub(crate) fn answers(own: &Message, other: &Message, rank: Rank) -> bool {
    own.group == other.group
        && own.sends != other.sends
        && own.tag == other.tag
        && own.peer.is_none_or(|peer| peer == rank)
}

/// Describes each message that a rank waits for although its other side has been issued and returned. No rank is to blame for what
/// can be seen of it: the message is under way, or was given up with the work of an `isend` or `irecv` that nobody kept.
pub(crate) fn issued_on_both_sides(evidence: &HangEvidence) -> Vec<String> {
    let each = evidence.ranks.iter().filter_map(|state| {
        let (message, nth) = match state.now()? {
            EventKind::Message(message) => (message, sides(state, message).count()),
            EventKind::AwaitMessage(message, nth) => (message, *nth),
            _ => return None,
        };
        let peer = evidence.rank(message.peer?)?;
        let theirs = peer.done.iter().filter(|event| {
            as_message(&event.what).is_some_and(|own| answers(own, message, state.rank))
        });
        let other = theirs.into_iter().nth(nth.checked_sub(1)?)?;
        Some(format!(
            "rank {} waits in {}, whose other side rank {} has issued: {other}; without a wait for its work, a message may be lost when that work is dropped",
            state.rank, state.now()?, peer.rank
        ))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Process, TraceEvent, diagnose};
    use allranks_model::diagnosis::HangKind;
    use std::time::Duration;

    fn message(sends: bool, peer: u32) -> TraceEvent {
        TraceEvent {
            what: EventKind::Message(Message {
                group: "world".into(),
                sends,
                peer: Some(Rank(peer)),
                tag: 0,
            }),
            at: "train.py:9".into(),
        }
    }

    #[test]
    fn a_message_that_both_sides_have_issued_accuses_nobody_and_is_told_of() {
        let issued = |sends: usize| HangEvidence {
            ranks: vec![
                RankState {
                    process: Process::Running,
                    done: vec![message(true, 1); sends],
                    ..RankState::unknown(Rank(0))
                },
                RankState {
                    process: Process::Running,
                    done: vec![message(false, 0)],
                    doing: Some((message(false, 0), Duration::from_secs(9))),
                    ..RankState::unknown(Rank(1))
                },
            ],
            is_whole: true,
            ..HangEvidence::default()
        };
        let verdict = diagnose(&issued(2));
        assert_eq!(
            (verdict.kind, verdict.culprits),
            (HangKind::Unknown, vec![])
        );
        let text = "rank 1 waits in recv from rank 0, whose other side rank 0 has issued: send to rank 1 (train.py:9)";
        assert!(
            verdict.evidence[0].starts_with(text),
            "{:?}",
            verdict.evidence
        );
        // The second message has not been sent.
        assert!(issued_on_both_sides(&issued(1)).is_empty());
    }
}
