//! Asks the host about a world: what its processes do, which foreign processes listen at its endpoints, and how much
//! memory is available.
//!
//! In: a [`HostQuery`]. Out: [`HostFacts`]. Reads `/proc`, and connects to ports on loopback.

use crate::foreign_listeners::foreign_listeners;
use allranks_diagnose::ForeignListener;
use allranks_host::Activity;
use allranks_host::activity;
use allranks_host::has_listener;
use allranks_host::is_asleep;
use allranks_host::resolves;
use allranks_model::names::Rank;

/// Names by which this machine reaches itself.
const LOCAL: &[&str] = &["127.0.0.1", "localhost", "[::1]"];

/// What the host is asked about a world in which nothing moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostQuery {
    /// For each rank, the process to look at; none if its state is known already (it has ended, or a script has stopped
    /// it), or it has said no hello.
    pub processes: Vec<Option<u32>>,
    /// The processes of all ranks that have said hello.
    pub ranks: Vec<u32>,
    /// Ports at which ranks want to meet.
    pub ports: Vec<u16>,
    /// One entry for each rank 0 that is in init.
    pub hosts: Vec<MeetingHost>,
}

/// A rank 0 that is in init, where the other ranks are to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeetingHost {
    /// The rank in the world, which may be another than 0 where a script numbers its ranks.
    pub rank: Rank,
    /// The id of the process.
    pub pid: u32,
    /// The endpoint, `host:port`.
    pub place: String,
    /// The endpoint's host.
    pub host: String,
    /// The endpoint's port.
    pub port: u16,
}

/// The host's answer to a [`HostQuery`].
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// What each process of the query does; none if it was not asked for, or the host does not tell.
    pub processes: Vec<Option<Activity>>,
    /// Processes that are no ranks of this world and listen at its endpoints.
    pub foreign_listeners: Vec<ForeignListener>,
    /// Endpoints at which no rank can be reached, each with the reason.
    pub endpoints_without_listener: Vec<(String, String)>,
    /// True if a rank was ready to run for much of the time since the last such facts, and was not let; false also where the host does
    /// not tell.
    pub is_machine_busy: bool,
}

/// Answers a query. May take seconds, because names are resolved and listeners are given time to send something.
pub fn facts(query: &HostQuery) -> HostFacts {
    let activity_of = |pid: &Option<u32>| pid.and_then(activity);
    HostFacts {
        processes: query.processes.iter().map(activity_of).collect(),
        foreign_listeners: foreign_listeners(&query.ports, |pid| query.ranks.contains(&pid)),
        endpoints_without_listener: query
            .hosts
            .iter()
            .filter_map(endpoints_without_listener)
            .collect(),
        is_machine_busy: false,
    }
}

/// Returns the endpoint and why no rank can be reached there: nothing listens at it on this machine, or its name has no
/// address. None if it may be reachable; also while rank 0 is not asleep, because it may be about to listen.
fn endpoints_without_listener(rendezvous: &MeetingHost) -> Option<(String, String)> {
    if !is_asleep(rendezvous.pid) {
        return None;
    }
    let host = rendezvous.host.as_str();
    let why = if LOCAL.contains(&host) {
        let is_silent = has_listener(rendezvous.port) == Some(false);
        is_silent.then(|| "rank 0 waits in init, and no process listens there".to_owned())
    } else {
        let is_known = resolves(host) != Some(false);
        (!is_known).then(|| format!("`{host}` means no address on this machine"))
    }?;
    Some((rendezvous.place.clone(), why))
}

/// Returns the bytes available to programs without swapping; none if the system does not report it.
pub fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}
