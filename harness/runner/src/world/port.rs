//! Leases rendezvous ports, so that no two worlds on one machine use the same port at the same time, in this process or
//! another.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::exhaustion::is_exhaustion;
use allranks_host as host;

/// Ports below the ephemeral ranges of Linux (32768–60999) and macOS (49152–65535), where backends open listeners of
/// their own.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A leased port: no other allranks process of this user has it while this lives. The lock is the kernel's, so it ends
/// with the process.
#[derive(Debug)]
pub struct PortLease {
    /// The port. Nothing listened on it when it was leased.
    pub port: u16,
    _lock: File,
}

/// Leases a port.
///
/// # Errors
/// Fails if no port is free or the folder of locks cannot be written.
pub fn lease_port() -> io::Result<PortLease> {
    let folder = lock_folder()?;
    // Processes start their search at different ports; the lock decides.
    let start = (std::process::id() as usize).wrapping_mul(131) % PORTS.len();
    for offset in 0..PORTS.len() {
        let port = PORTS.start + ((start + offset) % PORTS.len()) as u16;
        let Some(lock) = try_lock(&folder.join(format!("port-{port}")))? else {
            continue;
        };
        let is_free = |host| match TcpListener::bind((host, port)) {
            Ok(_) => Ok(true),
            // Another port would be no better.
            Err(error) if is_exhaustion(&error) => Err(error),
            Err(_) => Ok(false),
        };
        if is_free("127.0.0.1")? && is_free("0.0.0.0")? {
            return Ok(PortLease { port, _lock: lock });
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        "no free rendezvous port between 20000 and 31999",
    ))
}

/// Returns the folder of lock files, which all allranks processes of this user share.
pub fn lock_folder() -> io::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("allranks-locks-{user}"));
    own_folder(&folder, user)?;
    Ok(folder)
}

/// Creates the folder, or checks that it belongs to this user and that no other user can write to it: what another user
/// has prepared there could hold every lock, or be a link to another place.
fn own_folder(folder: &Path, user: u32) -> io::Result<()> {
    let refused = |what: String| {
        let text = format!("{} {what}; remove it, or set TMPDIR", folder.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    };
    let mut builder = DirBuilder::new();
    match builder.mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            builder.recursive(true).create(folder)?;
        }
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let found = std::fs::symlink_metadata(folder)?;
    if !found.is_dir() {
        return refused("is to hold locks and is no folder".to_owned());
    }
    if found.uid() != user {
        return refused(format!(
            "is to hold locks and belongs to user {}",
            found.uid()
        ));
    }
    // It was made by an earlier version, or under a permissive umask.
    if found.mode() & 0o022 != 0 {
        std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Takes the lock exclusively; none if it is not free.
pub fn try_lock(path: &Path) -> io::Result<Option<File>> {
    flocked(path, FlockOperation::NonBlockingLockExclusive)
}

/// Takes the lock shared with others; none if a process has it exclusively.
pub fn try_share(path: &Path) -> io::Result<Option<File>> {
    flocked(path, FlockOperation::NonBlockingLockShared)
}

/// Returns the processes that hold the lock or share it, as far as the kernel reports them.
pub fn holders(path: &Path) -> io::Result<Vec<u32>> {
    let inode = std::fs::metadata(path)?.ino();
    let locks = host::file_locks().into_iter();
    let held = locks.filter(|lock| lock.is_flock && lock.inode == inode);
    let pids: BTreeSet<u32> = held.map(|lock| lock.holder).collect();
    Ok(pids.into_iter().collect())
}

fn flocked(path: &Path, operation: FlockOperation) -> io::Result<Option<File>> {
    // The open neither follows a link nor waits for the reader of a FIFO.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    if !file.metadata()?.is_file() {
        let text = format!(
            "{} must be a lock file and is no file; remove it",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    match flock(&file, operation) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_locks_is_this_user_s_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let user = rustix::process::getuid().as_raw();
        let folder = temporary.path().join("deep/locks");
        let mode = || folder.metadata().unwrap().mode() & 0o777;
        own_folder(&folder, user).unwrap();
        assert_eq!(mode(), 0o700);
        std::fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        own_folder(&folder, user).unwrap();
        assert_eq!(mode(), 0o700);
        let said = own_folder(&folder, user + 1).unwrap_err().to_string();
        assert!(
            said.contains(&format!("belongs to user {user}; remove")),
            "{said}"
        );
        let link = temporary.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        let said = own_folder(&link, user).unwrap_err().to_string();
        assert!(said.contains("is no folder"), "{said}");
    }

    #[test]
    fn a_lock_is_a_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(try_lock(&link).is_err());
        assert!(!target.exists(), "it made a file elsewhere");
        // Once with a reader, and once without one, for which an open for writing would wait.
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert!(try_lock(&fifo).is_err());
        let _reader = File::options().read(true).write(true).open(&fifo).unwrap();
        let said = try_lock(&fifo).unwrap_err().to_string();
        assert!(said.contains("is no file"), "{said}");
        let file = folder.path().join("file");
        let lock = try_lock(&file).unwrap().unwrap();
        assert_eq!(lock.metadata().unwrap().mode() & 0o777, 0o600);
        assert!(try_lock(&file).unwrap().is_none());
    }

    #[test]
    fn two_leases_have_two_ports() {
        let (one, two) = (lease_port().unwrap(), lease_port().unwrap());
        assert_ne!(one.port, two.port);
    }

    #[test]
    fn a_port_with_a_listener_is_not_leased() {
        let port = lease_port().unwrap().port;
        let _squatter = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert_ne!(lease_port().unwrap().port, port);
    }
}
