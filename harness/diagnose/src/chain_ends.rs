//! Follows chains of waiting ranks to their ends, where the culprit is: a rank that only waits is none. A chain ends at a rank that is
//! gone, stopped or deadlocked or has raised an error; in a cycle; or at a rank that is busy with its own work, which is no hang.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::advice;
use super::common_rank::{self, WaitsFor};
use super::cycle;
use super::evidence::{
    A_CALL, EventKind, HangEvidence, Process, RankState, as_collective, first_line, has_shares,
    named, verb,
};
use super::other_group::other_group;
use super::waits::{Waits, has_cause, is_through};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Returns the verdict on the ends of all chains of waiting ranks; `None` if no chain has an end that is known.
#[must_use]
pub fn end_of_chain(evidence: &HangEvidence) -> Option<Diagnosis> {
    let waits = Waits::of(evidence);
    let ends = ChainEnds::of(evidence, &waits);
    let circle = ends.ranks(End::Circle);
    let waits_for = circle
        .iter()
        .filter_map(|rank| Some((*rank, waits.awaited_ranks(evidence.rank(*rank)?)?)))
        .collect();
    let verdict = ends.verdict(evidence, &waits_for)?;
    // The names of keys show who sets them, and do not prove it.
    let by_keys = |state: &&RankState| matches!(state.now(), Some(EventKind::AwaitKeys(_)));
    let mut of_keys = evidence.ranks.iter().filter(by_keys);
    let mut others = evidence.ranks.iter().filter(|state| !by_keys(state));
    let is_guess = of_keys.any(|state| waits.awaits(state, &verdict.culprits))
        && !others.any(|state| waits.awaits(state, &verdict.culprits));
    Some(match verdict.confidence {
        Confidence::Proved if is_guess => Diagnosis {
            confidence: Confidence::Likely,
            ..verdict
        },
        _ => verdict,
    })
}

/// Returns the ranks that are tearing down if all other ranks have nothing left to do; otherwise none.
fn left_alone_in_teardown(evidence: &HangEvidence) -> Vec<Rank> {
    let leaves =
        |state: &&RankState| state.is_there() && matches!(state.now(), Some(EventKind::Destroy(_)));
    let leaving: Vec<Rank> = (evidence.ranks.iter().filter(leaves))
        .map(|state| state.rank)
        .collect();
    let rest = |state: &&RankState| !leaving.contains(&state.rank);
    match evidence.ranks.iter().filter(rest).all(is_through) {
        true => leaving,
        false => Vec::new(),
    }
}

/// Finds a rank that is gone, is stopped or has raised an error, when no call of any rank is known. Likely at most.
#[must_use]
pub fn lost(evidence: &HangEvidence) -> Option<Diagnosis> {
    let is_known = |state: &RankState| state.doing.is_some() || !state.done.is_empty();
    if evidence.ranks.iter().any(is_known) || !evidence.ranks.iter().any(RankState::is_there) {
        return None;
    }
    likely_end(evidence, evidence.ranks.iter())
}

/// Returns the verdict on the gravest state that some ranks are in, whichever ranks wait for them; it is likely.
fn likely_end<'a>(
    evidence: &HangEvidence,
    ranks: impl Iterator<Item = &'a RankState>,
) -> Option<Diagnosis> {
    let mut ends = ChainEnds::default();
    ranks.for_each(|state| ends.note(state));
    let verdict = ends.verdict(evidence, &WaitsFor::new())?;
    Some(Diagnosis {
        confidence: Confidence::Likely,
        ..verdict
    })
}

/// Finds ranks that are stopped while all others are in calls of torch.distributed, of which not all may be known. Likely at most.
#[must_use]
pub fn stopped(evidence: &HangEvidence) -> Option<Diagnosis> {
    let is_stopped = |state: &RankState| state.process == Process::Stopped;
    let is_in_call = |state: &RankState| {
        state.is_there()
            && state.now().is_some_and(|what| match what {
                EventKind::Own(text) => text == A_CALL,
                _ => true,
            })
    };
    let (stopped, others): (Vec<&RankState>, Vec<&RankState>) =
        evidence.ranks.iter().partition(|state| is_stopped(state));
    if others.is_empty() || !others.into_iter().all(is_in_call) {
        return None;
    }
    likely_end(evidence, stopped.into_iter())
}

