//! Groups: every rank of the world must make them in the same order, with the same members, whether it belongs to them
//! or not (documentation of `torch.distributed.new_group`). PyTorch does not notice when they do not.

use super::call_sequence::{Change, List, parting};
use super::evidence::{EventKind, HangEvidence, RankState, list};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// What is wrong with the order or the members of groups.
#[must_use]
pub fn contradiction(evidence: &HangEvidence) -> Option<Diagnosis> {
    let lists: Vec<List<Vec<Rank>>> = evidence.ranks.iter().map(made).collect();
    let parting = parting(&lists)?;
    let nth = parting.place + 1;
    let culprits: Vec<Rank> = parting.others.iter().map(|(rank, ..)| *rank).collect();
    let sights = || {
        let sights = evidence.ranks.iter();
        sights.filter(|sight| culprits.contains(&sight.rank))
    };
    let (_, _, how) = parting.others.first()?;
    let kind = match how {
        // What it seems to leave out may be what it makes next: all that is known is that it makes another one first.
        Change::Skips if sights().any(is_making) => HangKind::GroupOrder,
        Change::Skips => HangKind::GroupSkipped,
        Change::Reorders => HangKind::GroupOrder,
        Change::Replaces => HangKind::GroupMembersDiffer,
    };
    let confidence = match kind {
        HangKind::GroupOrder => Confidence::Proved,
        _ if sights().any(is_between) => Confidence::Likely,
        _ => Confidence::Proved,
    };
    let said = |entry: &Option<Vec<Rank>>| match entry {
        Some(members) => format!("new_group({})", list(members)),
        None => "none".to_owned(),
    };
    let mut facts = Vec::new();
    if let Some(common) = &parting.common {
        facts.push(format!(
            "group number {nth} of the other ranks is {}",
            said(&Some(common.clone()))
        ));
    }
    for (rank, entry, how) in &parting.others {
        facts.push(format!("that of rank {rank} is {}", said(entry)));
        if kind == HangKind::GroupOrder && *how == Change::Skips {
            facts.push(format!(
                "rank {rank} has not made {}, and makes another group first: whether it makes it later or never is not known",
                said(&parting.common)
            ));
        }
    }
    let who = list(&culprits);
    let summary = match kind {
        HangKind::GroupSkipped => format!(
            "rank {who} does not make group number {nth}, {}, which every rank has to make, member or not",
            said(&parting.common)
        ),
        HangKind::GroupOrder => {
            format!(
                "rank {who} makes its groups in another order than the others from number {nth} on"
            )
        }
        _ => format!("rank {who} makes group number {nth} with other members than the others"),
    };
    Some(conclude(evidence, kind, confidence, culprits, summary).because(facts))
}

/// Whether it is making a group, and may make more.
fn is_making(sight: &RankState) -> bool {
    sight.coming().is_none() && matches!(sight.now(), Some(EventKind::NewGroup(_)))
}

/// Whether it is on its way, and may make more groups before it meets anybody.
fn is_between(sight: &RankState) -> bool {
    let is_free = sight.is_there() && matches!(sight.now(), None | Some(EventKind::Own(_)));
    sight.coming().is_none() && is_free
}

/// The groups a rank makes.
fn made(sight: &RankState) -> List<Vec<Rank>> {
    List::of(sight, |what| match what {
        EventKind::NewGroup(members) => Some(members),
        _ => None,
    })
}
