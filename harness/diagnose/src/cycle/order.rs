//! Finds the ranks of a cycle whose order of calls is not that of the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::call_sequence::majority;
use crate::collectives::issued;
use crate::evidence::{EventKind, HangEvidence, RankState, named, verb};
use allranks_model::diagnosis::HangKind;
use allranks_model::names::Rank;

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
    let among_all = majority(all()).or_else(|| longest_of_majority(all()));
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
///
/// The kind of hang is `CollectiveSkipped` if the blamed ranks have issued collectives in the groups of the rest before. Else the groups may be
/// used in another order, and it is `CollectiveMismatch`.
#[must_use]
pub fn elsewhere(
    evidence: &HangEvidence,
    cycle: &[Rank],
    blamed: &[Rank],
) -> Option<(HangKind, String)> {
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
    let others = cycle.iter().filter(|rank| !blamed.contains(rank));
    let theirs = groups_waited_for(evidence, &others.copied().collect::<Vec<_>>());
    let has_issued = |rank: &Rank| {
        let state = evidence.rank(*rank);
        let mut groups = theirs.keys();
        state.is_some_and(|state| groups.all(|group| issued(state, group) > 0))
    };
    let kind = match blamed.iter().all(has_issued) {
        true => HangKind::CollectiveSkipped,
        false => HangKind::CollectiveMismatch,
    };
    let summary = format!(
        "{}, while {}; the groups have the same members",
        text(&own),
        text(&rest)
    );
    Some((kind, summary))
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

/// Returns the longest of the orders that more than half of all agree with, as far as they have come; `None` if there is none.
fn longest_of_majority<'a>(
    orders: impl Iterator<Item = &'a Vec<String>> + Clone,
) -> Option<&'a Vec<String>> {
    let agreeing = |one: &Vec<String>| {
        let agrees = |other: &&Vec<String>| one.starts_with(other);
        orders.clone().filter(agrees).count()
    };
    let all = orders.clone().count();
    let common = orders.clone().filter(|one| agreeing(one) * 2 > all);
    common.max_by_key(|one| one.len())
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
    use crate::builders::{collective, message, rank, verdict};
    use allranks_model::diagnosis::{Confidence, HangKind};

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
        // The rank has issued collectives there before, and leaves one out.
        let ranks = vec![
            rank(0, vec![all(), all()]),
            rank(1, vec![all(), pair()]),
            rank(2, vec![all(), all()]),
        ];
        let skips = (HangKind::CollectiveSkipped, vec![1], Confidence::Proved);
        assert_eq!(verdict(ranks), skips);
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
}
