//! Finds ranks that wait for an answer at a connection whose other end another rank has.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::watch::ranks::rank_process::RankProcess;
use allranks_diagnose::{EventKind, HangEvidence, RankState, RankWait};
use allranks_model::names::Rank;

/// Replaces code of a rank's own by a wait for another rank, where the rank waits, by its call trace, for data at a connection whose other
/// end the other rank has or, before it has accepted the connection, listens at. It is not proved: a thread of the other rank's may answer.
/// One does where data comes, so ranks that are `receiving` are left out.
pub fn note_waits(
    evidence: &mut HangEvidence,
    ranks: &[(Rank, &RankProcess)],
    receiving: &BTreeSet<Rank>,
) {
    for (rank, process) in ranks.iter().filter(|(rank, _)| !receiving.contains(rank)) {
        let mut states = evidence.ranks.iter_mut();
        if let Some(state) = states.find(|state| state.rank == *rank && is_own(state))
            && let Some((own, other)) = connection_of(process)
            && let Some(holder) = allranks_host::holder_of_other_end(own, other)
            && let Some((holder, _)) = ranks.iter().find(|(_, process)| process.pid == holder)
            && holder != rank
            && let Some((event, _)) = &mut state.doing
        {
            event.what = EventKind::AwaitRanks(RankWait {
                text: format!(
                    "a wait at its connection to {other}, whose other end rank {holder} has"
                ),
                ranks: vec![*holder],
                is_proved: false,
            });
        }
    }
}

/// Returns both ends of the connection at which a rank waits, its own first; none if it waits at none that is known.
fn connection_of(process: &RankProcess) -> Option<(SocketAddr, SocketAddr)> {
    let own = process.call_trace.as_ref()?.own.as_ref()?;
    let [own, other] = own.connection.as_ref()?;
    Some((own.parse().ok()?, other.parse().ok()?))
}

/// Returns true if a rank is in code of its own.
fn is_own(state: &RankState) -> bool {
    matches!(state.now(), Some(EventKind::Own(_)))
}
