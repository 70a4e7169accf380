//! Compares the collectives that the members of a group call. All members must call the same ones in the same order, with
//! arguments that go together. A backend that goes on although they do not delivers wrong data, or hangs one call later.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::advice;
use super::call_sequence::{Certainty, Change, Divergence, List, divergence};
use super::evidence::{
    Collective, EventKind, GROUPS_OF_CALLER, HangEvidence, RankState, TraceEvent, as_collective,
    named, verb,
};
use super::same_line::odd_rank;
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Finds the groups whose members' collectives diverge; `None` if there is none. The verdict is on the first, by name; those of other
/// ranks whose members diverge in the same way are added to it.
#[must_use]
pub fn contradiction(evidence: &HangEvidence) -> Option<Diagnosis> {
    let mut groups: BTreeMap<&str, &[Rank]> = BTreeMap::new();
    for (_, one) in evidence.ranks.iter().flat_map(calls) {
        groups.entry(&one.group).or_insert(&one.members);
    }
    let mut found = groups
        .into_iter()
        .filter_map(|(group, members)| Some((members, divergence_of(evidence, group, members)?)));
    let (members, mut verdict) = found.next()?;
    let mut judged: BTreeSet<Rank> = members.iter().copied().collect();
    for (members, other) in found {
        let is_alike = (other.kind, other.confidence) == (verdict.kind, verdict.confidence)
            && other.culprits.is_empty() == verdict.culprits.is_empty();
        if is_alike && members.iter().all(|rank| !judged.contains(rank)) {
            judged.extend(members);
            add(&mut verdict, other);
        }
    }
    Some(verdict)
}

/// Judges a group whose members' collectives diverge; `None` if they do not.
fn divergence_of(evidence: &HangEvidence, group: &str, members: &[Rank]) -> Option<Diagnosis> {
    let size = members.len();
    let members: HashSet<Rank> = members.iter().copied().collect();
    let lists: Vec<List<Collective>> = evidence
        .ranks
        .iter()
        .filter(|state| members.contains(&state.rank))
        .map(|state| called(state, group))
        .collect();
    let divergence = divergence(&lists)?;
    let certainty = divergence.certainty(size, lists.len());
    Some(verdict(evidence, group, &divergence, certainty))
}

/// Adds the verdict on a group to that on another one.
fn add(verdict: &mut Diagnosis, other: Diagnosis) {
    verdict.culprits.extend(other.culprits);
    verdict.culprits.sort_unstable();
    (verdict.victims).retain(|rank| !verdict.culprits.contains(rank));
    verdict.summary = format!("{}; {}", verdict.summary, other.summary);
    verdict.evidence.extend(other.evidence);
}

/// Builds the verdict on a group whose members' collectives diverge.
fn verdict(
    evidence: &HangEvidence,
    group: &str,
    divergence: &Divergence<Collective>,
    certainty: Certainty,
) -> Diagnosis {
    let nth = evidence.forgotten.get(group).unwrap_or(&0) + divergence.place + 1;
    let label = group_label(group);
    let others: Vec<Rank> = divergence.others.iter().map(|(rank, ..)| *rank).collect();
    // A call that is left out shifts the rest; what is called in another order is a mismatch at this place.
    let skips = divergence
        .others
        .iter()
        .all(|(_, entry, how)| *how == Change::Skips || entry.is_none());
    let (kind, summary) = match (&divergence.common, skips) {
        (Some(common), true) => (
            HangKind::CollectiveSkipped,
            format!(
                "{} {} out collective number {nth} of {label}, {common}",
                named(&others),
                verb(&others, "leaves", "leave")
            ),
        ),
        (Some(common), false) => {
            let theirs = divergence
                .others
                .iter()
                .find_map(|(_, entry, _)| entry.as_ref());
            let what = theirs.map_or_else(
                || "it has none".to_owned(),
                |theirs| differences(common, theirs, |usual, own| format!("{own}, not {usual}")),
            );
            (
                HangKind::CollectiveMismatch,
                format!(
                    "{} {} from the other members in collective number {nth} of {label}: {what}",
                    named(&others),
                    verb(&others, "differs", "differ")
                ),
            )
        }
        (None, _) => (
            HangKind::CollectiveMismatch,
            format!(
                "the members of {label} do not agree on its collective number {nth}: {}",
                disagreement(divergence)
            ),
        ),
    };
    let mut facts = call_sites(evidence, group, divergence, nth);
    // A rank may have groups that others have not.
    let is_of_names = is_named_otherwise(divergence);
    if is_of_names {
        facts.push(
            "torch names a group that its members make alone by these members and by how many groups the caller has, so they wait for each other under other names (pytorch#173608)".to_owned(),
        );
    }
    let mut culprits = match is_of_names || divergence.is_tie() {
        true => Vec::new(),
        false => certainty.culprits(others),
    };
    let mut confidence = certainty.confidence();
    // Of two members, neither is the majority.
    if divergence.common.is_none()
        && let [one, other] = culprits[..]
        && let Some(odd) = odd_rank(evidence, [one, other])
    {
        culprits = vec![odd.rank];
        confidence = Confidence::Likely;
        facts.push(odd.fact);
    }
    if certainty == Certainty::Unseen {
        facts.push(format!(
            "not every member of {label} is seen: which side is in the minority is not known"
        ));
    }
    let mut verdict = conclude(evidence, kind, confidence, culprits, summary).because(facts);
    if is_of_names {
        verdict.advice = advice::two_names();
    }
    verdict
}

