//! Rules about the interpreter and its torch.

use super::super::Severity::{Fault, Note};
use super::super::{Facts, Finding, Import, ProcessEnd, TorchFacts};
use allranks_model::version::torch_version;
use allranks_runner::probe::{AUTOLOAD, EntryPoint, remedy};

/// The oldest version of torch that the driver supports.
const OLDEST: semver::Version = semver::Version::new(2, 4, 0);

/// Reports a torch that cannot be imported.
pub(super) fn import(facts: &Facts) -> Vec<Finding> {
    let Some(torch) = &facts.torch else {
        return Vec::new();
    };
    let python = &torch.python;
    let other = "name a Python that has torch with --python or ALLRANKS_PYTHON";
    match &torch.import {
        Import::Works(_) => Vec::new(),
        Import::NoPython(why) => vec![Finding::new(
            Fault,
            "no-python",
            format!("{python} cannot be run as Python: {why}"),
            format!("it was chosen because of {}", torch.why),
            other,
        )],
        Import::NoTorch => vec![Finding::new(
            Fault,
            "no-torch",
            format!("{python} has no torch"),
            format!("it was chosen because of {}", torch.why),
            format!("{python} -m pip install torch; or {other}"),
        )],
        // The rule about that variable reports it.
        Import::Raises { error, .. } if error.contains("TORCH_DISTRIBUTED_DEBUG") => Vec::new(),
        Import::Raises { .. } | Import::Dies { .. } | Import::Hangs { .. } => {
            let without = torch.without_autoload.as_ref();
            if without.is_some_and(|import| import.build().is_some()) {
                autoload(torch)
            } else {
                vec![Finding::new(
                    Fault,
                    finding_ids(&torch.import).0,
                    format!("`import torch` {}", describe_failure(&torch.import)),
                    raised_at(&torch.import),
                    "repair or uninstall the package of that file; if it is torch itself: pip install --force-reinstall torch",
                )]
            }
        }
    }
}

/// Reports packages that torch loads and that fail although torch works.
fn autoload(torch: &TorchFacts) -> Vec<Finding> {
    if torch.broken.is_empty() {
        let past = format!("{AUTOLOAD}=0 lets torch be imported without them");
        let names: Vec<_> = torch
            .entry_points
            .iter()
            .map(|point| point.name.as_str())
            .collect();
        return vec![Finding::new(
            Fault,
            "autoload-fails",
            format!("`import torch` {}", describe_failure(&torch.import)),
            format!(
                "each of {} can be loaded alone, but not all together: {}",
                names.join(", "),
                raised_at(&torch.import)
            ),
            format!("uninstall all but the one that you want; {past}"),
        )];
    }
    let broken = torch.broken.iter().map(|(name, import)| {
        let point = torch.entry_points.iter().find(|point| point.name == *name);
        let package = point.map_or(name.as_str(), EntryPoint::culprit);
        let [past, for_good] = remedy(package, &torch.python);
        let value = point.map_or("", |point| point.value.as_str());
        Finding::new(
            Fault,
            finding_ids(import).1,
            format!(
                "`import torch` {} because of the package {package}",
                describe_failure(import)
            ),
            format!(
                "torch loads it by itself (entry point {name} = {value} of torch.backends): {}",
                raised_at(import)
            ),
            format!("{past}; permanently: repair its driver, or {for_good}"),
        )
    });
    broken.collect()
}

/// Returns the finding ids for a failed import: of torch itself, and of a package that torch loads.
fn finding_ids(import: &Import) -> (&'static str, &'static str) {
    match import {
        Import::Dies { .. } => ("import-dies", "autoload-dies"),
        Import::Hangs { .. } => ("import-hangs", "autoload-hangs"),
        Import::Works(_) | Import::NoPython(_) | Import::NoTorch | Import::Raises { .. } => {
            ("import-raises", "autoload-raises")
        }
    }
}

/// Returns what a failed import does, to follow "`import torch`".
fn describe_failure(import: &Import) -> String {
    match import {
        Import::Works(_) => "works".to_owned(),
        Import::NoPython(why) => format!("finds no Python: {why}"),
        Import::NoTorch => "finds no torch".to_owned(),
        Import::Raises { error, .. } => format!("raises {error}"),
        Import::Dies {
            how: ProcessEnd::Signal(signal),
            ..
        } => {
            format!("kills the interpreter by signal {signal}")
        }
        Import::Dies {
            how: ProcessEnd::Code(code, last),
            ..
        } => {
            let last = if last.is_empty() {
                ""
            } else {
                &format!(" ({last})")
            };
            format!("ends the interpreter with code {code}{last}")
        }
        Import::Hangs { seconds, .. } => format!("does not return within {seconds} s"),
    }
}

