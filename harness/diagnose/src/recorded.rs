//! Verdicts from the ops that the backend's own records (torch's flight recorder) have under way on each rank. The
//! records show what no other evidence does, such as messages on a device's streams, but not the ops that are over:
//! they make a verdict likely and never prove it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::call_sequence::majority;
use super::evidence::{EventKind, HangEvidence, RankState, named};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::flight_recorder::RecordedOp;
use allranks_model::names::Rank;

/// Returns the verdict that the records allow, likely at most; `None` if they show nothing wrong.
#[must_use]
pub fn under_way(evidence: &HangEvidence) -> Option<Diagnosis> {
    let verdict = contradiction(evidence)
        .or_else(|| crossed_messages(evidence))
        .or_else(|| crossed_collectives(evidence))
        .or_else(|| left_in_teardown(evidence))?;
    let Contradiction {
        kind,
        culprits,
        summary,
    } = verdict;
    Some(conclude(
        evidence,
        kind,
        Confidence::Likely,
        culprits,
        summary,
    ))
}

/// Describes every op under way, for reports; ranks with the same op are named together.
#[must_use]
pub fn lines(evidence: &HangEvidence) -> Vec<String> {
    let mut lines: BTreeMap<String, Vec<Rank>> = BTreeMap::new();
    for state in &evidence.ranks {
        for op in &state.recorded {
            lines.entry(op.to_string()).or_default().push(state.rank);
        }
    }
    let line_of = |(line, ranks): (String, Vec<Rank>)| {
        format!("flight recorder of {}: {line}", named(&ranks))
    };
    lines.into_iter().map(line_of).collect()
}

struct Contradiction {
    kind: HangKind,
    culprits: Vec<Rank>,
    summary: String,
}

/// Finds ranks that have different collectives under way as the same number of a group.
fn contradiction(evidence: &HangEvidence) -> Option<Contradiction> {
    let mut by_number: BTreeMap<(&str, u64), BTreeMap<Rank, &str>> = BTreeMap::new();
    for state in &evidence.ranks {
        for op in collectives(state) {
            let ranks = by_number.entry((&op.group, op.number)).or_default();
            ranks.insert(state.rank, &op.op);
        }
    }
    by_number.into_iter().find_map(|((group, number), ops)| {
        let names: BTreeSet<&str> = ops.values().copied().collect();
        if names.len() < 2 {
            return None;
        }
        let names: Vec<&str> = names.into_iter().collect();
        let summary = format!(
            "collective number {number} of group {group} is {} on different ranks",
            names.join(" and ")
        );
        Some(Contradiction {
            kind: HangKind::CollectiveMismatch,
            culprits: minority(&ops),
            summary,
        })
    })
}

/// Finds two ranks that both send to, or both receive from, each other first, and issue the other side of their peer's
/// message only after that. A backend that carries out the messages of a pair in the order in which they are issued
/// ends neither.
fn crossed_messages(evidence: &HangEvidence) -> Option<Contradiction> {
    let first: Vec<(Rank, Way<'_>, u64)> = evidence
        .ranks
        .iter()
        .flat_map(|state| {
            firsts(state)
                .into_iter()
                .map(|(way, number)| (state.rank, way, number))
        })
        .collect();
    first.iter().find_map(|(rank, way, number)| {
        let crossed = |other: &&(Rank, Way<'_>, u64)| {
            let (peer, theirs, at) = other;
            let is_behind = |rank: Rank, answer: Way<'_>, after: u64| {
                let state = evidence.rank(rank);
                state.is_some_and(|state| {
                    ways(state).any(|(way, number)| way == answer && number > after)
                })
            };
            *theirs == Way { own: way.peer, peer: way.own, ..*way }
                && is_behind(*peer, way.answer(), *at)
                && is_behind(*rank, theirs.answer(), *number)
        };
        let (peer, ..) = first.iter().find(crossed)?;
        let does = if way.sends { "send to" } else { "receive from" };
        let summary = format!(
            "rank {rank} and rank {peer} both {does} each other first, and neither message ends before the other side's next one"
        );
        Some(Contradiction {
            kind: HangKind::CyclicWait,
            culprits: vec![*rank, *peer],
            summary,
        })
    })
}

/// Finds ranks that have the same collectives of two groups under way, and issued them in different orders.
fn crossed_collectives(evidence: &HangEvidence) -> Option<Contradiction> {
    type Pair<'a> = [(&'a str, u64); 2];
    let mut orders: BTreeMap<Pair<'_>, BTreeMap<Rank, bool>> = BTreeMap::new();
    for state in &evidence.ranks {
        let all: Vec<(&str, u64)> = collectives(state)
            .map(|op| (op.group.as_str(), op.number))
            .collect();
        for (place, one) in all.iter().enumerate() {
            for other in all[place + 1..].iter().filter(|other| other.0 != one.0) {
                let mut pair = [*one, *other];
                pair.sort_unstable();
                let is_sorted = pair[0] == *one;
                orders
                    .entry(pair)
                    .or_default()
                    .insert(state.rank, is_sorted);
            }
        }
    }
    orders.into_iter().find_map(|([one, other], ranks)| {
        let differ = ranks.values().any(|sorted| *sorted) && ranks.values().any(|sorted| !sorted);
        differ.then(|| Contradiction {
            kind: HangKind::CyclicWait,
            culprits: minority(&ranks),
            summary: format!(
                "ranks issued collective number {} of group {} and number {} of group {} in different orders, and both are under way",
                one.1, one.0, other.1, other.0
            ),
        })
    })
}

