//! Rules about devices, and the processes that use them.

use super::super::Severity::{Fault, Note, Warning};
use super::super::{Device, Facts, Finding};

/// The number of items that are listed.
const SHOWN: usize = 4;

/// Reports a vendor's tool that is installed but does not work.
pub(super) fn tool(facts: &Facts) -> Vec<Finding> {
    let found = facts.tool_error.as_ref().map(|error| {
        Finding::new(
            Fault,
            "tool-broken",
            format!("the vendor's tool does not work: {error}"),
            "usually the driver's kernel module is not loaded, or its version differs from that of its libraries",
            "load the module or restart the machine; in a container, pass the devices in",
        )
    });
    found.into_iter().collect()
}

/// Reports devices that differ in free memory, or that processes use.
pub(super) fn balance(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let free = || facts.devices.iter().map(|device| device.free_mib);
    if let (Some(least), Some(most)) = (free().min(), free().max())
        && least * 10 < most * 9
    {
        let row = |device: &Device| {
            format!(
                "{}: {} of {} MiB",
                device.index, device.free_mib, device.total_mib
            )
        };
        let table: Vec<String> = facts.devices.iter().map(row).collect();
        found.push(Finding::new(
            Warning,
            "memory-unbalanced",
            format!("free memory differs between devices, {least} to {most} MiB"),
            format!(
                "{}; programs that size their caches alike on every rank run out on one",
                table.join("; ")
            ),
            "end the processes on the fuller devices, or hide these with a mask",
        ));
    }
    let users: Vec<String> = facts
        .devices
        .iter()
        .flat_map(|device| {
            device.users.iter().map(|user| {
                let used = user
                    .used_mib
                    .map_or(String::new(), |mib| format!(", {mib} MiB"));
                format!("device {}: {}{used}", device.index, user.process)
            })
        })
        .collect();
    if !users.is_empty() {
        found.push(Finding::new(
            Warning,
            "devices-in-use",
            format!("{} process(es) use the devices", users.len()),
            first_few(&users),
            "end them if they are left over; otherwise use other devices, with a mask",
        ));
    }
    found
}

/// Reports devices that cannot reach each other's memory.
pub(super) fn peers(facts: &Facts) -> Vec<Finding> {
    let build = facts.torch.as_ref().and_then(|torch| torch.import.build());
    let Some(matrix) = build.and_then(|build| build.peers.as_ref()) else {
        return Vec::new();
    };
    let apart: Vec<String> = matrix
        .iter()
        .enumerate()
        .flat_map(|(one, row)| {
            let apart = row.iter().enumerate().filter(|(_, reaches)| !**reaches);
            apart.map(move |(other, _)| format!("{one} to {other}"))
        })
        .collect();
    if apart.is_empty() {
        return Vec::new();
    }
    vec![Finding::new(
        Warning,
        "no-peer-access",
        format!(
            "{} pair(s) of devices have no access to each other's memory",
            apart.len()
        ),
        format!(
            "{}; collectives between them copy through the host's memory",
            first_few(&apart)
        ),
        "nvidia-smi topo -m shows what is between them; the usual causes are IOMMU and ACS settings, and containers that hide devices",
    )]
}

/// Reports ranks that run on this machine now.
pub(super) fn ranks(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let (orphans, others): (Vec<_>, Vec<_>) = facts.leftovers.iter().partition(|one| one.is_orphan);
    let shown = |all: &[&super::super::Leftover]| {
        let line = |one: &&super::super::Leftover| {
            let port = one
                .port
                .as_ref()
                .map_or(String::new(), |port| format!(" at port {port}"));
            let age = one
                .seconds
                .map_or(String::new(), |age| format!(", {age} s old"));
            format!("{}: {}{port}{age}", one.process, one.rank_of_world)
        };
        first_few(&all.iter().map(line).collect::<Vec<_>>())
    };
    if !orphans.is_empty() {
        let pids: Vec<_> = orphans.iter().map(|one| one.pid.to_string()).collect();
        found.push(Finding::new(
            Warning,
            "leftover-ranks",
            format!(
                "{} rank(s) still run although the process that started them has ended",
                orphans.len()
            ),
            format!("{}; they hold ports, memory and devices", shown(&orphans)),
            format!("unless they are meant to run: kill {}", pids.join(" ")),
        ));
    }
    if !others.is_empty() {
        found.push(Finding::new(
            Note,
            "ranks-running",
            format!("{} rank(s) of other jobs run here", others.len()),
            shown(&others),
            "none, if you know of them; they distort measured times",
        ));
    }
    found
}

/// Returns the first items as text, with the number of the others.
fn first_few(all: &[String]) -> String {
    let shown = all
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}