/// Returns where a failed import raised or stopped.
fn raised_at(import: &Import) -> String {
    match import {
        Import::Raises { at, .. } => at.as_ref().map_or_else(
            || "it was raised in torch itself".to_owned(),
            |at| format!("raised at {at}"),
        ),
        Import::Dies { trying, at, .. } | Import::Hangs { trying, at, .. } => {
            at.as_ref().map_or_else(
                || format!("in `{trying}`; Python could not tell where"),
                |at| format!("in `{trying}`, at {at}"),
            )
        }
        Import::Works(_) | Import::NoPython(_) | Import::NoTorch => String::new(),
    }
}

/// Reports a torch that is too old.
pub(super) fn version(facts: &Facts) -> Vec<Finding> {
    let old = facts
        .build()
        .filter(|build| torch_version(&build.version).is_some_and(|version| version < OLDEST));
    let found = old.map(|build| {
        Finding::new(
            Fault,
            "torch-old",
            format!("torch is {}, older than {OLDEST}", build.version),
            "allranks uses calls that this version introduced",
            "pip install --upgrade torch",
        )
    });
    found.into_iter().collect()
}

/// Reports a torch without `torch.distributed`, or that cannot list its devices.
pub(super) fn distributed(facts: &Facts) -> Vec<Finding> {
    let Some(build) = facts.build() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if !build.distributed {
        found.push(Finding::new(
            Fault,
            "no-distributed",
            format!("torch {} has no torch.distributed", build.version),
            "it was built with USE_DISTRIBUTED=0",
            "install a wheel from pytorch.org or PyPI, or build with USE_DISTRIBUTED=1",
        ));
    }
    if let Some(error) = &build.devices_error {
        found.push(Finding::new(
            Fault,
            "devices-unasked",
            format!("torch cannot ask for its devices: {error}"),
            "the vendor's driver or runtime does not match this torch",
            "see whether the vendor's own tool lists the devices; install the driver this torch was built for",
        ));
    }
    found
}

/// Reports a torch that was built for other devices than this machine has.
pub(super) fn wheel(facts: &Facts) -> Vec<Finding> {
    let Some(build) = facts.build() else {
        return Vec::new();
    };
    let gpus = facts.devices.len();
    let is_masked = facts.variables.contains_key("CUDA_VISIBLE_DEVICES");
    let found = match &build.cuda {
        Some(cuda) if gpus == 0 && build.devices == 0 && !is_masked => Finding::new(
            Note,
            "cuda-wheel-without-gpu",
            format!(
                "torch {} is built for CUDA {cuda}, and no GPU is seen",
                build.version
            ),
            "torch.accelerator.current_accelerator() says cuda all the same, unless it is asked with check_available=True",
            "none, if this machine has no GPU; a wheel for CPUs is smaller: pip install torch --index-url https://download.pytorch.org/whl/cpu",
        ),
        Some(cuda) if gpus > 0 && build.devices == 0 && !is_masked => Finding::new(
            Fault,
            "gpu-not-seen",
            format!(
                "nvidia-smi lists {gpus} GPU(s), and torch {} sees none",
                build.version
            ),
            format!(
                "usually the driver ({}) is too old for CUDA {cuda}, or a container was started without the GPUs",
                facts.devices[0].driver
            ),
            "update the driver, install a torch built for an older CUDA, or start the container with --gpus all",
        ),
        None if gpus > 0 && build.hip.is_none() => Finding::new(
            Fault,
            "cpu-wheel-with-gpu",
            format!(
                "nvidia-smi lists {gpus} GPU(s), and torch {} is built without CUDA",
                build.version
            ),
            "such a build has no cuda devices and no NCCL",
            "install a torch built for CUDA: see pytorch.org/get-started",
        ),
        Some(_) | None => return Vec::new(),
    };
    vec![found]
}

/// Reports packages that torch is kept from loading.
pub(super) fn entry_points(facts: &Facts) -> Vec<Finding> {
    let Some(torch) = &facts.torch else {
        return Vec::new();
    };
    if facts.variable(AUTOLOAD) != Some("0") || torch.entry_points.is_empty() {
        return Vec::new();
    }
    let names: Vec<_> = torch
        .entry_points
        .iter()
        .map(|point| point.name.as_str())
        .collect();
    vec![Finding::new(
        Note,
        "autoload-off",
        format!("{AUTOLOAD}=0 keeps torch from loading {}", names.join(", ")),
        "their devices and backends exist only after they are imported explicitly",
        "unset it, or import them before init_process_group",
    )]
}
