//! Rules about names and interfaces.

use super::super::Severity::{Fault, Warning};
use super::super::{Facts, Finding, Interface};

/// A name lookup takes longer than this, in seconds, only if a name server does not answer.
const SLOW: f64 = 2.0;

/// Reports problems with the address of this machine's name, which Gloo tells its peers.
pub(super) fn hostname(facts: &Facts) -> Vec<Finding> {
    let network = &facts.network;
    let (name, host) = (&network.hostname, &network.host);
    if facts.variable("GLOO_SOCKET_IFNAME").is_some() {
        return Vec::new();
    }
    let severity = if facts.has_many_machines() {
        Fault
    } else {
        Warning
    };
    let fix =
        "GLOO_SOCKET_IFNAME=INTERFACE, or give the name the machine's own address in /etc/hosts";
    let finding = |id, what: String, why: &str| vec![Finding::new(severity, id, what, why, fix)];
    if let Some(error) = &host.error {
        return finding(
            "hostname-unresolvable",
            format!("this machine's name {name} does not resolve: {error}"),
            "Gloo warns and takes the loopback interface: ranks on other machines cannot reach it",
        );
    }
    if host.addresses.is_empty() {
        return Vec::new();
    }
    // A machine with loopback only cannot have peers on other machines.
    let reaches_others = network
        .interfaces
        .iter()
        .any(|one| !one.is_loopback && !one.addresses.is_empty());
    if host.addresses.iter().all(|address| address.is_loopback()) {
        return if reaches_others {
            finding(
                "hostname-loopback",
                format!(
                    "this machine's name {name} resolves to {}",
                    host.addresses[0]
                ),
                "Gloo tells its peers that address: ranks on this machine meet, ranks on other machines never do",
            )
        } else {
            Vec::new()
        };
    }
    if !host.is_here {
        return finding(
            "hostname-elsewhere",
            format!(
                "this machine's name {name} resolves to {}, which is not its own address",
                host.addresses[0]
            ),
            "Gloo cannot listen there and takes the loopback interface; ranks on other machines that use the name reach another machine",
        );
    }
    Vec::new()
}

/// Reports problems with `MASTER_ADDR`.
pub(super) fn master(facts: &Facts) -> Vec<Finding> {
    let (Some(name), Some(master)) = (facts.variable("MASTER_ADDR"), &facts.network.master) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if let Some(error) = &master.error {
        found.push(Finding::new(
            Fault,
            "master-unresolvable",
            format!("MASTER_ADDR={name} does not resolve: {error}"),
            "this rank cannot reach the store, and rank 0 says only how many joined",
            "use an address, or a name that every rank can resolve",
        ));
    } else if master.seconds > SLOW {
        found.push(Finding::new(
            Warning,
            "master-slow",
            format!("MASTER_ADDR={name} took {:.1} s to resolve", master.seconds),
            "every connection to the store takes that long, because a name server does not answer",
            "use an address, put the name into /etc/hosts, or correct /etc/resolv.conf",
        ));
    }
    let is_loopback =
        !master.addresses.is_empty() && master.addresses.iter().all(|one| one.is_loopback());
    if is_loopback && facts.has_many_machines() {
        found.push(Finding::new(
            Fault,
            "master-loopback",
            format!("MASTER_ADDR={name} means the local machine on every machine, and the job has several"),
            "ranks on other machines wait for a store on their own",
            "set it to an address of rank 0's machine that the others can reach",
        ));
    }
    if facts.number("RANK") == Some(0) && !master.addresses.is_empty() && !master.is_here {
        found.push(Finding::new(
            Fault,
            "master-elsewhere",
            format!("MASTER_ADDR={name} is not this machine, and rank 0 is here"),
            "rank 0 makes the store here, but all ranks connect to the other address",
            "set it to an address of this machine",
        ));
    }
    found
}

/// Variables that name interfaces, each with its syntax.
const SOCKETS: &[(&str, Reading)] = &[
    ("GLOO_SOCKET_IFNAME", Reading::Names),
    ("TP_SOCKET_IFNAME", Reading::Names),
    ("CCL_KVS_IFACE", Reading::Names),
    ("HCCL_SOCKET_IFNAME", Reading::Prefixes),
    ("NCCL_SOCKET_IFNAME", Reading::Prefixes),
    ("MCCL_SOCKET_IFNAME", Reading::Prefixes),
];