/// Returns the words for a group in a sentence: `group world`, `group 3 (ranks 0, 1)`.
pub(crate) fn group_label(group: &str) -> Cow<'_, str> {
    match group.starts_with("group ") {
        true => group.into(),
        false => format!("group {group}").into(),
    }
}

/// Returns true if the members make a group of their own, and differ in nothing but how many groups they have: torch names it otherwise
/// on them.
fn is_named_otherwise(divergence: &Divergence<Collective>) -> bool {
    let mut calls = (divergence.others.iter())
        .filter_map(|(_, entry, _)| entry.as_ref())
        .chain(&divergence.common);
    let Some(first) = calls.next() else {
        return false;
    };
    first.nature.contains_key(GROUPS_OF_CALLER) && calls.all(|one| one.name == first.name)
}

/// Describes what each side of a disagreement calls, and where in the program.
fn call_sites(
    evidence: &HangEvidence,
    group: &str,
    divergence: &Divergence<Collective>,
    nth: usize,
) -> Vec<String> {
    let site = |rank: Rank| {
        let (event, _) = nth_call(evidence.rank(rank)?, group, divergence.place)?;
        (!event.at.is_empty()).then(|| format!(", called at {}", event.at))
    };
    let described = |entry: &Option<Collective>| match entry {
        Some(one) => with_nature(one),
        None => "no further one".to_owned(),
    };
    let mut facts = Vec::new();
    if let Some(common) = &divergence.common {
        let is_common =
            |state: &&RankState| called(state, group).entries.get(divergence.place) == Some(common);
        let one = evidence.ranks.iter().find(is_common);
        let label = group_label(group);
        facts.push(format!(
            "collective number {nth} of {label} is {} on most members{}",
            with_nature(common),
            one.and_then(|state| site(state.rank)).unwrap_or_default()
        ));
    }
    for (rank, entry, _) in &divergence.others {
        facts.push(format!(
            "on rank {rank} it is {}{}",
            described(entry),
            site(*rank).unwrap_or_default()
        ));
    }
    facts
}

/// Describes what members call where no call has a majority: `elements 18640 (rank 0) against 1 (rank 1)`.
fn disagreement(divergence: &Divergence<Collective>) -> String {
    let mut sides: Vec<(&Collective, Vec<Rank>)> = Vec::new();
    for (rank, entry, _) in &divergence.others {
        let Some(entry) = entry else { continue };
        match sides.iter_mut().find(|(known, _)| *known == entry) {
            Some((_, ranks)) => ranks.push(*rank),
            None => sides.push((entry, vec![*rank])),
        }
    }
    match &sides[..] {
        [(one, ours), (other, theirs)] => differences(one, other, |own, other| {
            format!(
                "{own} ({}) against {other} ({})",
                named(ours),
                named(theirs)
            )
        }),
        [(one, ranks)] => format!(
            "only {} {} {one}",
            named(ranks),
            verb(ranks, "calls", "call")
        ),
        _ => {
            let side = |(one, ranks): &(&Collective, Vec<Rank>)| {
                format!("{} ({})", with_nature(one), named(ranks))
            };
            let sides: Vec<String> = sides.iter().map(side).collect();
            sides.join(", ")
        }
    }
}

