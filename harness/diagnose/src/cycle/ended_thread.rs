//! Blames a cycle on a rank whose messages another rank waits for, and whose thread that has sent or taken them all has ended.

use std::collections::BTreeSet;

use crate::conclude;
use crate::evidence::{HangEvidence, RankState};
use crate::messages::{answers, as_message, awaited};
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// The fewest messages that a thread has had with the waiting rank.
const MESSAGES: usize = 3;

/// Finds a rank of the cycle that waits for the next message of a row whose other sides one thread of the other rank has issued, a thread that
/// has ended; that rank's main thread is elsewhere in the cycle. Likely at most: another thread may take over.
pub(super) fn ended_thread(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let states = cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let mut found = states.filter_map(|waiting| {
        let (message, nth) = awaited(waiting)?;
        let peer = evidence
            .rank(message.peer?)
            .filter(|peer| cycle.contains(&peer.rank))?;
        let issued = sides_by_ended_thread(peer, waiting, nth)?;
        Some((waiting, peer, issued))
    });
    let (waiting, peer, issued) = found.next()?;
    if found.next().is_some() {
        return None;
    }
    let last = peer.done.get(*issued.last()?)?;
    let summary = format!(
        "rank {} waits for message number {} of rank {}; the thread of rank {} that has had the {} before it has ended",
        waiting.rank,
        issued.len() + 1,
        peer.rank,
        peer.rank,
        issued.len(),
    );
    let facts = [waiting, peer].map(RankState::place_of_rank);
    let facts = facts
        .into_iter()
        .chain([format!("the last call of that thread was {last}")]);
    let verdict = conclude(
        evidence,
        HangKind::MessageUnmatched,
        Confidence::Likely,
        vec![peer.rank],
        summary,
    );
    let advice = vec![
        "look at what has ended that thread: an error that it has caught or printed, or a limit of its loop".to_owned(),
    ];
    Some(Diagnosis { advice, ..verdict }.because(facts.collect()))
}

/// Returns the numbers, in `done`, of all other sides that a rank has issued of a row of which another one waits for the nth message: one
/// thread, which has ended, has issued them, and no more. `None` if it is not so.
fn sides_by_ended_thread(peer: &RankState, waiting: &RankState, nth: usize) -> Option<Vec<usize>> {
    let (message, _) = awaited(waiting)?;
    let is_side = |event| as_message(event).is_some_and(|own| answers(own, message, waiting.rank));
    if peer.now().is_some_and(is_side) {
        return None;
    }
    let numbered = peer.done.iter().enumerate();
    let issued: Vec<usize> = numbered
        .filter(|(_, event)| is_side(&event.what))
        .map(|(number, _)| number)
        .collect();
    let threads: Option<BTreeSet<u32>> = issued
        .iter()
        .map(|number| peer.by_ended_thread.get(number).copied())
        .collect();
    let is_so = threads?.len() == 1 && issued.len() >= MESSAGES && issued.len() + 1 == nth;
    is_so.then_some(issued)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, message, rank, verdict};

    /// Builds a rank whose thread has fed another one so many times, and which is in a collective that the other one has still to come to.
    fn fed(times: usize, by_thread: usize) -> Vec<RankState> {
        let world = || collective("world", &[0, 1, 2]);
        let sends = vec![message(true, 2, 0); times];
        let mut feeder = rank(0, [sends, vec![world()]].concat());
        feeder.by_ended_thread = (0..by_thread).map(|number| (number, 0)).collect();
        feeder.calls_by_threads = true;
        let taker = rank(2, vec![message(false, 0, 0); times + 1]);
        vec![feeder, rank(1, vec![world()]), taker]
    }

    #[test]
    fn the_rank_whose_feeding_thread_has_ended_is_named() {
        let ended = (HangKind::MessageUnmatched, vec![0], Confidence::Likely);
        assert_eq!(verdict(fed(4, 4)), ended);
        // The main thread has sent one too, or there were too few to tell.
        assert_ne!(verdict(fed(4, 3)).1, [0]);
        assert_ne!(verdict(fed(2, 2)).1, [0]);
    }
}
