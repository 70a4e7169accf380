//! Diagnoses ranks of which only the stacks are known, as in a job that was attached to: the call in which each one sleeps, and
//! its line, but not the number of the call in its group. Such evidence proves nothing except what the kernel says about
//! processes.

use std::collections::BTreeMap;

use super::call_sequence::majority;
use super::evidence::{EventKind, HangEvidence, Process, RankState, SeenCall, named, verb};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// A call in which a rank sleeps, and its line.
type Place<'a> = (&'a SeenCall, &'a str);

/// Returns the verdict on ranks that sleep in calls, and of those that the others may wait for; `None` if no rank is in a call that
/// only its stack shows, or if nothing is known of where some rank is.
#[must_use]
pub fn verdict(evidence: &HangEvidence) -> Option<Diagnosis> {
    let calls: BTreeMap<Rank, Place> = evidence
        .ranks
        .iter()
        .filter(|state| state.is_there())
        .filter_map(|state| Some((state.rank, seen_call(state)?)))
        .collect();
    if calls.is_empty() {
        return None;
    }
    let of = |is: &dyn Fn(&RankState) -> bool| -> Vec<Rank> {
        let found = evidence.ranks.iter().filter(|state| is(state));
        found.map(|state| state.rank).collect()
    };
    let dead = of(&|state| matches!(state.process, Process::Ended(_)));
    let stopped = of(&|state| state.process == Process::Stopped);
    let others = of(&|state| state.is_there() && !calls.contains_key(&state.rank));
    // Only if nothing else can move is that what the others wait for.
    let confidence = match others.is_empty() && evidence.is_whole {
        true => Confidence::Proved,
        false => Confidence::Likely,
    };
    let (kind, culprits, what) = match (dead.is_empty(), stopped.is_empty()) {
        (false, _) => (HangKind::PeerDead, dead, "gone"),
        (true, false) => (HangKind::PeerStopped, stopped, "stopped (state T)"),
        (true, true) if others.is_empty() => return Some(differing(evidence, &calls)),
        (true, true) => return in_own_code(evidence, others),
    };
    let held: Vec<Rank> = calls.keys().copied().collect();
    let summary = format!(
        "{} {} {what}, and {} {} in {} with other ranks, and {} not move",
        named(&culprits),
        verb(&culprits, "is", "are"),
        named(&held),
        verb(&held, "waits", "wait"),
        verb(&held, "a call", "calls"),
        verb(&held, "does", "do")
    );
    let facts = facts(evidence, &culprits);
    Some(conclude(evidence, kind, confidence, culprits, summary).because(facts))
}

/// Returns the call in which a rank sleeps, as its stack shows it.
fn seen_call(state: &RankState) -> Option<Place<'_>> {
    let (event, _) = state.doing.as_ref()?;
    match &event.what {
        EventKind::Seen(call) => Some((call, event.at.as_str())),
        _ => None,
    }
}

/// Says which ranks are in code of their own while the others sleep in calls; `None` if some of them may be elsewhere.
fn in_own_code(evidence: &HangEvidence, ranks: Vec<Rank>) -> Option<Diagnosis> {
    let is_own = |rank: &Rank| {
        let now = evidence.rank(*rank).and_then(RankState::now);
        matches!(now, Some(EventKind::Own(_)))
    };
    if !ranks.iter().all(is_own) {
        return None;
    }
    let summary = format!(
        "{} {} in code of {} own, and the others wait",
        named(&ranks),
        verb(&ranks, "is", "are"),
        verb(&ranks, "its", "their"),
    );
    let facts = facts(evidence, &ranks);
    let verdict = conclude(evidence, HangKind::Slow, Confidence::None, ranks, summary);
    Some(verdict.because(facts))
}

/// All ranks sleep in calls. Which ones they are wrong in can be said only if all are calls of the default group, in which
/// every rank must make the same: a rank in a call of another group may rightly wait for one of the majority.
fn differing(evidence: &HangEvidence, calls: &BTreeMap<Rank, Place>) -> Diagnosis {
    let mut sides: Vec<(Place, Vec<Rank>)> = Vec::new();
    for (rank, call) in calls {
        match sides.iter_mut().find(|(known, _)| known == call) {
            Some((_, ranks)) => ranks.push(*rank),
            None => sides.push((*call, vec![*rank])),
        }
    }
    let lines: Vec<String> = sides
        .iter()
        .map(|((call, at), ranks)| {
            let verb = verb(ranks, "is", "are");
            format!("{} {verb} in {call} ({at})", named(ranks))
        })
        .collect();
    let lines = lines.join("; ");
    let is_comparable = |call: &SeenCall| call.is_collective && call.is_default_group;
    let names: Vec<&str> = sides
        .iter()
        .map(|((call, _), _)| call.name.as_str())
        .collect();
    let is_mismatch = sides.len() > 1
        && sides.iter().all(|((call, _), _)| is_comparable(call))
        && names.iter().any(|name| *name != names[0]);
    if !is_mismatch {
        let summary = match sides.len() {
            1 => format!("all ranks wait in the same call: {lines}"),
            _ => format!("ranks wait in different calls: {lines}"),
        };
        return conclude(
            evidence,
            HangKind::Unknown,
            Confidence::None,
            Vec::new(),
            summary,
        );
    }
    let by_rank = calls.values().map(|(call, _)| call.name.as_str());
    let common = majority(by_rank);
    let culprits: Vec<Rank> = match common {
        Some(common) if evidence.is_whole => calls
            .iter()
            .filter(|(_, (call, _))| call.name != common)
            .map(|(rank, _)| *rank)
            .collect(),
        // Of two sides of the same size, or with ranks that are not seen, either may be wrong.
        _ => Vec::new(),
    };
    let summary =
        format!("ranks are in different collectives of the default group at once: {lines}");
    conclude(
        evidence,
        HangKind::CollectiveMismatch,
        Confidence::Likely,
        culprits,
        summary,
    )
}

