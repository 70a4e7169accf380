//! Blames a cycle on the one rank that has turned to messages with several ranks, which are all in the collective that comes next.

use std::collections::BTreeSet;

use crate::collectives::{current, issued};
use crate::conclude;
use crate::evidence::{HangEvidence, RankState, TraceEvent, as_collective, list};
use crate::messages::{answers, as_message, messages, sides};
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// The fewest collectives that all ranks have issued from the same lines.
const CALLS: usize = 3;

/// Finds a rank of the cycle that has issued messages to or from two other ranks at least since its last collective, none of which has issued
/// its side, while all members of the group but this one are in the collective that comes next. All have issued the same collectives from
/// the same lines before, and this rank its messages from lines that none has come to before. Either it has left the collectives too
/// early, or each of those has left out its side. `None` if these are not the facts.
pub(super) fn turned_away(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let states = cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let mut found = states.filter_map(|state| Some((state, missed_by(evidence, state)?)));
    let (state, (event, peers)) = found.next()?;
    if found.next().is_some() {
        return None;
    }
    let summary = format!(
        "rank {} has not come to {event}, where all other members wait, and has turned to messages with ranks {}, which none of them has issued",
        state.rank,
        list(&peers)
    );
    let facts = (evidence.ranks.iter()).map(RankState::place_of_rank);
    let verdict = conclude(
        evidence,
        HangKind::CollectiveSkipped,
        Confidence::Likely,
        vec![state.rank],
        summary,
    );
    let advice = vec![
        format!(
            "look at what ends the loop on rank {}: a condition on its own data, a limit, an error that is caught",
            state.rank
        ),
        "let all ranks come to the same decision, as by all_reduce of the condition".to_owned(),
    ];
    Some(Diagnosis { advice, ..verdict }.because(facts.collect()))
}

/// Returns the collective that a rank has turned away from, and the members that it has messages with instead; `None` if it has not.
fn missed_by<'a>(
    evidence: &'a HangEvidence,
    state: &'a RankState,
) -> Option<(&'a TraceEvent, Vec<Rank>)> {
    let is_missed = |other: &&RankState| {
        let one = other.now().and_then(as_collective);
        one.is_some_and(|one| one.members.contains(&state.rank))
    };
    let first = evidence.ranks.iter().find(is_missed)?;
    let (event, _) = first.doing.as_ref()?;
    let missed = as_collective(&event.what)?;
    let calls = collectives_of(state, &missed.group);
    let has_come = |rank: &Rank| {
        let Some(other) = evidence.rank(*rank) else {
            return false;
        };
        let theirs = collectives_of(other, &missed.group);
        let is_next = current(other) == Some((missed.group.as_str(), calls.len() + 1))
            && theirs.last().map(|last| last.at.as_str()) == Some(event.at.as_str());
        let is_same = theirs
            .iter()
            .zip(&calls)
            .all(|(one, own)| !own.at.is_empty() && one.at == own.at && one.what == own.what);
        is_next && is_same && theirs.len() == calls.len() + 1
    };
    let others: Vec<Rank> = (missed.members.iter().copied())
        .filter(|rank| *rank != state.rank)
        .collect();
    if !state.waits_for_message()
        || state.coming().is_some()
        || calls.len() < CALLS
        || issued(state, &missed.group) != calls.len()
        || !others.iter().all(has_come)
    {
        return None;
    }
    let is_message = |event: &&TraceEvent| as_message(&event.what).is_some();
    let entered: Vec<&TraceEvent> = state.entered().collect();
    let last = entered
        .iter()
        .rposition(|event| as_collective(&event.what).is_some())?;
    let (before, since) = entered.split_at(last + 1);
    let others_events = || {
        others
            .iter()
            .filter_map(|rank| evidence.rank(*rank))
            .flat_map(RankState::entered)
    };
    let is_new = |event: &&TraceEvent| {
        let mut known = before.iter().copied().chain(others_events());
        !event.at.is_empty() && !known.any(|one| one.at == event.at)
    };
    let of_messages: Vec<&TraceEvent> = since.iter().copied().filter(is_message).collect();
    if !of_messages.iter().all(is_new) {
        return None;
    }
    let unanswered = of_messages.iter().filter_map(|event| {
        let message = as_message(&event.what)?;
        let peer = message.peer.filter(|peer| others.contains(peer))?;
        let other = evidence.rank(peer)?;
        let theirs = messages(other).filter(|own| answers(own, message, state.rank));
        (theirs.count() < sides(state, message).count()).then_some(peer)
    });
    let peers: BTreeSet<Rank> = unanswered.collect();
    (peers.len() > 1).then(|| (event, peers.into_iter().collect()))
}

/// Returns the collectives of a group that a rank has entered, in order.
fn collectives_of<'a>(state: &'a RankState, group: &str) -> Vec<&'a TraceEvent> {
    let of_group = state.collectives().filter(|(_, one)| one.group == group);
    of_group.map(|(event, _)| event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, message, rank_at as rank, verdict};
    use crate::evidence::EventKind;

    type Call = (&'static str, EventKind);

    fn step() -> Call {
        ("train.py:5", collective("world", &[0, 1, 2, 3]))
    }

    /// Builds four ranks of which rank 2 has made so many steps and then these calls, and each of the others one step more.
    fn stopped(steps: usize, last: Vec<Call>) -> Vec<RankState> {
        let others = |number| rank(number, vec![step(); steps + 1]);
        let odd = rank(2, [vec![step(); steps], last].concat());
        vec![others(0), others(1), odd, others(3)]
    }

    fn swap() -> Vec<Call> {
        vec![
            ("train.py:9", message(true, 3, 1)),
            ("train.py:10", message(false, 1, 1)),
        ]
    }

    #[test]
    fn a_rank_that_turns_to_messages_with_several_ranks_of_the_next_collective_is_named() {
        let odd = (HangKind::CollectiveSkipped, vec![2], Confidence::Likely);
        assert_eq!(verdict(stopped(6, swap())), odd);
    }

    #[test]
    fn no_rank_is_named_where_one_rank_may_have_left_its_side_out() {
        // Rank 1 may have left its message out.
        assert_eq!(verdict(stopped(6, swap()[1..].to_vec())).1, [0; 0]);
        // Without steps before, nothing tells what comes next.
        assert_eq!(verdict(stopped(1, swap())).1, [0; 0]);
        // A server makes calls of its own, from other lines.
        let mut server = stopped(6, swap());
        for event in &mut server[2].done {
            event.at = event.at.replace("train", "server");
        }
        assert_eq!(verdict(server).1, [0; 0]);
        // It has had such messages before: they may come from time to time.
        let mut again = stopped(6, swap());
        for state in &mut again {
            let peer = (state.rank.0 + 1) % 4;
            let what = message(true, peer, 1);
            state.done.insert(
                0,
                TraceEvent {
                    what,
                    at: "train.py:9".into(),
                },
            );
        }
        assert_ne!(verdict(again).0, HangKind::CollectiveSkipped);
    }
}
