//! `environment.json`: what a reader needs to know of the machine to trust or repeat a run.
//!
//! Variables are shown by an allow-list: whatever is not known to be harmless may be a secret.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::json;

use super::planning::Planned;

/// Prefixes of variables that change how collectives behave.
const SHOWN: [&str; 12] = [
    "NCCL_", "RCCL_", "GLOO_", "CCL_", "HCCL_", "UCX_", "FI_", "TORCH_", "OMP_", "NEURON_", "XLA_",
    "PJRT_",
];
/// Further variables by name.
const SHOWN_NAMES: [&str; 7] = [
    "MASTER_ADDR",
    "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "ALLRANKS_PYTHON",
    "ALLRANKS_LIBTORCH",
];

/// Writes the file.
pub fn write(folder: &Path, planned: &Planned) -> io::Result<()> {
    let uname = rustix::system::uname();
    let variables: BTreeMap<String, String> = std::env::vars()
        .filter(|(name, _)| {
            SHOWN.iter().any(|prefix| name.starts_with(prefix))
                || SHOWN_NAMES.contains(&name.as_str())
        })
        .collect();
    let environment = json!({
        "format": 1,
        "allranks": env!("CARGO_PKG_VERSION"),
        "system": format!(
            "{} {} {}",
            uname.sysname().to_string_lossy(),
            uname.release().to_string_lossy(),
            uname.machine().to_string_lossy()
        ),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_mib": memory_mib(),
        "python": planned.python.as_ref().map(|python| python.path.display().to_string()),
        "platforms_found": planned
            .targets
            .iter()
            .map(|target| format!("{}/{}", target.platform.name, target.backend))
            .collect::<Vec<_>>(),
        "platforms_not_found": planned
            .absent
            .iter()
            .map(|absent| (absent.platform.name.clone(), absent.reason.clone()))
            .collect::<BTreeMap<_, _>>(),
        "variables": variables,
    });
    let path = folder.join("environment.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&environment)?)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Memory of the machine, MiB; none where the system does not say.
fn memory_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}
