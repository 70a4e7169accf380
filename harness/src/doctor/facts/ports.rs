//! The ports of rendezvous: whether they are free, and which processes listen there.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::Serialize;

use super::describe_process;
use allranks_host::{StoreReply, listeners, probe_store};

/// The default ports of torchrun's rendezvous.
const DEFAULTS: &[u16] = &[29400, 29500];
/// The first port at which every user may listen, if the system does not tell.
const PRIVILEGED: u16 = 1024;

/// A port for the rendezvous of a job, and the processes that use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Port {
    /// The port number.
    pub port: u16,
    /// True if it is `MASTER_PORT`.
    pub is_master: bool,
    /// Processes that listen there: `python train.py (pid 4711)`, `a process of another user`. Empty if the port is
    /// free.
    pub owners: Vec<String>,
    /// True if a TCPStore answers there.
    pub is_store: bool,
    /// True if this user may listen there.
    pub is_allowed: bool,
    /// True if the system also gives this port to outgoing connections.
    pub is_ephemeral: bool,
}

pub(super) fn collect(environment: &BTreeMap<String, String>) -> Vec<Port> {
    let master = environment
        .get("MASTER_PORT")
        .and_then(|text| text.trim().parse().ok());
    let mut numbers: Vec<u16> = DEFAULTS
        .iter()
        .copied()
        .chain(master)
        .filter(|port| *port != 0)
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let there = listeners(&numbers);
    let first_open =
        number("/proc/sys/net/ipv4/ip_unprivileged_port_start", 0).unwrap_or(PRIVILEGED);
    let is_root = rustix::process::geteuid().is_root();
    let range = "/proc/sys/net/ipv4/ip_local_port_range";
    let ephemeral = number(range, 0).zip(number(range, 1));
    numbers
        .into_iter()
        .map(|port| {
            let owners: Vec<String> = there
                .iter()
                .filter(|one| one.port == port)
                .map(|one| one.owner(describe_process))
                .collect();
            Port {
                port,
                is_master: master == Some(port),
                is_store: !owners.is_empty()
                    && probe_store((Ipv4Addr::LOCALHOST, port).into()) == Some(StoreReply::Store),
                owners,
                is_allowed: is_root || port >= first_open,
                is_ephemeral: ephemeral.is_some_and(|(low, high)| (low..=high).contains(&port)),
            }
        })
        .collect()
}

fn number(file: &str, index: usize) -> Option<u16> {
    let text = std::fs::read_to_string(file).ok()?;
    text.split_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_port_has_an_owner_while_a_process_listens() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let environment = BTreeMap::from([("MASTER_PORT".to_owned(), port.to_string())]);
        let master = || {
            collect(&environment)
                .into_iter()
                .find(|one| one.is_master)
                .unwrap()
        };
        let busy = master();
        let pid = format!("(pid {})", std::process::id());
        assert!(
            busy.owners.iter().any(|owner| owner.ends_with(&pid)),
            "{busy:?}"
        );
        assert!(!busy.is_store && busy.is_allowed);
        drop(socket);
        assert_eq!(master().owners, Vec::<String>::new());
    }
}
