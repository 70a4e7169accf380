//! Writes facts and findings as lines for people.

use std::collections::BTreeMap;

use super::{Device, Facts, Finding, Import, Plugin, Port, Severity, TorchFacts};

/// The column at which facts begin.
const INDENT: usize = 12;

/// Returns the facts as lines of text.
#[must_use]
pub fn facts(facts: &Facts) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<INDENT$}{text}"));
    if let Some(torch) = &facts.torch {
        torch_lines(torch, &mut line);
    }
    for platform in &facts.platforms {
        let text = match (&platform.unusable_because, platform.devices) {
            (Some(reason), _) => format!("not {}: {reason}", platform.name),
            (None, count) => {
                let there = platform.backends.iter().filter(|(_, is_there)| **is_there);
                let names: Vec<_> = there.map(|(name, _)| name.as_str()).collect();
                let count = count.map_or(String::new(), |count| format!(", {count} device(s)"));
                format!("{}: {}{count}", platform.name, names.join(", "))
            }
        };
        line("platform", text);
    }
    for device in &facts.devices {
        let (free, total) = (device.free_mib, device.total_mib);
        line(
            "device",
            format!(
                "{} {}, {free} of {total} MiB free, driver {}",
                device.index, device.name, device.driver
            ),
        );
    }
    if facts.devices.len() > 1 && facts.devices.iter().all(|one| !one.links.is_empty()) {
        line("links", links(&facts.devices));
    }
    network(facts, &mut line);
    let ports: Vec<String> = facts.ports.iter().map(port).collect();
    line("ports", ports.join(", "));
    resources(facts, &mut line);
    for (name, value) in &facts.variables {
        line("variable", format!("{name}={value}"));
    }
    lines
}

/// Writes the interpreter, torch and its backends.
fn torch_lines(torch: &TorchFacts, line: &mut impl FnMut(&str, String)) {
    line("python", format!("{} ({})", torch.python, torch.why));
    line("torch", import(torch));
    let vendors = torch.entry_points.iter().map(|point| point.name.as_str());
    let vendors: Vec<_> = vendors.collect();
    if !vendors.is_empty() {
        line("autoload", vendors.join(", "));
    }
    let lazy = torch.lazy_entry_points.iter().map(|one| one.name.as_str());
    let lazy: Vec<_> = lazy.collect();
    if !lazy.is_empty() {
        line(
            "by name",
            format!("{} (torch.distributed.backends)", lazy.join(", ")),
        );
    }
    for plugin in torch.build().iter().flat_map(|build| &build.plugins) {
        line("backend", backend(plugin));
    }
}

/// Writes memory, disks and limits.
fn resources(facts: &Facts, line: &mut impl FnMut(&str, String)) {
    let memory = &facts.memory;
    let mib =
        |mib: Option<u64>| mib.map_or_else(|| "unknown".to_owned(), |mib| format!("{mib} MiB"));
    line(
        "memory",
        format!(
            "{} available of {}, {} cores",
            mib(memory.available_mib),
            mib(memory.total_mib),
            facts.cores
        ),
    );
    let spaces: Vec<String> = [&memory.shm, &memory.temporary]
        .into_iter()
        .flatten()
        .map(|space| {
            format!(
                "{} {} MiB free of {}",
                space.path, space.free_mib, space.total_mib
            )
        })
        .collect();
    line("disks", spaces.join(", "));
    let limit = |limit: Option<u64>| {
        limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
    };
    let limits = &facts.limits;
    line(
        "limits",
        format!(
            "{} open files, {} processes, {} KiB locked",
            limit(limits.open_files),
            limit(limits.processes),
            limit(limits.locked_kib)
        ),
    );
}

/// Describes a registered backend: `hccl for npu, of torch-npu, made by torch_npu.create(options)`.
fn backend(plugin: &Plugin) -> String {
    let of = match plugin.packages.as_slice() {
        [] => String::new(),
        packages => format!(", of {}", packages.join(" and of ")),
    };
    let takes = if plugin.extended {
        "options"
    } else {
        "store, rank, size, timeout"
    };
    format!(
        "{} for {}{of}, made by {}({takes})",
        plugin.name,
        plugin.devices.join(", "),
        plugin.creator
    )
}