/// Finds ranks that an error of their own ended before they left the world, while all others are in code of their own, where they may
/// wait for what these ranks would have done. Likely at most.
#[must_use]
pub fn ended_by_error(evidence: &HangEvidence) -> Option<Diagnosis> {
    let is_ended = |state: &RankState| matches!(state.process, Process::Ended(_));
    let (ended, others): (Vec<&RankState>, Vec<&RankState>) =
        evidence.ranks.iter().partition(|state| is_ended(state));
    let is_own = |state: &&RankState| matches!(state.now(), Some(EventKind::Own(_)));
    if others.is_empty() || !others.iter().all(is_own) {
        return None;
    }
    let mut failed = ended
        .into_iter()
        .filter(|state| has_cause(state) && !has_left(state));
    let first = failed.next()?;
    likely_end(evidence, std::iter::once(first).chain(failed))
}

/// What a rank is in at which a chain of waiting ranks ends, gravest first: a rank that is gone does not come back, one that is busy may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Gone,
    Stopped,
    Raised,
    Deadlocked,
    /// It waits for a rank that waits, by others, for it.
    Circle,
    /// It is in code of its own.
    Busy,
    /// It tears down, or was told to end.
    Leaving,
    /// It is in a collective that every member has entered and some have left.
    Inside,
}

impl End {
    /// Returns the end that a rank is in by itself; `None` if it is in none.
    fn of(state: &RankState) -> Option<Self> {
        match &state.process {
            Process::Ended(_) => return Some(Self::Gone),
            Process::Stopped => return Some(Self::Stopped),
            Process::Running | Process::Unknown => {}
        }
        match state.now() {
            None => has_cause(state).then_some(Self::Raised),
            Some(EventKind::Deadlock(_)) => Some(Self::Deadlocked),
            Some(EventKind::Destroy(_) | EventKind::Leave) => Some(Self::Leaving),
            // With ops under way on its device it may wait for the device, whatever its host does.
            Some(EventKind::Own(_)) => state.recorded.is_empty().then_some(Self::Busy),
            Some(_) => None,
        }
    }

    /// Returns the kind of hang whose culprits are these ranks.
    fn kind(self, evidence: &HangEvidence, ranks: &[Rank]) -> HangKind {
        match self {
            Self::Gone => HangKind::PeerDead,
            Self::Stopped => HangKind::PeerStopped,
            Self::Raised => HangKind::PeerRaised,
            Self::Deadlocked if ranks.iter().all(|rank| is_last(evidence, *rank)) => {
                HangKind::TeardownStuck
            }
            Self::Deadlocked => HangKind::Behind,
            Self::Circle => HangKind::CyclicWait,
            Self::Busy => HangKind::Slow,
            Self::Leaving => HangKind::TeardownStuck,
            Self::Inside => HangKind::StuckInCall,
        }
    }

    fn confidence(self, evidence: &HangEvidence, ranks: &[Rank]) -> Confidence {
        match self {
            Self::Gone | Self::Stopped | Self::Raised | Self::Deadlocked => Confidence::Proved,
            Self::Circle if ranks.iter().all(|rank| is_sure(evidence, *rank)) => Confidence::Proved,
            Self::Circle | Self::Leaving | Self::Inside => Confidence::Likely,
            Self::Busy => Confidence::None,
        }
    }

    /// Returns the sentence on these ranks.
    fn summary(self, evidence: &HangEvidence, ranks: &[Rank]) -> String {
        let states = || ranks.iter().filter_map(|rank| evidence.rank(*rank));
        let what = match self {
            Self::Gone => {
                let how = states().find_map(|state| match &state.process {
                    Process::Ended(how) => Some(how.as_str()),
                    _ => None,
                });
                format!("{} gone{}", verb(ranks, "is", "are"), after_colon(how))
            }
            Self::Stopped => format!("{} stopped (state T)", verb(ranks, "is", "are")),
            Self::Raised => {
                let error = states().next().and_then(|state| state.errors.last());
                let error = error.map(|error| first_line(error));
                format!("raised an error{}", after_colon(error))
            }
            Self::Deadlocked => format!(
                "{} deadlocked: all threads of {} process wait, without a limit, for each other",
                verb(ranks, "is", "are"),
                verb(ranks, "its", "their")
            ),
            Self::Circle => "wait for each other in a circle".to_owned(),
            Self::Busy => format!(
                "{} in code of {} own, and {}",
                verb(ranks, "is", "are"),
                verb(ranks, "its", "their"),
                match states().all(|state| state.coming().is_some()) {
                    true => "on the way",
                    false => "the others wait",
                }
            ),
            Self::Leaving => match (
                states().all(|state| state.now() == Some(&EventKind::Leave)),
                ranks,
            ) {
                (true, [_]) => "was told to end, and its process goes on".to_owned(),
                (true, _) => "were told to end, and their processes go on".to_owned(),
                (false, _) => {
                    format!(
                        "{} not come out of tearing down",
                        verb(ranks, "has", "have")
                    )
                }
            },
            Self::Inside => format!(
                "{} not come out of a collective that every member has entered and others have left",
                verb(ranks, "has", "have")
            ),
        };
        format!("{} {what}", named(ranks))
    }
}

