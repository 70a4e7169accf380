//! Finds ranks whose own threads wait for each other, by the kernel's account of each thread.

use std::time::Duration;

use crate::watch::ranks::rank_process::RankProcess;
use allranks_diagnose::{Deadlock, EventKind, HangEvidence};
use allranks_host::Thread;
use allranks_model::names::Rank;

/// The name that the call trace gives the thread that writes it: see `allranks_trace.py`.
const TRACE_THREAD: &str = "allranks-watch";
/// For how long a rank has made no call before its threads are looked at.
const MOMENT: Duration = Duration::from_secs(1);

/// Replaces code of a rank's own by a deadlock, where all its threads wait for each other.
pub fn note(evidence: &mut HangEvidence, ranks: &[(Rank, &RankProcess)]) {
    for state in &mut evidence.ranks {
        let Some((event, since)) = &mut state.doing else {
            continue;
        };
        let EventKind::Own(text) = &event.what else {
            continue;
        };
        let process = ranks.iter().find(|(rank, _)| *rank == state.rank);
        let Some((_, process)) = process.filter(|(_, process)| process.lives()) else {
            continue;
        };
        if *since < MOMENT {
            continue;
        }
        let is_of_trace = |thread: &Thread| thread.name == TRACE_THREAD;
        if let Some(found) = allranks_host::deadlock(process.pid, &is_of_trace) {
            event.what = EventKind::Deadlock(Deadlock {
                text: text.clone(),
                facts: found.facts,
            });
        }
    }
}