fn facts(evidence: &HangEvidence, ranks: &[Rank]) -> Vec<String> {
    let states = ranks.iter().filter_map(|rank| evidence.rank(*rank));
    states.map(RankState::place_of_rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TraceEvent, diagnose};
    use std::time::Duration;

    fn rank(number: u32, what: EventKind, at: &str) -> RankState {
        let event = TraceEvent {
            what,
            at: at.to_owned(),
        };
        RankState {
            process: Process::Running,
            doing: Some((event, Duration::from_secs(60))),
            ..RankState::unknown(Rank(number))
        }
    }

    fn call(number: u32, name: &str, is_default_group: bool) -> RankState {
        let call = SeenCall {
            name: name.to_owned(),
            is_collective: !matches!(name, "send" | "recv" | "wait"),
            is_default_group,
        };
        rank(number, EventKind::Seen(call), &format!("train.py:{name}"))
    }

    fn verdict(ranks: Vec<RankState>, is_whole: bool) -> (HangKind, Confidence, Vec<u32>) {
        let verdict = diagnose(&HangEvidence {
            ranks,
            is_whole,
            ..HangEvidence::default()
        });
        let culprits = verdict.culprits.iter().map(|rank| rank.0).collect();
        (verdict.kind, verdict.confidence, culprits)
    }

    #[test]
    fn what_the_kernel_says_is_proved_only_where_nothing_else_can_move() {
        let in_call = |number| call(number, "all_reduce", true);
        let with = |process: &Process| RankState {
            process: process.clone(),
            ..call(2, "all_reduce", true)
        };
        let (stopped, dead) = (Process::Stopped, Process::Ended("exit 1".to_owned()));
        for (process, kind) in [
            (&stopped, HangKind::PeerStopped),
            (&dead, HangKind::PeerDead),
        ] {
            let ranks = vec![in_call(0), in_call(1), with(process)];
            assert_eq!(
                verdict(ranks.clone(), true),
                (kind, Confidence::Proved, vec![2])
            );
            assert_eq!(verdict(ranks, false), (kind, Confidence::Likely, vec![2]));
        }
        // All of them are: a job that its user has suspended.
        let suspended = (0..3).map(|number| RankState {
            rank: Rank(number),
            ..with(&stopped)
        });
        let (kind, _, culprits) = verdict(suspended.collect(), true);
        assert_eq!((kind, culprits), (HangKind::Unknown, vec![]));
    }

    #[test]
    fn a_rank_in_its_own_code_is_late_and_no_more() {
        let own = |number| rank(number, EventKind::Own("its own code".into()), "train.py:9");
        let ranks = vec![
            call(0, "all_reduce", true),
            call(1, "all_reduce", false),
            own(2),
        ];
        assert_eq!(
            verdict(ranks, true),
            (HangKind::Slow, Confidence::None, vec![2])
        );
        let unseen = RankState {
            process: Process::Running,
            ..RankState::unknown(Rank(2))
        };
        let ranks = vec![call(0, "all_reduce", true), unseen];
        assert_eq!(verdict(ranks, true).0, HangKind::Unknown);
    }

    #[test]
    fn ranks_in_different_calls_are_accused_only_in_one_group_and_by_a_majority() {
        let three = |name: &str, is_default: bool| {
            let most = (0..3).map(|number| call(number, "all_reduce", true));
            most.chain([call(3, name, is_default)]).collect::<Vec<_>>()
        };
        let mismatch = |culprits: &[u32]| {
            (
                HangKind::CollectiveMismatch,
                Confidence::Likely,
                culprits.to_vec(),
            )
        };
        let unknown = (HangKind::Unknown, Confidence::None, vec![]);
        assert_eq!(verdict(three("barrier", true), true), mismatch(&[3]));
        assert_eq!(verdict(three("barrier", true), false), mismatch(&[]));
        // It may rightly wait in a smaller group for one that has left something out there.
        assert_eq!(verdict(three("barrier", false), true), unknown);
        assert_eq!(verdict(three("recv", true), true), unknown);
        assert_eq!(verdict(three("all_reduce", true), true), unknown);
        let tie = vec![call(0, "all_reduce", true), call(1, "barrier", true)];
        assert_eq!(verdict(tie, true), mismatch(&[]));
    }
}
