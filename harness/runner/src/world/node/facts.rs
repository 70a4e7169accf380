//! What an agent says of its host.

use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use tokio::process::Command;
use tokio::time::timeout;

use super::engine::EngineSlot;
use crate::world::host_facts::memory_available;
use allranks_protocol::NodeFacts;

/// Prints the version of torch that is installed, without importing it.
const VERSION: &str = "import importlib.metadata as m; print(m.version('torch'))";
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the facts of this host, but for the address of the agent's connection. `python`: the Python with torch; `slot`: the
/// place that the engine gave the agent, if it did.
pub(super) async fn facts(python: &Path, slot: Option<&EngineSlot>) -> NodeFacts {
    NodeFacts {
        host: host(),
        allranks: env!("CARGO_PKG_VERSION").to_owned(),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory: memory_available(),
        python: python.display().to_string(),
        torch: torch(python).await,
        interfaces: interfaces()
            .into_iter()
            .map(|(name, address)| (name, address.to_string()))
            .collect(),
        address: String::new(),
        place: slot.map(|slot| slot.place),
        count: slot.map(|slot| slot.count),
    }
}

/// Returns the name of this host.
fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Returns the version of the torch that a Python has; none if it has none, or does not answer in time.
async fn torch(python: &Path) -> Option<String> {
    let asked = Command::new(python)
        .args(["-c", VERSION])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let said = timeout(PATIENCE, asked).await.ok()?.ok()?;
    let version = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    (said.status.success() && !version.is_empty()).then_some(version)
}

/// Returns the interfaces that are up, each once for each of its addresses, loopback last. Link-local addresses are left out: they
/// mean nothing without their interface.
pub(super) fn interfaces() -> Vec<(String, IpAddr)> {
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