/// The syntax of a variable that names interfaces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Whole names.
    Names,
    /// Prefixes of names. With `=` before the list: whole names; with `^`: all interfaces but these.
    Prefixes,
}

/// Reports variables that name no interface, or one that carries no traffic.
pub(super) fn interfaces(facts: &Facts) -> Vec<Finding> {
    let set = SOCKETS
        .iter()
        .filter_map(|(name, reading)| Some((*name, facts.variable(name)?, *reading)));
    set.filter_map(|(name, value, reading)| interface(facts, name, value, reading))
        .collect()
}

fn interface(facts: &Facts, variable: &str, value: &str, reading: Reading) -> Option<Finding> {
    let all = &facts.network.interfaces;
    let (excludes, list) = match value.strip_prefix('^') {
        Some(list) if reading == Reading::Prefixes => (true, list),
        Some(_) | None => (false, value),
    };
    let (exact, list) = match list.strip_prefix('=') {
        Some(list) if reading == Reading::Prefixes => (true, list),
        Some(_) | None => (reading == Reading::Names, list),
    };
    let names: Vec<&str> = list
        .split(',')
        .map(|name| name.split(':').next().unwrap_or(name).trim())
        .collect();
    let matches = |one: &&Interface, name: &str| {
        if exact {
            one.name == name
        } else {
            one.name.starts_with(name)
        }
    };
    let known: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
    let chosen: Vec<&Interface> = all
        .iter()
        .filter(|one| names.iter().any(|name| matches(one, name)) != excludes)
        .collect();
    let missing = names
        .iter()
        .find(|name| !all.iter().any(|one| matches(&one, name)));
    let is_missing = match (reading, excludes) {
        // Gloo makes a device for each name.
        (Reading::Names, _) => missing.is_some(),
        (Reading::Prefixes, _) => chosen.is_empty(),
    };
    if is_missing {
        return Some(Finding::new(
            Fault,
            "interface-missing",
            format!("{variable}={value} names no interface of this machine"),
            format!(
                "the interfaces are {}; the backend raises on this rank, and its peers wait",
                known.join(", ")
            ),
            "name one of these, or unset it",
        ));
    }
    let works = |one: &&Interface| one.is_up && !one.addresses.is_empty();
    if !chosen.iter().any(works) {
        return Some(Finding::new(
            Fault,
            "interface-down",
            format!("{variable}={value}: that interface is down or has no address"),
            "the backend has no address to listen at",
            "bring it up, or name another",
        ));
    }
    if facts.has_many_machines()
        && chosen
            .iter()
            .filter(|one| works(one))
            .all(|one| one.is_loopback)
    {
        return Some(Finding::new(
            Fault,
            "interface-loopback",
            format!("{variable}={value} reaches this machine only, and the job has several"),
            "ranks on other machines cannot connect",
            "name the interface that the other machines reach",
        ));
    }
    None
}

/// Reports a loopback interface that is down: ranks on one machine meet there.
pub(super) fn loopback(facts: &Facts) -> Vec<Finding> {
    let all = &facts.network.interfaces;
    let works = all
        .iter()
        .any(|one| one.is_loopback && one.is_up && !one.addresses.is_empty());
    if works || all.is_empty() {
        return Vec::new();
    }
    vec![Finding::new(
        Fault,
        "no-loopback",
        "the loopback interface is down",
        "ranks on this machine cannot meet at 127.0.0.1 or localhost",
        "ip link set lo up",
    )]
}

/// Reports address lookups that take seconds.
pub(super) fn resolver(facts: &Facts) -> Vec<Finding> {
    let slow = facts
        .network
        .reverse_seconds
        .filter(|seconds| *seconds > SLOW);
    let found = slow.map(|seconds| {
        Finding::new(
            Warning,
            "resolver-slow",
            format!("the reverse lookup of ::ffff:127.0.0.1 took {seconds:.1} s"),
            "torch does so when it connects to a store on this machine: init_process_group stalls by as much",
            "add `::ffff:127.0.0.1 localhost` to /etc/hosts, or set RES_OPTIONS=attempts:0 for the ranks",
        )
    });
    found.into_iter().collect()
}
