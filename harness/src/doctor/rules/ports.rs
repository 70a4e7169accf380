//! Rules about the ports of rendezvous.

use super::super::Severity::{Fault, Note, Warning};
use super::super::{Facts, Finding};

/// Reports problems with `MASTER_PORT`.
pub(super) fn master(facts: &Facts) -> Vec<Finding> {
    let Some(port) = facts.ports.iter().find(|port| port.is_master) else {
        return Vec::new();
    };
    let number = port.port;
    let mut found = Vec::new();
    // Rank 0, which makes the store, needs a free port; the other ranks need the store there.
    let joins = facts.number("RANK").is_some_and(|rank| rank > 0);
    let is_elsewhere = facts
        .network
        .master
        .as_ref()
        .is_some_and(|one| !one.addresses.is_empty() && !one.is_here);
    let is_welcome = is_elsewhere || (joins && port.is_store);
    if !port.owners.is_empty() && !is_welcome {
        let owner = port.owners.join(", ");
        found.push(Finding::new(
            Fault,
            "master-port-busy",
            format!("MASTER_PORT={number} is taken by {owner}"),
            match port.is_store {
                true => "a store of another job answers there: rank 0 gets EADDRINUSE, the other ranks join that job",
                false => "rank 0 gets EADDRINUSE, and the other ranks wait there for ever, whatever their timeout",
            },
            "end that process, or set another MASTER_PORT on every rank",
        ));
    }
    if !port.is_allowed {
        found.push(Finding::new(
            Fault,
            "master-port-privileged",
            format!("MASTER_PORT={number} needs root privileges"),
            "rank 0 gets EACCES, and the other ranks time out",
            "use a port above 1023, the same one on every rank",
        ));
    }
    if port.is_ephemeral {
        found.push(Finding::new(
            Note,
            "master-port-ephemeral",
            format!("MASTER_PORT={number} is in the range of ports for outgoing connections"),
            "another program's connection may use it when rank 0 wants to listen",
            "use one outside of /proc/sys/net/ipv4/ip_local_port_range, such as 29500",
        ));
    }
    found
}

/// Reports torchrun's default ports if they are in use.
pub(super) fn defaults(facts: &Facts) -> Vec<Finding> {
    let busy = facts
        .ports
        .iter()
        .filter(|port| !port.is_master && !port.owners.is_empty());
    let found = busy.map(|port| {
        Finding::new(
            Warning,
            "default-port-busy",
            format!(
                "port {}, torchrun's default, is taken by {}",
                port.port,
                port.owners.join(", ")
            ),
            "a second torchrun on this machine gets EADDRINUSE, or its ranks join the wrong job",
            "torchrun --standalone, or --master-port with another one",
        )
    });
    found.collect()
}
