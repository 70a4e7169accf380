//! Matches the two sides of each point-to-point message.

use super::evidence::{EventKind, HangEvidence, Message, RankState};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Returns the message that an event is one side of; none if it is something else.
pub(crate) fn as_message(what: &EventKind) -> Option<&Message> {
    match what {
        EventKind::Message(message) => Some(message),
        _ => None,
    }
}

/// Returns every message of which a rank has begun its own side, in order.
pub(crate) fn messages(state: &RankState) -> impl Iterator<Item = &Message> {
    state.entered().filter_map(|event| as_message(&event.what))
}

/// Returns a rank's messages of the same kind, to or from the same peer.
pub(crate) fn sides<'a>(
    state: &'a RankState,
    like: &'a Message,
) -> impl Iterator<Item = &'a Message> + 'a {
    messages(state).filter(move |one| *one == like)
}

/// Returns the message that a rank waits for, and how many of its kind it has issued with that one.
pub(crate) fn awaited(state: &RankState) -> Option<(&Message, usize)> {
    match state.now()? {
        EventKind::Message(message) => Some((message, sides(state, message).count())),
        EventKind::AwaitMessage(message, nth) => Some((message, *nth)),
        _ => None,
    }
}

/// Returns true if `own` is the other side of `other`, a message of `rank`.
pub(crate) fn answers(own: &Message, other: &Message, rank: Rank) -> bool {
    own.group == other.group
        && own.sends != other.sends
        && own.tag == other.tag
        && own.peer.is_none_or(|peer| peer == rank)
}

/// Finds a rank that receives a message which its peer never sends, or sends one which its peer never receives. The
/// peer's remaining calls must be known.
#[must_use]
pub fn unmatched(evidence: &HangEvidence) -> Option<Diagnosis> {
    for state in &evidence.ranks {
        // A backend without tags may have delivered another message in place of the one that is missing.
        let last_received = || {
            let message = messages(state).filter(|message| !message.sends).last()?;
            Some((message, sides(state, message).count()))
        };
        let Some((message, nth)) = awaited(state).or_else(last_received) else {
            continue;
        };
        let Some(peer) = message.peer.and_then(|peer| evidence.rank(peer)) else {
            continue;
        };
        let Some(coming) = peer.coming().filter(|_| peer.is_there()) else {
            continue;
        };
        let answers = |own: &&Message| answers(own, message, state.rank);
        let theirs = messages(peer).filter(answers).count();
        let still = coming
            .iter()
            .filter_map(|event| as_message(&event.what))
            .filter(answers)
            .count();
        if theirs + still >= nth {
            continue;
        }
        let (has, lacks) = match message.sends {
            true => ("sends to", "receives"),
            false => ("receives from", "sends"),
        };
        let summary = format!(
            "rank {} {has} rank {} (tag {}), which never {lacks} it",
            state.rank, peer.rank, message.tag
        );
        let facts = vec![
            format!(
                "it is message number {nth} between them that way on rank {}",
                state.rank
            ),
            format!(
                "rank {} has {} such calls, done or to come",
                peer.rank,
                theirs + still
            ),
        ];
        let culprits = vec![peer.rank];
        return Some(
            conclude(
                evidence,
                HangKind::MessageUnmatched,
                Confidence::Proved,
                culprits,
                summary,
            )
            .because(facts),
        );
    }
    None
}

/// A message that a rank waits for although its other side has been issued and has returned.
struct Issued<'a> {
    waiting: &'a RankState,
    peer: &'a RankState,
    /// The number of the other side in the peer's `done`.
    number: usize,
}

fn issued_on_both_sides(evidence: &HangEvidence) -> impl Iterator<Item = Issued<'_>> {
    evidence.ranks.iter().filter_map(|waiting| {
        let (message, nth) = awaited(waiting)?;
        let peer = evidence.rank(message.peer?)?;
        let theirs = peer.done.iter().enumerate().filter(|(_, event)| {
            as_message(&event.what).is_some_and(|own| answers(own, message, waiting.rank))
        });
        let (number, _) = theirs.into_iter().nth(nth.checked_sub(1)?)?;
        Some(Issued {
            waiting,
            peer,
            number,
        })
    })
}

/// Describes each message that a rank waits for although its other side has been issued and has returned. What can be seen of it
/// blames no rank: the message may be under way.
pub(crate) fn under_way(evidence: &HangEvidence) -> Vec<String> {
    let each = issued_on_both_sides(evidence).filter_map(|issued| {
        Some(format!(
            "rank {} waits in {}, whose other side rank {} has issued: {}",
            issued.waiting.rank,
            issued.waiting.now()?,
            issued.peer.rank,
            issued.peer.done.get(issued.number)?
        ))
    });
    each.collect()
}

/// Finds a message that a rank waits for, and whose other side was issued without blocking, by a call whose work the program dropped
/// before it had waited for it. Likely at most: what had left by then arrives.
pub(crate) fn dropped(evidence: &HangEvidence) -> Option<Diagnosis> {
    let is_dropped = |issued: &Issued<'_>| issued.peer.dropped.contains(&issued.number);
    let issued = issued_on_both_sides(evidence).find(is_dropped)?;
    let (waiting, peer) = (issued.waiting, issued.peer);
    let summary = format!(
        "rank {} has dropped the work of its {} before it waited for it, and rank {} waits for that message",
        peer.rank,
        peer.done.get(issued.number)?,
        waiting.rank
    );
    let facts = [waiting, peer].map(|one| format!("rank {} {}", one.rank, one.place()));
    let verdict = conclude(
        evidence,
        HangKind::MessageUnmatched,
        Confidence::Likely,
        vec![peer.rank],
        summary,
    );
    let advice = vec![
        "keep what isend and irecv return, and call its wait() before the next step: Gloo gives a message up with its work".to_owned(),
    ];
    Some(Diagnosis { advice, ..verdict }.because(facts.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Process, TraceEvent, diagnose};
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
        assert!(under_way(&issued(1)).is_empty());
        // The work of the first was dropped, after it had arrived; or that of the second.
        let drop = |number: usize| {
            let mut evidence = issued(2);
            evidence.ranks[0].dropped = vec![number];
            let verdict = diagnose(&evidence);
            (verdict.kind, verdict.culprits, verdict.confidence)
        };
        assert_eq!(drop(0).0, HangKind::Unknown);
        let dropped = (
            HangKind::MessageUnmatched,
            vec![Rank(0)],
            Confidence::Likely,
        );
        assert_eq!(drop(1), dropped);
    }
}
