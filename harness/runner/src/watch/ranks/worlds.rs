//! The worlds that ranks are in, and their numbers there.

use std::collections::{BTreeMap, BTreeSet};

use super::rank_process::RankProcess;
use allranks_model::names::Rank;

/// Returns the worlds that the ranks are in. Ranks with the same endpoint are one world. So are ranks with
/// different endpoints, unless two endpoints have the same rank, or one has all ranks that its world needs.
pub fn worlds<'a>(all: impl Iterator<Item = &'a RankProcess>) -> Vec<Vec<(Rank, &'a RankProcess)>> {
    let mut places: BTreeMap<String, Vec<&RankProcess>> = BTreeMap::new();
    for rank in all {
        places.entry(rank.place()).or_default().push(rank);
    }
    let claims = |ranks: &[&RankProcess]| -> BTreeSet<u32> {
        ranks
            .iter()
            .filter(|rank| rank.lives())
            .filter_map(|rank| rank.claimed())
            .collect()
    };
    let size = |ranks: &[&RankProcess]| ranks.iter().filter_map(|rank| rank.world_size()).max();
    let is_complete = |ranks: &[&RankProcess]| {
        size(ranks).is_some_and(|size| size > 1 && claims(ranks).len() >= size as usize)
    };
    let mut worlds: Vec<Vec<&RankProcess>> = Vec::new();
    for (_, ranks) in places {
        let fits = |world: &&mut Vec<&RankProcess>| {
            let shares = !claims(world).is_disjoint(&claims(&ranks));
            let is_dead =
                !ranks.iter().any(|rank| rank.lives()) || !world.iter().any(|rank| rank.lives());
            !shares
                && !is_dead
                && !is_complete(world)
                && !is_complete(&ranks)
                && size(world) == size(&ranks)
        };
        match worlds.iter_mut().find(fits) {
            Some(world) => world.extend(ranks),
            None => worlds.push(ranks),
        }
    }
    worlds.iter().map(|world| numbered(world)).collect()
}

/// Numbers ranks: each gets the rank that it claims; a process whose claim is taken, or that makes none, gets a free
/// number.
pub fn numbered<'a>(ranks: &[&'a RankProcess]) -> Vec<(Rank, &'a RankProcess)> {
    let mut taken: BTreeMap<u32, &RankProcess> = BTreeMap::new();
    let mut others = Vec::new();
    for rank in ranks {
        match rank.claimed().filter(|number| !taken.contains_key(number)) {
            Some(number) => {
                taken.insert(number, rank);
            }
            None => others.push(rank),
        }
    }
    for rank in others {
        let free = (0..).find(|number| !taken.contains_key(number));
        taken.insert(free.unwrap_or_default(), rank);
    }
    taken
        .into_iter()
        .map(|(number, rank)| (Rank(number), rank))
        .collect()
}
