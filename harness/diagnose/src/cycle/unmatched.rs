//! Blames a cycle on a message whose other side has another peer, tag or group.

use crate::conclude;
use crate::evidence::{EventKind, HangEvidence, Message, RankState, named};
use crate::habit;
use crate::messages::{answers, as_message, awaited, messages, sides};
use crate::tag_order::odd_one;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Finds a message that a waiting rank has no other side for: issued to it with another tag or group, or by another
/// rank than the one that it expects.
pub(super) fn unmatched(evidence: &HangEvidence, state: &RankState) -> Option<Diagnosis> {
    let (expected, nth) = awaited(state)?;
    let peer = expected.peer?;
    // A peer that waits for a message of its own is held up: its side may come next.
    let is_held_up = evidence
        .rank(peer)
        .is_some_and(RankState::waits_for_message);
    let others = evidence
        .ranks
        .iter()
        .filter(|other| other.rank != state.rank)
        .filter(|other| other.rank == peer || !is_held_up);
    let (other, message) = others
        // The peer itself before ranks that were not asked for.
        .clone()
        .filter(|other| other.rank == peer)
        .chain(others.filter(|other| other.rank != peer))
        .find_map(|other| Some((other, leftover(other, state, expected)?)))?;
    let own = sides(state, expected).nth(nth.checked_sub(1)?);
    let changes = [
        own.and_then(|own| other_peer(evidence, state, own)),
        other_peer(evidence, other, message),
    ];
    // A message that the other rank does not wait for either is taken later, as is one to a rank that gets its messages in turn
    // with others.
    let is_usual = takes(state, message, other.rank) && (nth > 1 || awaited(other).is_none());
    // So it is where each round has a tag of its own.
    let is_of_round = || {
        let mut both = [peer, other.rank].into_iter();
        message.tag == expected.tag && both.all(|from| has_had(state, expected, from))
    };
    let is_as_before = changes.iter().all(Option::is_none);
    if other.rank != peer && is_as_before && (is_usual || is_of_round()) {
        return None;
    }
    let (has, gets) = match expected.sends {
        true => ("sends to", "receives"),
        false => ("receives from", "sends"),
    };
    let summary = format!(
        "{} {has} rank {peer} with tag {}, and rank {} {gets} with tag {}{}{}",
        named(&[state.rank]),
        expected.tag,
        other.rank,
        message.tag,
        match message.group == expected.group {
            true => String::new(),
            false => format!(" in group {}, not {}", message.group, expected.group),
        },
        match other.rank == peer {
            true => "",
            false => ", which nothing matches",
        }
    );
    let mut culprits: Vec<Rank> = match &changes {
        [Some(_), None] => vec![state.rank],
        [None, Some(_)] => vec![other.rank],
        _ => match tags_differ(state, other, expected) {
            Some(rank) => vec![rank],
            None => match_no_one(evidence, state, other),
        },
    };
    culprits.sort_unstable();
    let places = [state, other].map(RankState::place_of_rank);
    let facts = places
        .into_iter()
        .chain(changes.into_iter().flatten())
        .collect();
    let verdict = conclude(
        evidence,
        HangKind::MessageUnmatched,
        Confidence::Likely,
        culprits,
        summary,
    );
    Some(verdict.because(facts))
}

/// Returns the [`odd_one`] of two ranks by their messages with each other. `like` is the last of these messages of the one.
fn tags_differ(one: &RankState, other: &RankState, like: &Message) -> Option<Rank> {
    let tags = |state: &RankState, peer: Rank, sends: bool| -> Vec<u64> {
        let is_between = |own: &&Message| {
            own.group == like.group && own.sends == sends && own.peer == Some(peer)
        };
        messages(state)
            .filter(is_between)
            .map(|own| own.tag.into())
            .collect()
    };
    let own = tags(one, other.rank, like.sends);
    let theirs = tags(other, one.rank, !like.sends);
    odd_one((one.rank, &own), (other.rank, &theirs))
}

