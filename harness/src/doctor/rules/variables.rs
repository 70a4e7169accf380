//! Rules about variables that contradict each other, that no library reads, or that a library reads in an unexpected
//! way.

use super::super::Severity::{Fault, Note, Warning};
use super::super::{Facts, Finding};
use allranks_runner::world::OF_OTHER_LAUNCHERS;

/// Reports problems with `RANK`, `WORLD_SIZE` and `LOCAL_RANK`.
pub(super) fn rank(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"] {
        if let Some(value) = facts.variable(name)
            && facts.number(name).is_none()
        {
            found.push(Finding::new(
                Fault,
                "rank-not-a-number",
                format!("{name}={value} is not a number"),
                "init_process_group raises ValueError on this rank, and the others wait for it",
                format!("set {name} to a number, or use torchrun"),
            ));
        }
    }
    let has = |name| facts.variable(name).is_some();
    match (has("RANK"), has("WORLD_SIZE")) {
        (true, false) => found.push(Finding::new(
            Fault,
            "rank-without-world",
            "RANK is set, and WORLD_SIZE is not",
            "programs that fill in a default of 1 initialise alone on rank 0, print success, and the other ranks wait for ever",
            "set both, on every rank; torchrun does",
        )),
        (false, true) if facts.number("WORLD_SIZE") != Some(1) => found.push(Finding::new(
            Fault,
            "world-without-rank",
            "WORLD_SIZE is set, and RANK is not",
            "every process becomes rank 0, or init_process_group raises",
            "set both, on every rank; torchrun does",
        )),
        (true, true) | (false, _) => {}
    }
    let too_large = |one: &str, of: &str| {
        let (rank, size) = (facts.number(one)?, facts.number(of)?);
        (rank >= size).then(|| format!("{one}={rank} is not below {of}={size}"))
    };
    if let Some(what) = too_large("RANK", "WORLD_SIZE") {
        found.push(Finding::new(
            Fault,
            "rank-beyond-world",
            what,
            "the store accepts it, another rank is missing, and init fails or hangs on every rank",
            "ranks are 0 to WORLD_SIZE - 1",
        ));
    }
    if let Some(what) = too_large("LOCAL_RANK", "LOCAL_WORLD_SIZE") {
        found.push(Finding::new(
            Fault,
            "local-rank-beyond",
            what,
            "a program that uses it as the number of its device uses a device that does not exist, or another rank's",
            "local ranks are 0 to LOCAL_WORLD_SIZE - 1 on every machine",
        ));
    }
    if has("RANK") && has("WORLD_SIZE") && !has("LOCAL_RANK") {
        found.push(Finding::new(
            Warning,
            "local-rank-missing",
            "RANK and WORLD_SIZE are set, and LOCAL_RANK is not",
            "programs that fill in a default of 0 put every rank on the first device",
            "set LOCAL_RANK to the number of the rank on its machine",
        ));
    }
    found
}

/// Reports contradictions between a launcher's variables and torch's own.
pub(super) fn launchers(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    // In a batch script Slurm sets its variables, but starts one process only.
    let several = OF_OTHER_LAUNCHERS.iter().find_map(|dialect| {
        let mut sizes = dialect.sizes().iter().copied();
        let (size, ranks) = sizes.find_map(|name| Some((name, facts.number(name)?)))?;
        (ranks > 1).then_some((dialect.name, dialect.rank(), size, ranks))
    });
    if let Some((launcher, rank, size, ranks)) = several {
        if let Some(world) = facts.number("WORLD_SIZE")
            && world != ranks
        {
            found.push(Finding::new(
                Fault,
                "world-contradicts-launcher",
                format!("WORLD_SIZE={world}, and {launcher} started {ranks} ranks ({size})"),
                "ranks with different world sizes wait for each other, or finish alone with wrong sums",
                format!("WORLD_SIZE=${size} and RANK=${rank} on every rank; or unset WORLD_SIZE in the shell it comes from"),
            ));
        } else if let (Some(own), Some(theirs)) = (facts.number("RANK"), facts.number(rank))
            && own != theirs
        {
            found.push(Finding::new(
                Fault,
                "rank-contradicts-launcher",
                format!("RANK={own}, and {launcher} says {theirs} ({rank})"),
                "a RANK from the shell is the same in every process: one rank joins several times, the others are missing",
                format!("RANK=${rank} on every rank"),
            ));
        } else if facts.variable("RANK").is_none()
            && facts.number(rank).is_some()
            && launcher != "Slurm"
        {
            found.push(Finding::new(
                Warning,
                "launcher-unread",
                format!("{launcher} started this process ({rank}), and RANK is not set"),
                "torch's env:// rendezvous reads RANK and WORLD_SIZE, and not the launcher's own variables",
                format!("export RANK=${rank} WORLD_SIZE=${size} in the ranks"),
            ));
        }
    }
    found
}