/// Returns a text behind a colon; empty without a text.
fn after_colon(text: Option<&str>) -> String {
    text.map_or_else(String::new, |text| format!(": {text}"))
}

/// The ranks at which chains of waiting ranks end.
#[derive(Debug, Default)]
struct ChainEnds(BTreeMap<End, BTreeSet<Rank>>);

impl ChainEnds {
    /// Follows the chain of each rank that waits.
    fn of<'a>(evidence: &'a HangEvidence, waits: &Waits<'a>) -> Self {
        let (mut ends, mut seen) = (Self::default(), HashSet::new());
        for state in &evidence.ranks {
            if waits.awaited_ranks(state).is_some() {
                ends.follow(waits, state, &mut Vec::new(), &mut seen);
            }
        }
        for state in &evidence.ranks {
            let is_end = match state.now() {
                Some(EventKind::Leave) => true,
                // While others go on without it, it may be one that the program has put aside.
                Some(EventKind::Deadlock(_)) => others_are_over(evidence, state.rank),
                _ => false,
            };
            if is_end {
                ends.note(state);
            }
        }
        for rank in left_alone_in_teardown(evidence) {
            ends.add(End::Leaving, rank);
        }
        ends
    }

    /// Follows the chain of one rank. Each rank is visited once: what was found from it stays recorded.
    fn follow<'a>(
        &mut self,
        waits: &Waits<'a>,
        state: &'a RankState,
        way: &mut Vec<Rank>,
        seen: &mut HashSet<Rank>,
    ) {
        if let Some(start) = way.iter().position(|rank| *rank == state.rank) {
            for rank in &way[start..] {
                self.add(End::Circle, *rank);
            }
            return;
        }
        if !seen.insert(state.rank) {
            return;
        }
        let Some(missing) = waits.awaited_ranks(state) else {
            self.note(state);
            return;
        };
        if missing.is_empty() {
            // All members have entered: a rank that is still inside while others have left is stuck in the call.
            if waits.others_have_left(state) {
                self.add(End::Inside, state.rank);
            }
            return;
        }
        way.push(state.rank);
        for rank in missing {
            if let Some(other) = waits.by_rank.get(&rank) {
                self.follow(waits, other, way, seen);
            }
        }
        way.pop();
    }

    fn note(&mut self, state: &RankState) {
        if let Some(end) = End::of(state) {
            self.add(end, state.rank);
        }
    }

    fn add(&mut self, end: End, rank: Rank) {
        self.0.entry(end).or_default().insert(rank);
    }

    /// Returns the ranks that are in this end, in order.
    fn ranks(&self, end: End) -> Vec<Rank> {
        let ranks = self.0.get(&end);
        ranks.into_iter().flatten().copied().collect()
    }

    /// Returns the verdict on the gravest end. `waits` says for which ranks those of the circle wait.
    fn verdict(&self, evidence: &HangEvidence, waits: &WaitsFor) -> Option<Diagnosis> {
        let end = self.0.keys().next().copied();
        if end.is_none_or(|end| end >= End::Circle) {
            let circle = self.ranks(End::Circle);
            let cause = cycle::cause(evidence, &circle)
                .or_else(|| common_rank::left_out(evidence, waits))
                .or_else(|| other_group(evidence, &circle));
            if cause.is_some() {
                return cause;
            }
        }
        let end = end?;
        let ranks = self.ranks(end);
        let (kind, blamed, summary) = match end {
            End::Circle => {
                blamed_for_circle(evidence, waits, &ranks, end.summary(evidence, &ranks))
            }
            End::Inside if are_in_groups_of_their_own(evidence, &ranks) => (
                HangKind::CyclicWait,
                Vec::new(),
                format!(
                    "{}, each of another group: they run the collectives of these groups in different orders",
                    end.summary(evidence, &ranks)
                ),
            ),
            // One that has left with less than its share keeps the others there.
            End::Inside if ranks.iter().any(|rank| may_be_uneven(evidence, *rank)) => (
                end.kind(evidence, &ranks),
                Vec::new(),
                end.summary(evidence, &ranks),
            ),
            _ => (
                end.kind(evidence, &ranks),
                ranks.clone(),
                end.summary(evidence, &ranks),
            ),
        };
        if kind == HangKind::CyclicWait
            && blamed.is_empty()
            && let Some(verdict) =
                cycle::short_round(evidence, &ranks).or_else(|| cycle::broken_row(evidence, &ranks))
        {
            return Some(verdict);
        }
        let states = || ranks.iter().filter_map(|rank| evidence.rank(*rank));
        let mut facts: Vec<String> = states()
            .map(|state| format!("rank {} {}", state.rank, state.place()))
            .collect();
        match end {
            End::Busy => facts.extend(counts(evidence)),
            End::Deadlocked => facts.extend(states().flat_map(facts_of_deadlock)),
            _ => {}
        }
        let confidence = end.confidence(evidence, &ranks);
        let mut verdict = conclude(evidence, kind, confidence, blamed, summary).because(facts);
        match kind {
            HangKind::CyclicWait if cycle::is_of_messages(evidence, &ranks) => {
                verdict.advice = advice::cycle_of_messages();
            }
            HangKind::CollectiveSkipped | HangKind::CollectiveMismatch => {
                verdict.advice = advice::other_collective();
            }
            _ if end == End::Deadlocked => verdict.advice = advice::deadlock(),
            _ => {}
        }
        Some(verdict)
    }
}

