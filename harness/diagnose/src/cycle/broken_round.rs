//! Blames a cycle on the one rank that breaks its rounds: ranks that make the same calls from the same lines again and again wait for
//! one that has left some of them out, or has turned to a peer that it never had there. That a call is new does not prove it wrong.

use std::collections::HashMap;

use crate::collectives::{current, issued};
use crate::conclude;
use crate::evidence::as_collective;
use crate::evidence::{Collective, EventKind, HangEvidence, Message, RankState, TraceEvent};
use crate::messages::{answers, as_message, awaited, messages};
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// The fewest calls, and the fewest rounds of them, that make a habit.
const CALLS: usize = 8;
const ROUNDS: usize = 3;
/// How many rounds ago it may have broken them: a rank comes further before those that it waits for wait for it.
const LAST: usize = 8;
/// How many times as long as what came before them rounds are by far the most.
const BEGINNING: usize = 2;

/// Where a rank breaks its rounds: the calls of one round, from the first that was due, and the call that came in its place.
struct Break<'a> {
    due: Vec<&'a TraceEvent>,
    came: &'a TraceEvent,
}

/// Finds the one rank that breaks its rounds, and a rank of the cycle that waits for just what it has left out, or that it waits for
/// as a new peer. `None` if several ranks break theirs, as all may have to, or if that is not why they wait.
pub(super) fn broken_round(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let mut found = evidence
        .ranks
        .iter()
        .filter_map(|state| Some((state, Break::of(state)?)));
    let (state, broken) = found.next()?;
    if found.next().is_some() || !cycle.contains(&state.rank) {
        return None;
    }
    let states = || cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let left_out = || {
        let skipped = broken.skipped()?;
        let (waiting, event) =
            states().find_map(|other| Some((other, waits_for(other, state, skipped)?)))?;
        let messages = skipped.iter().filter_map(|event| as_message(&event.what));
        let mut peers = messages.filter_map(|message| evidence.rank(message.peer?));
        let is_alone = !peers.any(|peer| peer.rank != waiting.rank && departs(peer));
        is_alone.then_some((waiting, event))
    };
    let (kind, summary) = if let Some((waiting, event)) = left_out() {
        let kind = match &event.what {
            EventKind::Message(_) => HangKind::MessageUnmatched,
            _ => HangKind::CollectiveSkipped,
        };
        let text = format!(
            "rank {} leaves out {event}, for which rank {} waits, and goes on to {}",
            state.rank, waiting.rank, broken.came
        );
        (kind, text)
    } else {
        let peer = broken.new_peer(evidence, state)?;
        let text = format!(
            "rank {} is in {}, and had no message with rank {peer} from there before; rank {peer} goes on without one",
            state.rank, broken.came
        );
        (HangKind::MessageUnmatched, text)
    };
    let habit = format!(
        "rank {} had made the same {} calls in {ROUNDS} rounds or more; after them {} was due, and {} came",
        state.rank,
        broken.due.len(),
        broken.due.first()?,
        broken.came
    );
    let places = states().map(RankState::place_of_rank);
    let facts = std::iter::once(habit).chain(places).collect();
    let verdict = conclude(
        evidence,
        kind,
        Confidence::Likely,
        vec![state.rank],
        summary,
    );
    let advice = vec![
        format!(
            "look at what is different on rank {} in this round: a condition, an error that is caught, a list of peers",
            state.rank
        ),
        "let all ranks come to the same decision, or make the call in any case".to_owned(),
    ];
    Some(Diagnosis { advice, ..verdict }.because(facts))
}

impl<'a> Break<'a> {
    /// Returns where a rank breaks its rounds within the last of them, by a call of the round that is out of turn, or by a message with a
    /// peer that its line has not had, and that never came after the one before it. `None` if it makes no rounds or keeps them, or if
    /// several threads make its calls: their order is not that of the program.
    fn of(state: &'a RankState) -> Option<Self> {
        if state.calls_by_threads {
            return None;
        }
        let (calls, numbers) = numbered_calls(state);
        (1..numbers.len()).find_map(|place| {
            let period = period_until(&numbers, place)?;
            let due = calls.get(place - period..place)?;
            let came = *calls.get(place)?;
            let is_late = place + LAST * period >= calls.len();
            (is_late && is_broken(due, came)).then(|| Self {
                due: due.to_vec(),
                came,
            })
        })
    }