/// Reports problems with the rendezvous variables.
pub(super) fn rendezvous(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(value) = facts.variable("MASTER_PORT")
        && !value.parse::<u16>().is_ok_and(|port| port > 0)
    {
        found.push(Finding::new(
            Fault,
            "master-port-invalid",
            format!("MASTER_PORT={value} is not a port number"),
            "ports are 1 to 65535; 0 lets rank 0 listen at any free port, which no other rank knows",
            "set MASTER_PORT to a free port, the same one on every rank",
        ));
    }
    if facts.variable("RANK").is_some() {
        for name in ["MASTER_ADDR", "MASTER_PORT"] {
            if facts.variable(name).is_none() {
                found.push(Finding::new(
                    Fault,
                    "master-missing",
                    format!("RANK is set, and {name} is not"),
                    "init_process_group raises on this rank, and ranks where it is set wait for this one",
                    format!("set {name} on every rank; torchrun does"),
                ));
            }
        }
    }
    found
}

/// Reports variables that no library reads.
pub(super) fn unread(facts: &Facts) -> Vec<Finding> {
    const UNREAD: &[(&str, &str)] = &[
        (
            "TORCH_DISTRIBUTED_BACKEND",
            "name the backend in init_process_group(backend=...)",
        ),
        (
            "TORCH_DISTRIBUTED_TIMEOUT",
            "give init_process_group and new_group timeout=...; the latter does not inherit it",
        ),
        ("NCCL_TIMEOUT", "give init_process_group(timeout=...)"),
        ("GLOO_TIMEOUT", "give init_process_group(timeout=...)"),
        (
            "NCCL_ASYNC_ERROR_HANDLING",
            "it is now TORCH_NCCL_ASYNC_ERROR_HANDLING",
        ),
        ("NCCL_BLOCKING_WAIT", "it is now TORCH_NCCL_BLOCKING_WAIT"),
    ];
    let set = UNREAD
        .iter()
        .filter(|(name, _)| facts.variable(name).is_some());
    let found = set.map(|(name, fix)| {
        let is_old = fix.starts_with("it is now");
        Finding::new(
            Warning,
            "variable-unread",
            format!(
                "{name} is set, and {}",
                if is_old {
                    "its name is deprecated"
                } else {
                    "no library reads it"
                }
            ),
            if is_old {
                "torch 2.2 renamed it and warns; later versions may not read it"
            } else {
                "neither torch nor the backend has such a variable"
            },
            *fix,
        )
    });
    found.collect()
}

/// Reports problems with `TORCH_DISTRIBUTED_DEBUG`.
pub(super) fn debug(facts: &Facts) -> Vec<Finding> {
    let Some(value) = facts.variable("TORCH_DISTRIBUTED_DEBUG") else {
        return Vec::new();
    };
    match value.to_uppercase().as_str() {
        "OFF" | "INFO" => Vec::new(),
        "DETAIL" => vec![Finding::new(
            Note,
            "debug-detail",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL wraps every group",
            "it checks that all ranks make the same calls, which costs time, and in torch 2.11 makes coalesced functional collectives raise",
            "unset it, unless you search for mismatched collectives",
        )],
        _ => vec![Finding::new(
            Fault,
            "debug-invalid",
            format!("TORCH_DISTRIBUTED_DEBUG={value} is not one of OFF, INFO, DETAIL"),
            "import torch.distributed raises ValueError",
            "set it to OFF, INFO or DETAIL, or unset it",
        )],
    }
}