/// Describes in what two calls differ: their names or, if these are the same, each argument. `join` puts two values
/// together.
fn differences(
    one: &Collective,
    other: &Collective,
    join: impl Fn(&str, &str) -> String,
) -> String {
    if one.name != other.name {
        return join(&one.name, &other.name);
    }
    let keys = one.nature.keys().chain(other.nature.keys());
    let differing: BTreeSet<&str> = keys
        .filter(|key| one.nature.get(*key) != other.nature.get(*key))
        .copied()
        .collect();
    let value =
        |of: &Collective, key: &str| of.nature.get(key).map_or("none", String::as_str).to_owned();
    let parts: Vec<String> = differing
        .into_iter()
        .map(|key| format!("{key} {}", join(&value(one, key), &value(other, key))))
        .collect();
    match parts.is_empty() {
        true => "members of the group".to_owned(),
        false => parts.join(" and "),
    }
}

fn with_nature(one: &Collective) -> String {
    let nature: Vec<String> = one
        .nature
        .iter()
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    match nature.is_empty() {
        true => one.name.clone(),
        false => format!("{} ({})", one.name, nature.join(", ")),
    }
}

/// Iterates over the collectives that a rank has called or is known to call, each with its event.
fn calls(state: &RankState) -> impl Iterator<Item = (&TraceEvent, &Collective)> {
    let coming = state.coming().unwrap_or_default();
    state
        .entered()
        .chain(coming)
        .filter_map(|event| Some((event, as_collective(&event.what)?)))
}

/// Returns the collective that a rank has called or is known to call as this one of a group, counted from 0, with its event.
pub(crate) fn nth_call<'a>(
    state: &'a RankState,
    group: &str,
    place: usize,
) -> Option<(&'a TraceEvent, &'a Collective)> {
    calls(state)
        .filter(|(_, one)| one.group == group)
        .nth(place)
}

/// Returns the group of the collective that a rank is in or waits for, and the collective's number from 1 among those that the trace has
/// of that group.
pub(crate) fn current(state: &RankState) -> Option<(&str, usize)> {
    match state.now()? {
        EventKind::Collective(one) => Some((&one.group, issued(state, &one.group))),
        EventKind::Await(group, number) => Some((group, number + 1)),
        _ => None,
    }
}

/// Counts the collectives of a group that a rank has issued.
pub(crate) fn issued(state: &RankState, group: &str) -> usize {
    let of_group = state.collectives().filter(|(_, one)| one.group == group);
    of_group.count()
}