fn import(torch: &TorchFacts) -> String {
    let (build, how) = match (&torch.import, &torch.without_autoload) {
        (Import::Works(build), _) => (build, ""),
        (_, Some(Import::Works(build))) => (build, " with TORCH_DEVICE_BACKEND_AUTOLOAD=0 only"),
        _ => return "none that can be imported".to_owned(),
    };
    let has = |wanted: bool| {
        let names = build
            .backends
            .iter()
            .filter(move |(_, is_there)| **is_there == wanted);
        names
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let nccl = build
        .nccl
        .as_ref()
        .map_or(String::new(), |version| format!(" (NCCL {version})"));
    format!(
        "{}{how}: {}{nccl}; not {}",
        build.version,
        has(true),
        has(false)
    )
}

fn network(facts: &Facts, line: &mut impl FnMut(&str, String)) {
    let network = &facts.network;
    let join = |addresses: &[std::net::IpAddr]| {
        addresses
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let host = match &network.host.error {
        Some(error) => error.clone(),
        None => join(&network.host.addresses),
    };
    line("hostname", format!("{} is {host}", network.hostname));
    let up = network
        .interfaces
        .iter()
        .filter(|one| one.is_up && !one.addresses.is_empty());
    let up: Vec<String> = up
        .map(|one| format!("{} {}", one.name, join(&one.addresses)))
        .collect();
    line("interfaces", up.join("; "));
    let chosen: Vec<String> = network
        .chosen
        .iter()
        .map(|(backend, interface)| format!("{backend} would take {interface}"))
        .collect();
    if !chosen.is_empty() {
        line("", chosen.join("; "));
    }
}

fn port(port: &Port) -> String {
    let name = if port.is_master { " (MASTER_PORT)" } else { "" };
    match port.owners.as_slice() {
        [] => format!("{}{name} free", port.port),
        owners => {
            let store = if port.is_store { ", a store" } else { "" };
            format!("{}{name} taken by {}{store}", port.port, owners.join(", "))
        }
    }
}

/// Returns the findings as text: three lines for each.
#[must_use]
pub fn findings(findings: &[Finding]) -> Vec<String> {
    findings
        .iter()
        .flat_map(|finding| {
            [
                format!(
                    "{}: {} [{}]",
                    finding.severity.name(),
                    finding.what,
                    finding.id
                ),
                format!("  why: {}", finding.why),
                format!("  fix: {}", finding.fix),
            ]
        })
        .collect()
}

/// Returns the number of findings by severity: `1 fault, 2 warnings, no notes`.
#[must_use]
pub fn summary(findings: &[Finding]) -> String {
    let count = |severity: Severity| {
        let count = findings
            .iter()
            .filter(|one| one.severity == severity)
            .count();
        match count {
            0 => format!("no {}s", severity.name()),
            1 => format!("1 {}", severity.name()),
            _ => format!("{count} {}s", severity.name()),
        }
    };
    [Severity::Fault, Severity::Warning, Severity::Note]
        .map(count)
        .join(", ")
}

/// Describes the connections between devices, grouped by kind: `NV18 between 0-1, 2-3; SYS between 0-2, 0-3, 1-2, 1-3`.
fn links(devices: &[Device]) -> String {
    let mut pairs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (row, one) in devices.iter().enumerate() {
        for (way, other) in one.links.iter().zip(devices).skip(row + 1) {
            let pair = format!("{}-{}", one.index, other.index);
            pairs.entry(way).or_default().push(pair);
        }
    }
    let told = pairs
        .iter()
        .map(|(way, pairs)| format!("{way} between {}", pairs.join(", ")));
    told.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_devices_is_told_once() {
        let rows = [
            ["X", "NV18", "SYS"],
            ["NV18", "X", "SYS"],
            ["SYS", "SYS", "X"],
        ];
        let devices: Vec<Device> = (0..)
            .zip(rows)
            .map(|(index, row)| Device {
                index,
                links: row.map(str::to_owned).to_vec(),
                ..Device::default()
            })
            .collect();
        assert_eq!(links(&devices), "NV18 between 0-1; SYS between 0-2, 1-2");
    }
}
