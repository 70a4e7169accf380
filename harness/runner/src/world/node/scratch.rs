//! The folder of an agent for its files. What an agent has left that was killed, the next one of the same user removes.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

/// How the names of such folders begin.
const PREFIX: &str = "allranks-node-";

/// A folder that no other agent removes while this lives. Dropping it removes the folder.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: TempDir,
    /// The folder itself, locked. The lock is the kernel's, so it ends with the process.
    _lock: File,
}

impl Scratch {
    /// Removes what killed agents have left below `temporary`, and makes a folder there.
    ///
    /// # Errors
    /// No folder can be made.
    pub(super) fn new(temporary: &Path) -> io::Result<Self> {
        remove_stale(temporary);
        loop {
            let folder = tempfile::Builder::new()
                .prefix(PREFIX)
                .tempdir_in(temporary)?;
            // Another agent may have taken it for one that was left, before it was locked: that one has locked or removed it.
            match locked(folder.path()) {
                Ok(Some(lock)) if folder.path().is_dir() => {
                    return Ok(Self {
                        folder,
                        _lock: lock,
                    });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders of this user that no agent has locked. What cannot be removed stays.
fn remove_stale(temporary: &Path) {
    let Ok(entries) = std::fs::read_dir(temporary) else {
        return;
    };
    let user = rustix::process::geteuid().as_raw();
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry
                .metadata()
                .is_ok_and(|found| found.is_dir() && found.uid() == user);
        if is_ours && let Ok(Some(_lock)) = locked(&entry.path()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Locks a folder; none if another process has.
fn locked(folder: &Path) -> io::Result<Option<File>> {
    let file = File::open(folder)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_whose_agents_are_gone_are_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let living = Scratch::new(temporary.path()).unwrap();
        let left = temporary.path().join("allranks-node-left");
        let other = temporary.path().join("another");
        for folder in [&left, &other] {
            std::fs::create_dir_all(folder.join("world3")).unwrap();
        }
        let second = Scratch::new(temporary.path()).unwrap();
        assert!(!left.exists(), "what was left is there");
        assert!(living.path().is_dir() && second.path().is_dir() && other.is_dir());
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }

    #[test]
    fn agents_that_start_together_do_not_disturb_each_other() {
        let temporary = tempfile::tempdir().unwrap();
        let make = || {
            for _ in 0..500 {
                let scratch = Scratch::new(temporary.path()).unwrap();
                assert!(scratch.path().is_dir());
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(make))));
    }
}
