//! Collectives: the members of a group must call the same ones in the same order, with arguments that go together. What
//! goes on all the same when they do not is wrong data, or a hang one call later.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::call_sequence::{Change, Divergence, List, parting};
use super::evidence::{Collective, EventKind, HangEvidence, RankState, list};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// What is wrong with the collectives of a group, in the first group with something wrong.
#[must_use]
pub fn contradiction(evidence: &HangEvidence) -> Option<Diagnosis> {
    let mut groups: BTreeMap<&str, &[Rank]> = BTreeMap::new();
    for one in evidence.ranks.iter().flat_map(calls) {
        groups.entry(&one.group).or_insert(&one.members);
    }
    groups.into_iter().find_map(|(group, members)| {
        let members: HashSet<Rank> = members.iter().copied().collect();
        let lists: Vec<List<Collective>> = evidence
            .ranks
            .iter()
            .filter(|sight| members.contains(&sight.rank))
            .map(|sight| called(sight, group))
            .collect();
        let parting = parting(&lists)?;
        Some(told(evidence, group, &parting))
    })
}

fn told(evidence: &HangEvidence, group: &str, parting: &Divergence<Collective>) -> Diagnosis {
    let nth = evidence.forgotten.get(group).unwrap_or(&0) + parting.place + 1;
    let culprits: Vec<Rank> = parting.others.iter().map(|(rank, ..)| *rank).collect();
    let who = list(&culprits);
    // A call that is left out shifts the rest; what is called in another order is a mismatch at this place.
    let skips = parting
        .others
        .iter()
        .all(|(_, entry, how)| *how == Change::Skips || entry.is_none());
    let said = |entry: &Option<Collective>| match entry {
        Some(one) => with_nature(one),
        None => "no further one".to_owned(),
    };
    let mut facts = Vec::new();
    if parting.common.is_some() {
        facts.push(format!(
            "collective number {nth} of group {group} is {} on most members",
            said(&parting.common)
        ));
    }
    for (rank, entry, _) in &parting.others {
        facts.push(format!("on rank {rank} it is {}", said(entry)));
    }
    let (kind, summary) = match (&parting.common, skips) {
        (Some(common), true) => (
            HangKind::CollectiveSkipped,
            format!("rank {who} leaves out collective number {nth} of group {group}, {common}"),
        ),
        (common, _) => {
            let first = common.as_ref().or_else(|| {
                parting
                    .others
                    .first()
                    .and_then(|(_, entry, _)| entry.as_ref())
            });
            let other = parting
                .others
                .iter()
                .filter_map(|(_, entry, _)| entry.as_ref())
                .find(|entry| Some(*entry) != first);
            let what = match (first, other) {
                (Some(first), Some(other)) => differs(first, other),
                _ => "call".to_owned(),
            };
            (
                HangKind::CollectiveMismatch,
                format!(
                    "rank {who} has another {what} than the rest in collective number {nth} of group {group}"
                ),
            )
        }
    };
    conclude(evidence, kind, Confidence::Proved, culprits, summary).because(facts)
}

/// What two calls differ in.
fn differs(one: &Collective, other: &Collective) -> String {
    if one.name != other.name {
        return format!("op ({}, not {})", other.name, one.name);
    }
    let keys = one.nature.keys().chain(other.nature.keys());
    let differing: BTreeSet<&str> = keys
        .filter(|key| one.nature.get(*key) != other.nature.get(*key))
        .copied()
        .collect();
    let none = String::new();
    let parts: Vec<String> = differing
        .into_iter()
        .map(|key| {
            let value = |of: &Collective| of.nature.get(key).unwrap_or(&none).clone();
            format!("{key} ({}, not {})", value(other), value(one))
        })
        .collect();
    match parts.is_empty() {
        true => "group".to_owned(),
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

fn collective(what: &EventKind) -> Option<&Collective> {
    match what {
        EventKind::Collective(one) => Some(one),
        _ => None,
    }
}

/// The collectives that a rank has called or is known to call.
fn calls(sight: &RankState) -> impl Iterator<Item = &Collective> {
    let coming = sight.coming().unwrap_or_default();
    sight
        .entered()
        .chain(coming)
        .filter_map(|deed| collective(&deed.what))
}

/// Those of one group.
fn called(sight: &RankState, group: &str) -> List<Collective> {
    List::of(sight, |what| {
        collective(what).filter(|one| one.group == group)
    })
}
