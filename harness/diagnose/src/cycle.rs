//! Finds the cause of a cycle of waiting ranks. Besides different orders of the same calls, a cycle comes from a message whose
//! other side has another peer, tag or group, or from a collective, a group or a store's key that one rank left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::call_sequence::majority;
use super::evidence::{Collective, EventKind, HangEvidence, Message, RankState, named, verb};
use super::groups::{groups, leaves_out};
use super::habit;
use super::keys;
use super::messages::{answers, as_message, awaited, messages, sides};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Returns the cause of a cycle other than the order of calls; `None` if nothing shows one.
#[must_use]
pub fn cause(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let states = || cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let unmatched = || states().find_map(|state| unmatched(evidence, state));
    let waits = key_not_set(evidence, cycle).or_else(|| group_left_out(evidence, cycle));
    waits.or_else(unmatched).or_else(|| {
        let mut skips = states().filter_map(|state| left_out(evidence, cycle, state));
        let one = skips.next()?;
        match skips.next() {
            None => Some(one),
            Some(_) => None,
        }
    })
}

/// Finds ranks of the cycle that wait for keys of a store while the rest wait for them in something else. Only the rest could have set
/// the keys. The ranks whose turn it was are blamed if the names of keys show it, unless they are more than those that wait, which may be
/// the ones in the wrong: those are blamed if they are a minority in a barrier made of keys, and the rest are all in the same collective,
/// which they have left out. If the names show nothing, a single rank is blamed for a single key; else none is.
fn key_not_set(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let states = || cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let (what, keys) = states().find_map(|state| match state.now() {
        Some(what @ EventKind::AwaitKeys(keys)) => Some((what, keys)),
        _ => None,
    })?;
    let (waiting, others): (Vec<&RankState>, Vec<&RankState>) =
        states().partition(|state| state.now() == Some(what));
    let ranks = |states: &[&RankState]| states.iter().map(|one| one.rank).collect::<Vec<_>>();
    let missed = missed_by_few(&waiting, &others);
    let (waiting, others) = (ranks(&waiting), ranks(&others));
    let facts = (states().map(|one| format!("rank {}: {}", one.rank, one.place()))).collect();
    let waits = format!(
        "{} {} in {what}",
        named(&waiting),
        verb(&waiting, "is", "are")
    );
    if let Some(missed) = missed
        && keys::is_barrier(evidence, keys, &waiting, others.len())
    {
        let summary = format!(
            "{waits}, while {} {} in {missed}, in which only {} {} missing",
            named(&others),
            verb(&others, "is", "are"),
            named(&waiting),
            verb(&waiting, "is", "are"),
        );
        let verdict = conclude(
            evidence,
            HangKind::CollectiveSkipped,
            Confidence::Likely,
            waiting,
            summary,
        );
        return Some(verdict.because(facts));
    }
    let deleter = keys::deleter(evidence, keys).filter(|rank| others.contains(rank));
    let (culprits, summary, advice) = match deleter {
        Some(deleter) => (
            vec![deleter],
            format!("{waits}, which rank {deleter} has deleted"),
            vec!["delete a key only once all ranks that read it have done so"],
        ),
        None => (
            turn_to_set(evidence, keys, &waiting, &others),
            format!(
                "{waits}, which {} {} not set, and {} for them elsewhere",
                named(&others),
                verb(&others, "has", "have"),
                verb(&others, "waits", "wait"),
            ),
            vec![
                "compare the names of the keys that are set and waited for, and the stores (host, port, prefix) they are in",
                "set the key before anything in which that rank waits for the others",
            ],
        ),
    };
    let verdict = conclude(
        evidence,
        HangKind::Behind,
        Confidence::Likely,
        culprits,
        summary,
    );
    let advice = advice.into_iter().map(str::to_owned).collect();
    Some(Diagnosis { advice, ..verdict }.because(facts))
}

/// Returns the collective in which all other members but these few wait; `None` if they are in another one each, or no more than these.
fn missed_by_few<'a>(few: &[&RankState], others: &[&'a RankState]) -> Option<&'a Collective> {
    let collective = |state: &&'a RankState| match state.now() {
        Some(EventKind::Collective(one)) => Some((one, issued(state, &one.group))),
        _ => None,
    };
    let (one, number) = collective(others.first()?)?;
    let is_same = |state| collective(state) == Some((one, number));
    let is_missing = |state: &&RankState| {
        one.members.contains(&state.rank) && issued(state, &one.group) + 1 == number
    };
    let all = few.len() + others.len() == one.members.len();
    (all && few.len() < others.len() && others.iter().all(is_same) && few.iter().all(is_missing))
        .then_some(one)
}

/// Returns those of `others` that have still to set keys that ranks of a cycle wait for; empty if nothing shows which they are.
fn turn_to_set(
    evidence: &HangEvidence,
    keys: &[String],
    waiting: &[Rank],
    others: &[Rank],
) -> Vec<Rank> {
    let mut culprits = keys::setters(evidence, keys);
    culprits.retain(|rank| others.contains(rank));
    if culprits.len() > waiting.len() {
        culprits.clear();
    }
    // Ranks that wait for several keys, one of each rank, are in another barrier than the rest: either side may be ahead.
    if culprits.is_empty() && keys.len() == 1 && others.len() == 1 {
        culprits.extend(others);
    }
    culprits
}

