//! Rules about variables that hide devices from a process.

use std::collections::BTreeSet;

use super::super::Severity::{Fault, Warning};
use super::super::{Facts, Finding};

/// The syntax of a vendor's mask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grammar {
    /// Numbers, or names with one of these prefixes. The first invalid entry hides itself and all after it; a negative number
    /// hides all devices.
    Devices(&'static [&'static str]),
    /// Numbers in ascending order; any other order hides all devices (`torch_npu`).
    Ascending,
    /// `card` or `card.tile`.
    Tiles,
    /// Numbers and ranges `first-last`.
    Ranges,
}

/// The masks, by the name of their variable.
const MASKS: &[(&str, Grammar)] = &[
    ("CUDA_VISIBLE_DEVICES", Grammar::Devices(&["GPU-", "MIG-"])),
    ("HIP_VISIBLE_DEVICES", Grammar::Devices(&["GPU-"])),
    ("ROCR_VISIBLE_DEVICES", Grammar::Devices(&["GPU-"])),
    ("MUSA_VISIBLE_DEVICES", Grammar::Devices(&["GPU-"])),
    ("MLU_VISIBLE_DEVICES", Grammar::Devices(&[])),
    ("HABANA_VISIBLE_MODULES", Grammar::Devices(&[])),
    ("ASCEND_RT_VISIBLE_DEVICES", Grammar::Ascending),
    ("ZE_AFFINITY_MASK", Grammar::Tiles),
    ("NEURON_RT_VISIBLE_CORES", Grammar::Ranges),
];

/// Reports a mask that hides all devices, or is not in its vendor's format.
pub(super) fn entries(facts: &Facts) -> Vec<Finding> {
    let set = MASKS.iter().filter_map(|(name, grammar)| {
        let value = facts.variables.get(*name)?;
        mask(facts, name, value.trim(), *grammar)
    });
    set.collect()
}

fn mask(facts: &Facts, name: &str, value: &str, grammar: Grammar) -> Option<Finding> {
    let shown = format!("{name}={value}");
    let entries: Vec<&str> = value.split(',').map(str::trim).collect();
    if value.is_empty() || value == "-1" || value == "NoDevFiles" {
        let is_wanted =
            |one: &&super::super::PlatformFacts| one.is_wanted && one.mask.as_deref() == Some(name);
        return Some(Finding::new(
            if facts.platforms.iter().any(|one| is_wanted(&one)) {
                Fault
            } else {
                Warning
            },
            "mask-hides-all",
            format!("{shown} hides every device"),
            "torch counts 0 devices, without an error",
            format!("unset {name}, unless that is intended"),
        ));
    }
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let is_valid = |entry: &str| match grammar {
        Grammar::Devices(names) => {
            is_number(entry) || names.iter().any(|name| entry.starts_with(name))
        }
        Grammar::Ascending => is_number(entry),
        Grammar::Tiles => match entry.split_once('.') {
            Some((card, tile)) => is_number(card) && is_number(tile),
            None => is_number(entry),
        },
        Grammar::Ranges => match entry.split_once('-') {
            Some((first, last)) => is_number(first) && is_number(last),
            None => is_number(entry),
        },
    };
    if let Some(wrong) = entries.iter().find(|entry| !is_valid(entry)) {
        return Some(Finding::new(
            Fault,
            "mask-invalid",
            format!("{shown}: `{wrong}` names no device"),
            "runtimes hide it and every device after it, without an error",
            format!("write {name} as numbers with commas between them"),
        ));
    }
    let distinct: BTreeSet<_> = entries.iter().collect();
    if distinct.len() < entries.len() {
        return Some(Finding::new(
            Fault,
            "mask-duplicate",
            format!("{shown} names a device twice"),
            "CUDA then hides all devices; other runtimes show it twice, so that two ranks share it, which NCCL refuses",
            "name each device once",
        ));
    }
    let numbers: Vec<u32> = entries
        .iter()
        .filter_map(|entry| entry.parse().ok())
        .collect();
    if grammar == Grammar::Ascending && !numbers.is_sorted() {
        return Some(Finding::new(
            Fault,
            "mask-not-ascending",
            format!("{shown} is not in ascending order"),
            "torch_npu then counts 0 devices",
            format!("write the numbers of {name} in ascending order"),
        ));
    }
    let known = facts.devices.len() as u32;
    let beyond = numbers.iter().find(|number| known > 0 && **number >= known);
    if let (Some(beyond), "CUDA_VISIBLE_DEVICES") = (beyond, name) {
        return Some(Finding::new(
            Fault,
            "mask-beyond",
            format!("{shown}: there is no GPU {beyond}, only 0 to {}", known - 1),
            "CUDA hides it and every device after it, without an error",
            "name devices that nvidia-smi lists",
        ));
    }
    None
}

/// Reports two masks for the same devices that contradict each other.
pub(super) fn contradictions(facts: &Facts) -> Vec<Finding> {
    let two = |one: &str, other: &str| {
        let (first, second) = (facts.variable(one)?, facts.variable(other)?);
        (first != second).then(|| format!("{one}={first} and {other}={second}"))
    };
    let mut found = Vec::new();
    if let Some(both) = two("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES") {
        found.push(Finding::new(
            Warning,
            "masks-disagree",
            format!("{both} contradict each other"),
            "ROCm reads both, and which of them counts depends on the library; on NVIDIA the second is ignored",
            "set only the one for the devices that are here",
        ));
    }
    if let Some(both) = two("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES") {
        found.push(Finding::new(
            Warning,
            "masks-combine",
            format!("{both} are applied one after the other"),
            "HIP's numbers count what ROCR's mask has left, so devices may be others than they seem, or none",
            "set only one of them",
        ));
    }
    found
}
