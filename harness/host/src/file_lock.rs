//! Lists the locks of files that processes have and wait for, as the kernel reports them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A lock of a file (`flock`, `fcntl`) that a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// The process that has the lock.
    pub holder: u32,
    /// True if no other process can have a lock of the same part of the file.
    pub is_exclusive: bool,
    /// The processes that wait for it in the kernel. One of them may be the holder, by another opening of the file.
    pub waiters: Vec<u32>,
    /// The inode of the file.
    pub inode: u64,
    /// True if the lock was taken by `flock`, false if by `fcntl`.
    pub is_flock: bool,
    /// Major and minor number of the device that the file is on.
    device: (u32, u32),
}

impl FileLock {
    /// Returns true if it is of the file at this path.
    #[must_use]
    pub fn is_of(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|file| self.is_file(&file))
    }

    fn is_file(&self, file: &Metadata) -> bool {
        let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        (device, file.ino()) == (self.device, self.inode)
    }

    /// Returns the path by which a process has opened the file; `None` if it has not, or if that cannot be seen.
    #[must_use]
    pub fn path_in(&self, pid: u32) -> Option<String> {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let mut paths = files.flatten().map(|file| file.path());
        let found = paths.find(|path| self.is_of(path))?;
        let path = std::fs::read_link(found).ok()?;
        Some(path.to_string_lossy().into_owned())
    }
}

/// Returns the locks of files on this machine; empty where the kernel does not tell. Locks of processes in other namespaces of process
/// ids are left out.
#[must_use]
pub fn file_locks() -> Vec<FileLock> {
    std::fs::read_to_string("/proc/locks").map_or_else(|_| Vec::new(), |text| locks_in(&text))
}

/// Returns the locks that a text in the form of `/proc/locks` lists. A lock is `1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF`; a
/// wait for it stands below, with the same number and an arrow: `1: -> FLOCK ...`.
fn locks_in(text: &str) -> Vec<FileLock> {
    let mut locks: Vec<(&str, FileLock)> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(number) = words.next() else { continue };
        let mut rest = words.peekable();
        let is_wait = rest.next_if_eq(&"->").is_some();
        let (kind, _is_advisory, mode) = (rest.next(), rest.next(), rest.next());
        let pid = rest.next().and_then(|word| word.parse().ok());
        let pid = pid.filter(|pid: &u32| *pid > 0);
        let file = rest.next().and_then(file_of);
        let (Some(pid), Some((device, inode))) = (pid, file) else {
            continue;
        };
        if !is_wait {
            let lock = FileLock {
                holder: pid,
                is_exclusive: mode == Some("WRITE"),
                waiters: Vec::new(),
                inode,
                is_flock: kind == Some("FLOCK"),
                device,
            };
            locks.push((number, lock));
        } else if let Some((of, lock)) = locks.last_mut()
            && *of == number
        {
            lock.waiters.push(pid);
        }
    }
    locks.into_iter().map(|(_, lock)| lock).collect()
}

/// Returns the device's numbers and the inode of a file that is written as `MAJOR:MINOR:INODE`.
fn file_of(word: &str) -> Option<((u32, u32), u64)> {
    let mut parts = word.split(':');
    let number = |text: Option<&str>| u32::from_str_radix(text?, 16).ok();
    let device = (number(parts.next())?, number(parts.next())?);
    Some((device, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn waits_are_below_what_they_wait_for() {
        let text = "\
1: FLOCK  ADVISORY  WRITE 101 fe:00:7001 0 EOF
1: -> FLOCK  ADVISORY  WRITE 102 fe:00:7001 0 EOF
1:  -> FLOCK  ADVISORY  WRITE 103 fe:00:7001 0 EOF
2: POSIX  ADVISORY  READ  104 00:1a:7002 128 128
3: OFDLCK ADVISORY  WRITE -1 00:05:7003 0 EOF
3: -> OFDLCK ADVISORY  WRITE 105 00:05:7003 0 EOF
4: FLOCK  ADVISORY  WRITE 0 fe:00:7004 0 EOF
";
        let lock =
            |holder, is_exclusive, waiters: &[u32], is_flock, file: ((u32, u32), u64)| FileLock {
                holder,
                is_exclusive,
                waiters: waiters.to_vec(),
                inode: file.1,
                is_flock,
                device: file.0,
            };
        assert_eq!(
            locks_in(text),
            [
                lock(101, true, &[102, 103], true, ((0xfe, 0), 7001)),
                lock(104, false, &[], false, ((0, 0x1a), 7002)),
            ]
        );
        assert!(locks_in("").is_empty());
    }

    #[test]
    fn a_wait_on_this_machine_is_seen_with_its_path() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("allranks-lock-{}", std::process::id()));
        let first = std::fs::File::create(&path).unwrap();
        flock(&first, FlockOperation::LockExclusive).unwrap();
        let second = std::fs::File::open(&path).unwrap();
        let waiter = std::thread::spawn(move || flock(&second, FlockOperation::LockExclusive));
        let own = std::process::id();
        let found = loop {
            let mut locks = file_locks().into_iter();
            match locks.find(|lock| lock.waiters.contains(&own)) {
                Some(lock) => break lock,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(
            (found.holder, found.is_exclusive, found.is_flock),
            (own, true, true)
        );
        assert_eq!(found.path_in(own).as_deref(), path.to_str());
        flock(&first, FlockOperation::Unlock).unwrap();
        waiter.join().unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