    /// Returns the calls of the round that were passed over; `None` if what came is no call of the round.
    fn skipped(&self) -> Option<&[&'a TraceEvent]> {
        let place = self.due.iter().position(|due| is_same(due, self.came))?;
        self.due.get(..place)
    }

    /// Returns the peer that the rank waits for, and had none of its messages from that line with; `None` if that peer has ever issued
    /// the other side of one, or if not two ranks, that peer among them, have begun this round in their own way.
    fn new_peer(&self, evidence: &HangEvidence, state: &RankState) -> Option<Rank> {
        let (waits, _) = awaited(state)?;
        let peer = as_message(&self.came.what)?.peer?;
        let is_with = |one: &Message, rank: Rank| one.peer.is_none_or(|peer| peer == rank);
        let had = |due: &&TraceEvent| as_message(&due.what).is_some_and(|one| is_with(one, peer));
        let other = evidence.rank(peer)?;
        if waits.peer != Some(peer)
            || self.due.iter().any(had)
            || messages(other).any(|own| is_with(own, state.rank))
        {
            return None;
        }
        let has_begun = |other: &&RankState| {
            other.rank != state.rank && most_frequent(other) > self.rounds_in_all(state)
        };
        let begun: Vec<Rank> = (evidence.ranks.iter().filter(has_begun))
            .map(|other| other.rank)
            .collect();
        (begun.len() > 1 && begun.contains(&peer)).then_some(peer)
    }

    /// Returns how often the rank has made the first call that was due.
    fn rounds_in_all(&self, state: &RankState) -> usize {
        let first = self.due.first();
        let is_it = |event: &&TraceEvent| first.is_some_and(|first| is_same(event, first));
        state.entered().filter(is_it).count()
    }
}

/// Returns the calls of a rank that rounds are made of, and for each a number that is the same for the same call of a round.
fn numbered_calls(state: &RankState) -> (Vec<&TraceEvent>, Vec<usize>) {
    let calls: Vec<&TraceEvent> = state.entered().filter(|event| is_call(event)).collect();
    let mut known = HashMap::new();
    let numbers = (calls.iter())
        .map(|event| {
            let next = known.len();
            *known.entry(call_key(event)).or_insert(next)
        })
        .collect();
    (calls, numbers)
}

/// Returns true if the last calls of a rank are not those that its rounds ask for, also where calls have come in this order before.
fn departs(state: &RankState) -> bool {
    let (_, numbers) = numbered_calls(state);
    (1..numbers.len()).any(|place| {
        habit_until(&numbers, place).is_some_and(|(period, _)| {
            place + LAST * period >= numbers.len() && numbers[place] != numbers[place - period]
        })
    })
}

/// Returns how often a rank has made the call that it has made most.
fn most_frequent(state: &RankState) -> usize {
    let messages: Vec<&TraceEvent> = state
        .entered()
        .filter(|event| as_message(&event.what).is_some())
        .collect();
    let mut kinds: Vec<(&TraceEvent, usize)> = Vec::new();
    for event in messages {
        match kinds.iter_mut().find(|(known, _)| is_same(known, event)) {
            Some((_, count)) => *count += 1,
            None => kinds.push((event, 1)),
        }
    }
    kinds.iter().map(|(_, count)| *count).max().unwrap_or(0)
}

/// Returns true if an event is a call that rounds are made of.
fn is_call(event: &TraceEvent) -> bool {
    let is_known = as_message(&event.what).is_some() || as_collective(&event.what).is_some();
    is_known && !event.at.is_empty()
}

/// What is the same of a call in every round; sizes may differ.
#[derive(PartialEq, Eq, Hash)]
struct CallKey<'a> {
    at: &'a str,
    group: &'a str,
    /// The collective; empty of a message.
    name: &'a str,
    /// Whether a message is sent, its peer and its tag.
    message: Option<(bool, Option<u32>, u32)>,
}