/// Returns the one of two ranks whose messages match those of a third rank as little as each other's, while the other one has matching
/// messages with all that it has any with; else both.
fn match_no_one(evidence: &HangEvidence, one: &RankState, other: &RankState) -> Vec<Rank> {
    let others = || {
        (evidence.ranks.iter()).filter(|third| third.rank != one.rank && third.rank != other.rank)
    };
    let is_odd = |state: &RankState| {
        others().any(|third| differ(state, third))
            && !others().any(|third| match_at_all(state, third))
    };
    let is_usual = |state: &RankState| {
        others().any(|third| match_at_all(state, third))
            && !others().any(|third| differ(state, third))
    };
    match (
        is_odd(one) && is_usual(other),
        is_odd(other) && is_usual(one),
    ) {
        (true, false) => vec![one.rank],
        (false, true) => vec![other.rank],
        _ => vec![one.rank, other.rank],
    }
}

/// Returns true if a message of one rank is the other side of one of another rank.
fn match_at_all(one: &RankState, other: &RankState) -> bool {
    let with = |message: &&Message| message.peer == Some(other.rank);
    messages(one)
        .filter(with)
        .any(|own| messages(other).any(|theirs| answers(theirs, own, one.rank)))
}

/// Returns true if each of two ranks has issued a message for the other that the other one has no side of, one to send and one to
/// receive it.
fn differ(one: &RankState, other: &RankState) -> bool {
    let left = |state: &RankState, peer: &RankState, sends: bool| {
        let is_it = |own: &&Message| own.peer == Some(peer.rank) && own.sends == sends;
        messages(state)
            .filter(is_it)
            .any(|own| !messages(peer).any(|theirs| answers(theirs, own, state.rank)))
    };
    [true, false]
        .into_iter()
        .any(|sends| left(one, other, sends) && left(other, one, !sends))
}

/// Says that a message of a rank has another peer, tag or group than all that it has issued from the same place before; `None` if it is
/// not so.
fn other_peer(evidence: &HangEvidence, state: &RankState, message: &Message) -> Option<String> {
    let mut issued = state.entered();
    let event = issued
        .find(|event| as_message(&event.what).is_some_and(|own| std::ptr::eq(own, message)))?;
    let habit = habit::broken(evidence, state, event, as_message)?;
    let before = EventKind::Message(habit.common.clone());
    Some(format!(
        "rank {}: {event}, where all {} calls before were {before}",
        state.rank, habit.calls
    ))
}

/// Returns true if a rank has issued the other side of such a message of `other` before: it will do so for this one, too, once it goes
/// on, and does not wait for it instead of another.
fn takes(state: &RankState, message: &Message, other: Rank) -> bool {
    messages(state).any(|own| answers(own, message, other))
}

/// Returns true if a rank has had messages like this one with `peer` in the same direction before, under another tag.
fn has_had(state: &RankState, like: &Message, peer: Rank) -> bool {
    messages(state).any(|own| {
        own.group == like.group
            && own.sends == like.sends
            && own.peer == Some(peer)
            && own.tag != like.tag
    })
}

