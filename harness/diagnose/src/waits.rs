//! Works out which rank waits for which. A rank in a collective waits for the members that have not entered it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::errors::{ErrorCause, error_cause};
use super::evidence::{EventKind, HangEvidence, Message, RankState, RankWait, TraceEvent};
use super::groups::groups;
use super::keys;
use super::messages::{answers, messages, sides};
use allranks_model::names::Rank;

/// Computes which rank waits for which.
pub(crate) struct Waits<'a> {
    evidence: &'a HangEvidence,
    pub(crate) by_rank: HashMap<Rank, &'a RankState>,
    /// The number of collectives that each rank has entered, by group.
    entered: HashMap<(Rank, &'a str), usize>,
    /// The members that a collective waits for, by group and number from 0: those that have not entered it, or have
    /// left it with an error of their own; if there are none, those that are gone or stopped, or else those that have only issued it.
    missing: RefCell<HashMap<(&'a str, usize), Vec<Rank>>>,
    /// Whether some member has left a collective, by group and number from 1.
    left: RefCell<HashMap<(&'a str, usize), bool>>,
}

impl<'a> Waits<'a> {
    /// Computes it from what is known of all ranks.
    pub(crate) fn of(evidence: &'a HangEvidence) -> Self {
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
    pub(crate) fn awaits(&self, state: &'a RankState, ranks: &[Rank]) -> bool {
        let awaited = self.awaited_ranks(state).unwrap_or_default();
        awaited.iter().any(|rank| ranks.contains(rank))
    }

    /// Returns the ranks that this one waits for, empty if all have come; `None` if it is not waiting for ranks.
    pub(crate) fn awaited_ranks(&self, state: &'a RankState) -> Option<Vec<Rank>> {
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
                Some(self.missing_in_teardown(state)).filter(|ranks| !ranks.is_empty())
            }
            EventKind::Init(_)
            | EventKind::Seen(_)
            | EventKind::Leave
            | EventKind::Own(_)
            | EventKind::Deadlock(_) => None,
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

    /// Returns the ranks that a rank in teardown waits for: those that are gone before theirs or, if there are none, those that have not
    /// come to a collective that this rank has issued, such as one that is under way on its device.
    fn missing_in_teardown(&self, state: &'a RankState) -> Vec<Rank> {
        let gone = self.gone_before_teardown();
        if !gone.is_empty() {
            return gone;
        }
        let collectives = state.entered().filter_map(|event| match &event.what {
            EventKind::Collective(one) => Some((one.group.as_str(), &one.members)),
            _ => None,
        });
        let groups: BTreeMap<&str, _> = collectives.collect();
        let mut late: BTreeSet<Rank> = BTreeSet::new();
        for (group, members) in groups {
            let issued = self.entered(state.rank, group);
            let is_late = |rank: &&Rank| {
                let is_there = (self.by_rank.get(*rank)).is_some_and(|other| other.is_there());
                is_there && self.entered(**rank, group) < issued
            };
            late.extend(members.iter().filter(is_late));
        }
        late.into_iter().collect()
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
            if !late.is_empty() {
                return late;
            }
            let gone: Vec<Rank> = members.iter().copied().filter(is_gone).collect();
            if !gone.is_empty() {
                return gone;
            }
            let is_held = |rank: &Rank| {
                let state = self.by_rank.get(rank);
                state.is_some_and(|state| has_only_issued(state, group, number))
            };
            members.iter().copied().filter(is_held).collect()
        };
        let mut known = self.missing.borrow_mut();
        known.entry((group, number)).or_insert_with(find).clone()
    }

    /// Returns true if a rank is in a collective that another member has left.
    pub(crate) fn others_have_left(&self, state: &'a RankState) -> bool {
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
                let is_held = has_only_issued(other, &one.group, number - 1);
                left >= number && !is_held && one.members.contains(&other.rank)
            })
        };
        let mut known = self.left.borrow_mut();
        *known
            .entry((one.group.as_str(), number))
            .or_insert_with(find)
    }
}

/// Returns true if a rank has issued a group's collective of this number, from 0, after one of another group that it waits for.
fn has_only_issued(state: &RankState, group: &str, number: usize) -> bool {
    let Some(EventKind::Await(awaited, nth)) = state.now() else {
        return false;
    };
    let place = |group: &str, number: usize| {
        let mut places = state.done.iter().enumerate().filter(
            |(_, event)| matches!(&event.what, EventKind::Collective(one) if one.group == group),
        );
        places.nth(number).map(|(place, _)| place)
    };
    let order = place(awaited, *nth).zip(place(group, number));
    awaited != group && order.is_some_and(|(awaited, issued)| awaited < issued)
}

/// Returns true if a rank has done all that it had to do.
pub(crate) fn is_through(state: &RankState) -> bool {
    state.doing.is_none() && state.coming().is_some_and(<[_]>::is_empty) && !has_cause(state)
}

/// Returns true if another rank waits in the same thing.
fn wait_is_common(wait: &RankWait, other: &RankState) -> bool {
    matches!(other.now(), Some(EventKind::AwaitRanks(theirs)) if theirs.text == wait.text)
}

/// Returns true if it raised an error that is not an effect of other ranks.
pub(crate) fn has_cause(state: &RankState) -> bool {
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
