//! Rules about backends that packages register: colliding names, and registrations with unintended effects.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Severity::{Note, Warning};
use super::super::{Facts, Finding, Plugin};
use allranks_runner::probe::{AUTOLOAD, EntryPoint};

/// torch's backend that completes every call without communicating.
const FAKE: &str = "fake";

/// Reports entry points with the same name in several packages.
pub(super) fn entry_points(facts: &Facts) -> Vec<Finding> {
    let Some(torch) = &facts.torch else {
        return Vec::new();
    };
    let groups = [
        ("torch.backends", &torch.entry_points),
        ("torch.distributed.backends", &torch.lazy_entry_points),
    ];
    let collide = groups.into_iter().flat_map(|(group, points)| {
        let mut named: BTreeMap<&str, Vec<&EntryPoint>> = BTreeMap::new();
        for point in points {
            named.entry(&point.name).or_default().push(point);
        }
        let several = named.into_iter().filter(|(_, points)| points.len() > 1);
        several.map(move |(name, points)| {
            let packages: Vec<_> = points.iter().map(|point| point.culprit()).collect();
            Finding::new(
                Warning,
                "entry-points-collide",
                format!(
                    "{} have an entry point {name} of {group} each",
                    packages.join(" and ")
                ),
                "which one the name refers to depends on the order in which Python finds them",
                format!(
                    "uninstall all but one: {} -m pip uninstall {}",
                    torch.python, packages[0]
                ),
            )
        })
    });
    collide.collect()
}

/// Reports a backend that several packages register while torch is imported.
pub(super) fn registered_twice(facts: &Facts) -> Vec<Finding> {
    let collide = plugins(facts).filter_map(|plugin| {
        let (last, others) = plugin.packages.split_last()?;
        let first = others.iter().find(|other| *other != last)?;
        Some(Finding::new(
            Warning,
            "backend-registered-twice",
            format!(
                "the backend {} is registered by {first} and by {last}",
                plugin.name
            ),
            format!("torch silently uses the last one, {}", plugin.creator),
            format!("uninstall one of them, or set {AUTOLOAD}=0 and import the one that you want"),
        ))
    });
    collide.collect()
}

/// Reports a backend that was registered with a string as its list of devices: torch takes each letter for a device.
pub(super) fn devices_as_letters(facts: &Facts) -> Vec<Finding> {
    let Some(build) = facts.build() else {
        return Vec::new();
    };
    let found = plugins(facts).filter_map(|plugin| {
        let [device] = plugin.devices.as_slice() else {
            return None;
        };
        let letters: BTreeSet<String> = device.chars().map(String::from).collect();
        let is_its = |letter: &&String| build.defaults.get(*letter) == Some(&plugin.name);
        let taken: Vec<_> = letters.iter().filter(is_its).map(String::as_str).collect();
        if taken.is_empty() || taken == [device] {
            return None;
        }
        Some(Finding::new(
            Warning,
            "backend-devices-string",
            format!(
                "{} is the default backend of the devices {}, which do not exist",
                plugin.name,
                taken.join(", ")
            ),
            format!(
                "it is registered with devices=\"{device}\", and torch {} treats a string as a list of its letters; \
                 init_process_group without a backend finds none for {device}",
                build.version
            ),
            format!(
                "name it: init_process_group(backend=\"{}\"); its package should pass devices=[\"{device}\"]",
                plugin.name
            ),
        ))
    });
    found.collect()
}

/// Reports a device whose default backend is `fake`, which does not communicate.
pub(super) fn fake_is_default(facts: &Facts) -> Vec<Finding> {
    let defaults = facts.build().into_iter().flat_map(|build| &build.defaults);
    let faked = defaults.filter(|(_, backend)| *backend == FAKE);
    let found = faked.map(|(device, _)| {
        Finding::new(
            Warning,
            "fake-is-default",
            format!("the default backend for {device} is {FAKE}, which sends nothing and reports success"),
            "a package imports torch.testing._internal.distributed.fake_pg, and the first to register for a device stays its \
             default",
            "name the backend in init_process_group; import the vendor's package before the one that imports fake_pg",
        )
    });
    found.collect()
}

/// Reports backends that packages offer by entry points which this torch does not read.
pub(super) fn unread_entry_points(facts: &Facts) -> Vec<Finding> {
    let Some(torch) = &facts.torch else {
        return Vec::new();
    };
    let reads = facts.build().and_then(|build| build.reads_lazily);
    if reads != Some(false) || torch.lazy_entry_points.is_empty() {
        return Vec::new();
    }
    let points = torch.lazy_entry_points.iter();
    let names: Vec<_> = points.clone().map(|point| point.name.as_str()).collect();
    let packages: BTreeSet<_> = points.map(EntryPoint::culprit).collect();
    let packages: Vec<_> = packages.into_iter().collect();
    vec![Finding::new(
        Note,
        "backends-unread",
        format!(
            "this torch does not read the entry points torch.distributed.backends, where {} offers {}",
            packages.join(", "),
            names.join(", ")
        ),
        "newer versions (2.15 does) load them when a group of that name is made",
        "register it before init_process_group, by the import that its package documents, or update torch",
    )]
}

fn plugins(facts: &Facts) -> impl Iterator<Item = &Plugin> {
    facts.build().into_iter().flat_map(|build| &build.plugins)
}