/// Returns true if ranks, three at least, are in collectives of as many groups: each waits there for a member that waits in another one.
fn are_in_groups_of_their_own(evidence: &HangEvidence, ranks: &[Rank]) -> bool {
    let states = ranks.iter().filter_map(|rank| evidence.rank(*rank));
    let groups = states.filter_map(|state| Some(&as_collective(state.now()?)?.group));
    ranks.len() > 2 && groups.collect::<BTreeSet<_>>().len() == ranks.len()
}

/// Returns true if a rank is in a collective in which members may give other amounts than the rest, and what they give is not known.
fn may_be_uneven(evidence: &HangEvidence, rank: Rank) -> bool {
    let now = evidence.rank(rank).and_then(RankState::now);
    let Some(one) = now.and_then(as_collective) else {
        return false;
    };
    has_shares(&one.name) && !one.nature.contains_key("elements")
}

/// Returns what the threads of a rank wait for, a sentence each.
fn facts_of_deadlock(state: &RankState) -> Vec<String> {
    match state.now() {
        Some(EventKind::Deadlock(deadlock)) => deadlock.facts.clone(),
        _ => Vec::new(),
    }
}

/// Returns true if a rank has left the world, and all others have ended or left it as well.
fn is_last(evidence: &HangEvidence, rank: Rank) -> bool {
    evidence.rank(rank).is_some_and(has_left) && others_are_over(evidence, rank)
}

/// Returns true if all ranks but this one have ended or left the world.
fn others_are_over(evidence: &HangEvidence, rank: Rank) -> bool {
    let mut others = evidence.ranks.iter().filter(|state| state.rank != rank);
    others.all(|state| matches!(state.process, Process::Ended(_)) || has_left(state))
}

/// Returns true if a rank is known to make no more calls in the world.
fn has_left(state: &RankState) -> bool {
    state.coming().is_some_and(<[_]>::is_empty)
}