/// Finds a rank that tears down while an op of its own is under way.
fn left_in_teardown(evidence: &HangEvidence) -> Option<Contradiction> {
    evidence.ranks.iter().find_map(|state| {
        let op = state.recorded.first()?;
        let Some(EventKind::Destroy(group)) = state.now() else {
            return None;
        };
        Some(Contradiction {
            kind: HangKind::TeardownStuck,
            culprits: vec![state.rank],
            summary: format!(
                "rank {} tears down {group} while its {} number {} of group {} is under way",
                state.rank, op.op, op.number, op.group
            ),
        })
    })
}

/// Returns the ranks whose value is not the majority's; all of them if there is no majority.
fn minority<T: PartialEq>(ranks: &BTreeMap<Rank, T>) -> Vec<Rank> {
    let common = majority(ranks.values());
    let is_odd = |one: &T| common.is_none_or(|common| common != one);
    let odd = ranks.iter().filter(|(_, one)| is_odd(one));
    odd.map(|(rank, _)| *rank).collect()
}

/// One side of a message: the rank's own rank in the group, its peer's, and the direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Way<'a> {
    group: &'a str,
    own: u32,
    peer: u32,
    sends: bool,
}

impl Way<'_> {
    /// Returns the other side of the message.
    fn answer(self) -> Self {
        Self {
            own: self.peer,
            peer: self.own,
            sends: !self.sends,
            ..self
        }
    }
}

/// Matches `send 0->1` and `recv 0<-1`: the rank's own rank in the group, then its peer's.
static MESSAGE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(send|recv) (\d+)(?:->|<-)(\d+)$").ok());

fn as_message(op: &RecordedOp) -> Option<Way<'_>> {
    let found = MESSAGE.as_ref()?.captures(&op.op)?;
    Some(Way {
        group: &op.group,
        own: found[2].parse().ok()?,
        peer: found[3].parse().ok()?,
        sends: &found[1] == "send",
    })
}

fn ways(state: &RankState) -> impl Iterator<Item = (Way<'_>, u64)> {
    let of = |op| as_message(op).map(|way| (way, op.number));
    state.recorded.iter().filter_map(of)
}