/// Finds a minority of the cycle that waits in something other than `new_group`, has made fewer groups than the others,
/// which are all in `new_group`, and whose remaining calls are not known.
fn group_left_out(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let states = cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let (making, others): (Vec<&RankState>, Vec<&RankState>) =
        states.partition(|state| matches!(state.now(), Some(EventKind::NewGroup(_))));
    let fewest = making.iter().map(|state| groups(state)).min()?;
    let has_fewer = |state: &&RankState| state.coming().is_none() && groups(state) < fewest;
    if others.is_empty() || others.len() >= making.len() || !others.iter().all(has_fewer) {
        return None;
    }
    let culprits: Vec<Rank> = others.iter().map(|state| state.rank).collect();
    let first = others.iter().map(|state| groups(state)).min()?;
    let left = making
        .first()?
        .entered()
        .filter_map(|event| match &event.what {
            what @ EventKind::NewGroup(_) => Some(what),
            _ => None,
        });
    let left = left.skip(first).map(ToString::to_string).next()?;
    let summary = leaves_out(&culprits, first + 1, &left);
    let facts = (others.iter().chain(&making))
        .map(|one| format!("rank {}: {}", one.rank, one.place()))
        .collect();
    let verdict = conclude(
        evidence,
        HangKind::GroupSkipped,
        Confidence::Likely,
        culprits,
        summary,
    );
    Some(verdict.because(facts))
}

/// Finds a message that a waiting rank has no other side for: issued to it with another tag or group, or by another
/// rank than the one that it expects.
fn unmatched(evidence: &HangEvidence, state: &RankState) -> Option<Diagnosis> {
    let (expected, nth) = awaited(state)?;
    let peer = expected.peer?;
    // A peer that waits for a message of its own is held up: its side may come next.
    let is_held_up = evidence
        .rank(peer)
        .and_then(RankState::now)
        .is_some_and(|what| matches!(what, EventKind::Message(_) | EventKind::AwaitMessage(..)));
    let others = evidence
        .ranks
        .iter()
        .filter(|other| other.rank != state.rank)
        .filter(|other| other.rank == peer || !is_held_up);
    let (other, message) = others
        // The peer itself before ranks that were not asked for.
        .clone()
        .filter(|other| other.rank == peer)
        .chain(others.filter(|other| other.rank != peer))
        .find_map(|other| Some((other, leftover(other, state, expected)?)))?;
    let own = sides(state, expected).nth(nth.checked_sub(1)?);
    let changes = [
        own.and_then(|own| other_peer(evidence, state, own)),
        other_peer(evidence, other, message),
    ];
    // A message that the other rank does not wait for either is taken later, as is one to a rank that gets its messages in turn
    // with others.
    let is_usual = changes.iter().all(Option::is_none) && takes(state, message, other.rank);
    if other.rank != peer && is_usual && (nth > 1 || awaited(other).is_none()) {
        return None;
    }
    let (has, gets) = match expected.sends {
        true => ("sends to", "receives"),
        false => ("receives from", "sends"),
    };
    let summary = format!(
        "{} {has} rank {peer} with tag {}, and rank {} {gets} with tag {}{}{}",
        named(&[state.rank]),
        expected.tag,
        other.rank,
        message.tag,
        match message.group == expected.group {
            true => String::new(),
            false => format!(" in group {}, not {}", message.group, expected.group),
        },
        match other.rank == peer {
            true => "",
            false => ", which nothing matches",
        }
    );
    let mut culprits: Vec<Rank> = match &changes {
        [Some(_), None] => vec![state.rank],
        [None, Some(_)] => vec![other.rank],
        _ => vec![state.rank, other.rank],
    };
    culprits.sort_unstable();
    let places = [state, other].map(|one| format!("rank {}: {}", one.rank, one.place()));
    let facts = places
        .into_iter()
        .chain(changes.into_iter().flatten())
        .collect();
    let verdict = conclude(
        evidence,
        HangKind::MessageUnmatched,
        Confidence::Likely,
        culprits,
        summary,
    );
    Some(verdict.because(facts))
}

/// Says that a message of a rank has another peer, tag or group than all that it has issued from the same place before; `None` if it is
/// not so.
fn other_peer(evidence: &HangEvidence, state: &RankState, message: &Message) -> Option<String> {
    let mut issued = state.entered();
    let event = issued
        .find(|event| as_message(&event.what).is_some_and(|own| std::ptr::eq(own, message)))?;
    let habit = habit::broken(evidence, state, event, as_message)?;
    let before = EventKind::Message(habit.common.clone());
    Some(format!(
        "rank {}: {event}, where all {} calls before were {before}",
        state.rank, habit.calls
    ))
}

