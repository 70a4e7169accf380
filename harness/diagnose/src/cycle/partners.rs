//! Blames a cycle on the one rank that has other partners than the rest, in a program whose ranks exchange messages in rounds.

use std::collections::{BTreeMap, BTreeSet};

use crate::conclude;
use crate::evidence::{EventKind, HangEvidence, Message, RankState, list};
use crate::messages::{as_message, awaited};
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// The fewest rounds in which all ranks have agreed.
const ROUNDS: usize = 3;

/// The messages of a round with one peer: how many of each group, direction and tag.
type Sides<'a> = BTreeMap<(&'a str, bool, u32), usize>;

/// The messages that a rank has issued together, before it waited for the first of them.
#[derive(Debug, Default)]
struct Round<'a> {
    peers: BTreeMap<Rank, Sides<'a>>,
    /// Whether the rank has waited for one of them, or does so: no more of the round will come.
    is_closed: bool,
}

/// Finds the first round in which ranks have other partners than these have, after rounds in which all agreed, and the one rank that is part
/// of every such disagreement, with two ranks at least, of which one waits for it there. It may have come further since, by a message of a
/// later round. `None` if that is not why they wait: each of the others would have to be wrong if it is not that one.
pub(super) fn other_partners(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let rounds: Option<BTreeMap<Rank, Vec<Round<'_>>>> = (evidence.ranks.iter())
        .map(|state| Some((state.rank, rounds_of(state)?)))
        .collect();
    let rounds = rounds?;
    let longest = rounds.values().map(Vec::len).max()?;
    let (number, conflicts) = (0..longest)
        .map(|number| (number, conflicts(&rounds, number)))
        .find(|(_, conflicts)| !conflicts.is_empty())?;
    let is_in_all = |rank: &Rank| {
        conflicts
            .iter()
            .all(|(one, other)| one == rank || other == rank)
    };
    let ranks: BTreeSet<Rank> = conflicts
        .iter()
        .flat_map(|(one, other)| [*one, *other])
        .collect();
    let mut common = ranks.iter().copied().filter(is_in_all);
    let odd = common.next()?;
    if number < ROUNDS || common.next().is_some() || !cycle.contains(&odd) {
        return None;
    }
    let is_there = |rank: Rank| rounds.get(&rank).is_some_and(|all| all.len() == number + 1);
    let waits_for = |rank: Rank| evidence.rank(rank).and_then(awaited)?.0.peer;
    let waits = |rank: Rank| is_there(rank) && waits_for(rank) == Some(odd);
    let waiting = ranks.iter().copied().find(|rank| waits(*rank))?;
    let other = ranks
        .iter()
        .copied()
        .find(|rank| ![odd, waiting].contains(rank))?;
    evidence.rank(odd).and_then(awaited)?;
    let partners = |rank: Rank| -> Vec<Rank> {
        let round = rounds.get(&rank).and_then(|all| all.get(number));
        round
            .into_iter()
            .flat_map(|round| round.peers.keys().copied())
            .collect()
    };
    let summary = format!(
        "rank {odd} exchanges messages with {} in round {}, where rank {waiting} waits for it, and rank {other} does so with {}",
        list(&partners(odd)),
        number + 1,
        list(&partners(other)),
    );
    let each = ranks.iter().map(|rank| {
        let partners = partners(*rank);
        format!(
            "rank {rank} has messages with {} in that round",
            list(&partners)
        )
    });
    let facts = std::iter::once(format!(
        "in {number} rounds before, all ranks have had the same messages with each other"
    ));
    let facts = facts.chain(each).collect();
    let verdict = conclude(
        evidence,
        HangKind::MessageUnmatched,
        Confidence::Likely,
        vec![odd],
        summary,
    );
    let advice = vec![format!(
        "print the partners of each round on all ranks: what they follow from (a seed, a measured load, a list) differs on rank {odd}"
    )];
    Some(Diagnosis { advice, ..verdict }.because(facts))
}

/// Returns the rounds of a rank, in order; `None` if it takes messages from any rank, or makes calls on several threads: the order of
/// these is not the program's.
fn rounds_of(state: &RankState) -> Option<Vec<Round<'_>>> {
    if state.calls_by_threads {
        return None;
    }
    let mut rounds = Vec::new();
    let mut round = Round::default();
    let mut waited = usize::MAX;
    for (number, event) in state.entered().enumerate() {
        let Some(message) = as_message(&event.what) else {
            continue;
        };
        if waited <= number {
            round.is_closed = true;
            rounds.push(std::mem::take(&mut round));
            waited = usize::MAX;
        }
        let sides = round.peers.entry(message.peer?).or_default();
        *sides.entry(side(message)).or_default() += 1;
        waited = waited.min(state.waited.get(&number).copied().unwrap_or(usize::MAX));
    }
    if !round.peers.is_empty() {
        let waits = matches!(state.now(), Some(EventKind::AwaitMessage(..)));
        round.is_closed = waits || waited < usize::MAX;
        rounds.push(round);
    }
    Some(rounds)
}