/// Returns a message that `other` has issued to or from `state`, that no message of `state` matches, and that may be
/// what `state` waits for.
fn leftover<'a>(
    other: &'a RankState,
    state: &RankState,
    expected: &Message,
) -> Option<&'a Message> {
    let issued = || {
        let to_it = |one: &&Message| one.sends != expected.sends && one.peer == Some(state.rank);
        messages(other).filter(to_it)
    };
    issued().find(|message| {
        let is_same = |one: &&Message| one.tag == message.tag && one.group == message.group;
        let matched = messages(state).filter(|one| answers(one, message, other.rank));
        issued().filter(is_same).count() > matched.count()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, message, rank, verdict};
    use crate::{Process, TraceEvent, diagnose};
    use std::time::Duration;

    #[test]
    fn a_message_with_another_tag_or_from_another_rank_is_unmatched() {
        let barrier = || collective("world", &[0, 1, 2]);
        let unmatched = (HangKind::MessageUnmatched, vec![1, 2], Confidence::Likely);
        let ranks = |sent: Vec<EventKind>, received: Vec<EventKind>| {
            let mut sender = sent;
            sender.push(barrier());
            vec![rank(0, vec![barrier()]), rank(1, sender), rank(2, received)]
        };
        let tags = ranks(
            vec![message(true, 2, 1), message(true, 2, 1)],
            vec![message(false, 1, 1), message(false, 1, 2)],
        );
        assert_eq!(verdict(tags), unmatched);
        let peers = ranks(vec![message(true, 2, 0)], vec![message(false, 0, 0)]);
        assert_eq!(verdict(peers), unmatched);
        // A message like one that it has taken before is one that it will take once it goes on.
        let before = [message(false, 1, 0), message(false, 0, 1)];
        let mut later = ranks(
            vec![message(true, 2, 0), message(true, 2, 0)],
            vec![before[0].clone(), before[1].clone(), before[1].clone()],
        );
        later[0] = rank(0, vec![message(true, 2, 1), barrier()]);
        let (kind, culprits, _) = verdict(later);
        assert!(!culprits.contains(&1), "{kind}: {culprits:?}");
        // Nothing was sent to it: what it waits for may come after the barrier.
        let late = ranks(vec![], vec![message(false, 1, 0)]);
        let (kind, ..) = verdict(late);
        assert_eq!(kind, HangKind::CyclicWait);
    }

    /// Builds a ring of four ranks of which each has issued all four messages of a step, with tags of that step.
    fn gossip(steps: [u32; 4]) -> Vec<RankState> {
        let state = |(number, step): (u32, u32)| {
            let (left, right) = ((number + 3) % 4, (number + 1) % 4);
            let (to_left, to_right) = (2 * step, 2 * step + 1);
            let first = message(true, left, to_left);
            let events = vec![
                first.clone(),
                message(true, right, to_right),
                message(false, right, to_left),
                message(false, left, to_right),
            ];
            // The first one whose other side has not come.
            let waits = if number == 0 { &events[1] } else { &first };
            let waits = EventKind::AwaitMessage(as_message(waits).unwrap().clone(), 1);
            rank(number, [events, vec![waits]].concat())
        };
        (0..4).zip(steps).map(state).collect()
    }

    #[test]
    fn a_rank_whose_tags_begin_anew_is_named() {
        // A row exchanges under the number of the round. Of the last one, a rank has sent what it sends, and waits for one neighbour.
        let strip = |number: u32, rounds: u32, last: u32, awaited: u32| {
            let near = [
                number.checked_sub(1),
                Some(number + 1).filter(|one| *one < 4),
            ];
            let near: Vec<u32> = near.into_iter().flatten().collect();
            let all =
                |sends: bool, tag: u32| near.iter().map(move |peer| message(sends, *peer, tag));
            let mut events: Vec<EventKind> = (1..=rounds)
                .flat_map(|tag| all(true, tag).chain(all(false, tag)))
                .collect();
            events.extend(all(true, last));
            let before = near.iter().take_while(|peer| **peer != awaited);
            events.extend(before.map(|peer| message(false, *peer, last)));
            events.push(message(false, awaited, last));
            rank(number, events)
        };
        let named = |odd: u32| (HangKind::MessageUnmatched, vec![odd], Confidence::Likely);
        // Rank 2 has begun to count from 1.
        let ranks = [
            strip(0, 6, 7, 1),
            strip(1, 5, 6, 2),
            strip(2, 5, 1, 1),
            strip(3, 5, 6, 2),
        ];
        assert_eq!(verdict(ranks.to_vec()), named(2));
        // Rank 1 has left numbers out.
        let ranks = [
            strip(0, 5, 6, 1),
            strip(1, 5, 9, 0),
            strip(2, 5, 6, 1),
            strip(3, 6, 7, 2),
        ];
        assert_eq!(verdict(ranks.to_vec()), named(1));
    }

    #[test]
    fn a_rank_whose_messages_match_those_of_nobody_is_named_alone() {
        let unmatched = |ranks: &[u32]| {
            (
                HangKind::MessageUnmatched,
                ranks.to_vec(),
                Confidence::Likely,
            )
        };
        assert_eq!(verdict(gossip([3, 4, 3, 3])), unmatched(&[1]));
        // Two sides of two ranks each.
        assert_eq!(verdict(gossip([3, 4, 4, 3])).1.len(), 2);
    }

    #[test]
    fn a_sender_to_several_ranks_in_turn_has_not_the_wrong_one() {
        // Rank 0 feeds two ranks, of which one has stopped early and waits for the other in a collective.
        let fed = |from: u32, batches: usize| vec![message(false, from, 0); batches];
        let feed = (0..5).map(|number| message(true, 1 + number % 2, 0));
        let feed: Vec<EventKind> = feed.chain([message(true, 2, 0)]).collect();
        let mut stopped = fed(0, 2);
        stopped.push(collective("trainers", &[1, 2]));
        let ranks = vec![rank(0, feed), rank(1, fed(0, 4)), rank(2, stopped)];
        let (kind, culprits, _) = verdict(ranks);
        assert_eq!((kind, culprits), (HangKind::CyclicWait, vec![]));
    }

    #[test]
    fn a_sender_whose_turn_comes_later_is_not_the_wrong_one_where_each_round_has_a_tag() {
        // Rank 2 leaves out the message of the last round, and rank 3 waits for its turn.
        let round = |tag: u32| (1..4).map(move |peer| message(false, peer, tag));
        let mut learner: Vec<EventKind> = (0..2).flat_map(round).collect();
        learner.extend([message(false, 1, 2), message(false, 2, 2)]);
        let sends = |rounds: u32| (0..rounds).map(|tag| message(true, 0, tag));
        let all = || collective("world", &[0, 1, 2, 3]);
        let ranks = vec![
            rank(0, learner),
            rank(1, sends(3).chain([all()]).collect()),
            rank(2, sends(2).chain([all()]).collect()),
            rank(3, sends(3).collect()),
        ];
        let (_, culprits, _) = verdict(ranks);
        assert!(!culprits.contains(&3), "{culprits:?}");
    }

    #[test]
    fn a_receiver_whose_sender_is_held_up_elsewhere_has_not_the_wrong_peer() {
        // Rank 0 would send to rank 1 next, but waits for rank 2, which waits for what rank 1 makes of that message.
        let ranks = vec![
            rank(0, vec![message(true, 2, 0)]),
            rank(1, vec![message(false, 0, 0)]),
            rank(2, vec![message(false, 1, 0)]),
        ];
        let undecided = (HangKind::CyclicWait, vec![], Confidence::Proved);
        assert_eq!(verdict(ranks.clone()), undecided);
        // There is no collective whose order could be wrong.
        let advice = diagnose(&HangEvidence {
            ranks,
            ..HangEvidence::default()
        })
        .advice;
        assert!(
            advice.iter().all(|line| line.contains("messages")),
            "{advice:?}"
        );
    }

    /// Builds four ranks that each send to the next one in turn, three times; then rank 3 sends to rank 2, as rank 1 did once if `varies`.
    fn ring(varies: bool) -> Vec<RankState> {
        let at = |what, at: &str| TraceEvent {
            what,
            at: at.into(),
        };
        let exchange = |number: u32, to: u32| {
            let (send, receive) = (message(true, to, 0), message(false, (number + 3) % 4, 0));
            [at(send, "halo.py:3"), at(receive, "halo.py:4")]
        };
        let state = |number: u32| {
            let next = (number + 1) % 4;
            let first = if varies && number == 1 { 0 } else { next };
            let mut done: Vec<TraceEvent> = [first, next, next]
                .into_iter()
                .flat_map(|to| exchange(number, to))
                .collect();
            let [send, receive] = exchange(number, if number == 3 { 2 } else { next });
            done.push(send);
            let doing = match number {
                0 => receive,
                3 => {
                    done.push(receive);
                    at(
                        EventKind::AwaitMessage(
                            Message {
                                group: "world".into(),
                                sends: true,
                                peer: Some(Rank(2)),
                                tag: 0,
                            },
                            1,
                        ),
                        "halo.py:5",
                    )
                }
                _ => {
                    done.push(receive);
                    at(collective("world", &[0, 1, 2, 3]), "halo.py:6")
                }
            };
            RankState {
                process: Process::Running,
                done,
                doing: Some((doing, Duration::from_secs(9))),
                ..RankState::unknown(Rank(number))
            }
        };
        (0..4).map(state).collect()
    }

    #[test]
    fn a_message_that_goes_elsewhere_than_all_before_is_its_senders_fault() {
        let unmatched = HangKind::MessageUnmatched;
        assert_eq!(
            verdict(ring(false)),
            (unmatched, vec![3], Confidence::Likely)
        );
        // Where another rank has had several peers too, either end may be wrong.
        assert_eq!(
            verdict(ring(true)),
            (unmatched, vec![0, 3], Confidence::Likely)
        );
    }
}
