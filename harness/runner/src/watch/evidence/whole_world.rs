//! Decides whether all ranks of a world are on this host.

use std::collections::BTreeSet;

use crate::watch::ranks::rank_process::RankProcess;
use allranks_model::names::Rank;

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