fn side(message: &Message) -> (&str, bool, u32) {
    (&message.group, message.sends, message.tag)
}

/// Returns the pairs of ranks whose messages of a round do not belong to each other, whatever may still come.
fn conflicts(rounds: &BTreeMap<Rank, Vec<Round<'_>>>, number: usize) -> BTreeSet<(Rank, Rank)> {
    let round_of = |rank: &Rank| rounds.get(rank).and_then(|all| all.get(number));
    let mut found = BTreeSet::new();
    for rank in rounds.keys() {
        let peers = round_of(rank).into_iter().flat_map(|round| &round.peers);
        for (peer, sides) in peers {
            let Some(other) = round_of(peer).filter(|other| other.is_closed) else {
                continue;
            };
            let theirs = other.peers.get(rank);
            let is_answered = |((group, sends, tag), count): (&(&str, bool, u32), &usize)| {
                let answers = theirs.and_then(|theirs| theirs.get(&(*group, !*sends, *tag)));
                answers.is_some_and(|answers| answers >= count)
            };
            if !sides.iter().all(is_answered) {
                found.insert((*rank.min(peer), *rank.max(peer)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{message, rank, verdict};

    /// Builds ranks that exchange with these partners in each round, all messages of a round at once; each waits for the first message of its
    /// last round that has no other side.
    fn exchanges(rounds: [&[&[u32]]; 4]) -> Vec<RankState> {
        let issued = |number: u32| -> Vec<Vec<EventKind>> {
            let both = |peer: &u32| [message(true, *peer, 0), message(false, *peer, 0)];
            let of = rounds[number as usize].iter();
            of.map(|peers| peers.iter().flat_map(both).collect())
                .collect()
        };
        let build = |number: u32| {
            let rounds = issued(number);
            let waits_for = rounds.last().unwrap().iter().find(|event| {
                let one = as_message(event).unwrap();
                let peer = one.peer.unwrap();
                let own = rounds
                    .iter()
                    .flatten()
                    .filter(|event| as_message(event) == Some(one));
                let theirs = issued(peer.0).concat();
                let is_it = |event: &&EventKind| {
                    crate::messages::answers(as_message(event).unwrap(), one, Rank(number))
                };
                theirs.iter().filter(is_it).count() < own.count()
            });
            let first = waits_for.or(rounds.last().unwrap().first()).unwrap();
            let own = as_message(first).unwrap().clone();
            let nth = rounds
                .iter()
                .flatten()
                .filter(|event| *event == first)
                .count();
            let mut state = rank(
                number,
                [rounds.concat(), vec![EventKind::AwaitMessage(own, nth)]].concat(),
            );
            let mut begun = 0;
            for round in &rounds[..rounds.len() - 1] {
                let ends = begun + round.len();
                state
                    .waited
                    .extend((begun..ends).map(|number| (number, ends)));
                begun = ends;
            }
            state
        };
        (0..4).map(build).collect()
    }

    const PAIRS: [&[&[u32]]; 4] = [
        &[&[1], &[2], &[3], &[2], &[3]],
        &[&[0], &[3], &[2], &[0]],
        &[&[3], &[0], &[1], &[0], &[1]],
        &[&[2], &[1], &[0], &[1]],
    ];

    #[test]
    fn the_one_rank_with_other_partners_in_a_round_is_named() {
        let odd = (HangKind::MessageUnmatched, vec![1], Confidence::Likely);
        assert_eq!(verdict(exchanges(PAIRS)), odd);
    }

    #[test]
    fn the_odd_rank_may_have_gone_on_by_a_message_of_a_later_round() {
        // Rank 1 has had with rank 0 what that one had for the round after.
        let further: [&[&[u32]]; 4] = [
            &[&[1], &[2], &[3], &[2], &[1], &[2]],
            &[&[0], &[3], &[2], &[0], &[2]],
            &[&[3], &[0], &[1], &[0], &[3]],
            &[&[2], &[1], &[0], &[1]],
        ];
        let odd = (HangKind::MessageUnmatched, vec![1], Confidence::Likely);
        assert_eq!(verdict(exchanges(further)), odd);
    }

    #[test]
    fn no_rank_is_named_without_rounds_before_or_where_two_ranks_may_be_wrong() {
        let short: [&[&[u32]]; 4] = PAIRS.map(|rounds| &rounds[2..]);
        assert_ne!(verdict(exchanges(short)).1, [1]);
        // Ranks 1 and 3 both turn to others.
        let mut two = PAIRS;
        two[3] = &[&[2], &[1], &[0], &[2]];
        assert_eq!(verdict(exchanges(two)).1, [0; 0]);
        // It may still issue more before it waits.
        let mut open = exchanges(PAIRS);
        open[1].doing = open[1]
            .done
            .pop()
            .map(|last| (last, std::time::Duration::ZERO));
        assert_eq!(verdict(open).1, [0; 0]);
    }
}
