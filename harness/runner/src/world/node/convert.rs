//! Converts the runner's types to and from the types of a node's frames.

use crate::world::Orphan;
use crate::world::host_facts::{HostFacts, HostQuery, MeetingHost};
use allranks_diagnose::ForeignListener;
use allranks_host::Activity;
use allranks_model::names::Rank;
use allranks_protocol::{NodeListener, NodeObservation, NodeProcess, NodeQuery, NodeRendezvous};
use rustix::process::Pid;

/// Returns the processes that ranks left behind, without those whose ids cannot be one.
pub(super) fn remnants(left: Vec<(i32, Option<Rank>)>) -> impl Iterator<Item = Orphan> {
    left.into_iter().filter_map(|(pid, rank)| {
        let pid = Pid::from_raw(pid)?;
        Some(Orphan { pid, rank })
    })
}

/// Returns the part of a query that concerns one node: `is_here` tells which ranks are on it, and `meets` whether ranks meet on
/// it.
pub(super) fn query_to_frame(
    query: &HostQuery,
    is_here: impl Fn(Rank) -> bool,
    meets: bool,
) -> NodeQuery {
    let processes = (0..).map(Rank).zip(&query.processes);
    let rendezvous = query.hosts.iter().filter(|one| is_here(one.rank));
    NodeQuery {
        processes: processes
            .filter(|(rank, _)| is_here(*rank))
            .filter_map(|(rank, pid)| Some((rank, (*pid)?)))
            .collect(),
        ports: match meets {
            true => query.ports.clone(),
            false => Vec::new(),
        },
        rendezvous: rendezvous
            .map(|one| NodeRendezvous {
                pid: one.pid,
                place: one.place.clone(),
                host: one.host.clone(),
                port: one.port,
            })
            .collect(),
    }
}

/// Returns the query that an agent puts to its host, about the processes in their order; `ranks` are the processes of the
/// world's ranks on it.
pub(super) fn query_from_frame(query: NodeQuery, ranks: Vec<u32>) -> HostQuery {
    HostQuery {
        processes: query.processes.iter().map(|(_, pid)| Some(*pid)).collect(),
        ranks,
        ports: query.ports,
        hosts: query
            .rendezvous
            .into_iter()
            .map(|one| MeetingHost {
                rank: Rank(0),
                pid: one.pid,
                place: one.place,
                host: one.host,
                port: one.port,
            })
            .collect(),
    }
}

/// Returns what an agent's host has told about the processes of these ranks, in their order.
pub(super) fn facts_to_frame(
    facts: HostFacts,
    ranks: &[Rank],
    memory: Option<u64>,
) -> NodeObservation {
    let process = |activity: Activity| match activity {
        Activity::Alive { ticks } => NodeProcess::Alive(ticks),
        Activity::Stopped => NodeProcess::Stopped,
        Activity::Gone => NodeProcess::Gone,
    };
    NodeObservation {
        processes: ranks
            .iter()
            .zip(facts.processes)
            .filter_map(|(rank, activity)| Some((*rank, process(activity?))))
            .collect(),
        foreign_listeners: facts
            .foreign_listeners
            .into_iter()
            .map(|one| NodeListener {
                port: one.port,
                owner: one.owner,
                is_silent: one.is_silent,
            })
            .collect(),
        endpoints_without_listener: facts.endpoints_without_listener,
        memory,
    }
}

/// Adds what one node sees to what others have seen; `node` is its name.
pub(super) fn add_observation(facts: &mut HostFacts, observation: NodeObservation, node: &str) {
    let activity = |process: NodeProcess| match process {
        NodeProcess::Alive(ticks) => Activity::Alive { ticks },
        NodeProcess::Stopped => Activity::Stopped,
        NodeProcess::Gone => Activity::Gone,
    };
    for (rank, seen) in observation.processes {
        if let Some(known) = facts.processes.get_mut(rank.index()) {
            *known = Some(activity(seen));
        }
    }
    facts
        .foreign_listeners
        .extend(
            observation
                .foreign_listeners
                .into_iter()
                .map(|one| ForeignListener {
                    port: one.port,
                    owner: format!("{} on {node}", one.owner),
                    is_silent: one.is_silent,
                }),
        );
    facts
        .endpoints_without_listener
        .extend(observation.endpoints_without_listener);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_asked_of_its_own_ranks_and_one_of_the_ports() {
        let query = HostQuery {
            processes: vec![Some(10), None, Some(10), Some(11)],
            ranks: vec![10, 20, 10, 11],
            ports: vec![29_500],
            hosts: vec![MeetingHost {
                rank: Rank(0),
                pid: 10,
                place: "h:29500".to_owned(),
                host: "h".to_owned(),
                port: 29_500,
            }],
        };
        let first = query_to_frame(&query, |rank| rank.0 < 2, true);
        let second = query_to_frame(&query, |rank| rank.0 >= 2, false);
        assert_eq!(first.processes, [(Rank(0), 10)]);
        assert_eq!(second.processes, [(Rank(2), 10), (Rank(3), 11)]);
        assert_eq!((first.ports.len(), first.rendezvous.len()), (1, 1));
        assert_eq!((second.ports.len(), second.rendezvous.len()), (0, 0));
        // The same process id on two nodes is two processes.
        let mut facts = HostFacts {
            processes: vec![None; 4],
            ..HostFacts::default()
        };
        let observation = |processes| NodeObservation {
            processes,
            ..NodeObservation::default()
        };
        let stopped = observation(vec![(Rank(2), NodeProcess::Stopped)]);
        add_observation(&mut facts, stopped, "b");
        // Of a rank that the world does not have nothing is known.
        let strange = (Rank(9), NodeProcess::Gone);
        let alive = observation(vec![(Rank(0), NodeProcess::Alive(3)), strange]);
        add_observation(&mut facts, alive, "a");
        let expected = [
            Some(Activity::Alive { ticks: 3 }),
            None,
            Some(Activity::Stopped),
            None,
        ];
        assert_eq!(facts.processes, expected);
    }
}
