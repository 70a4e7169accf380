//! Compares the groups that ranks make. Every rank of the world must make the same groups in the same order and with the same
//! members, whether it belongs to them or not (documentation of `torch.distributed.new_group`). PyTorch does not check this.

use super::call_sequence::{Certainty, Change, Divergence, List, divergence};
use super::evidence::{EventKind, HangEvidence, RankState, list, named, verb};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Finds ranks that make groups in another order, or with other members, than the others; `None` if all agree.
#[must_use]
pub fn contradiction(evidence: &HangEvidence) -> Option<Diagnosis> {
    let lists: Vec<List<Vec<Rank>>> = evidence.ranks.iter().map(made).collect();
    let divergence = divergence(&lists)?;
    let nth = divergence.place + 1;
    if let Some(verdict) = made_by_members_only(evidence, &divergence) {
        return Some(verdict);
    }
    let others: Vec<Rank> = divergence.others.iter().map(|(rank, ..)| *rank).collect();
    let states = || {
        let states = evidence.ranks.iter();
        states.filter(|state| others.contains(&state.rank))
    };
    let (_, _, how) = divergence.others.first()?;
    let kind = match how {
        // What it seems to leave out may be what it makes next: all that is known is that it makes another one first.
        Change::Skips if states().any(is_making) => HangKind::GroupOrder,
        Change::Skips => HangKind::GroupSkipped,
        Change::Reorders => HangKind::GroupOrder,
        Change::Replaces => HangKind::GroupMembersDiffer,
    };
    let certainty = divergence.certainty(world_size(evidence), lists.len());
    let confidence = match kind {
        _ if certainty != Certainty::Settled => certainty.confidence(),
        HangKind::GroupOrder => Confidence::Proved,
        _ if states().any(is_between) => Confidence::Likely,
        _ => Confidence::Proved,
    };
    let described = |entry: &Option<Vec<Rank>>| match entry {
        Some(members) => format!("new_group({})", list(members)),
        None => "none".to_owned(),
    };
    let mut facts = Vec::new();
    if let Some(common) = &divergence.common {
        facts.push(format!(
            "group number {nth} of the other ranks is {}",
            described(&Some(common.clone()))
        ));
    }
    for (rank, entry, how) in &divergence.others {
        facts.push(format!("that of rank {rank} is {}", described(entry)));
        if kind == HangKind::GroupOrder && *how == Change::Skips {
            facts.push(format!(
                "rank {rank} has not made {}, and makes another group first: whether it makes it later or never is not known",
                described(&divergence.common)
            ));
        }
    }
    let named_ranks = named(&others);
    let make = verb(&others, "makes", "make");
    let summary = match kind {
        HangKind::GroupSkipped => leaves_out(&others, nth, &described(&divergence.common)),
        HangKind::GroupOrder => {
            format!(
                "{named_ranks} {make} groups in another order than the others from number {nth} on"
            )
        }
        _ if divergence.common.is_none() => {
            format!("{named_ranks} do not agree on the members of group number {nth}")
        }
        _ => format!("{named_ranks} {make} group number {nth} with other members than the others"),
    };
    let culprits = match divergence.is_tie() {
        true => Vec::new(),
        false => certainty.culprits(others),
    };
    Some(conclude(evidence, kind, confidence, culprits, summary).because(facts))
}

/// Finds a group that only its members make, where as many ranks make another one instead: these do not belong to it, and have left it
/// out. Likely at most: they may make it next.
fn made_by_members_only(
    evidence: &HangEvidence,
    divergence: &Divergence<Vec<Rank>>,
) -> Option<Diagnosis> {
    if divergence.agreeing > 0 || divergence.others.len() < evidence.ranks.len() {
        return None;
    }
    let makers_of = |group: &Vec<Rank>| -> Vec<Rank> {
        let others = divergence.others.iter();
        let makers = others.filter(|(_, entry, _)| entry.as_ref() == Some(group));
        makers.map(|(rank, ..)| *rank).collect()
    };
    let groups = divergence
        .others
        .iter()
        .filter_map(|(_, entry, _)| entry.as_ref());
    let mut own: Vec<&Vec<Rank>> = groups.filter(|group| makers_of(group) == **group).collect();
    own.dedup();
    let [group] = own[..] else { return None };
    let culprits: Vec<Rank> = (divergence.others.iter())
        .filter(|(rank, ..)| !group.contains(rank))
        .map(|(rank, ..)| *rank)
        .collect();
    if culprits.is_empty() || group.len() < 2 {
        return None;
    }
    let call = format!("new_group({})", list(group));
    let summary = leaves_out(&culprits, divergence.place + 1, &call);
    let facts = vec![format!("only its members make it: {}", named(group))];
    let (kind, confidence) = (HangKind::GroupSkipped, Confidence::Likely);
    Some(conclude(evidence, kind, confidence, culprits, summary).because(facts))
}

/// Says that ranks leave out group number `nth` of the others, counted from 1; `group` is the call that makes it.
pub(crate) fn leaves_out(ranks: &[Rank], nth: usize, group: &str) -> String {
    format!(
        "{} {} not make group number {nth}, {group}, which every rank has to make, member or not",
        named(ranks),
        verb(ranks, "does", "do")
    )
}

/// Counts the groups that a rank has made or is making.
pub(crate) fn groups(state: &RankState) -> usize {
    state
        .entered()
        .filter(|event| matches!(event.what, EventKind::NewGroup(_)))
        .count()
}

/// Returns the world size: the largest that a rank was given, and at least the number of ranks that are seen.
fn world_size(evidence: &HangEvidence) -> usize {
    let made = evidence.ranks.iter().flat_map(RankState::entered);
    let made = made.filter_map(|event| match &event.what {
        EventKind::Init(rendezvous) => Some(rendezvous.world_size as usize),
        _ => None,
    });
    made.max().unwrap_or(0).max(evidence.ranks.len())
}

/// Returns true if it is making a group and its remaining calls are not known.
fn is_making(state: &RankState) -> bool {
    state.coming().is_none() && matches!(state.now(), Some(EventKind::NewGroup(_)))
}

/// Returns true if it is between calls or in its own work, and its remaining calls are not known: it may make more
/// groups before it waits for another rank.
fn is_between(state: &RankState) -> bool {
    let is_free = state.is_there() && matches!(state.now(), None | Some(EventKind::Own(_)));
    state.coming().is_none() && is_free
}

/// Returns the members of each group that a rank has made or is known to make, in order.
fn made(state: &RankState) -> List<Vec<Rank>> {
    List::of(state, |what| match what {
        EventKind::NewGroup(members) => Some(members),
        _ => None,
    })
}
