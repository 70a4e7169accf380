//! Collects the facts that an agent reports about its host.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use tokio::process::Command;
use tokio::time::timeout;

use super::node_assignment::NodeAssignment;
use crate::world::host_facts::memory_available;
use allranks_protocol::NodeFacts;

/// Prints the versions of torch and of the NCCL package that are installed, a line each, without importing them.
const VERSIONS: &str = "\
import importlib.metadata as m
print(m.version('torch'))
print(next((one.version for one in m.distributions() if (one.name or '').startswith('nvidia-nccl-')), ''))
";
/// How long that may take.
const VERSIONS_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the facts of this host, except for the address of the agent's connection. `python`: the Python with torch;
/// `assignment`: the node that the engine assigned to the agent, if it did.
pub(super) async fn facts(python: &Path, assignment: Option<&NodeAssignment>) -> NodeFacts {
    let (torch, nccl) = versions(python).await;
    NodeFacts {
        host: host(),
        allranks: env!("CARGO_PKG_VERSION").to_owned(),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory: memory_available(),
        python: python.display().to_string(),
        torch,
        nccl,
        driver: driver(),
        shm_free: free(Path::new("/dev/shm")),
        disk_free: free(&std::env::temp_dir()),
        name_is_loopback: tokio::task::spawn_blocking(|| is_loopback(&host()))
            .await
            .unwrap_or(false),
        interfaces: interfaces()
            .into_iter()
            .map(|(name, address)| (name, address.to_string()))
            .collect(),
        address: String::new(),
        place: assignment.map(|assignment| assignment.place),
        count: assignment.map(|assignment| assignment.count),
    }
}

/// Returns the name of this host.
fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Returns the versions of torch and of the NCCL package that a Python has; none if it has none, or does not answer in time.
async fn versions(python: &Path) -> (Option<String>, Option<String>) {
    let asked = Command::new(python)
        .args(["-c", VERSIONS])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let Ok(Ok(said)) = timeout(VERSIONS_TIMEOUT, asked).await else {
        return (None, None);
    };
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let mut lines = text.lines().map(|line| {
        let version = line.trim();
        (!version.is_empty()).then(|| version.to_owned())
    });
    match said.status.success() {
        true => (lines.next().flatten(), lines.next().flatten()),
        false => (None, None),
    }
}

/// Returns the version of the NVIDIA driver; none if there is none.
fn driver() -> Option<String> {
    let text = std::fs::read_to_string("/sys/module/nvidia/version").ok()?;
    Some(text.trim().to_owned())
}

/// Returns the bytes that an ordinary user may still write to the file system of a folder; none if the system does not tell.
fn free(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns true if a host name resolves to loopback addresses only. False if it does not resolve.
fn is_loopback(name: &str) -> bool {
    let Ok(found) = (name, 0).to_socket_addrs() else {
        return false;
    };
    let addresses: Vec<_> = found.collect();
    !addresses.is_empty() && addresses.iter().all(|one| one.ip().is_loopback())
}

/// Returns the interfaces that are up, each once for each of its addresses, loopback last. Link-local addresses are left out:
/// they mean nothing without their interface.
pub(crate) fn interfaces() -> Vec<(String, IpAddr)> {
    let Ok(found) = getifaddrs() else {
        return Vec::new();
    };
    let mut interfaces: Vec<(String, IpAddr)> = found
        .filter(|one| one.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|one| {
            let address = one.address?;
            let v4 = address.as_sockaddr_in().map(|at| IpAddr::V4(at.ip()));
            let v6 = address.as_sockaddr_in6().map(|at| IpAddr::V6(at.ip()));
            Some((one.interface_name, v4.or(v6)?))
        })
        .filter(|(_, address)| match address {
            IpAddr::V4(address) => !address.is_link_local(),
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        })
        .collect();
    interfaces.sort_by_key(|(_, address)| (address.is_loopback(), address.is_ipv6()));
    interfaces
}

/// Returns the interface with this address; none if there is none.
pub(super) fn interface_of(address: IpAddr) -> Option<String> {
    let mut all = interfaces().into_iter();
    all.find(|(_, one)| *one == address.to_canonical())
        .map(|(name, _)| name)
}
