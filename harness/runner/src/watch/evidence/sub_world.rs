//! Finds a world that only some of a job's ranks are in, by a store that the program made.

use std::collections::{BTreeMap, BTreeSet};

use crate::watch::ranks::rank_process::RankProcess;
use crate::watch::trace::call::Call;
use crate::watch::trace::call_trace::CallTrace;
use allranks_model::names::Rank;

/// A world of some of a job's ranks, which have met at a place of their own, and may have been in different numbers of worlds before.
pub struct SubWorld {
    pub place: String,
    /// Its members: the rank in this world, and the one that the launcher gave.
    members: BTreeMap<u32, Rank>,
}

impl SubWorld {
    /// Returns the world that the rank whose calls wait longest is in, if ranks of this job have met at different places by stores
    /// that the program made; none if all are in one world.
    pub fn of(ranks: &[(Rank, &RankProcess)]) -> Option<Self> {
        let traced = || {
            let all = ranks.iter();
            all.filter_map(|(rank, one)| Some((*rank, one.call_trace.as_ref()?)))
        };
        let mut places: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for (_, call_trace) in traced() {
            for (epoch, one) in stores(call_trace) {
                places.entry(epoch).or_default().insert(one.place);
            }
        }
        if places.values().all(|places| places.len() < 2) {
            return None;
        }
        let held = traced().filter_map(|(_, call_trace)| {
            let inside = call_trace.inside.as_ref()?;
            let is_of_group = !matches!(inside.entry.call, Call::Store { .. } | Call::Rpc { .. });
            Some((!is_of_group, inside.entry.epoch, call_trace))
        });
        let (_, epoch, call_trace) =
            held.min_by_key(|(is_of_none, epoch, _)| (*is_of_none, *epoch))?;
        let place = stores(call_trace)
            .find(|(own, _)| *own == epoch)?
            .1
            .place
            .to_owned();
        let members = traced().filter_map(|(rank, call_trace)| {
            let (_, met) = stores(call_trace)
                .filter(|(_, one)| one.place == place)
                .last()?;
            Some((met.rank, rank))
        });
        let members = members.collect();
        Some(Self { place, members })
    }

    /// Returns the number of this world among those of a rank; none if it has not come to it.
    pub fn epoch(&self, call_trace: &CallTrace) -> Option<u32> {
        let met = stores(call_trace).filter(|(_, one)| one.place == self.place);
        met.last().map(|(epoch, _)| epoch)
    }

    /// Returns the rank that the launcher gave a rank of this world; none if it has not come to it.
    pub fn member(&self, rank: Rank) -> Option<Rank> {
        self.members.get(&rank.0).copied()
    }
}

/// Where a rank has met others by a store that the program made.
struct StoreInit<'a> {
    place: &'a str,
    rank: u32,
}

/// Returns the inits of a rank by stores that the program made, each with the number of its world.
fn stores(call_trace: &CallTrace) -> impl Iterator<Item = (u32, StoreInit<'_>)> {
    call_trace
        .entries
        .iter()
        .filter_map(|entry| match &entry.call {
            Call::Init {
                method,
                place,
                rank: Some(rank),
                ..
            } if method == "store" => {
                let rank = (*rank).try_into().ok()?;
                Some((entry.epoch, StoreInit { place, rank }))
            }
            _ => None,
        })
}