/// Returns the first message under way with each peer of each group; none for a peer with which a batch has several at
/// once.
fn firsts(state: &RankState) -> Vec<(Way<'_>, u64)> {
    let mut pairs: BTreeMap<(&str, u32), Vec<(Way<'_>, u64)>> = BTreeMap::new();
    for (way, number) in ways(state) {
        let all = pairs.entry((way.group, way.peer)).or_default();
        all.push((way, number));
    }
    let mut firsts = Vec::new();
    for all in pairs.values() {
        let first = all.iter().map(|(_, number)| *number).min();
        let at_once: Vec<_> = all
            .iter()
            .filter(|(_, number)| Some(*number) == first)
            .collect();
        if let [one] = at_once[..] {
            firsts.push(*one);
        }
    }
    firsts
}

/// Iterates over the ops that every member of a group must have under the same number: no batches, and no messages,
/// which Gloo's records call `send`, `recv` and `recvAnySource` without naming the peer.
fn collectives(state: &RankState) -> impl Iterator<Item = &RecordedOp> {
    let is_other = |op: &RecordedOp| {
        ["send", "recv", "coalesced"]
            .iter()
            .any(|other| op.op.starts_with(other))
    };
    state.recorded.iter().filter(move |op| !is_other(op))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Process, TraceEvent, diagnose};
    use std::time::Duration;

    /// Builds a rank in a call of which only the records tell; each op is its name, number and group.
    fn rank(number: u32, ops: &[(&str, u64, &str)]) -> RankState {
        RankState {
            process: Process::Running,
            doing: Some((
                event(EventKind::Own("python".into())),
                Duration::from_secs(5),
            )),
            recorded: ops.iter().map(|op| record(*op)).collect(),
            ..RankState::unknown(Rank(number))
        }
    }

    fn event(what: EventKind) -> TraceEvent {
        TraceEvent {
            what,
            at: String::new(),
        }
    }

    fn record((op, number, group): (&str, u64, &str)) -> RecordedOp {
        RecordedOp {
            op: op.into(),
            group: group.into(),
            number,
            inputs: Vec::new(),
            state: "scheduled".into(),
        }
    }

    fn verdict(ranks: Vec<RankState>) -> Option<(HangKind, Vec<u32>)> {
        let evidence = HangEvidence {
            ranks,
            ..HangEvidence::default()
        };
        let verdict = under_way(&evidence)?;
        assert_eq!(verdict.confidence, Confidence::Likely);
        Some((
            verdict.kind,
            verdict.culprits.iter().map(|rank| rank.0).collect(),
        ))
    }

    #[test]
    fn other_collectives_of_one_number_contradict_each_other() {
        let ranks = |ops: &[&str]| {
            let ranks = (0..).zip(ops);
            ranks
                .map(|(number, op)| rank(number, &[(op, 1, "0 default_pg")]))
                .collect()
        };
        let mismatch = |culprits: &[u32]| Some((HangKind::CollectiveMismatch, culprits.to_vec()));
        assert_eq!(
            verdict(ranks(&["all_reduce", "broadcast"])),
            mismatch(&[0, 1])
        );
        assert_eq!(
            verdict(ranks(&["all_reduce", "all_reduce", "broadcast"])),
            mismatch(&[2])
        );
        assert_eq!(verdict(ranks(&["all_reduce", "all_reduce"])), None);
        assert_eq!(verdict(ranks(&["send", "recv"])), None);
    }

    #[test]
    fn ranks_that_both_send_first_are_told_from_ranks_that_answer_each_other() {
        let world = "0 default_pg";
        let sends = rank(0, &[("send 0->1", 4394, world), ("recv 0<-1", 4401, world)]);
        let also = rank(1, &[("send 1->0", 4394, world), ("recv 1<-0", 4401, world)]);
        let answers = rank(1, &[("recv 1<-0", 4394, world), ("send 1->0", 4401, world)]);
        let elsewhere = rank(
            1,
            &[("send 1->0", 4394, "1 side"), ("recv 1<-0", 4401, "1 side")],
        );
        let circle = Some((HangKind::CyclicWait, vec![0, 1]));
        assert_eq!(verdict(vec![sends.clone(), also]), circle);
        assert_eq!(verdict(vec![sends.clone(), answers]), None);
        assert_eq!(verdict(vec![sends.clone(), elsewhere]), None);
        // What would answer is not under way: it may be over, or never come.
        let once = rank(1, &[("send 1->0", 4394, world)]);
        assert_eq!(verdict(vec![sends, once]), None);
        // A batch has both at once.
        let batch = [
            ("send 0->1", 3, world),
            ("recv 0<-1", 3, world),
            ("recv 0<-1", 4, world),
        ];
        let other = [
            ("send 1->0", 3, world),
            ("recv 1<-0", 3, world),
            ("recv 1<-0", 4, world),
        ];
        assert_eq!(verdict(vec![rank(0, &batch), rank(1, &other)]), None);
        // Both receive before they send.
        let receives = rank(0, &[("recv 0<-1", 1, world), ("send 0->1", 2, world)]);
        let also = rank(1, &[("recv 1<-0", 1, world), ("send 1->0", 2, world)]);
        assert_eq!(verdict(vec![receives, also]), circle);
    }

    #[test]
    fn two_groups_in_different_orders_are_a_circle() {
        let (one, two) = (("all_reduce", 18, "1 a"), ("all_reduce", 18, "2 b"));
        let circle = |culprits: &[u32]| Some((HangKind::CyclicWait, culprits.to_vec()));
        let (there, back) = (
            |number| rank(number, &[one, two]),
            |number| rank(number, &[two, one]),
        );
        assert_eq!(verdict(vec![there(0), back(1)]), circle(&[0, 1]));
        assert_eq!(verdict(vec![there(0), there(1), back(2)]), circle(&[2]));
        assert_eq!(verdict(vec![there(0), there(1)]), None);
    }

    #[test]
    fn a_rank_that_tears_down_what_is_under_way_is_stuck() {
        let leaving = RankState {
            doing: Some((
                event(EventKind::Destroy("gone".into())),
                Duration::from_secs(5),
            )),
            ..rank(0, &[("all_reduce", 2, "2 undefined")])
        };
        assert_eq!(
            verdict(vec![leaving, rank(1, &[])]),
            Some((HangKind::TeardownStuck, vec![0]))
        );
    }

    #[test]
    fn what_is_proved_otherwise_goes_before_and_the_records_are_quoted() {
        let gone = RankState {
            process: Process::Ended("signal 9 (SIGKILL)".into()),
            ..RankState::unknown(Rank(1))
        };
        let recorded = rank(0, &[("all_reduce", 3, "0 default_pg")]);
        let evidence = HangEvidence {
            ranks: vec![recorded, gone],
            ..HangEvidence::default()
        };
        let line =
            "flight recorder of rank 0: all_reduce number 3 of group 0 default_pg, is scheduled";
        assert_eq!(
            diagnose(&evidence).evidence.last().map(String::as_str),
            Some(line)
        );
    }
}
