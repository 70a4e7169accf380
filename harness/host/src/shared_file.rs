//! Lists the files that a process has mapped to share what it writes there with other processes.

use std::path::PathBuf;

/// A file that a process has mapped as shared memory and may write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedFile {
    /// Major and minor number of the device that the file is on.
    pub device: (i32, i32),
    /// The inode of the file.
    pub inode: u64,
    /// Its path, as the process sees it.
    pub path: PathBuf,
}

/// Returns the files that a process has mapped as shared memory that it may write, in order; empty where that cannot be seen. Devices
/// are left out.
#[cfg(target_os = "linux")]
#[must_use]
pub fn shared_files(pid: u32) -> Vec<SharedFile> {
    use procfs::process::{MMPermissions, MMapPath, Process};

    let maps = i32::try_from(pid)
        .ok()
        .and_then(|pid| Process::new(pid).ok()?.maps().ok());
    let wanted = MMPermissions::SHARED | MMPermissions::WRITE;
    let shared = maps.into_iter().flatten().filter_map(|map| {
        let MMapPath::Path(path) = map.pathname else {
            return None;
        };
        let is_device = path.starts_with("/dev") && !path.starts_with("/dev/shm");
        (map.perms.contains(wanted) && !is_device).then_some(SharedFile {
            device: map.dev,
            inode: map.inode,
            path,
        })
    });
    let mut files: Vec<SharedFile> = shared.collect();
    files.sort();
    files.dedup();
    files
}

/// Returns the files that a process has mapped as shared memory; none elsewhere than on Linux.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn shared_files(_pid: u32) -> Vec<SharedFile> {
    Vec::new()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_seen_and_a_library_is_not() {
        use std::process::{Command, Stdio};

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("board");
        std::fs::write(&path, [0; 4096]).unwrap();
        let code = "import mmap, sys; file = open(sys.argv[1], 'r+b'); kept = mmap.mmap(file.fileno(), 0); print(flush=True); input()";
        let started = Command::new("python3")
            .args(["-c", code])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = started.unwrap();
        let mut line = String::new();
        let output = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        let paths: Vec<PathBuf> = shared_files(child.id())
            .into_iter()
            .map(|file| file.path)
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(paths, [path]);
    }
}
