//! Builds hang evidence for each rank from processes and their call traces.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::compared_world::ComparedWorld;
use crate::watch::endpoints::hosts::Hosts;
use crate::watch::endpoints::reach::Reach;
use crate::watch::ranks::job::RankProcess;
use crate::watch::waits::deadlock;
use crate::watch::waits::file_locks;
use crate::watch::waits::shared_memory;
use allranks_diagnose::{
    Collective, EventKind, ForeignListener, HangEvidence, Rendezvous, TraceEvent,
};
use allranks_model::names::Rank;

/// Returns the hang evidence of a job at this moment; none while addresses that it uses are still being looked up.
///
/// `assume_whole`: true to assume that no more ranks will be started on this host.
pub fn evidence(
    ranks: &[(Rank, &RankProcess)],
    is_ours: &dyn Fn(u32) -> bool,
    hosts: &mut Hosts,
    still: Duration,
    assume_whole: bool,
) -> Option<HangEvidence> {
    let is_whole = is_whole(ranks, assume_whole);
    let mut evidence = evidence_of_ranks(ranks, hosts, still, is_whole)?;
    evidence.foreign_listeners = foreign_listeners(is_ours, &evidence);
    file_locks::note_waits(&mut evidence, ranks);
    shared_memory::note_waits(&mut evidence, ranks);
    deadlock::note(&mut evidence, ranks);
    Some(evidence)
}

/// The same without what else is on this machine: for ranks that were looked at elsewhere.
pub fn evidence_of_ranks(
    ranks: &[(Rank, &RankProcess)],
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
pub fn as_assigned(
    evidence: &HangEvidence,
    ranks: &[(Rank, &RankProcess)],
    is_ours: &dyn Fn(u32) -> bool,
    hosts: &mut Hosts,
) -> Option<HangEvidence> {
    let mut evidence = evidence.clone();
    for (state, (_, process)) in evidence.ranks.iter_mut().zip(ranks) {
        let numbers = process
            .number("RANK")
            .zip(process.number("WORLD_SIZE"))
            .zip(assigned_endpoint(process));
        if let Some(((rank, world_size), place)) = numbers
            && state.doing.is_none()
        {
            let rendezvous = Rendezvous {
                method: "env".to_owned(),
                place: hosts.place(&place)?,
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
    evidence.foreign_listeners = foreign_listeners(is_ours, &evidence);
    Some(evidence)
}

/// Returns true if all processes of the job are on this host, and none is to be started.
pub fn is_whole(ranks: &[(Rank, &RankProcess)], assume: bool) -> bool {
    if ranks.iter().any(|(_, process)| process.more_may_start) {
        return false;
    }
    let largest = |name: &str| {
        let numbers = ranks.iter().filter_map(|(_, process)| process.number(name));
        numbers.max().map(|number| number as usize)
    };
    // Other nodes may have the missing ranks, unless the launcher says how many ranks this host has.
    match (largest("WORLD_SIZE"), largest("LOCAL_WORLD_SIZE")) {
        (Some(size), _) if ranks.len() >= size => true,
        (Some(size), Some(here)) => assume && here >= size,
        (Some(_), None) => assume && meets_on_this_host(ranks) && !is_elsewhere_here(ranks),
        (None, _) => assume,
    }
}

/// Returns true if all ranks meet at an address that no other host can reach.
fn meets_on_this_host(ranks: &[(Rank, &RankProcess)]) -> bool {
    ranks.iter().all(|(_, process)| {
        let address = process.environment.get("MASTER_ADDR").map(String::as_str);
        matches!(address, Some("localhost" | "127.0.0.1" | "::1"))
    })
}

/// Returns true if other processes of this host have the same endpoint, such as those of another launcher.
fn is_elsewhere_here(ranks: &[(Rank, &RankProcess)]) -> bool {
    let ports: BTreeSet<&String> = ranks
        .iter()
        .filter_map(|(_, process)| process.environment.get("MASTER_PORT"))
        .collect();
    let known: BTreeSet<Option<&String>> = ranks
        .iter()
        .map(|(_, process)| process.environment.get("RANK"))
        .collect();
    ports.iter().any(|port| {
        let members = allranks_host::members("MASTER_PORT", port);
        let mut others = members.iter().map(|one| one.environment.get("RANK"));
        others.any(|rank| rank.is_some() && !known.contains(&rank))
    })
}

/// Returns the endpoint that the launcher told the process, `HOST:PORT`; none if it told none.
pub fn assigned_endpoint(process: &RankProcess) -> Option<String> {
    let value = |name: &str| process.environment.get(name);
    Some(format!(
        "{}:{}",
        value("MASTER_ADDR")?,
        value("MASTER_PORT")?
    ))
}
/// Returns the endpoints on other machines that ranks of this evidence dial, and the reason why nothing answers there; none while
/// an endpoint is being tried. An endpoint that any process of this machine has a connection to is reached.
pub fn endpoints_without_listener(
    evidence: &HangEvidence,
    reach: &mut Reach,
) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    let dialled: BTreeSet<&str> = (evidence.ranks.iter())
        .filter_map(|state| match state.now() {
            Some(EventKind::Init(rendezvous)) => Some(rendezvous.place.as_str()),
            _ => None,
        })
        .filter(|place| !place.starts_with("localhost:"))
        .collect();
    for place in dialled {
        let Some((host, port)) = place.rsplit_once(':') else {
            continue;
        };
        let Ok(port) = port.parse() else { continue };
        if allranks_host::is_connected_to(port) {
            continue;
        }
        if let Some(reason) = reach.unreachable_reason(host, port)? {
            found.push((place.to_owned(), reason));
        }
    }
    Some(found)
}

/// Returns foreign processes that listen where ranks want to meet.
pub fn foreign_listeners(
    is_ours: &dyn Fn(u32) -> bool,
    evidence: &HangEvidence,
) -> Vec<ForeignListener> {
    let meetings = evidence.ranks.iter().filter_map(|state| {
        let waits = matches!(state.now(), Some(EventKind::Init(_))) || !state.errors.is_empty();
        let last = state.entered().last().filter(|_| waits)?;
        match &last.what {
            EventKind::Init(rendezvous) if rendezvous.place.starts_with("localhost:") => {
                rendezvous.address()
            }
            _ => None,
        }
    });
    let mut ports: Vec<u16> = meetings.map(|(_, port)| port).collect();
    ports.sort_unstable();
    ports.dedup();
    crate::foreign_listeners::foreign_listeners(&ports, is_ours)
}
