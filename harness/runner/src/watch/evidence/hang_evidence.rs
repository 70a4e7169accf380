//! Builds hang evidence for each rank from processes and their call traces.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::compared_world::ComparedWorld;
use super::whole_world::is_whole;
use super::world_view::{Ranks, WorldView};
use crate::watch::endpoints::hosts::Hosts;
use crate::watch::endpoints::listeners::foreign_listeners;
use crate::watch::waits::connections;
use crate::watch::waits::deadlock;
use crate::watch::waits::file_locks;
use crate::watch::waits::shared_memory;
use allranks_diagnose::{Collective, EventKind, HangEvidence, Rendezvous, TraceEvent, batch};

/// Returns the hang evidence of a job at this moment; none while addresses that it uses are still being looked up.
///
/// `assume_whole`: true to assume that no more ranks will be started on this host.
pub fn evidence(view: &mut WorldView<'_>, assume_whole: bool) -> Option<HangEvidence> {
    let ranks = view.ranks;
    let is_whole = is_whole(ranks, assume_whole);
    let mut evidence = evidence_of_ranks(ranks, view.hosts, view.still, is_whole)?;
    evidence.foreign_listeners = foreign_listeners(view.is_ours, &evidence);
    file_locks::note_waits(&mut evidence, ranks);
    connections::note_waits(&mut evidence, ranks, &view.receiving);
    shared_memory::note_waits(&mut evidence, ranks);
    deadlock::note(&mut evidence, ranks);
    Some(evidence)
}

/// The same without what else is on this machine: for ranks that were looked at elsewhere.
pub fn evidence_of_ranks(
    ranks: &Ranks<'_>,
    hosts: &mut Hosts,
    still: Duration,
    is_whole: bool,
) -> Option<HangEvidence> {
    let world = ComparedWorld::of(ranks);
    let mut states = Vec::new();
    for (rank, process) in ranks {
        states.push(world.state(*rank, process, hosts)?);
    }
    let mut evidence = HangEvidence {
        ranks: states,
        is_whole,
        foreign_listeners: Vec::new(),
        endpoints_without_listener: Vec::new(),
        forgotten: world.starts.into_iter().collect(),
        still,
    };
    agree_on_natures(&mut evidence);
    batch::settle(&mut evidence);
    Some(evidence)
}

/// Removes parameters of a collective that only some of its ranks know, because they cannot be compared: a call that
/// C++ code made has no reduce op.
fn agree_on_natures(evidence: &mut HangEvidence) {
    type Key = (String, usize, String);
    let mut known: HashMap<Key, BTreeMap<&'static str, usize>> = HashMap::new();
    let mut counts: HashMap<Key, usize> = HashMap::new();
    let each = |evidence: &mut HangEvidence, act: &mut dyn FnMut(Key, &mut Collective)| {
        for state in &mut evidence.ranks {
            let mut numbers: HashMap<String, usize> = HashMap::new();
            let doing = state.doing.as_mut().map(|(event, _)| event);
            for event in state.done.iter_mut().chain(doing) {
                if let EventKind::Collective(one) = &mut event.what {
                    let number = numbers.entry(one.group.clone()).or_default();
                    act((one.group.clone(), *number, one.name.clone()), one);
                    *number += 1;
                }
            }
        }
    };
    each(evidence, &mut |key, one| {
        *counts.entry(key.clone()).or_default() += 1;
        let natures = known.entry(key).or_default();
        for name in one.nature.keys() {
            *natures.entry(name).or_default() += 1;
        }
    });
    each(evidence, &mut |key, one| {
        let all = counts[&key];
        one.nature
            .retain(|name, _| known[&key].get(name) == Some(&all));
    });
}

/// Returns the evidence with each rank that writes no call trace placed in the init that its launcher's variables
/// describe; none while an address is being looked up.
pub fn as_assigned(evidence: &HangEvidence, view: &mut WorldView<'_>) -> Option<HangEvidence> {
    let mut evidence = evidence.clone();
    for (state, (_, process)) in evidence.ranks.iter_mut().zip(view.ranks) {
        let numbers = process
            .number("RANK")
            .zip(process.number("WORLD_SIZE"))
            .zip(process.assigned_endpoint());
        if let Some(((rank, world_size), place)) = numbers
            && state.doing.is_none()
        {
            let rendezvous = Rendezvous {
                method: "env".to_owned(),
                place: view.hosts.place(&place)?,
                assigned: None,
                rank,
                world_size,
            };
            let event = TraceEvent {
                what: EventKind::Init(rendezvous),
                at: String::new(),
            };
            state.doing = Some((event, evidence.still));
        }
    }
    evidence.foreign_listeners = foreign_listeners(view.is_ours, &evidence);
    Some(evidence)
}
