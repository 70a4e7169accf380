//! Host names and network interfaces, and the interface that each backend would choose.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Depth, FactsQuery};
use allranks_host as host;

/// The time limit of a name lookup. It exceeds the time after which the resolver gives up on a name server.
const PATIENCE: Duration = Duration::from_secs(12);
/// The time limit in the record of a run, which waits for the lookup.
const RUN_PATIENCE: Duration = Duration::from_secs(2);
/// Makes the reverse lookup that torch makes to log the name of a peer.
const REVERSE: &str = "import socket; socket.getnameinfo(('::ffff:127.0.0.1', 0), 0)";

/// Names that must resolve, and network interfaces.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Network {
    /// The name of this machine.
    pub hostname: String,
    /// The result of resolving the host name.
    pub host: Lookup,
    /// The result of resolving `MASTER_ADDR`; `None` if it is not set.
    pub master: Option<Lookup>,
    /// The network interfaces, in the system's order.
    pub interfaces: Vec<Interface>,
    /// The names of RDMA interfaces; empty if there are none.
    pub rdma: Vec<String>,
    /// The interface or address that each backend would choose, by the backend's name; a backend is absent if that is
    /// not known.
    pub chosen: BTreeMap<String, String>,
    /// Seconds that the reverse lookup of `::ffff:127.0.0.1` takes, which torch does when it connects to a store on
    /// this machine; `None` if it was not tried.
    pub reverse_seconds: Option<f64>,
}

/// The result of a name lookup.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lookup {
    /// The addresses found.
    pub addresses: Vec<IpAddr>,
    /// Why there are no addresses; `None` if there are.
    pub error: Option<String>,
    /// How long the lookup took, in seconds.
    pub seconds: f64,
    /// True if an address belongs to this machine.
    pub is_here: bool,
}

/// A network interface of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// The name of the interface: `eth0`.
    pub name: String,
    /// True if it is up.
    pub is_up: bool,
    /// True if it is a loopback interface.
    pub is_loopback: bool,
    /// The addresses found.
    pub addresses: Vec<IpAddr>,
}

pub(super) fn collect(query: &FactsQuery) -> Network {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let interfaces = interfaces();
    let patience = match query.depth {
        Depth::Everything => PATIENCE,
        Depth::Record => RUN_PATIENCE,
    };
    let ask = |name: &str| resolve(name, patience);
    let host = ask(&name);
    let master = query.environment.get("MASTER_ADDR").map(|name| ask(name));
    let reverse_seconds = match (query.depth, &query.python) {
        (Depth::Everything, Some(python)) => {
            let mut command = Command::new(&python.path);
            command.args(["-S", "-c", REVERSE]);
            let began = Instant::now();
            let ran = host::run_with_timeout(command, PATIENCE);
            ran.is_ok().then(|| began.elapsed().as_secs_f64())
        }
        (Depth::Record, _) | (_, None) => None,
    };
    Network {
        chosen: chosen_interfaces(&query.environment, &interfaces, &host),
        hostname: name,
        host,
        master,
        interfaces,
        rdma: names_in("/sys/class/infiniband"),
        reverse_seconds,
    }
}

/// Returns the interface that each backend would choose: by their variables, else as their sources say. Gloo takes the address
/// that the hostname resolves to if that is this machine's, else loopback (`ProcessGroupGloo::createDefaultDevice`). NCCL takes
/// `ib*`, then anything but `docker*` and `lo`, then `docker*`, then `lo` (`ncclFindInterfaces`).
fn chosen_interfaces(
    environment: &BTreeMap<String, String>,
    interfaces: &[Interface],
    host: &Lookup,
) -> BTreeMap<String, String> {
    let usable = || {
        let up = interfaces.iter().filter(|one| one.is_up);
        up.filter(|one| !one.addresses.is_empty())
    };
    let named = |variable: &str| {
        let value = environment.get(variable).filter(|value| !value.is_empty());
        value.map(|value| format!("{value} ({variable})"))
    };
    let of_host = host.addresses.iter().find_map(|address| {
        let found = interfaces
            .iter()
            .find(|one| one.addresses.contains(address));
        let is_loopback = address.is_loopback();
        let found = found.or_else(|| interfaces.iter().find(|one| is_loopback && one.is_loopback));
        found.map(|one| format!("{} ({address}, what the hostname resolves to)", one.name))
    });
    let gloo = named("GLOO_SOCKET_IFNAME").or(of_host).or_else(|| {
        let is_known = host.error.is_some() || !host.addresses.is_empty();
        is_known.then(|| {
            "loopback (the hostname does not resolve to an address of this machine)".to_owned()
        })
    });
    let rank = |name: &str| match name {
        _ if name.starts_with("ib") => 0,
        _ if name.starts_with("docker") => 2,
        _ if name.starts_with("lo") => 3,
        _ => 1,
    };
    let nccl = named("NCCL_SOCKET_IFNAME").or_else(|| {
        usable()
            .min_by_key(|one| rank(&one.name))
            .map(|one| one.name.clone())
    });
    let ccl = named("CCL_KVS_IFACE");
    [("gloo", gloo), ("nccl", nccl), ("oneccl", ccl)]
        .into_iter()
        .filter_map(|(name, chosen)| Some((name.to_owned(), chosen?)))
        .collect()
}