fn call_key(event: &TraceEvent) -> CallKey<'_> {
    let key = |group, name, message| CallKey {
        at: &event.at,
        group,
        name,
        message,
    };
    match &event.what {
        EventKind::Collective(one) => key(&one.group, &one.name, None),
        EventKind::Message(one) => {
            let peer = one.peer.map(|peer| peer.0);
            key(&one.group, "", Some((one.sends, peer, one.tag)))
        }
        _ => key("", "", None),
    }
}

/// Returns true if two calls are the same one of a round.
fn is_same(one: &TraceEvent, other: &TraceEvent) -> bool {
    call_key(one) == call_key(other)
}

/// Returns the shortest number of calls that make a round before a place; `None` without a habit. The call at that place must not have
/// come after the one before it in these rounds, nor earlier, unless they are by far the most of all calls: what comes before them is how
/// the program begins.
fn period_until(numbers: &[usize], place: usize) -> Option<usize> {
    let (period, length) = habit_until(numbers, place)?;
    let begun = place - length;
    let is_pair = |index: usize| numbers[index - 1..=index] == numbers[place - 1..=place];
    let is_known =
        (begun + 1..place).any(is_pair) || length < BEGINNING * begun && (1..=begun).any(is_pair);
    (!is_known).then_some(period)
}

/// Returns the shortest number of calls that make a round before a place, and how many calls keep to it; `None` without a habit.
fn habit_until(numbers: &[usize], place: usize) -> Option<(usize, usize)> {
    let repeated = |period: usize| {
        let back = (period..place).rev();
        let same = back.take_while(|index| numbers[*index] == numbers[index - period]);
        same.count() + period
    };
    let mut periods = (1..=place / ROUNDS).map(|period| (period, repeated(period)));
    let is_habit = |length: usize, period: usize| length >= CALLS && length >= ROUNDS * period;
    periods.find(|(period, length)| is_habit(*length, *period))
}

/// Returns true if a call is not the first that was due but a later one of the round, or a message from a line of the round with a peer
/// that this line had no message with.
fn is_broken(due: &[&TraceEvent], came: &TraceEvent) -> bool {
    if due.iter().any(|one| is_same(one, came)) {
        return due.first().is_some_and(|first| !is_same(first, came));
    }
    let peer = |event: &TraceEvent| as_message(&event.what).and_then(|message| message.peer);
    let from_there: Vec<Option<Rank>> = due
        .iter()
        .filter(|one| one.at == came.at)
        .map(|one| peer(one))
        .collect();
    peer(came).is_some() && !from_there.is_empty() && !from_there.contains(&peer(came))
}

/// Returns the one of these calls of a rank that another rank waits for: it has no more of its kind than that one has issued without.
fn waits_for<'a>(
    waiting: &RankState,
    state: &RankState,
    calls: &[&'a TraceEvent],
) -> Option<&'a TraceEvent> {
    let is_awaited = |call: &&&TraceEvent| match &call.what {
        EventKind::Message(own) => awaited(waiting).is_some_and(|(message, nth)| {
            let sides = messages(state).filter(|own| answers(own, message, waiting.rank));
            message.peer == Some(state.rank)
                && answers(own, message, waiting.rank)
                && sides.count() < nth
        }),
        EventKind::Collective(own) => is_missed(waiting, state, own),
        _ => false,
    };
    calls.iter().find(is_awaited).copied()
}

