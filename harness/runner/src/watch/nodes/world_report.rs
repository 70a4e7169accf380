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

/// Seconds without progress before which ranks are not judged.
const SHORTEST_STANDSTILL_S: f64 = 1.0;

/// The verdict on one world, from the evidence of its nodes.
#[derive(Clone, Debug)]
pub struct WorldReport {
    /// The endpoint of its rendezvous and the generation of its init.
    pub world: String,
    /// The verdict; none if the ranks moved when it was written.
    pub verdict: Option<Diagnosis>,
    /// What limits the verdict, and which nodes the evidence is from; one sentence each.
    pub notes: Vec<String>,
}

/// Reads the evidence of these files and folders, and judges every world.
///
/// # Errors
/// A file cannot be read, or is not a file of evidence.
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

/// Returns the evidence with each rank that keeps no call trace where its call stack was seen.
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

/// Judges one world from the evidence of its nodes.
fn report(nodes: Vec<NodeEvidence>) -> WorldReport {
    let (nodes, mut notes) = without_earlier_runs(nodes);
    let job = Job::of_world(nodes.iter().flat_map(NodeEvidence::processes).collect());
    let ranks = job.ranks();
    let absent = absent_ranks(&ranks);
    let is_whole = absent.is_empty() || nodes.len() == 1 && nodes[0].is_whole();
    if !is_whole {
        notes.push(format!(
            "the evidence of {} is absent: run `allranks watch --evidence DIR` on their nodes, and name all folders",
            named(&absent)
        ));
    }
    let still = least(&nodes, NodeEvidence::still_s);
    // Evidence is compared only if there is a time at which all nodes stood still.
    let stood_still_from = most(&nodes, |node| node.at() - node.still_s());
    let overlaps = stood_still_from <= least(&nodes, NodeEvidence::at);
    if !overlaps {
        notes.push("the nodes' evidence is of different times, and is not compared".to_owned());
    }
    let mut verdict = match still >= SHORTEST_STANDSTILL_S && overlaps {
        true => verdict(&nodes, &ranks, still, is_whole),
        false => None,
    };
    let patience = most(&nodes, NodeEvidence::patience_s);
    let is_due = |one: &Diagnosis| one.confidence == Confidence::Proved || still >= patience;
    if verdict.as_ref().is_some_and(|one| !is_due(one)) {
        notes.push(format!(
            "nothing had moved for {still:.0} s when the evidence was written: too short to judge it"
        ));
        verdict = None;
    } else if still < SHORTEST_STANDSTILL_S {
        notes.push("not hung: ranks moved when the evidence was written".to_owned());
    }
    if let Some(one) = &mut verdict
        && matches!(one.kind, HangKind::Slow | HangKind::Unknown)
    {
        one.confidence = Confidence::None;
    }
    let sources = nodes.iter().map(|node| {
        let ranks = list(&node.ranks());
        format!("evidence of ranks {ranks} is from {}", node.host())
    });
    let world = nodes.first().map(NodeEvidence::world);
    WorldReport {
        world: world.unwrap_or_default().to_owned(),
        verdict,
        notes: sources.chain(notes).collect(),
    }
}

/// Returns the evidence of the newest run, the newest first, and a note for each that is left out: it is of an earlier run, or of a
/// rank that newer evidence has.
fn without_earlier_runs(mut nodes: Vec<NodeEvidence>) -> (Vec<NodeEvidence>, Vec<String>) {
    nodes.sort_by(|one, other| other.at().total_cmp(&one.at()));
    let mut notes = Vec::new();
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
    (kept, notes)
}

/// Returns the ranks of the world that are not among these, as far as the world size that they know tells.
fn absent_ranks(ranks: &[(Rank, &RankProcess)]) -> Vec<Rank> {
    let present: BTreeSet<Rank> = ranks.iter().map(|(rank, _)| *rank).collect();
    let sizes = ranks.iter().filter_map(|(_, process)| process.world_size());
    (0..sizes.max().unwrap_or(0))
        .map(Rank)
        .filter(|rank| !present.contains(rank))
        .collect()
}

/// Judges ranks that stand still, for this many seconds at least. Nothing is proved by evidence that is not complete or not up to date.
fn verdict(
    nodes: &[NodeEvidence],
    ranks: &[(Rank, &RankProcess)],
    still_s: f64,
    is_whole: bool,
) -> Option<Diagnosis> {
    let still = Duration::from_secs_f64(still_s);
    let evidence = evidence_of_ranks(ranks, &mut Hosts::unresolved(), still, is_whole)?;
    let places: BTreeMap<u32, &SeenPlace> =
        (nodes.iter().flat_map(NodeEvidence::seen_places)).collect();
    let mut verdict = diagnose(&with_places(evidence, ranks, &places));
    let has_stale =
        (ranks.iter()).any(|(_, rank)| rank.call_trace.as_ref().is_some_and(CallTrace::is_stale));
    let is_by_stacks = !places.is_empty() && verdict.kind != HangKind::PeerStopped;
    if (!is_whole || has_stale || is_by_stacks) && verdict.confidence == Confidence::Proved {
        verdict.confidence = Confidence::Likely;
    }
    Some(verdict)
}

/// Returns the least value over nodes; infinity if there are none.
fn least(nodes: &[NodeEvidence], value: impl Fn(&NodeEvidence) -> f64) -> f64 {
    nodes.iter().map(value).fold(f64::INFINITY, f64::min)
}

/// Returns the greatest value over nodes, at least 0.
fn most(nodes: &[NodeEvidence], value: impl Fn(&NodeEvidence) -> f64) -> f64 {
    nodes.iter().map(value).fold(0.0, f64::max)
}
