//! Leases of rendezvous ports, so that two worlds never meet on one: not in this process, not in another of the
//! same machine.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use allranks_host as host;

/// Below the ephemeral ranges of Linux (32768–60999) and macOS (49152–65535): backends' own listeners are up there.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port that nobody else has, for as long as this lives. The lock is the kernel's: it ends with the process.
#[derive(Debug)]
pub struct PortLease {
    /// The port; nobody listened on it when it was leased.
    pub port: u16,
    _lock: File,
}

/// Leases a port.
///
/// # Errors
/// Fails if no port is free or the folder of locks cannot be written.
pub fn lease_port() -> io::Result<PortLease> {
    let folder = lock_folder()?;
    // Processes start looking at different places; it is the lock that decides.
    let start = (std::process::id() as usize).wrapping_mul(131) % PORTS.len();
    for offset in 0..PORTS.len() {
        let port = PORTS.start + ((start + offset) % PORTS.len()) as u16;
        let Some(lock) = try_lock(&folder.join(format!("port-{port}")))? else {
            continue;
        };
        if TcpListener::bind(("127.0.0.1", port)).is_ok()
            && TcpListener::bind(("0.0.0.0", port)).is_ok()
        {
            return Ok(PortLease { port, _lock: lock });
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        "no free rendezvous port between 20000 and 31999",
    ))
}

/// The folder of lock files, shared by all allranks processes of this user.
pub fn lock_folder() -> io::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("allranks-locks-{user}"));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Takes the lock, if it is free.
pub fn try_lock(path: &Path) -> io::Result<Option<File>> {
    flocked(path, FlockOperation::NonBlockingLockExclusive)
}

/// Takes the lock together with others who share it, if nobody has it for himself.
pub fn try_share(path: &Path) -> io::Result<Option<File>> {
    flocked(path, FlockOperation::NonBlockingLockShared)
}

/// The processes that have a lock or share it, as far as the kernel tells.
pub fn holders(path: &Path) -> io::Result<Vec<u32>> {
    let inode = std::fs::metadata(path)?.ino();
    Ok(host::locking(inode))
}

fn flocked(path: &Path, operation: FlockOperation) -> io::Result<Option<File>> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
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
    fn two_leases_have_two_ports() {
        let (one, two) = (lease_port().unwrap(), lease_port().unwrap());
        assert_ne!(one.port, two.port);
    }

    #[test]
    fn a_port_somebody_listens_on_is_not_leased() {
        let port = lease_port().unwrap().port;
        let _squatter = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert_ne!(lease_port().unwrap().port, port);
    }
}