/// Returns the kind of hang of ranks that wait for each other in a circle, those of them that are to blame, and the summary.
fn blamed_for_circle(
    evidence: &HangEvidence,
    waits: &WaitsFor,
    ranks: &[Rank],
    mut summary: String,
) -> (HangKind, Vec<Rank>, String) {
    let mut kind = HangKind::CyclicWait;
    let mut blamed = cycle::against_the_order(evidence, ranks);
    if blamed.len() == ranks.len() {
        // Without a rank that some circle does not need, the others wait for each other just the same.
        blamed = common_rank::in_all_cycles(waits).unwrap_or(blamed);
        if blamed.len() < ranks.len() {
            summary += &format!("; all circles go through {}", named(&blamed));
        }
        let may_wait = |rank: &Rank| !is_sure(evidence, *rank);
        if (blamed.len() > 1 || blamed.iter().any(may_wait)) && cycle::may_go_on(evidence, ranks) {
            blamed.clear();
            summary += "; nothing tells which of them should not be where it is";
        } else if let ([_], Some(elsewhere)) =
            (&blamed[..], cycle::elsewhere(evidence, ranks, &blamed))
        {
            (kind, summary) = elsewhere;
        }
    } else if let Some(gone_on) = cycle::gone_on(evidence, &blamed) {
        (kind, summary) = (HangKind::MessageUnmatched, gone_on);
    } else if let Some(elsewhere) = cycle::elsewhere(evidence, ranks, &blamed) {
        (kind, summary) = elsewhere;
        // The ranks that differ are known to have left out what they have always issued before.
        let short = cycle::short_round(evidence, ranks).filter(|short| short.culprits == blamed);
        if let Some(short) = short {
            (kind, summary) = (short.kind, format!("{}: {summary}", short.summary));
        }
    } else {
        summary += &format!(
            ", because {} issued collectives in another order than the rest",
            named(&blamed)
        );
    }
    (kind, blamed, summary)
}

/// Describes how many collectives each member has called, for every group in which that differs.
fn counts(evidence: &HangEvidence) -> Vec<String> {
    let mut groups: BTreeMap<&str, BTreeMap<Rank, usize>> = BTreeMap::new();
    for state in &evidence.ranks {
        for event in state.entered() {
            if let EventKind::Collective(one) = &event.what {
                let counts = groups
                    .entry(&one.group)
                    .or_insert_with(|| one.members.iter().map(|rank| (*rank, 0)).collect());
                *counts.entry(state.rank).or_default() += 1;
            }
        }
    }
    let lines = groups.into_iter().filter_map(|(group, counts)| {
        let before = evidence.forgotten.get(group).unwrap_or(&0);
        let mut by_count: BTreeMap<usize, Vec<Rank>> = BTreeMap::new();
        for (rank, count) in counts {
            by_count.entry(before + count).or_default().push(rank);
        }
        let parts: Vec<String> = by_count
            .iter()
            .map(|(count, ranks)| format!("{count} by {}", named(ranks)))
            .collect();
        (parts.len() > 1).then(|| format!("collectives called on {group}: {}", parts.join("; ")))
    });
    lines.collect()
}

