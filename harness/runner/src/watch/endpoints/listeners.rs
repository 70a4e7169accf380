//! What listens, or does not, at the endpoints that ranks dial.

use std::collections::BTreeSet;

use super::reach::Reach;
use allranks_diagnose::{EventKind, ForeignListener, HangEvidence};

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
