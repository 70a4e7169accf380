//! The memory of this machine, and the file systems that ranks use.

use std::path::Path;

use serde::Serialize;

/// Memory and file systems that ranks use.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Memory {
    /// The memory of the machine, or the limit of this process's control group if that is less, in MiB; `None` if
    /// unknown.
    pub total_mib: Option<u64>,
    /// The part of it that processes can still get, in MiB; `None` if unknown.
    pub available_mib: Option<u64>,
    /// The file system for shared memory, `/dev/shm`; `None` if there is none.
    pub shm: Option<FileSystem>,
    /// The file system for temporary files; `None` if it cannot be examined.
    pub temporary: Option<FileSystem>,
}

/// The size of a file system and its free space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileSystem {
    /// Its mount point, or a folder on it.
    pub path: String,
    /// Its size, in MiB.
    pub total_mib: u64,
    /// The space that this user may still fill, in MiB.
    pub free_mib: u64,
}

pub(super) fn collect() -> Memory {
    let (mut total, mut available) = (meminfo("MemTotal:"), meminfo("MemAvailable:"));
    if let Some((limit, used)) = control_group() {
        let left = limit.saturating_sub(used);
        total = Some(total.map_or(limit, |total| total.min(limit)));
        available = Some(available.map_or(left, |available| available.min(left)));
    }
    Memory {
        total_mib: total,
        available_mib: available,
        shm: file_system(Path::new("/dev/shm")),
        temporary: file_system(&std::env::temp_dir()),
    }
}

fn file_system(path: &Path) -> Option<FileSystem> {
    let found = rustix::fs::statvfs(path).ok()?;
    let mib = |blocks: u64| blocks.saturating_mul(found.f_frsize) >> 20;
    Some(FileSystem {
        path: path.display().to_string(),
        total_mib: mib(found.f_blocks),
        free_mib: mib(found.f_bavail),
    })
}

fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib >> 10)
}

/// Returns limit and use of this process's control group, in MiB; `None` without a limit. Its page cache counts as free, because
/// the kernel frees it on demand.
fn control_group() -> Option<(u64, u64)> {
    let number = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(name)).ok()?;
        text.trim().parse().ok()
    };
    let cached = || {
        let text = std::fs::read_to_string("/sys/fs/cgroup/memory.stat").ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("inactive_file "))?;
        line.trim().parse::<u64>().ok()
    };
    let used = number("memory.current")?.saturating_sub(cached().unwrap_or(0));
    Some((number("memory.max")? >> 20, used >> 20))
}