/// Reports problems with oneCCL's variables, which are parsed as oneCCL does.
pub(super) fn oneccl(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(value) = facts.variable("CCL_LOG_LEVEL")
        && !["error", "warn", "info", "debug", "trace"].contains(&value)
    {
        found.push(Finding::new(
            Fault,
            "ccl-log-level-invalid",
            format!("CCL_LOG_LEVEL={value} is not one of error, warn, info, debug, trace"),
            "oneCCL ends the process at start",
            "use one of these; error logs least",
        ));
    }
    match facts.variable("CCL_ATL_TRANSPORT") {
        Some("mpi") => {
            let is_mpi = |name: &str| {
                ["PMI_", "OMPI_COMM_WORLD_"]
                    .iter()
                    .any(|prefix| name.starts_with(prefix))
            };
            if !facts.variables.keys().any(|name| is_mpi(name)) {
                found.push(Finding::new(
                    Fault,
                    "ccl-mpi-without-mpirun",
                    "CCL_ATL_TRANSPORT=mpi, but mpirun has not started this process",
                    "oneCCL then initialises MPI by itself and fails",
                    "CCL_ATL_TRANSPORT=ofi with torchrun, or start the ranks with mpirun",
                ));
            }
        }
        Some("ofi") | None => {}
        Some(value) => found.push(Finding::new(
            Fault,
            "ccl-transport-invalid",
            format!("CCL_ATL_TRANSPORT={value} is not ofi or mpi"),
            "oneCCL ends the process at start",
            "CCL_ATL_TRANSPORT=ofi",
        )),
    }
    found
}

/// Reports problems with `PJRT_DEVICE`.
pub(super) fn pjrt(facts: &Facts) -> Vec<Finding> {
    const KNOWN: &[&str] = &["CPU", "CUDA", "GPU", "ROCM", "TPU", "NEURON", "XPU"];
    let unknown = facts
        .variable("PJRT_DEVICE")
        .filter(|value| !KNOWN.contains(value));
    let found = unknown.map(|value| {
        Finding::new(
            Fault,
            "pjrt-device-unknown",
            format!("PJRT_DEVICE={value} is not one of {}", KNOWN.join(", ")),
            "torch_xla raises at the first use of a device, unless a plugin of that name is registered",
            "write it in capitals, as one of these",
        )
    });
    found.into_iter().collect()
}

/// Reports too many threads for the ranks of one machine.
pub(super) fn threads(facts: &Facts) -> Vec<Finding> {
    let local = facts
        .number("LOCAL_WORLD_SIZE")
        .or_else(|| facts.number("WORLD_SIZE"));
    let Some(ranks) = local.filter(|ranks| *ranks > 1) else {
        return Vec::new();
    };
    let cores = facts.cores as u64;
    match (
        facts.variable("OMP_NUM_THREADS"),
        facts.number("OMP_NUM_THREADS"),
    ) {
        (None, _) => vec![Finding::new(
            Note,
            "threads-unset",
            format!("OMP_NUM_THREADS is not set, with {ranks} ranks on {cores} cores"),
            "every rank starts a thread for each core; torchrun sets 1 to prevent that",
            format!("OMP_NUM_THREADS={}", (cores / ranks).max(1)),
        )],
        (Some(_), Some(threads)) if threads.saturating_mul(ranks) > cores.max(ranks) => {
            vec![Finding::new(
                Warning,
                "threads-too-many",
                format!("OMP_NUM_THREADS={threads} with {ranks} ranks on {cores} cores"),
                "ranks compete for the cores, and collectives wait for the slowest",
                format!("OMP_NUM_THREADS={}", (cores / ranks).max(1)),
            )]
        }
        (Some(_), _) => Vec::new(),
    }
}
