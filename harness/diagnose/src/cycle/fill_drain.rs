//! Blames a cycle on the stages of a pipeline that expect another number of micro-batches in a step than the rest.

use std::cmp::Ordering;

use crate::conclude;
use crate::evidence::{HangEvidence, Message, RankState, named, verb};
use crate::messages::{as_message, awaited};
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// The fewest stages, and the fewest batches, by which a pipeline that is filled and then drained is told from one in which stages take
/// batches and return them in turn: the last stage does so from the first batch on.
const STAGES: usize = 3;
const BATCHES: usize = 2;

/// Messages of a stage in one direction, without one in the other direction in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    is_upwards: bool,
    received: usize,
    sent: usize,
}

impl Run {
    /// Returns how many batches the stage has begun to take or to pass on.
    fn batches(&self) -> usize {
        self.received.max(self.sent)
    }

    /// Returns true if the stage has passed on what it has taken; the first and the last stage do one of the two alone.
    fn is_complete(&self) -> bool {
        self.received == 0 || self.sent == 0 || self.received == self.sent
    }
}

/// A rank with its runs, upwards and downwards in turn; it is in the last one.
struct Stage {
    rank: Rank,
    runs: Vec<Run>,
}

/// Finds the minority of the ranks whose runs of messages have fewer or more batches than those of all others. Each rank has messages
/// with its neighbours alone, upwards and downwards in turn. Some have begun the next run, all after as many batches, and each of the
/// others is at a later batch of the run before it. `None` if these are not the facts, or no side has a majority.
pub(super) fn other_count(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let stages: Option<Vec<Stage>> = evidence.ranks.iter().map(Stage::of).collect();
    let stages = stages.filter(|stages| stages.len() >= STAGES && evidence.is_whole)?;
    let most = stages.iter().map(|stage| stage.runs.len()).max()?;
    // The run that some have ended and the others are in.
    let place = most.checked_sub(2)?;
    let (ended, inside): (Vec<&Stage>, Vec<&Stage>) =
        stages.iter().partition(|stage| stage.runs.len() == most);
    let batches = ended.first()?.runs[place].batches();
    let is_clear = ended
        .iter()
        .all(|stage| stage.runs[place].batches() == batches)
        && (inside.iter())
            .all(|stage| stage.runs.len() == place + 1 && stage.runs[place].batches() > batches);
    if batches < BATCHES || inside.is_empty() || !is_clear {
        return None;
    }
    let (odd, rest) = match ended.len().cmp(&inside.len()) {
        Ordering::Less => (&ended, &inside),
        Ordering::Greater => (&inside, &ended),
        Ordering::Equal => return None,
    };
    // In other schedules, such as 1F1B, the runs of stages have different lengths.
    let is_alike = |one: &&Stage| {
        let counts = |stage: &Stage| -> Vec<usize> {
            stage.runs[..place].iter().map(Run::batches).collect()
        };
        counts(one) == counts(rest[0])
    };
    let culprits: Vec<Rank> = odd.iter().map(|stage| stage.rank).collect();
    if !rest.iter().all(is_alike) || !culprits.iter().any(|rank| cycle.contains(rank)) {
        return None;
    }
    Some(verdict(
        evidence,
        culprits,
        batches,
        ended.len() < inside.len(),
    ))
}

/// Builds the verdict on ranks of which the others say that a run has this many batches, or more if the culprits are those that have ended it.
fn verdict(
    evidence: &HangEvidence,
    culprits: Vec<Rank>,
    batches: usize,
    has_ended: bool,
) -> Diagnosis {
    let summary = match has_ended {
        true => format!(
            "{} {} begun to pass batches the other way after {batches}, and all other stages have more",
            named(&culprits),
            verb(&culprits, "has", "have")
        ),
        false => format!(
            "{} {} more than {batches} batches, and all other stages have begun to pass them the other way after that number",
            named(&culprits),
            verb(&culprits, "expects", "expect")
        ),
    };
    let facts = (evidence.ranks.iter()).map(RankState::place_of_rank);
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
    Diagnosis { advice, ..verdict }.because(facts.collect())
}

impl Stage {
    /// Returns the runs of a rank that waits for a message; `None` if a message is with another rank than a neighbour, or if the rank has
    /// not passed on what it has taken in a run before the last one.
    fn of(state: &RankState) -> Option<Self> {
        awaited(state)?;
        let mut runs: Vec<Run> = Vec::new();
        for message in state.entered().filter_map(|event| as_message(&event.what)) {
            let is_upwards = is_upwards(state.rank, message)?;
            if runs.last().is_none_or(|run| run.is_upwards != is_upwards) {
                runs.push(Run {
                    is_upwards,
                    ..Run::default()
                });
            }
            let run = runs.last_mut()?;
            match message.sends {
                true => run.sent += 1,
                false => run.received += 1,
            }
        }
        let (_, before) = runs.split_last()?;
        (runs[0].is_upwards && before.iter().all(Run::is_complete)).then_some(Self {
            rank: state.rank,
            runs,
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

    /// Builds three stages that have each passed one message up and one down, as `torch.distributed.pipelining` does before the first step.
    fn connected(batches: [usize; 3], last: [EventKind; 3]) -> Vec<RankState> {
        let first = [
            vec![message(true, 1, 0), message(false, 1, 0)],
            vec![
                message(false, 0, 0),
                message(true, 2, 0),
                message(true, 0, 0),
                message(false, 2, 0),
            ],
            vec![message(false, 1, 0), message(true, 1, 0)],
        ];
        let mut stages = stages(batches, last);
        for (state, first) in stages.iter_mut().zip(first) {
            let earlier = rank(state.rank.0, [first, vec![message(false, 9, 0)]].concat()).done;
            state.done.splice(0..0, earlier);
        }
        stages
    }

    #[test]
    fn what_was_passed_before_does_not_count() {
        let last = || [returned(1), returned(2), message(false, 1, 0)];
        let stages = connected([4, 4, 4], last());
        assert_eq!(verdict(stages), (ODD.0, vec![2], ODD.2));
        let early = connected(
            [2, 2, 2],
            [returned(1), message(false, 0, 0), message(false, 1, 0)],
        );
        assert_eq!(verdict(early), (ODD.0, vec![0], ODD.2));
    }

    #[test]
    fn stages_whose_runs_differ_as_those_of_1f1b_are_not_compared() {
        let up = |number: u32| [message(false, number - 1, 0), message(true, number + 1, 0)];
        let one = rank(
            1,
            [
                up(1).to_vec(),
                vec![message(true, 0, 0)],
                up(1).to_vec(),
                up(1).to_vec(),
                vec![message(false, 0, 0)],
            ]
            .concat(),
        );
        let two = rank(
            2,
            vec![
                message(false, 1, 0),
                message(false, 1, 0),
                message(true, 1, 0),
                message(false, 1, 0),
                message(false, 1, 0),
                message(false, 1, 0),
            ],
        );
        let zero = rank(
            0,
            vec![
                message(true, 1, 0),
                message(false, 1, 0),
                message(true, 1, 0),
                message(true, 1, 0),
                message(false, 1, 0),
            ],
        );
        assert_eq!(verdict(vec![zero, one, two]).1, [0; 0]);
    }
}
