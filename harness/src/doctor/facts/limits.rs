//! The limits that the system sets for one process.

use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// Soft limits; absent: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// `ulimit -n`: files and sockets of a process.
    pub open_files: Option<u64>,
    /// `ulimit -u`: processes and threads of this user.
    pub processes: Option<u64>,
    /// `ulimit -l`: memory that stays in place, in KiB.
    pub locked_kib: Option<u64>,
    /// `ulimit -v`: address space, in MiB.
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