/// Returns true if a rank has issued the other side of such a message of `other` before: it will do so for this one, too, once it goes
/// on, and does not wait for it instead of another.
fn takes(state: &RankState, message: &Message, other: Rank) -> bool {
    messages(state).any(|own| answers(own, message, other))
}

/// Returns a message that `other` has issued to or from `state`, that no message of `state` matches, and that may be
/// what `state` waits for.
fn leftover<'a>(
    other: &'a RankState,
    state: &RankState,
    expected: &Message,
) -> Option<&'a Message> {
    let issued = || {
        let to_it = |one: &&Message| one.sends != expected.sends && one.peer == Some(state.rank);
        messages(other).filter(to_it)
    };
    issued().find(|message| {
        let is_same = |one: &&Message| one.tag == message.tag && one.group == message.group;
        let matched = messages(state).filter(|one| answers(one, message, other.rank));
        issued().filter(is_same).count() > matched.count()
    })
}

/// Finds a collective that a rank of the cycle has left out while others of the cycle wait for it in that collective's
/// group. The evidence is a habit: the rank issued the collectives of this group and of another one in turn until,
/// once, it issued one less of this group. Without such a habit the missing collective may still come, and the result
/// is `None`.
fn left_out(evidence: &HangEvidence, cycle: &[Rank], state: &RankState) -> Option<Diagnosis> {
    if state.coming().is_some() {
        return None;
    }
    let here = state.now()?;
    let others = cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let mut missed = others.filter_map(|other| match other.now()? {
        EventKind::Collective(one) => {
            let is_missed = one.members.contains(&state.rank)
                && issued(state, &one.group) < issued(other, &one.group);
            is_missed.then_some(one)
        }
        _ => None,
    });
    let missed = missed.next()?;
    let groups: BTreeSet<&str> = groups_in_order(state).collect();
    let (other, place) = groups
        .into_iter()
        .filter(|group| *group != missed.group)
        .find_map(|group| Some((group, first_missing(state, &missed.group, group)?)))?;
    let before = |group: &str| evidence.forgotten.get(group).copied().unwrap_or(0);
    let number = before(&missed.group) + place.missed + 1;
    let summary = format!(
        "rank {} leaves out collective number {number} of group {}, {missed}",
        state.rank, missed.group
    );
    let facts = vec![
        format!(
            "up to number {} of group {other}, rank {} issued both groups' collectives in turn; then it issued number {} of group {other} without one of group {} before it",
            before(other) + place.other - 1,
            state.rank,
            before(other) + place.other,
            missed.group
        ),
        format!("rank {} is now in {here}", state.rank),
    ];
    let verdict = conclude(
        evidence,
        HangKind::CollectiveSkipped,
        Confidence::Likely,
        vec![state.rank],
        summary,
    );
    Some(verdict.because(facts))
}

/// Counts the collectives of a group that a rank has issued.
fn issued(state: &RankState, group: &str) -> usize {
    groups_in_order(state).filter(|own| *own == group).count()
}

/// Iterates over the groups of a rank's collectives, one entry for each collective, in the order of the calls.
fn groups_in_order(state: &RankState) -> impl Iterator<Item = &str> {
    state.entered().filter_map(|event| match &event.what {
        EventKind::Collective(one) => Some(one.group.as_str()),
        _ => None,
    })
}

/// Where a rank's habit ends: how many collectives it had issued in each of two groups.
struct HabitEnd {
    missed: usize,
    other: usize,
}

/// Finds where a rank left out a collective of group `missed`. Each time the rank issues a collective of `other`, the
/// number of its collectives of `missed` minus those of `other` is taken. It must be the same up to some point and one
/// less ever after; `None` if it changes in another way, or if `missed` was not used before that point.
fn first_missing(state: &RankState, missed: &str, other: &str) -> Option<HabitEnd> {
    let (mut counts, mut leads) = (
        HabitEnd {
            missed: 0,
            other: 0,
        },
        Vec::new(),
    );
    for group in groups_in_order(state) {
        if group == missed {
            counts.missed += 1;
        } else if group == other {
            counts.other += 1;
            leads.push((counts.missed as i64 - counts.other as i64, counts.missed));
        }
    }
    let (habit, _) = *leads.first()?;
    let kept = leads.iter().take_while(|(lead, _)| *lead == habit).count();
    let rest = &leads[kept..];
    let is_one_less = !rest.is_empty() && rest.iter().all(|(lead, _)| *lead == habit - 1);
    // In a group that had not been used there is no habit.
    let (_, issued) = *leads.get(kept.checked_sub(1)?)?;
    (is_one_less && issued > 0).then_some(HabitEnd {
        missed: issued,
        other: kept + 1,
    })
}