/// Looks up a name, for at most `patience`.
fn resolve(name: &str, patience: Duration) -> Lookup {
    let began = Instant::now();
    let answer = host::addresses(name, patience);
    let seconds = began.elapsed().as_secs_f64();
    let (addresses, error) = match answer {
        Some(Ok(found)) => (found, None),
        Some(Err(error)) => (Vec::new(), Some(error.to_string())),
        None => (
            Vec::new(),
            Some(format!("no answer within {} s", patience.as_secs())),
        ),
    };
    Lookup {
        is_here: addresses
            .iter()
            .any(|one: &IpAddr| TcpListener::bind((*one, 0)).is_ok()),
        addresses,
        error,
        seconds,
    }
}

fn interfaces() -> Vec<Interface> {
    use nix::net::if_::InterfaceFlags;

    let mut all: Vec<Interface> = Vec::new();
    for one in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        let position = all
            .iter()
            .position(|known| known.name == one.interface_name);
        let index = position.unwrap_or(all.len());
        if position.is_none() {
            all.push(Interface {
                name: one.interface_name.clone(),
                is_up: one.flags.contains(InterfaceFlags::IFF_UP),
                is_loopback: one.flags.contains(InterfaceFlags::IFF_LOOPBACK),
                addresses: Vec::new(),
            });
        }
        let address = one.address.and_then(|address| {
            let v4 = address.as_sockaddr_in().map(|found| IpAddr::V4(found.ip()));
            v4.or_else(|| {
                address
                    .as_sockaddr_in6()
                    .map(|found| IpAddr::V6(found.ip()))
            })
        });
        all[index].addresses.extend(address);
    }
    all
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            is_up: true,
            is_loopback: name == "lo",
            addresses: vec![address.parse().unwrap()],
        }
    }

    #[test]
    fn backends_choose_as_their_sources_say() {
        let interfaces = [
            interface("lo", "127.0.0.1"),
            interface("docker0", "172.17.0.1"),
            interface("eth0", "10.0.0.7"),
        ];
        let host = |address: &str| Lookup {
            addresses: vec![address.parse().unwrap()],
            ..Lookup::default()
        };
        let none = BTreeMap::new();
        let chosen = chosen_interfaces(&none, &interfaces, &host("127.0.1.1"));
        assert_eq!(
            chosen["gloo"],
            "lo (127.0.1.1, what the hostname resolves to)"
        );
        assert_eq!(chosen["nccl"], "eth0");
        let chosen = chosen_interfaces(&none, &interfaces, &host("10.0.0.7"));
        assert_eq!(
            chosen["gloo"],
            "eth0 (10.0.0.7, what the hostname resolves to)"
        );
        let chosen = chosen_interfaces(&none, &interfaces[..2], &host("10.9.9.9"));
        assert!(chosen["gloo"].starts_with("loopback"), "{chosen:?}");
        assert_eq!(chosen["nccl"], "docker0");
        let named = [
            ("NCCL_SOCKET_IFNAME", "lo"),
            ("GLOO_SOCKET_IFNAME", "docker0"),
        ];
        let named = named.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let chosen = chosen_interfaces(&named.into(), &interfaces, &host("10.0.0.7"));
        assert_eq!(chosen["nccl"], "lo (NCCL_SOCKET_IFNAME)");
        assert_eq!(chosen["gloo"], "docker0 (GLOO_SOCKET_IFNAME)");
    }
}
