//! The limits that the system sets for one process.

use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// The soft limits of this process; `None` where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// `ulimit -n`: the number of files and sockets that a process may have open.
    pub open_files: Option<u64>,
    /// `ulimit -u`: the number of processes and threads that this user may have.
    pub processes: Option<u64>,
    /// `ulimit -l`: memory that a process may lock, as RDMA does, in KiB.
    pub locked_kib: Option<u64>,
    /// `ulimit -v`: the address space of a process, in MiB.
    pub address_space_mib: Option<u64>,
}

pub(super) fn collect() -> Limits {
    let soft = |resource| getrlimit(resource).current;
    Limits {
        open_files: soft(Resource::Nofile),
        processes: soft(Resource::Nproc),
        locked_kib: soft(Resource::Memlock).map(|bytes| bytes >> 10),
        address_space_mib: soft(Resource::As).map(|bytes| bytes >> 20),
    }
}