/// Returns the collectives that a rank has called or is known to call in one group.
fn called(state: &RankState, group: &str) -> List<Collective> {
    List::of(state, |what| {
        as_collective(what).filter(|one| one.group == group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_model::diagnosis::Confidence;
    use std::sync::Arc;
    use std::time::Duration;

    /// Builds rank `number` of `size`, in an all_reduce of `elements` elements on the world.
    fn rank(number: u32, size: u32, elements: &str) -> RankState {
        let members: Arc<[Rank]> = (0..size).map(Rank).collect();
        let one = Collective {
            group: "world".into(),
            members,
            name: "all_reduce".into(),
            nature: [("elements", elements.to_owned())].into(),
            splits: None,
        };
        let event = TraceEvent {
            what: EventKind::Collective(one),
            at: format!("train.py:{number}"),
        };
        RankState {
            doing: Some((event, Duration::from_secs(1))),
            ..RankState::unknown(Rank(number))
        }
    }

    fn divergent(ranks: Vec<RankState>) -> Option<Diagnosis> {
        contradiction(&HangEvidence {
            ranks,
            ..HangEvidence::default()
        })
    }

    fn blamed(ranks: Vec<RankState>) -> Option<(Vec<u32>, Confidence)> {
        let divergent = divergent(ranks)?;
        Some((
            divergent.culprits.iter().map(|rank| rank.0).collect(),
            divergent.confidence,
        ))
    }

    #[test]
    fn a_tie_names_both_sides_with_their_call_sites() {
        let divergent = divergent(vec![rank(0, 2, "18640"), rank(1, 2, "1")]).unwrap();
        assert_eq!(
            divergent.summary,
            "the members of group world do not agree on its collective number 1: elements 18640 (rank 0) against 1 (rank 1)"
        );
        assert_eq!(divergent.culprits, vec![Rank(0), Rank(1)]);
        assert_eq!(
            divergent.evidence,
            vec![
                "on rank 0 it is all_reduce (elements 18640), called at train.py:0",
                "on rank 1 it is all_reduce (elements 1), called at train.py:1",
            ]
        );
    }

    #[test]
    fn the_same_difference_in_several_groups_names_the_ranks_of_all() {
        let in_group = |number: u32, group: &str, members: [u32; 3], elements: &str| {
            let mut state = rank(number, 3, elements);
            if let Some((event, _)) = &mut state.doing
                && let EventKind::Collective(one) = &mut event.what
            {
                one.group = group.into();
                one.members = members.map(Rank).into();
            }
            state
        };
        let of = |elements: [&str; 6]| {
            let rows = [("row 0", [0, 1, 2]), ("row 1", [3, 4, 5])];
            let ranks = (0..6).zip(elements).map(|(number, elements)| {
                let (group, members) = rows[number as usize / 3];
                in_group(number, group, members, elements)
            });
            divergent(ranks.collect()).unwrap()
        };
        let both = of(["8", "8", "1", "8", "1", "8"]);
        assert_eq!(both.culprits, vec![Rank(2), Rank(4)]);
        assert!(
            both.summary
                .contains("rank 4 differs from the other members")
        );
        assert_eq!(of(["8", "8", "1", "8", "8", "8"]).culprits, vec![Rank(2)]);
    }

    #[test]
    fn a_group_of_its_members_alone_that_has_two_names_blames_nobody() {
        let making = |number: u32, groups: &str| {
            let mut state = rank(number, 3, "");
            if let Some((event, _)) = &mut state.doing
                && let EventKind::Collective(one) = &mut event.what
            {
                one.name = "new_group".into();
                one.nature = [(GROUPS_OF_CALLER, groups.to_owned())].into();
            }
            state
        };
        let ranks = vec![making(0, "1"), making(1, "1"), making(2, "2")];
        let verdict = divergent(ranks).unwrap();
        assert_eq!(verdict.kind, HangKind::CollectiveMismatch);
        assert_eq!(verdict.culprits, vec![]);
        assert_eq!(
            verdict.summary,
            "rank 2 differs from the other members in collective number 1 of group world: groups of the caller 2, not 1"
        );
    }

    #[test]
    fn without_a_majority_of_the_group_no_rank_is_blamed() {
        // Two of four are seen, as on one of two nodes.
        let seen = vec![rank(2, 4, "8"), rank(3, 4, "1")];
        assert_eq!(blamed(seen), Some((vec![], Confidence::Likely)));
        // Three of eight: two agree, and the other five may agree with the third.
        let seen = vec![rank(0, 8, "8"), rank(1, 8, "8"), rank(2, 8, "1")];
        assert_eq!(blamed(seen), Some((vec![], Confidence::Likely)));
        // Three of four agree, whatever the fourth does.
        let agree = |elements| {
            let mut ranks: Vec<_> = (0..3).map(|number| rank(number, 5, "8")).collect();
            ranks.push(rank(3, 5, elements));
            ranks
        };
        assert_eq!(blamed(agree("1")), Some((vec![3], Confidence::Proved)));
        assert_eq!(blamed(agree("8")), None);
        // One has not come yet: it can turn no majority, but it can end one.
        let late = RankState::unknown(Rank(3));
        let ranks = vec![rank(0, 4, "8"), rank(1, 4, "8"), rank(2, 4, "1"), late];
        assert_eq!(blamed(ranks), Some((vec![2], Confidence::Likely)));
    }
}
