//! Works out which rank waits for which. A rank in a collective waits for the members that have not entered it, and a rank that
//! only waits is not the culprit. A chain of waiting ranks ends at a rank that is gone, stopped or has raised an error; in a
//! cycle; or at a rank that is busy with its own work, which is no hang.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::advice;
use super::common_rank::{self, WaitsFor};
use super::cycle;
use super::errors::{ErrorCause, error_cause};
use super::evidence::{
    A_CALL, EventKind, HangEvidence, Message, Process, RankState, RankWait, TraceEvent, first_line,
    named,
};
use super::groups::groups;
use super::keys;
use super::messages::{answers, as_message, awaited, messages, sides};
use super::other_group::other_group;
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Returns the verdict on the ends of all chains of waiting ranks; `None` if no chain has an end that is known.
#[must_use]
pub fn end_of_chain(evidence: &HangEvidence) -> Option<Diagnosis> {
    let waits = Waits::of(evidence);
    let (mut ends, mut seen) = (Ends::default(), HashSet::new());
    for state in &evidence.ranks {
        if waits.awaited_ranks(state).is_some() {
            waits.follow(state, &mut Vec::new(), &mut seen, &mut ends);
        }
    }
    let leaves = |state: &&RankState| state.now() == Some(&EventKind::Leave);
    for state in evidence.ranks.iter().filter(leaves) {
        ends.note(state);
    }
    ends.leaving.extend(left_alone_in_teardown(evidence));
    let in_circle = evidence
        .ranks
        .iter()
        .filter(|state| ends.circle.contains(&state.rank));
    let waits_for = in_circle
        .filter_map(|state| Some((state.rank, waits.awaited_ranks(state)?)))
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

/// Finds a rank that receives a message which its peer never sends, or sends one which its peer never receives. The
/// peer's remaining calls must be known.
#[must_use]
pub fn unmatched(evidence: &HangEvidence) -> Option<Diagnosis> {
    for state in &evidence.ranks {
        // A backend without tags may have delivered another message in place of the one that is missing.
        let last_received = || {
            let message = messages(state).filter(|message| !message.sends).last()?;
            Some((message, sides(state, message).count()))
        };
        let Some((message, nth)) = awaited(state).or_else(last_received) else {
            continue;
        };
        let Some(peer) = message.peer.and_then(|peer| evidence.rank(peer)) else {
            continue;
        };
        let Some(coming) = peer.coming().filter(|_| peer.is_there()) else {
            continue;
        };
        let answers = |own: &&Message| answers(own, message, state.rank);
        let theirs = messages(peer).filter(answers).count();
        let still = coming
            .iter()
            .filter_map(|event| as_message(&event.what))
            .filter(answers)
            .count();
        if theirs + still >= nth {
            continue;
        }
        let (has, lacks) = match message.sends {
            true => ("sends to", "receives"),
            false => ("receives from", "sends"),
        };
        let summary = format!(
            "rank {} {has} rank {} (tag {}), which never {lacks} it",
            state.rank, peer.rank, message.tag
        );
        let facts = vec![
            format!(
                "it is message number {nth} between them that way on rank {}",
                state.rank
            ),
            format!(
                "rank {} has {} such calls, done or to come",
                peer.rank,
                theirs + still
            ),
        ];
        let culprits = vec![peer.rank];
        return Some(
            conclude(
                evidence,
                HangKind::MessageUnmatched,
                Confidence::Proved,
                culprits,
                summary,
            )
            .because(facts),
        );
    }
    None
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
    let mut ends = Ends::default();
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

/// Where chains of waiting ranks end.
#[derive(Default)]
struct Ends {
    dead: BTreeSet<Rank>,
    stopped: BTreeSet<Rank>,
    raised: BTreeSet<Rank>,
    circle: BTreeSet<Rank>,
    busy: BTreeSet<Rank>,
    inside: BTreeSet<Rank>,
    leaving: BTreeSet<Rank>,
}

impl Ends {
    /// Returns the verdict on the gravest kind of end: a rank that is gone does not come back, one that is busy may. `waits` says for
    /// which ranks those of the circle wait.
    fn verdict(self, evidence: &HangEvidence, waits: &WaitsFor) -> Option<Diagnosis> {
        if self.dead.is_empty() && self.stopped.is_empty() && self.raised.is_empty() {
            let circle: Vec<Rank> = self.circle.iter().copied().collect();
            let cause = cycle::cause(evidence, &circle)
                .or_else(|| common_rank::left_out(evidence, waits))
                .or_else(|| other_group(evidence, &circle));
            if cause.is_some() {
                return cause;
            }
        }
        let (kind, confidence, ranks, what) = self.gravest(evidence)?;
        let ranks: Vec<Rank> = ranks.iter().copied().collect();
        let summary = format!("{} {what}", named(&ranks));
        let (kind, blamed, summary) = match kind {
            HangKind::CyclicWait => blamed_for_circle(evidence, waits, &ranks, summary),
            _ => (kind, ranks.clone(), summary),
        };
        if kind == HangKind::CyclicWait
            && blamed.is_empty()
            && let Some(verdict) = cycle::broken_row(evidence, &ranks)
        {
            return Some(verdict);
        }
        let mut facts: Vec<String> = ranks
            .iter()
            .filter_map(|rank| evidence.rank(*rank))
            .map(|state| format!("rank {} {}", state.rank, state.place()))
            .collect();
        if kind == HangKind::Slow {
            facts.extend(counts(evidence));
        }
        let mut verdict = conclude(evidence, kind, confidence, blamed, summary).because(facts);
        match kind {
            HangKind::CyclicWait if cycle::is_of_messages(evidence, &ranks) => {
                verdict.advice = advice::cycle_of_messages();
            }
            HangKind::CollectiveMismatch => verdict.advice = advice::other_collective(),
            _ => {}
        }
        Some(verdict)
    }

    /// Returns the gravest kind of end that some ranks have come to: those ranks, and what is said of them.
    fn gravest(
        &self,
        evidence: &HangEvidence,
    ) -> Option<(HangKind, Confidence, &BTreeSet<Rank>, String)> {
        let text = |rank: &Rank| {
            evidence
                .rank(*rank)
                .map_or_else(String::new, |state| match &state.process {
                    Process::Ended(how) => format!(": {how}"),
                    _ => state
                        .errors
                        .last()
                        .map_or_else(String::new, |error| format!(": {}", first_line(error))),
                })
        };
        let first = |ranks: &BTreeSet<Rank>| ranks.iter().next().map(text).unwrap_or_default();
        let is = |ranks: &BTreeSet<Rank>| if ranks.len() == 1 { "is" } else { "are" };
        let has = |ranks: &BTreeSet<Rank>| if ranks.len() == 1 { "has" } else { "have" };
        let its = |ranks: &BTreeSet<Rank>| if ranks.len() == 1 { "its" } else { "their" };
        Some(if !self.dead.is_empty() {
            let what = format!("{} gone{}", is(&self.dead), first(&self.dead));
            (HangKind::PeerDead, Confidence::Proved, &self.dead, what)
        } else if !self.stopped.is_empty() {
            let what = format!("{} stopped (state T)", is(&self.stopped));
            (
                HangKind::PeerStopped,
                Confidence::Proved,
                &self.stopped,
                what,
            )
        } else if !self.raised.is_empty() {
            let what = format!("raised an error{}", first(&self.raised));
            (HangKind::PeerRaised, Confidence::Proved, &self.raised, what)
        } else if !self.circle.is_empty() {
            let what = "wait for each other in a circle".to_owned();
            let confidence = match self.circle.iter().all(|rank| is_sure(evidence, *rank)) {
                true => Confidence::Proved,
                false => Confidence::Likely,
            };
            (HangKind::CyclicWait, confidence, &self.circle, what)
        } else if !self.busy.is_empty() {
            let is_coming = |rank: &Rank| {
                evidence
                    .rank(*rank)
                    .is_some_and(|state| state.coming().is_some())
            };
            let what = match self.busy.iter().all(is_coming) {
                true => "on the way",
                false => "the others wait",
            };
            let what = format!(
                "{} in code of {} own, and {what}",
                is(&self.busy),
                its(&self.busy)
            );
            (HangKind::Slow, Confidence::None, &self.busy, what)
        } else if !self.leaving.is_empty() {
            let is_out = |rank: &Rank| {
                evidence
                    .rank(*rank)
                    .is_some_and(|state| state.now() == Some(&EventKind::Leave))
            };
            let what = match (self.leaving.iter().all(is_out), self.leaving.len()) {
                (true, 1) => "was told to end, and its process goes on".to_owned(),
                (true, _) => "were told to end, and their processes go on".to_owned(),
                (false, _) => format!("{} not come out of tearing down", has(&self.leaving)),
            };
            (
                HangKind::TeardownStuck,
                Confidence::Likely,
                &self.leaving,
                what,
            )
        } else if !self.inside.is_empty() {
            let what = format!(
                "{} not come out of a collective that every member has entered and others have left",
                has(&self.inside)
            );
            (
                HangKind::StuckInCall,
                Confidence::Likely,
                &self.inside,
                what,
            )
        } else {
            return None;
        })
    }
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
        }
    } else if let Some(gone_on) = cycle::gone_on(evidence, &blamed) {
        (kind, summary) = (HangKind::MessageUnmatched, gone_on);
    } else if let Some(elsewhere) = cycle::elsewhere(evidence, ranks, &blamed) {
        (kind, summary) = (HangKind::CollectiveMismatch, elsewhere);
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

/// Computes which rank waits for which.
struct Waits<'a> {
    evidence: &'a HangEvidence,
    by_rank: HashMap<Rank, &'a RankState>,
    /// The number of collectives that each rank has entered, by group.
    entered: HashMap<(Rank, &'a str), usize>,
    /// The members that a collective waits for, by group and number from 0: those that have not entered it, or have
    /// left it with an error of their own; if there are none, those that are gone or stopped.
    missing: RefCell<HashMap<(&'a str, usize), Vec<Rank>>>,
    /// Whether some member has left a collective, by group and number from 1.
    left: RefCell<HashMap<(&'a str, usize), bool>>,
}

impl<'a> Waits<'a> {
    fn of(evidence: &'a HangEvidence) -> Self {
        let mut entered = HashMap::new();
        for state in &evidence.ranks {
            for event in state.entered() {
                if let EventKind::Collective(one) = &event.what {
                    *entered.entry((state.rank, one.group.as_str())).or_default() += 1;
                }
            }
        }
        Self {
            evidence,
            by_rank: evidence
                .ranks
                .iter()
                .map(|state| (state.rank, state))
                .collect(),
            entered,
            missing: RefCell::default(),
            left: RefCell::default(),
        }
    }

    fn entered(&self, rank: Rank, group: &'a str) -> usize {
        self.entered.get(&(rank, group)).copied().unwrap_or(0)
    }

    /// Returns true if a rank waits for one of these.
    fn awaits(&self, state: &'a RankState, ranks: &[Rank]) -> bool {
        let awaited = self.awaited_ranks(state).unwrap_or_default();
        awaited.iter().any(|rank| ranks.contains(rank))
    }

    /// Returns the ranks that this one waits for, empty if all have come; `None` if it is not waiting for ranks.
    fn awaited_ranks(&self, state: &'a RankState) -> Option<Vec<Rank>> {
        if !state.is_there() || has_cause(state) {
            return None;
        }
        match state.current_or_failed()? {
            EventKind::Collective(one) => {
                let number = self.entered(state.rank, &one.group) - 1;
                Some(self.missing(&one.members, &one.group, number))
            }
            EventKind::Await(group, number) => {
                let members = state.entered().find_map(|event| match &event.what {
                    EventKind::Collective(one) if one.group == *group => Some(&one.members),
                    _ => None,
                })?;
                Some(self.missing(members, group, *number))
            }
            EventKind::Message(message) => {
                self.for_message(state, message, sides(state, message).count())
            }
            EventKind::AwaitMessage(message, nth) => self.for_message(state, message, *nth),
            EventKind::NewGroup(_) => {
                let nth = groups(state);
                let late = self.evidence.ranks.iter();
                let late = late.filter(|other| groups(other) < nth);
                Some(late.map(|other| other.rank).collect())
            }
            EventKind::AwaitKeys(keys) => Some(self.for_keys(state, keys)),
            // Those that are in the same, such as a common shutdown, have come.
            EventKind::AwaitRanks(wait) => {
                let is_elsewhere = |rank: &&Rank| {
                    let other = self.by_rank.get(*rank);
                    other.is_some_and(|other| !wait_is_common(wait, other))
                };
                Some(wait.ranks.iter().filter(is_elsewhere).copied().collect())
            }
            EventKind::Destroy(_) => {
                Some(self.gone_before_teardown()).filter(|gone| !gone.is_empty())
            }
            EventKind::Init(_) | EventKind::Seen(_) | EventKind::Leave | EventKind::Own(_) => None,
        }
    }

    /// Returns the ranks that have to set these keys. Where that is not known, any rank that does not wait for them as well may be the
    /// one to do it; one that is gone will not, and may have done its part.
    fn for_keys(&self, state: &RankState, keys: &[String]) -> Vec<Rank> {
        let mut ranks = keys::setters(self.evidence, keys);
        ranks.retain(|rank| *rank != state.rank);
        if !ranks.is_empty() {
            return ranks;
        }
        let others = self.evidence.ranks.iter();
        let others = others.filter(|other| other.now() != state.now());
        let (there, gone): (Vec<&RankState>, Vec<&RankState>) =
            others.partition(|other| other.is_there());
        let ranks = if there.is_empty() { gone } else { there };
        ranks.iter().map(|other| other.rank).collect()
    }

    /// Returns the ranks that ended or were stopped before they tore down. Some backends wait for every peer in
    /// teardown.
    fn gone_before_teardown(&self) -> Vec<Rank> {
        let tore_down = |state: &RankState| {
            let mut events = state.entered();
            events.any(|event| matches!(event.what, EventKind::Destroy(_)))
        };
        let gone = |state: &&RankState| !state.is_there() && !tore_down(state);
        let ranks = self.evidence.ranks.iter().filter(gone);
        ranks.map(|state| state.rank).collect()
    }

    /// Returns the peer if it has not issued the other side of the nth such message, otherwise no rank; `None` if the
    /// peer is not known.
    fn for_message(&self, state: &RankState, message: &Message, nth: usize) -> Option<Vec<Rank>> {
        let peer = message.peer?;
        let other = self.by_rank.get(&peer)?;
        let theirs = messages(other)
            .filter(|own| answers(own, message, state.rank))
            .count();
        Some(if theirs >= nth {
            Vec::new()
        } else {
            vec![peer]
        })
    }

    fn missing(&self, members: &[Rank], group: &'a str, number: usize) -> Vec<Rank> {
        let find = || {
            let is_late = |rank: &Rank| {
                let entered = self.entered(*rank, group);
                self.by_rank.get(rank).is_some_and(|state| {
                    entered <= number || entered == number + 1 && failed_in(state, group)
                })
            };
            let late: Vec<Rank> = members.iter().copied().filter(is_late).collect();
            // What a rank has only issued is not carried out once it is gone.
            let is_gone = |rank: &Rank| {
                let state = self.by_rank.get(rank);
                state.is_some_and(|state| !state.is_there() && !is_through(state))
            };
            match late.is_empty() {
                true => members.iter().copied().filter(is_gone).collect(),
                false => late,
            }
        };
        let mut known = self.missing.borrow_mut();
        known.entry((group, number)).or_insert_with(find).clone()
    }

    /// Follows a chain of waiting ranks and records its ends. Each rank is visited once: what was found from it stays
    /// recorded.
    fn follow(
        &self,
        state: &'a RankState,
        way: &mut Vec<Rank>,
        seen: &mut HashSet<Rank>,
        ends: &mut Ends,
    ) {
        if let Some(start) = way.iter().position(|rank| *rank == state.rank) {
            ends.circle.extend(&way[start..]);
            return;
        }
        if !seen.insert(state.rank) {
            return;
        }
        let Some(missing) = self.awaited_ranks(state) else {
            ends.note(state);
            return;
        };
        if missing.is_empty() {
            // All members have entered: a rank that is still inside while others have left is stuck in the call.
            if self.others_have_left(state) {
                ends.inside.insert(state.rank);
            }
            return;
        }
        way.push(state.rank);
        for rank in missing {
            if let Some(other) = self.by_rank.get(&rank) {
                self.follow(other, way, seen, ends);
            }
        }
        way.pop();
    }

    fn others_have_left(&self, state: &'a RankState) -> bool {
        let Some(EventKind::Collective(one)) = state.now() else {
            return false;
        };
        let number = self.entered(state.rank, &one.group);
        let find = || {
            self.evidence.ranks.iter().any(|other| {
                let entered = self.entered(other.rank, &one.group);
                // One that waits for an earlier collective has only issued what comes after it.
                let left = match other.now() {
                    Some(EventKind::Collective(theirs)) if theirs.group == one.group => entered - 1,
                    Some(EventKind::Await(group, nth)) if *group == one.group => entered.min(*nth),
                    _ => entered,
                };
                left >= number && one.members.contains(&other.rank)
            })
        };
        let mut known = self.left.borrow_mut();
        *known
            .entry((one.group.as_str(), number))
            .or_insert_with(find)
    }
}

impl Ends {
    fn note(&mut self, state: &RankState) {
        match (&state.process, state.now()) {
            (Process::Ended(_), _) => self.dead.insert(state.rank),
            (Process::Stopped, _) => self.stopped.insert(state.rank),
            (Process::Running | Process::Unknown, None) if has_cause(state) => {
                self.raised.insert(state.rank)
            }
            (
                Process::Running | Process::Unknown,
                Some(EventKind::Destroy(_) | EventKind::Leave),
            ) => self.leaving.insert(state.rank),
            // With ops under way on its device it may wait for the device, whatever its host does.
            (Process::Running | Process::Unknown, Some(EventKind::Own(_)))
                if state.recorded.is_empty() =>
            {
                self.busy.insert(state.rank)
            }
            (Process::Running | Process::Unknown, _) => false,
        };
    }
}

/// Returns true if a rank has done all that it had to do.
fn is_through(state: &RankState) -> bool {
    state.doing.is_none() && state.coming().is_some_and(<[_]>::is_empty) && !has_cause(state)
}

/// Returns true unless what a rank waits for may come from another thread than the main one of the ranks that it waits for.
fn is_sure(evidence: &HangEvidence, rank: Rank) -> bool {
    let now = evidence.rank(rank).and_then(RankState::now);
    !matches!(now, Some(EventKind::AwaitRanks(wait)) if !wait.is_proved)
}

/// Returns true if another rank waits in the same thing.
fn wait_is_common(wait: &RankWait, other: &RankState) -> bool {
    matches!(other.now(), Some(EventKind::AwaitRanks(theirs)) if theirs.text == wait.text)
}

/// Returns true if it raised an error that is not an effect of other ranks.
fn has_cause(state: &RankState) -> bool {
    state
        .errors
        .iter()
        .any(|error| error_cause(error) != ErrorCause::Effect)
}

/// Returns true if its last event is a collective of this group, in which it raised an error of its own.
fn failed_in(state: &RankState, group: &str) -> bool {
    let is_there = |event: &TraceEvent| matches!(&event.what, EventKind::Collective(one) if one.group == group);
    let is_through = state.doing.is_some() || state.coming().is_some();
    !is_through && state.done.last().is_some_and(is_there) && has_cause(state)
}
