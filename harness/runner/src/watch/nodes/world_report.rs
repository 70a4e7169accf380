//! The verdict on a world from the evidence of its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use super::evidence_paths::files;
use super::node_evidence::{EvidenceError, NodeEvidence, read};
use super::seen_place::SeenPlace;
use crate::watch::endpoints::hosts::Hosts;
use crate::watch::evidence::hang_evidence::evidence_of_ranks;
use crate::watch::ranks::job::Job;
use crate::watch::ranks::rank_process::RankProcess;
use crate::watch::trace::call_trace::CallTrace;
use allranks_diagnose::{HangEvidence, diagnose, list};
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Before that, what ranks do counts as progress.
const MOMENT: f64 = 1.0;

/// What the evidence of the nodes of one world comes to.
#[derive(Clone, Debug)]
pub struct WorldReport {
    /// Where its ranks meet.
    pub world: String,
    /// The verdict; none if the ranks moved when it was written.
    pub verdict: Option<Diagnosis>,
    /// What must be known to judge it.
    pub notes: Vec<String>,
}

/// Reads the evidence of these files and folders, and judges every world.
///
/// # Errors
/// A file cannot be read, or is none of evidence.
pub fn judge(paths: &[PathBuf]) -> Result<Vec<WorldReport>, EvidenceError> {
    let files = paths.iter().flat_map(|path| files(path));
    let nodes: Result<Vec<NodeEvidence>, _> = files.map(|path| read(&path)).collect();
    Ok(judge_nodes(nodes?))
}

/// Judges every world that this evidence is of.
pub fn judge_nodes(nodes: Vec<NodeEvidence>) -> Vec<WorldReport> {
    let mut worlds: BTreeMap<String, Vec<NodeEvidence>> = BTreeMap::new();
    for one in nodes {
        worlds.entry(one.world().to_owned()).or_default().push(one);
    }
    worlds.into_values().map(report).collect()
}

/// The evidence with each rank that keeps no trace where its stack was seen.
fn with_places(
    mut evidence: HangEvidence,
    ranks: &[(Rank, &RankProcess)],
    places: &BTreeMap<u32, &SeenPlace>,
) -> HangEvidence {
    for (state, (_, process)) in evidence.ranks.iter_mut().zip(ranks) {
        if let Some(place) = places.get(&state.rank.0)
            && process.traced.is_none()
            && state.doing.is_none()
        {
            state.doing = Some(place.event(process));
        }
    }
    evidence
}

fn report(mut nodes: Vec<NodeEvidence>) -> WorldReport {
    let mut notes = Vec::new();
    // The newest first: what is of an earlier run, or of a rank that is in a newer file, counts no more.
    nodes.sort_by(|one, other| other.at().total_cmp(&one.at()));
    let mut kept: Vec<NodeEvidence> = Vec::new();
    for node in nodes {
        let is_old = kept
            .iter()
            .any(|newer| !newer.is_beside(&node) || !newer.numbers().is_disjoint(&node.numbers()));
        match is_old {
            true => notes.push(format!(
                "evidence of an earlier run on {} is left out: that of {}",
                node.host(),
                named(&node.ranks())
            )),
            false => kept.push(node),
        }
    }
    let world = kept
        .first()
        .map_or_else(String::new, |node| node.world().to_owned());
    let processes: Vec<RankProcess> = kept.iter().flat_map(NodeEvidence::processes).collect();
    let job = Job::of_world(processes);
    let ranks = job.ranks();
    let seen: BTreeSet<Rank> = ranks.iter().map(|(rank, _)| *rank).collect();
    let size = (ranks.iter())
        .filter_map(|(_, process)| process.world_size())
        .max();
    let absent: Vec<Rank> = (0..size.unwrap_or(0))
        .map(Rank)
        .filter(|rank| !seen.contains(rank))
        .collect();
    let is_whole = absent.is_empty() || kept.len() == 1 && kept[0].is_whole();
    if !is_whole {
        notes.push(format!(
            "the evidence of {} is absent: run `allranks watch --evidence DIR` on their nodes, and name all folders",
            named(&absent)
        ));
    }
    let least =
        |value: fn(&NodeEvidence) -> f64| kept.iter().map(value).fold(f64::INFINITY, f64::min);
    let still = least(|node| node.still_s());
    let most = |value: fn(&NodeEvidence) -> f64| kept.iter().map(value).fold(0.0, f64::max);
    // Only what all nodes had stood in at one time is one picture.
    let is_one_picture = most(|node| node.at() - node.still_s()) <= least(|node| node.at());
    if !is_one_picture {
        notes.push("the nodes' evidence is of different times, and is not compared".to_owned());
    }
    let mut verdict = None;
    if still >= MOMENT && is_one_picture {
        let seen = evidence_of_ranks(
            &ranks,
            &mut Hosts::unresolved(),
            Duration::from_secs_f64(still),
            is_whole,
        );
        let has_stale = (ranks.iter())
            .any(|(_, rank)| rank.call_trace.as_ref().is_some_and(CallTrace::is_stale));
        let places: BTreeMap<u32, &SeenPlace> =
            (kept.iter().flat_map(NodeEvidence::seen_places)).collect();
        let seen = seen.map(|seen| with_places(seen, &ranks, &places));
        verdict = seen.map(|seen| diagnose(&seen));
        if let Some(one) = &mut verdict
            && (!is_whole || has_stale || !places.is_empty() && one.kind != HangKind::PeerStopped)
            && one.confidence == Confidence::Proved
        {
            one.confidence = Confidence::Likely;
        }
    }
    let patience = most(|node| node.patience_s());
    let is_due = |one: &Diagnosis| one.confidence == Confidence::Proved || still >= patience;
    if verdict.as_ref().is_some_and(|one| !is_due(one)) {
        notes.push(format!(
            "nothing had moved for {still:.0} s when the evidence was written: too short to judge it"
        ));
        verdict = None;
    } else if still < MOMENT {
        notes.push("not hung: ranks moved when the evidence was written".to_owned());
    }
    let hosts: Vec<String> = kept
        .iter()
        .map(|node| {
            format!(
                "evidence of ranks {} is from {}",
                list(&node.ranks()),
                node.host()
            )
        })
        .collect();
    notes.splice(0..0, hosts);
    if let Some(one) = &mut verdict
        && matches!(one.kind, HangKind::Slow | HangKind::Unknown)
    {
        one.confidence = Confidence::None;
    }
    WorldReport {
        world,
        verdict,
        notes,
    }
}