/// Returns the ranks of a cycle whose order of collectives is not that of the majority or, if there is none, of the
/// majority of the ranks with the same collectives; the whole cycle if there is no such rank. Only the groups in which
/// ranks of the cycle wait are compared, and only ranks that are members of all of them: the order of a rank outside of
/// one of them is no evidence.
#[must_use]
pub fn against_the_order(evidence: &HangEvidence, circle: &[Rank]) -> Vec<Rank> {
    let groups = groups_waited_for(evidence, circle);
    let order = |state: &RankState| -> Order {
        let events = state.entered().chain(state.coming().unwrap_or_default());
        let calls = events.filter_map(|event| match &event.what {
            EventKind::Collective(one) if groups.is_empty() || groups.contains_key(&one.group) => {
                Some(format!("{}/{}", one.group, one.name))
            }
            _ => None,
        });
        Order {
            calls: calls.collect(),
            is_closed: state.coming().is_some(),
        }
    };
    let is_member = |rank: Rank| groups.values().all(|members| members.contains(&rank));
    let orders: Vec<(Rank, Order)> = evidence
        .ranks
        .iter()
        .filter(|state| is_member(state.rank))
        .map(|state| (state.rank, order(state)))
        .collect();
    let all = || orders.iter().map(|(_, order)| &order.calls);
    let among_all = majority(all());
    let is_against = |rank: Rank, one: &Order| {
        let common =
            among_all.or_else(|| majority(all().filter(|order| has_same(order, &one.calls))));
        common.is_some_and(|common| {
            one.contradicts(common) || one.is_ahead_of(common) && has_messages_from(evidence, rank)
        })
    };
    let against: Vec<Rank> = orders
        .iter()
        .filter(|(rank, one)| circle.contains(rank) && is_against(*rank, one))
        .map(|(rank, _)| *rank)
        .collect();
    match against.is_empty() {
        true => circle.to_vec(),
        false => against,
    }
}

/// Returns true if all ranks of a cycle wait for messages, and none for a collective.
#[must_use]
pub fn is_of_messages(evidence: &HangEvidence, cycle: &[Rank]) -> bool {
    let mut states = cycle.iter().filter_map(|rank| evidence.rank(*rank));
    states.all(|state| {
        matches!(
            state.now(),
            Some(EventKind::Message(_) | EventKind::AwaitMessage(..))
        )
    })
}

/// Says that a rank of a cycle has gone on to a collective while several others wait for messages to or from it; `None` if these are
/// not the facts.
#[must_use]
pub fn gone_on(evidence: &HangEvidence, blamed: &[Rank]) -> Option<String> {
    let [rank] = blamed else {
        return None;
    };
    let here = match evidence.rank(*rank)?.now()? {
        here @ (EventKind::Collective(_) | EventKind::Await(..)) => here,
        _ => return None,
    };
    let waiting = waiting_for_messages_of(evidence, *rank);
    (waiting.len() > 1).then(|| {
        format!(
            "rank {rank} has gone on to {here}, and {} wait for messages to or from it",
            named(&waiting)
        )
    })
}

/// Returns true if what a rank of a cycle would still do is not known, so that it may be where it is too early, or not at all.
#[must_use]
pub fn may_go_on(evidence: &HangEvidence, cycle: &[Rank]) -> bool {
    let mut states = cycle.iter().filter_map(|rank| evidence.rank(*rank));
    states.any(|state| state.coming().is_none())
}

/// Says that ranks of a cycle are in other collectives than the rest, although all these groups have the same members: of what such
/// groups issue there is one order. Which of the two sides will go on to what the other is in is not known. `None` if it is, if the
/// groups differ in their members, or if ranks wait for something else.
#[must_use]
pub fn elsewhere(evidence: &HangEvidence, cycle: &[Rank], blamed: &[Rank]) -> Option<String> {
    let groups = groups_waited_for(evidence, cycle);
    let mut members = groups.values();
    let first = members.next()?;
    if !may_go_on(evidence, cycle) || !members.all(|others| others == first) {
        return None;
    }
    let mut places: BTreeMap<String, Vec<Rank>> = BTreeMap::new();
    for rank in cycle {
        let here = evidence.rank(*rank)?.now()?;
        if !matches!(here, EventKind::Collective(_) | EventKind::Await(..)) {
            return None;
        }
        places.entry(here.to_string()).or_default().push(*rank);
    }
    let (own, rest): (Vec<_>, Vec<_>) = places
        .into_iter()
        .partition(|(_, ranks)| ranks.iter().all(|rank| blamed.contains(rank)));
    let text = |places: &[(String, Vec<Rank>)]| {
        let each = places.iter().map(|(here, ranks)| {
            format!("{} {} in {here}", named(ranks), verb(ranks, "is", "are"))
        });
        each.collect::<Vec<_>>().join(", ")
    };
    Some(format!(
        "{}, while {}; the groups have the same members",
        text(&own),
        text(&rest)
    ))
}

/// The collectives of a rank, in order.
struct Order {
    /// Group and name of each.
    calls: Vec<String>,
    /// Whether no more will come.
    is_closed: bool,
}

impl Order {
    /// Returns true if it begins like `common` and goes on.
    fn is_ahead_of(&self, common: &[String]) -> bool {
        self.calls.starts_with(common) && self.calls.len() > common.len()
    }