/// Returns true if a rank waits in a collective like this one, which another member has not come to.
fn is_missed(waiting: &RankState, state: &RankState, own: &Collective) -> bool {
    let is_it = current(waiting)
        .is_some_and(|(group, number)| group == own.group && issued(state, group) < number);
    is_it && waiting.rank != state.rank && own.members.contains(&waiting.rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, message, rank_at as rank, verdict};
    use crate::diagnose;

    type Call = (&'static str, EventKind);

    fn exchange(peer: u32) -> Vec<Call> {
        let at = "halo.py:9";
        vec![(at, message(true, peer, 0)), (at, message(false, peer, 0))]
    }

    /// Builds the ranks of a row, or of a ring, that exchange with their neighbours in so many rounds each, and then make these calls.
    fn strips(is_ring: bool, rounds: [usize; 4], last: [Vec<Call>; 4]) -> Vec<RankState> {
        let ranks = (0..4_u32).zip(rounds).zip(last);
        ranks
            .map(|((number, rounds), last)| {
                let near = match is_ring {
                    true => vec![(number + 3) % 4, (number + 1) % 4],
                    false => [
                        number.checked_sub(1),
                        Some(number + 1).filter(|one| *one < 4),
                    ]
                    .into_iter()
                    .flatten()
                    .collect(),
                };
                let round: Vec<Call> = near.into_iter().flat_map(exchange).collect();
                rank(number, [vec![round; rounds].concat(), last].concat())
            })
            .collect()
    }

    fn of_messages(culprits: &[u32]) -> (HangKind, Vec<u32>, Confidence) {
        (
            HangKind::MessageUnmatched,
            culprits.to_vec(),
            Confidence::Likely,
        )
    }

    #[test]
    fn the_one_rank_with_a_new_peer_is_named() {
        // Rank 0 takes the row for a ring.
        let last = || [exchange(3), exchange(0), exchange(1), exchange(2)];
        let row = |rounds| strips(false, rounds, last());
        assert_eq!(verdict(row([10, 10, 11, 12])), of_messages(&[0]));
        // Without rounds before, or while its peer has not begun this one, it may be right.
        for rounds in [[2, 2, 3, 4], [10, 9, 9, 8]] {
            assert_ne!(verdict(row(rounds)).1, [0], "{rounds:?}");
        }
        // Where another rank has a new peer too, all may have to.
        let mut both = last();
        both[1] = exchange(3);
        let ranks = strips(false, [10, 10, 11, 12], both);
        let verdict = diagnose(&HangEvidence {
            ranks,
            is_whole: true,
            ..HangEvidence::default()
        });
        assert_ne!(verdict.culprits, [Rank(0)]);
    }

    #[test]
    fn the_one_rank_that_leaves_its_turn_out_is_named() {
        // Rank 2 no longer exchanges with rank 1, and goes on with rank 3 for some rounds, until that one waits for the others.
        let waits = |peer: u32, nth: usize| {
            let own = as_message(&message(true, peer, 0)).unwrap().clone();
            vec![("halo.py:9", EventKind::AwaitMessage(own, nth))]
        };
        let both = |one, other| [exchange(one), exchange(other)].concat();
        let last = |rounds: usize| {
            [
                [vec![both(3, 1); 2].concat(), waits(1, rounds + 2)].concat(),
                [both(0, 2), waits(2, rounds + 1)].concat(),
                [vec![exchange(3); 4].concat(), waits(3, rounds + 4)].concat(),
                [vec![both(2, 0); 3].concat(), waits(0, rounds + 3)].concat(),
            ]
        };
        let ranks = |rounds: usize| strips(true, [rounds; 4], last(rounds));
        assert_eq!(verdict(ranks(15)), of_messages(&[2]));
        assert_ne!(verdict(ranks(1)).1, [2]);
    }

    #[test]
    fn a_rank_that_breaks_its_rounds_as_its_peer_does_is_not_named() {
        // Four microbatches go down three stages and come back. In the last round the second stage returns one at once.
        let at = "pipe.py:9";
        let send = |peer: u32| (at, message(true, peer, 0));
        let recv = |peer: u32| (at, message(false, peer, 0));
        let round = |calls: &[Call]| vec![calls.to_vec(); 4].concat();
        let stage = |number: u32, forth: &[Call], back: &[Call], last: &[Call]| {
            let rounds = vec![[round(forth), round(back)].concat(); 4].concat();
            rank(number, [rounds, last.to_vec()].concat())
        };
        let ranks = |first: &[Call]| {
            vec![
                stage(0, &[send(1)], &[recv(1)], first),
                stage(
                    1,
                    &[recv(0), send(2)],
                    &[recv(2), send(0)],
                    &[recv(0), send(2), send(0), recv(2)],
                ),
                stage(2, &[recv(1)], &[send(1)], &[recv(1), recv(1)]),
            ]
        };
        // The first stage waits for what it sends, and has sent all four.
        let all = [send(1), send(1), send(1), send(1)];
        assert_eq!(verdict(ranks(&all)), of_messages(&[1]));
        // Or it has taken one back before it sent more, as the second stage does.
        let other = [send(1), recv(1), send(1), send(1)];
        assert_ne!(verdict(ranks(&other)).1, [1]);
    }

    #[test]
    fn a_worker_that_does_not_ask_and_waits_for_the_answer_is_named() {
        let asks = || {
            vec![
                ("ps.py:5", message(true, 0, 1)),
                ("ps.py:6", message(false, 0, 2)),
            ]
        };
        let serves = || {
            vec![
                ("ps.py:20", message(false, 2, 1)),
                ("ps.py:21", message(true, 2, 2)),
            ]
        };
        let world = || ("ps.py:30", collective("world", &[0, 1, 2]));
        let ranks = |rounds: usize, last: Call| {
            vec![
                rank(
                    0,
                    [vec![serves(); rounds].concat(), serves()[..1].to_vec()].concat(),
                ),
                rank(1, [vec![asks(); 12].concat(), vec![world()]].concat()),
                rank(2, [vec![asks(); rounds].concat(), vec![last]].concat()),
            ]
        };
        let answer = || message(false, 0, 2);
        assert_eq!(verdict(ranks(11, ("ps.py:6", answer()))), of_messages(&[2]));
        // The order of several threads' calls is not the program's.
        let mut threads = ranks(11, ("ps.py:6", answer()));
        threads[2].calls_by_threads = true;
        assert_ne!(verdict(threads).1, [2]);
        // From another line it may be one that comes without being asked for.
        assert_ne!(verdict(ranks(11, ("ps.py:9", answer()))).1, [2]);
    }

    /// Builds two stages of a pipeline: the last one takes a batch and returns it in turn, after `first`, and then takes one more.
    fn stages(first: Vec<Call>, rounds: usize) -> Vec<RankState> {
        let takes = || ("pp.py:5", message(false, 0, 0));
        let returns = || ("pp.py:5", message(true, 0, 0));
        let turns = vec![vec![takes(), returns()]; rounds].concat();
        let last = [first.clone(), turns.clone(), vec![takes(), takes()]].concat();
        let other = |call: Call| {
            let EventKind::Message(own) = call.1 else {
                unreachable!()
            };
            let sends = !own.sends;
            ("pp.py:4", message(sends, 1, 0))
        };
        let feeds = [first, turns, vec![takes(), returns()]].concat();
        vec![rank(0, feeds.into_iter().map(other)), rank(1, last)]
    }

    #[test]
    fn how_a_program_begins_is_no_round() {
        let takes = || ("pp.py:5", message(false, 0, 0));
        assert_eq!(
            verdict(stages(vec![takes(), takes()], 6)),
            of_messages(&[1])
        );
        // It has taken two before now and then.
        let returns = || ("pp.py:5", message(true, 0, 0));
        let epoch = [
            vec![vec![takes(), returns()]; 5].concat(),
            vec![takes(), takes()],
        ]
        .concat();
        assert_ne!(verdict(stages(epoch, 5)).1, [1]);
    }

    #[test]
    fn a_collective_of_a_pair_that_was_part_of_every_round_is_left_out() {
        let pair = |at| (at, collective("pair", &[0, 1]));
        let world = || ("moe.py:9", collective("world", &[0, 1, 2]));
        let round = || {
            vec![
                pair("moe.py:5"),
                pair("moe.py:6"),
                pair("moe.py:7"),
                world(),
            ]
        };
        let ranks = |rounds: usize| {
            let part =
                |calls: usize| [vec![round(); rounds].concat(), round()[..calls].to_vec()].concat();
            vec![
                rank(0, part(3)),
                rank(1, [part(2), vec![world()]].concat()),
                rank(2, vec![world(); rounds + 1]),
            ]
        };
        let skipped = (HangKind::CollectiveSkipped, vec![1], Confidence::Likely);
        assert_eq!(verdict(ranks(6)), skipped);
        assert_ne!(verdict(ranks(1)).1, [1]);
    }
}
