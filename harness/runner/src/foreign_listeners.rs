//! Finds processes of other programs that listen at ports where the ranks of a job meet.

use std::net::Ipv4Addr;

use allranks_diagnose::ForeignListener;
use allranks_host::{StoreReply, describe, listeners, probe_store};

/// Returns the listeners at those of the ports at which no process of the job listens. `is_ours` tells by its id whether a
/// process is the job's. A port may have one listener for each address family; if one of them is the job's, the ranks meet
/// there.
#[must_use]
pub fn foreign_listeners(ports: &[u16], is_ours: impl Fn(u32) -> bool) -> Vec<ForeignListener> {
    if ports.is_empty() {
        return Vec::new();
    }
    let listeners = listeners(ports);
    let is_met = |port: u16| {
        let mut there = listeners.iter().filter(|one| one.port == port);
        there.any(|one| one.pid.is_some_and(&is_ours))
    };
    listeners
        .iter()
        .filter(|one| !is_met(one.port))
        .map(|one| ForeignListener {
            port: one.port,
            owner: one.owner(describe),
            is_silent: probe_store((Ipv4Addr::LOCALHOST, one.port).into())
                == Some(StoreReply::Silent),
        })
        .collect()
}
