//! Blames a cycle on the stages of a pipeline that fill it with another number of batches than the rest.

use crate::conclude;
use crate::evidence::{HangEvidence, Message, RankState, named, verb};
use crate::messages::{as_message, awaited};
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// The fewest stages, and the fewest batches, by which a pipeline that is filled and then drained is told from one in which stages take
/// batches and return them in turn: the last stage does so from the first batch on.
const STAGES: usize = 3;
const BATCHES: usize = 2;

/// What a stage has had of the batches that go from rank to rank upwards.
struct Filling {
    rank: Rank,
    /// How many it has begun to take or to pass on.
    batches: usize,
    /// Whether it has begun to return them.
    has_turned: bool,
}

/// Finds the minority of the ranks that fill a pipeline with fewer or more batches than all others do: each rank has messages with its
/// neighbours alone, first upwards and then, if it has turned, downwards; those that have turned have all done so after as many batches,
/// and each of the others is at a later one. `None` if these are not the facts, or no side has a majority.
pub(super) fn other_count(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let stages: Option<Vec<Filling>> = evidence.ranks.iter().map(Filling::of).collect();
    let stages = stages.filter(|stages| stages.len() >= STAGES && evidence.is_whole)?;
    let (turned, filling): (Vec<&Filling>, Vec<&Filling>) =
        stages.iter().partition(|stage| stage.has_turned);
    let batches = turned.first()?.batches;
    let is_clear = turned.iter().all(|stage| stage.batches == batches)
        && filling.iter().all(|stage| stage.batches > batches);
    if batches < BATCHES || filling.is_empty() || !is_clear {
        return None;
    }
    let odd = match turned.len().cmp(&filling.len()) {
        std::cmp::Ordering::Less => turned,
        std::cmp::Ordering::Greater => filling,
        std::cmp::Ordering::Equal => return None,
    };
    let culprits: Vec<Rank> = odd.iter().map(|stage| stage.rank).collect();
    if !culprits.iter().any(|rank| cycle.contains(rank)) {
        return None;
    }
    let has_turned = odd.iter().all(|stage| stage.has_turned);
    let summary = match has_turned {
        true => format!(
            "{} {} begun to return batches after {batches}, and all other stages fill the pipeline with more",
            named(&culprits),
            verb(&culprits, "has", "have")
        ),
        false => format!(
            "{} {} more than {batches} batches, and all other stages have begun to return them after that number",
            named(&culprits),
            verb(&culprits, "expects", "expect")
        ),
    };
    let facts = (evidence.ranks.iter()).map(|one| format!("rank {}: {}", one.rank, one.place()));
    let verdict = conclude(
        evidence,
        HangKind::MessageUnmatched,
        Confidence::Likely,
        culprits,
        summary,
    );
    let advice = vec![
        "print the number of micro-batches of a step on all ranks: it must be the same".to_owned(),
    ];
    Some(Diagnosis { advice, ..verdict }.because(facts.collect()))
}

impl Filling {
    /// Returns what a rank that waits for a message has had; `None` if it has made any other calls than those of a stage.
    fn of(state: &RankState) -> Option<Self> {
        awaited(state)?;
        let (mut taken, mut passed, mut has_turned) = (0, 0, false);
        for event in state.entered() {
            let Some(message) = as_message(&event.what) else {
                continue;
            };
            match is_upwards(state.rank, message)? {
                true if has_turned => return None,
                true if message.sends => passed += 1,
                true => taken += 1,
                false => has_turned = true,
            }
        }
        let is_whole = taken == 0 || passed == 0 || taken == passed;
        (!has_turned || is_whole).then_some(Self {
            rank: state.rank,
            batches: taken.max(passed),
            has_turned,
        })
    }
}

/// Returns true for a message between a rank and a neighbour that goes to the higher one of the two; `None` if it is with another rank.
fn is_upwards(rank: Rank, message: &Message) -> Option<bool> {
    let peer = message.peer?;
    match (peer.0.checked_sub(rank.0), rank.0.checked_sub(peer.0)) {
        (Some(1), _) => Some(message.sends),
        (_, Some(1)) => Some(!message.sends),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventKind;
    use crate::builders::{message, rank, verdict};

    /// Builds three stages that take and pass on so many batches each and are then in the last call.
    fn stages(batches: [usize; 3], last: [EventKind; 3]) -> Vec<RankState> {
        let of = |number: u32| {
            let takes = (number > 0).then(|| message(false, number - 1, 0));
            let passes = (number < 2).then(|| message(true, number + 1, 0));
            let each: Vec<EventKind> = takes.into_iter().chain(passes).collect();
            vec![each; batches[number as usize]].concat()
        };
        let ranks = (0..3).zip(last);
        ranks
            .map(|(number, last)| rank(number, [of(number), vec![last]].concat()))
            .collect()
    }

    fn returned(to: u32) -> EventKind {
        message(false, to, 0)
    }

    const ODD: (HangKind, Vec<u32>, Confidence) =
        (HangKind::MessageUnmatched, Vec::new(), Confidence::Likely);

    #[test]
    fn the_stage_that_expects_more_batches_than_the_others_have_is_named() {
        let last = || [returned(1), returned(2), message(false, 1, 0)];
        assert_eq!(verdict(stages([4, 4, 4], last())), (ODD.0, vec![2], ODD.2));
        // One batch at a time goes through the stages in turn.
        assert_eq!(verdict(stages([1, 1, 1], last())).1, [0; 0]);
    }

    #[test]
    fn the_stage_that_returns_batches_before_the_others_do_is_named() {
        let fills = |first: usize, last: EventKind| {
            stages(
                [first + 1, first, first],
                [message(true, 1, 0), message(true, 2, 0), last],
            )
        };
        let early = fills(2, message(true, 1, 0));
        assert_eq!(verdict(early), (ODD.0, vec![2], ODD.2));
        // A last stage returns each batch at once in many schedules.
        assert_eq!(verdict(fills(1, message(true, 1, 0))).1, [0; 0]);
    }
}
