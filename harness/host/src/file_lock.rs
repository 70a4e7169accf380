//! Locks of files that processes wait for, as the kernel lists them.

/// A process that waits for the lock of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLockWait {
    /// The process that waits.
    pub pid: u32,
    /// The process that has the lock. It may be the same one, by another opening of the file.
    pub holder: u32,
    /// The file: major and minor number of its device, and inode.
    file: (u32, u32, u64),
}

impl FileLockWait {
    /// Returns the path by which the waiting process has opened the file; `None` if that cannot be seen.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        use std::os::unix::fs::MetadataExt;

        let files = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).ok()?;
        let mut paths = files.flatten().map(|file| file.path());
        let found = paths.find(|path| {
            std::fs::metadata(path).is_ok_and(|file| {
                let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
                (device.0, device.1, file.ino()) == self.file
            })
        })?;
        let path = std::fs::read_link(found).ok()?;
        Some(path.to_string_lossy().into_owned())
    }
}

/// Returns the waits for locks of files (`flock`, `fcntl`) on this machine; empty where the kernel does not tell. Locks of processes in
/// other namespaces of process ids are left out.
#[must_use]
pub fn file_lock_waits() -> Vec<FileLockWait> {
    std::fs::read_to_string("/proc/locks").map_or_else(|_| Vec::new(), |text| waits_in(&text))
}

/// Returns the waits that a text in the form of `/proc/locks` lists. A lock is `1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF`; a
/// wait for it stands below, with the same number and an arrow: `1: -> FLOCK ...`.
fn waits_in(text: &str) -> Vec<FileLockWait> {
    let mut waits = Vec::new();
    let mut held: Option<(&str, u32)> = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(number) = words.next() else { continue };
        let mut rest = words.peekable();
        let is_wait = rest.next_if_eq(&"->").is_some();
        // Kind, advisory or not, and mode come first.
        let mut rest = rest.skip(3);
        let pid = rest.next().and_then(|word| word.parse().ok());
        let pid = pid.filter(|pid| *pid > 0);
        let file = rest.next().and_then(file_of);
        match (is_wait, pid, file, held) {
            (false, Some(pid), ..) => held = Some((number, pid)),
            (false, None, ..) => held = None,
            (true, Some(pid), Some(file), Some((of, holder))) if of == number => {
                waits.push(FileLockWait { pid, holder, file });
            }
            _ => {}
        }
    }
    waits
}

fn file_of(word: &str) -> Option<(u32, u32, u64)> {
    let mut parts = word.split(':');
    let number = |text: Option<&str>| u32::from_str_radix(text?, 16).ok();
    let (major, minor) = (number(parts.next())?, number(parts.next())?);
    Some((major, minor, parts.next()?.parse().ok()?))
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
        let wait = |pid| FileLockWait {
            pid,
            holder: 101,
            file: (0xfe, 0, 7001),
        };
        assert_eq!(waits_in(text), [wait(102), wait(103)]);
        assert!(waits_in("").is_empty());
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
            let mut waits = file_lock_waits().into_iter();
            match waits.find(|wait| wait.pid == own) {
                Some(wait) => break wait,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(found.holder, own);
        assert_eq!(found.path().as_deref(), path.to_str());
        flock(&first, FlockOperation::Unlock).unwrap();
        waiter.join().unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