/// Returns true unless what a rank waits for may come from another thread than the main one of the ranks that it waits for.
fn is_sure(evidence: &HangEvidence, rank: Rank) -> bool {
    let now = evidence.rank(rank).and_then(RankState::now);
    !matches!(now, Some(EventKind::AwaitRanks(wait)) if !wait.is_proved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, rank, verdict};
    use crate::evidence::{Deadlock, Remaining};

    fn deadlocked(number: u32, before: Vec<EventKind>) -> RankState {
        let deadlock = Deadlock {
            text: "its own code, `worker.join()`".into(),
            facts: vec!["its process 7: 2 threads wait".into()],
        };
        rank(
            number,
            [before, vec![EventKind::Deadlock(deadlock)]].concat(),
        )
    }

    #[test]
    fn a_deadlocked_rank_is_behind_where_others_wait_for_it() {
        let step = || collective("world", &[0, 1, 2]);
        let ranks = vec![
            rank(0, vec![step()]),
            deadlocked(1, Vec::new()),
            rank(2, vec![step()]),
        ];
        assert_eq!(
            verdict(ranks),
            (HangKind::Behind, vec![1], Confidence::Proved)
        );
    }

    #[test]
    fn a_deadlocked_rank_that_is_the_last_one_is_stuck_in_teardown() {
        let ended = |number| RankState {
            process: Process::Ended("came to the end of its program".into()),
            ..RankState::unknown(Rank(number))
        };
        let last = |ahead| RankState {
            ahead,
            ..deadlocked(1, vec![EventKind::Destroy("world".into())])
        };
        let left = last(Remaining::Known(Vec::new()));
        assert_eq!(
            verdict(vec![ended(0), left, ended(2)]),
            (HangKind::TeardownStuck, vec![1], Confidence::Proved)
        );
        // It may not have come to its teardown yet.
        let before = last(Remaining::Unknown);
        assert_eq!(
            verdict(vec![ended(0), before, ended(2)]),
            (HangKind::Behind, vec![1], Confidence::Proved)
        );
    }

    #[test]
    fn a_deadlocked_rank_that_nobody_waits_for_is_no_culprit() {
        let step = || collective("workers", &[0, 2]);
        let ranks = vec![
            rank(0, vec![step()]),
            deadlocked(1, Vec::new()),
            rank(2, vec![step()]),
        ];
        assert_eq!(verdict(ranks).1, Vec::<u32>::new());
    }

    #[test]
    fn a_rank_that_its_own_error_ended_is_likely_what_others_wait_for_elsewhere() {
        let polls = |number| {
            rank(
                number,
                vec![EventKind::Own("its own code, `sleep(0.1)`".into())],
            )
        };
        let ended = |error: &str, ahead| RankState {
            process: Process::Ended(format!("raised {error}")),
            errors: vec![error.to_owned()],
            ahead,
            ..RankState::unknown(Rank(2))
        };
        let own = || ended("MemoryError: 8 GiB", Remaining::Unknown);
        let dead = (HangKind::PeerDead, vec![2], Confidence::Likely);
        assert_eq!(verdict(vec![polls(0), polls(1), own()]), dead);
        // It had nothing left to do, what it raised was the effect of another rank's end, and somebody is in a call.
        let left = ended("MemoryError: 8 GiB", Remaining::Known(Vec::new()));
        let effect = ended(
            "RuntimeError: Connection closed by peer",
            Remaining::Unknown,
        );
        let calls = rank(1, vec![collective("workers", &[0, 1])]);
        for others in [
            vec![polls(0), polls(1), left],
            vec![polls(0), polls(1), effect],
            vec![polls(0), calls, own()],
        ] {
            assert_ne!(verdict(others), dead);
        }
    }

    #[test]
    fn a_rank_inside_a_collective_of_unknown_shares_is_not_blamed_for_it() {
        let of = |name: &str| match collective("world", &[0, 1]) {
            EventKind::Collective(one) => EventKind::Collective(crate::Collective {
                name: name.into(),
                ..one
            }),
            other => other,
        };
        let own = || EventKind::Own("its own code".into());
        let ranks = |name| vec![rank(0, vec![of(name)]), rank(1, vec![of(name), own()])];
        let inside = |culprits| (HangKind::StuckInCall, culprits, Confidence::Likely);
        assert_eq!(verdict(ranks("all_reduce")), inside(vec![0]));
        assert_eq!(verdict(ranks("all_gather")), inside(vec![]));
    }

    #[test]
    fn ranks_inside_collectives_of_a_group_each_are_in_a_circle() {
        // Rows and columns of a mesh, issued without waiting: each rank is in one of its two, and has passed the other.
        let row = |first: u32| collective(&format!("row {first}"), &[first, first + 1]);
        let column = |first: u32| collective(&format!("column {first}"), &[first, first + 2]);
        let mesh = vec![
            rank(0, vec![row(0), column(0)]),
            rank(1, vec![column(1), row(0)]),
            rank(2, vec![column(0), row(2)]),
            rank(3, vec![row(2), column(1)]),
        ];
        let circle = (HangKind::CyclicWait, vec![], Confidence::Likely);
        assert_eq!(verdict(mesh), circle);
    }

    #[test]
    fn a_rank_that_is_gone_is_graver_than_a_deadlocked_one() {
        let gone = RankState {
            process: Process::Ended("signal 9 (SIGKILL)".into()),
            ..RankState::unknown(Rank(0))
        };
        let waits = rank(2, vec![collective("world", &[0, 1, 2])]);
        let ranks = vec![gone, deadlocked(1, Vec::new()), waits];
        let (kind, culprits, _) = verdict(ranks);
        assert_eq!((kind, culprits), (HangKind::PeerDead, vec![0]));
    }
}