    /// Returns true if it is another order, and not only one that has not come as far.
    fn contradicts(&self, common: &[String]) -> bool {
        match self.is_closed {
            true => self.calls != common,
            false => !common.starts_with(&self.calls) && !self.calls.starts_with(common),
        }
    }
}

/// Returns true if several ranks wait for messages to or from this one: then it has gone on without them, and not each of them
/// without it.
fn has_messages_from(evidence: &HangEvidence, rank: Rank) -> bool {
    waiting_for_messages_of(evidence, rank).len() > 1
}

/// Returns the ranks that wait for messages to or from this one.
fn waiting_for_messages_of(evidence: &HangEvidence, rank: Rank) -> Vec<Rank> {
    let waiting = evidence.ranks.iter().filter(|state| {
        matches!(state.now(), Some(EventKind::Message(one) | EventKind::AwaitMessage(one, _)) if one.peer == Some(rank))
    });
    waiting.map(|state| state.rank).collect()
}

/// Returns the groups, each with its members, in whose collectives ranks of a cycle wait.
fn groups_waited_for(evidence: &HangEvidence, circle: &[Rank]) -> BTreeMap<String, Arc<[Rank]>> {
    let sights = circle.iter().filter_map(|rank| evidence.rank(*rank));
    let waited = sights.filter_map(|state| {
        let group = match state.now()? {
            EventKind::Collective(one) => &one.group,
            EventKind::Await(group, _) => group,
            _ => return None,
        };
        state.entered().find_map(|event| match &event.what {
            EventKind::Collective(one) if one.group == *group => {
                Some((group.clone(), one.members.clone()))
            }
            _ => None,
        })
    });
    waited.filter(|(_, members)| !members.is_empty()).collect()
}

