//! Rules about memory, disks and limits.

use super::super::Severity::{self, Fault, Warning};
use super::super::{Facts, Finding};

/// Returns a fault below the first limit, a warning below the second, otherwise `None`.
fn below(value: u64, fault: u64, warning: u64) -> Option<Severity> {
    match value {
        _ if value < fault => Some(Fault),
        _ if value < warning => Some(Warning),
        _ => None,
    }
}

/// Reports too little free space in `/dev/shm`. Data loaders and NCCL use it (NCCL some 10 to 30 MiB for each rank); containers
/// get 64 MiB of it.
pub(super) fn shared_memory(facts: &Facts) -> Vec<Finding> {
    let Some(shm) = &facts.memory.shm else {
        return Vec::new();
    };
    let (total, free) = (shm.total_mib, shm.free_mib);
    let severities = [below(free, 16, 512), below(total, 0, 1024)];
    let severity = severities.into_iter().flatten().min();
    let found = severity.map(|severity| {
        Finding::new(
            severity,
            "shm-small",
            format!("{} has {free} MiB free of {total}", shm.path),
            "NCCL and data loaders put shared memory there; without free space they fail, or end with SIGBUS",
            "docker run --ipc=host or --shm-size=8g; delete files that dead jobs have left there; mount -o remount,size=8g /dev/shm",
        )
    });
    found.into_iter().collect()
}

/// Reports too little memory. A rank that has imported torch takes some 200 to 500 MiB.
pub(super) fn memory(facts: &Facts) -> Vec<Finding> {
    let Some(available) = facts.memory.available_mib else {
        return Vec::new();
    };
    let found = below(available, 512, 2048).map(|severity| {
        Finding::new(
            severity,
            "memory-low",
            format!("{available} MiB of memory are available"),
            "each rank takes some hundred MiB for torch alone; when memory runs out, the kernel kills a rank, and the others wait for it",
            "end the processes that use it, or run fewer ranks",
        )
    });
    found.into_iter().collect()
}

/// Reports too little free space for temporary files: file stores, logs, compiled kernels.
pub(super) fn temporary(facts: &Facts) -> Vec<Finding> {
    let Some(space) = &facts.memory.temporary else {
        return Vec::new();
    };
    let found = below(space.free_mib, 64, 1024).map(|severity| {
        Finding::new(
            severity,
            "temporary-full",
            format!("{} has {} MiB free", space.path, space.free_mib),
            "file stores, torchrun's logs and compiled kernels are written there; a full disk looks like a hang to the other ranks",
            "make room, or set TMPDIR to a folder on another disk",
        )
    });
    found.into_iter().collect()
}

/// Reports limits of a process (`ulimit`) that are too low for ranks.
pub(super) fn limits(facts: &Facts) -> Vec<Finding> {
    let limits = &facts.limits;
    let mut found = Vec::new();
    if let Some(files) = limits.open_files
        && let Some(severity) = below(files, 256, 1024)
    {
        found.push(Finding::new(
            severity,
            "open-files-low",
            format!("a process may have {files} files and sockets open"),
            "every rank holds a connection to every other in each group, and data loaders pass tensors as files",
            "ulimit -n 65536, or LimitNOFILE= of the service",
        ));
    }
    if let Some(processes) = limits.processes
        && let Some(severity) = below(processes, 256, 2048)
    {
        found.push(Finding::new(
            severity,
            "processes-low",
            format!("this user may have {processes} processes and threads"),
            "every rank has dozens of threads; a process that cannot start one raises, or ends with SIGABRT",
            "ulimit -u 65536, or --pids-limit of the container",
        ));
    }
    if let Some(kib) = limits.locked_kib
        && kib < 64 << 10
        && !facts.network.rdma.is_empty()
    {
        found.push(Finding::new(
            Fault,
            "locked-memory-low",
            format!(
                "a process may lock {kib} KiB of memory, and there is RDMA ({})",
                facts.network.rdma.join(", ")
            ),
            "buffers for RDMA must be locked; NCCL and UCX fail to register them",
            "ulimit -l unlimited; docker run --ulimit memlock=-1",
        ));
    }
    if let Some(mib) = limits.address_space_mib {
        found.push(Finding::new(
            Warning,
            "address-space-limited",
            format!("a process may have {mib} MiB of address space"),
            "device runtimes reserve far more than they use, and fail",
            "ulimit -v unlimited",
        ));
    }
    found
}