/// Returns true if two lists hold the same items, in any order.
fn has_same(one: &[String], other: &[String]) -> bool {
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort_unstable();
        list
    };
    sorted(one) == sorted(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collective, Process, RankWait, TraceEvent, diagnose};
    use std::time::Duration;

    fn collective(group: &str, members: &[u32]) -> EventKind {
        EventKind::Collective(Collective {
            group: group.into(),
            members: members.iter().copied().map(Rank).collect::<Arc<[Rank]>>(),
            name: "all_reduce".into(),
            nature: BTreeMap::new(),
        })
    }

    fn message(sends: bool, peer: u32, tag: u32) -> EventKind {
        EventKind::Message(Message {
            group: "world".into(),
            sends,
            peer: Some(Rank(peer)),
            tag,
        })
    }

    /// Builds a rank that has finished all these events but the last, which it is in.
    fn rank(number: u32, events: Vec<EventKind>) -> RankState {
        let event = |what| TraceEvent {
            what,
            at: String::new(),
        };
        let mut done: Vec<TraceEvent> = events.into_iter().map(event).collect();
        let doing = done.pop().map(|last| (last, Duration::from_secs(1)));
        RankState {
            process: Process::Running,
            done,
            doing,
            ..RankState::unknown(Rank(number))
        }
    }

    fn verdict(ranks: Vec<RankState>) -> (HangKind, Vec<u32>, Confidence) {
        let verdict = diagnose(&HangEvidence {
            ranks,
            is_whole: true,
            ..HangEvidence::default()
        });
        let culprits = verdict.culprits.iter().map(|rank| rank.0).collect();
        (verdict.kind, culprits, verdict.confidence)
    }

    /// Builds a mesh of 2 by 2 ranks, each with `steps` times a collective in its row and one in its column, and then
    /// its `last` events.
    fn mesh(steps: usize, last: impl Fn(u32) -> Vec<EventKind>) -> Vec<RankState> {
        let step = |rank: u32| vec![row(rank), column(rank)];
        let events = |rank: u32| {
            let mut events: Vec<EventKind> = (0..steps).flat_map(|_| step(rank)).collect();
            events.extend(last(rank));
            events
        };
        (0..4).map(|number| rank(number, events(number))).collect()
    }

    fn row(rank: u32) -> EventKind {
        match rank / 2 {
            0 => collective("row 0", &[0, 1]),
            _ => collective("row 1", &[2, 3]),
        }
    }

    fn column(rank: u32) -> EventKind {
        match rank % 2 {
            0 => collective("column 0", &[0, 2]),
            _ => collective("column 1", &[1, 3]),
        }
    }

    #[test]
    fn a_minority_at_a_barrier_of_keys_has_left_out_the_collective_of_the_rest() {
        let world = || collective("world", &[0, 1, 2]);
        let done = |rank: u32| format!("done/{rank}");
        let all = |keys: &[String]| {
            let waiting = RankState {
                keys_set: vec![done(0)],
                ..rank(0, vec![world(), EventKind::AwaitKeys(keys.into())])
            };
            let in_loop = |number| rank(number, vec![world(), world()]);
            verdict(vec![waiting, in_loop(1), in_loop(2)])
        };
        let skips = (HangKind::CollectiveSkipped, vec![0], Confidence::Likely);
        assert_eq!(all(&[done(0), done(1), done(2)]), skips);
        // One of the rest may have left out a key that all would have waited for.
        let nobody = (HangKind::Behind, vec![], Confidence::Likely);
        assert_eq!(all(&[done(2)]), nobody);
    }

    #[test]
    fn a_collective_that_a_rank_has_always_issued_before_is_left_out() {
        // Rank 3 leaves out its row, rank 2 waits for it there, and rank 0 for rank 2.
        let last = |rank: u32| match rank {
            3 => vec![column(3), collective("world", &[0, 1, 2, 3])],
            1 => vec![row(1), column(1), collective("world", &[0, 1, 2, 3])],
            2 => vec![row(2)],
            _ => vec![row(0), column(0)],
        };
        let skipped = (HangKind::CollectiveSkipped, vec![3], Confidence::Likely);
        assert_eq!(verdict(mesh(2, last)), skipped);
        // It may go on for some steps in between.
        let later = |rank: u32| match rank {
            3 => vec![
                column(3),
                row(3),
                column(3),
                collective("world", &[0, 1, 2, 3]),
            ],
            1 => vec![
                row(1),
                column(1),
                row(1),
                column(1),
                collective("world", &[0, 1, 2, 3]),
            ],
            2 => vec![row(2), column(2), row(2)],
            _ => vec![row(0), column(0), row(0), column(0)],
        };
        assert_eq!(verdict(mesh(2, later)), skipped);
        // Without steps before, it may as well have another order.
        let (kind, ..) = verdict(mesh(0, last));
        assert_eq!(kind, HangKind::CyclicWait);
    }

    #[test]
    fn a_key_that_only_one_rank_can_have_set_is_its_own() {
        let barrier = || rank(0, vec![collective("world", &[0, 1, 2])]);
        let waits = |number, key: &str| rank(number, vec![EventKind::AwaitKeys(vec![key.into()])]);
        let behind = |culprits| (HangKind::Behind, culprits, Confidence::Likely);
        let one = vec![barrier(), waits(1, "run"), waits(2, "run")];
        assert_eq!(verdict(one), behind(vec![0]));
        let two = vec![barrier(), waits(1, "run"), waits(2, "walk")];
        assert_eq!(verdict(two), behind(vec![]));
        // Both wait for all at the end of what they do.
        let all = |number| {
            let keys = vec!["done/0".into(), "done/1".into()];
            rank(number, vec![EventKind::AwaitKeys(keys)])
        };
        let last = vec![rank(0, vec![collective("world", &[0, 1])]), all(1)];
        assert_eq!(verdict(last), behind(vec![]));
        // Three have added to the counter of this round, as all did before.
        let round = |number, keys: &[&str], what| RankState {
            keys_set: keys.iter().map(ToString::to_string).collect(),
            ..rank(number, vec![what])
        };
        let counter = || EventKind::AwaitKeys(vec!["round/2".into()]);
        let reduce = || collective("world", &[0, 1, 2]);
        let skips = vec![
            round(0, &["round/1", "round/2"], counter()),
            round(1, &["round/1"], reduce()),
            round(2, &["round/1", "round/2"], counter()),
        ];
        assert_eq!(verdict(skips), behind(vec![1]));
        let alone = vec![
            round(0, &["round/1", "round/2"], counter()),
            round(1, &["round/1"], reduce()),
            round(2, &["round/1"], reduce()),
        ];
        assert_eq!(verdict(alone), behind(vec![]));
        let deleted = |number| RankState {
            keys_deleted: vec!["round/2".into()],
            ..round(number, &["round/1", "round/2"], reduce())
        };
        let gone = vec![
            deleted(0),
            round(1, &[], reduce()),
            round(2, &[], counter()),
        ];
        assert_eq!(verdict(gone), behind(vec![0]));
        // A rank that is at work may set it yet.
        let busy = rank(0, vec![EventKind::Own("its own code".into())]);
        let (kind, culprits, _) = verdict(vec![busy, waits(1, "run"), waits(2, "run")]);
        assert_eq!((kind, culprits), (HangKind::Slow, vec![0]));
    }

    #[test]
    fn a_rank_that_makes_no_groups_while_the_others_do_leaves_them_out() {
        let group =
            |members: &[u32]| EventKind::NewGroup(members.iter().copied().map(Rank).collect());
        let world = || collective("world", &[0, 1, 2, 3]);
        let (a, b) = (|| group(&[0, 1]), || group(&[2, 3]));
        let ranks = vec![
            rank(0, vec![a()]),
            rank(1, vec![a()]),
            rank(2, vec![a(), b()]),
            rank(3, vec![world()]),
        ];
        let skipped = (HangKind::GroupSkipped, vec![3], Confidence::Likely);
        assert_eq!(verdict(ranks), skipped);
        // Of two, either may be the one with another order.
        let (kind, ..) = verdict(vec![
            rank(0, vec![group(&[0, 1])]),
            rank(1, vec![collective("world", &[0, 1])]),
        ]);
        assert_eq!(kind, HangKind::CyclicWait);
    }

    #[test]
    fn a_message_with_another_tag_or_from_another_rank_is_unmatched() {
        let barrier = || collective("world", &[0, 1, 2]);
        let unmatched = (HangKind::MessageUnmatched, vec![1, 2], Confidence::Likely);
        let ranks = |sent: Vec<EventKind>, received: Vec<EventKind>| {
            let mut sender = sent;
            sender.push(barrier());
            vec![rank(0, vec![barrier()]), rank(1, sender), rank(2, received)]
        };
        let tags = ranks(
            vec![message(true, 2, 1), message(true, 2, 1)],
            vec![message(false, 1, 1), message(false, 1, 2)],
        );
        assert_eq!(verdict(tags), unmatched);
        let peers = ranks(vec![message(true, 2, 0)], vec![message(false, 0, 0)]);
        assert_eq!(verdict(peers), unmatched);
        // A message like one that it has taken before is one that it will take once it goes on.
        let before = [message(false, 1, 0), message(false, 0, 1)];
        let mut later = ranks(
            vec![message(true, 2, 0), message(true, 2, 0)],
            vec![before[0].clone(), before[1].clone(), before[1].clone()],
        );
        later[0] = rank(0, vec![message(true, 2, 1), barrier()]);
        let (kind, culprits, _) = verdict(later);
        assert!(!culprits.contains(&1), "{kind}: {culprits:?}");
        // Nothing was sent to it: what it waits for may come after the barrier.
        let late = ranks(vec![], vec![message(false, 1, 0)]);
        let (kind, ..) = verdict(late);
        assert_eq!(kind, HangKind::CyclicWait);
    }

    #[test]
    fn a_sender_to_several_ranks_in_turn_has_not_the_wrong_one() {
        // Rank 0 feeds two ranks, of which one has stopped early and waits for the other in a collective.
        let fed = |from: u32, batches: usize| vec![message(false, from, 0); batches];
        let feed = (0..5).map(|number| message(true, 1 + number % 2, 0));
        let feed: Vec<EventKind> = feed.chain([message(true, 2, 0)]).collect();
        let mut stopped = fed(0, 2);
        stopped.push(collective("trainers", &[1, 2]));
        let ranks = vec![rank(0, feed), rank(1, fed(0, 4)), rank(2, stopped)];
        let (kind, culprits, _) = verdict(ranks);
        assert_eq!((kind, culprits), (HangKind::CyclicWait, vec![]));
    }

    #[test]
    fn a_receiver_whose_sender_is_held_up_elsewhere_has_not_the_wrong_peer() {
        // Rank 0 would send to rank 1 next, but waits for rank 2, which waits for what rank 1 makes of that message.
        let ranks = vec![
            rank(0, vec![message(true, 2, 0)]),
            rank(1, vec![message(false, 0, 0)]),
            rank(2, vec![message(false, 1, 0)]),
        ];
        let undecided = (HangKind::CyclicWait, vec![], Confidence::Proved);
        assert_eq!(verdict(ranks.clone()), undecided);
        // There is no collective whose order could be wrong.
        let advice = diagnose(&HangEvidence {
            ranks,
            ..HangEvidence::default()
        })
        .advice;
        assert!(
            advice.iter().all(|line| line.contains("messages")),
            "{advice:?}"
        );
    }

    #[test]
    fn a_rank_that_leaves_out_messages_with_several_others_is_named_alone() {
        let barrier = || collective("world", &[0, 1, 2]);
        let skipped = vec![
            rank(0, vec![message(true, 1, 0)]),
            rank(1, vec![barrier()]),
            rank(2, vec![message(false, 1, 0)]),
        ];
        let odd = (HangKind::MessageUnmatched, vec![1], Confidence::Proved);
        assert_eq!(verdict(skipped), odd);
        // Of one message, either side may be the odd one, whatever a third rank does.
        let either = vec![
            rank(0, vec![barrier()]),
            rank(1, vec![barrier()]),
            rank(2, vec![message(false, 1, 0)]),
        ];
        let undecided = (HangKind::CyclicWait, vec![], Confidence::Proved);
        assert_eq!(verdict(either), undecided);
    }

    #[test]
    fn of_two_orders_in_two_groups_only_common_members_have_a_say() {
        // Ranks 0 and 1 are in both groups and differ; rank 2 is in one of them and says nothing about the order.
        let (all, pair) = (
            || collective("all", &[0, 1, 2]),
            || collective("pair", &[0, 1]),
        );
        let ranks = vec![
            rank(0, vec![all()]),
            rank(1, vec![pair()]),
            rank(2, vec![all()]),
        ];
        let undecided = (HangKind::CyclicWait, vec![], Confidence::Proved);
        assert_eq!(verdict(ranks), undecided);
        // A member of neither pair is not the measure of a rank that has to be in one.
        let world = || collective("world", &[0, 1, 2, 3]);
        let leaders = || collective("leaders", &[0, 2]);
        let ranks = vec![
            rank(0, vec![world(), leaders()]),
            rank(1, vec![world(), world()]),
            rank(2, vec![world(), world()]),
            rank(3, vec![world(), world()]),
        ];
        let tied = (HangKind::CyclicWait, vec![], Confidence::Proved);
        assert_eq!(verdict(ranks), tied);
        // Of three members of both groups, two are a majority.
        let pair = || collective("other", &[0, 1, 2]);
        let ranks = vec![
            rank(0, vec![all()]),
            rank(1, vec![pair()]),
            rank(2, vec![all()]),
        ];
        let odd = (HangKind::CollectiveMismatch, vec![1], Confidence::Proved);
        assert_eq!(verdict(ranks), odd);
    }

    #[test]
    fn without_a_majority_a_cycle_of_ranks_that_may_go_on_accuses_none() {
        // Readers have left the loop, or the others have not: nothing tells.
        let world = || collective("world", &[0, 1, 2, 3]);
        let pair = |first: u32| collective(&format!("pair {first}"), &[first, first + 1]);
        let ranks = vec![
            rank(0, vec![pair(0), world()]),
            rank(1, vec![pair(0), pair(0)]),
            rank(2, vec![pair(2), world()]),
            rank(3, vec![pair(2), pair(2)]),
        ];
        let undecided = (HangKind::CyclicWait, vec![], Confidence::Proved);
        assert_eq!(verdict(ranks), undecided);
    }

    #[test]
    fn a_cycle_through_a_lock_is_proved_and_one_through_an_answer_is_not() {
        let wait = |ranks: &[u32], is_proved| {
            EventKind::AwaitRanks(RankWait {
                text: format!("a wait for {ranks:?}"),
                ranks: ranks.iter().copied().map(Rank).collect(),
                is_proved,
            })
        };
        let barrier = || collective("world", &[0, 1, 2]);
        let ranks = |is_proved| {
            vec![
                rank(0, vec![barrier()]),
                rank(1, vec![wait(&[0], is_proved)]),
                rank(2, vec![barrier()]),
            ]
        };
        let (kind, _, confidence) = verdict(ranks(true));
        assert_eq!(
            (kind, confidence),
            (HangKind::CyclicWait, Confidence::Proved)
        );
        let (kind, _, confidence) = verdict(ranks(false));
        assert_eq!(
            (kind, confidence),
            (HangKind::CyclicWait, Confidence::Likely)
        );
        // Ranks that have come to one shutdown do not wait for each other there.
        let shutdown = |rank: u32| {
            EventKind::AwaitRanks(RankWait {
                text: "rpc.shutdown".into(),
                ranks: [0, 1, 2]
                    .map(Rank)
                    .into_iter()
                    .filter(|other| other.0 != rank)
                    .collect(),
                is_proved: false,
            })
        };
        let late = rank(0, vec![EventKind::Own("its own code".into())]);
        let ranks = vec![late, rank(1, vec![shutdown(1)]), rank(2, vec![shutdown(2)])];
        let (kind, culprits, _) = verdict(ranks);
        assert_eq!((kind, culprits), (HangKind::Slow, vec![0]));
    }

    /// Builds four ranks that each send to the next one in turn, three times; then rank 3 sends to rank 2, as rank 1 did once if `varies`.
    fn ring(varies: bool) -> Vec<RankState> {
        let at = |what, at: &str| TraceEvent {
            what,
            at: at.into(),
        };
        let exchange = |number: u32, to: u32| {
            let (send, receive) = (message(true, to, 0), message(false, (number + 3) % 4, 0));
            [at(send, "halo.py:3"), at(receive, "halo.py:4")]
        };
        let state = |number: u32| {
            let next = (number + 1) % 4;
            let first = if varies && number == 1 { 0 } else { next };
            let mut done: Vec<TraceEvent> = [first, next, next]
                .into_iter()
                .flat_map(|to| exchange(number, to))
                .collect();
            let [send, receive] = exchange(number, if number == 3 { 2 } else { next });
            done.push(send);
            let doing = match number {
                0 => receive,
                3 => {
                    done.push(receive);
                    at(
                        EventKind::AwaitMessage(
                            Message {
                                group: "world".into(),
                                sends: true,
                                peer: Some(Rank(2)),
                                tag: 0,
                            },
                            1,
                        ),
                        "halo.py:5",
                    )
                }
                _ => {
                    done.push(receive);
                    at(collective("world", &[0, 1, 2, 3]), "halo.py:6")
                }
            };
            RankState {
                process: Process::Running,
                done,
                doing: Some((doing, Duration::from_secs(9))),
                ..RankState::unknown(Rank(number))
            }
        };
        (0..4).map(state).collect()
    }

    #[test]
    fn a_message_that_goes_elsewhere_than_all_before_is_its_senders_fault() {
        let unmatched = HangKind::MessageUnmatched;
        assert_eq!(
            verdict(ring(false)),
            (unmatched, vec![3], Confidence::Likely)
        );
        // Where another rank has had several peers too, either end may be wrong.
        assert_eq!(
            verdict(ring(true)),
            (unmatched, vec![0, 3], Confidence::Likely)
        );
    }
}
