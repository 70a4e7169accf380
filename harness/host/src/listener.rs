//! Finds the processes that listen at a port, and whether a listener is a `TCPStore` of PyTorch.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A socket that listens for TCP connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The port at which it listens.
    pub port: u16,
    /// Id of the process that holds the socket; `None` if that process belongs to another user.
    pub pid: Option<u32>,
}

impl Listener {
    /// Returns `describe` of the process that holds the socket, or a text for a process of another user.
    pub fn owner(&self, describe: impl Fn(u32) -> String) -> String {
        self.pid
            .map_or_else(|| "a process of another user".to_owned(), describe)
    }
}

/// Returns every listener at one of these ports, in order of port and process. Empty where this machine does not tell.
#[cfg(target_os = "linux")]
#[must_use]
pub fn listeners(ports: &[u16]) -> Vec<Listener> {
    use std::collections::HashMap;

    use procfs::process::{FDTarget, all_processes};

    let mut found: HashMap<u64, Listener> = sockets()
        .filter(|(port, _)| ports.contains(port))
        .map(|(port, inode)| (inode, Listener { port, pid: None }))
        .collect();
    if found.is_empty() {
        return Vec::new();
    }
    for process in all_processes().into_iter().flatten().flatten() {
        for file in process.fd().into_iter().flatten().flatten() {
            if let FDTarget::Socket(inode) = file.target
                && let Some(listener) = found.get_mut(&inode)
            {
                // If several processes hold the socket, the parent of the others opened it; it comes first.
                listener.pid.get_or_insert(process.pid().cast_unsigned());
            }
        }
    }
    let mut all: Vec<Listener> = found.into_values().collect();
    all.sort_by_key(|one| (one.port, one.pid));
    all.dedup();
    all
}

/// Returns every listener at one of these ports, in order of port and process. Empty where this machine does not tell.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn listeners(_ports: &[u16]) -> Vec<Listener> {
    Vec::new()
}

/// Returns whether a process listens for TCP connections at a port; `None` where this machine does not tell. Cheaper than
/// [`listeners`], which looks through all processes.
#[cfg(target_os = "linux")]
#[must_use]
pub fn has_listener(port: u16) -> Option<bool> {
    Some(sockets().any(|(other, _)| other == port))
}

/// Returns whether a process listens for TCP connections at a port; `None` where this machine does not tell.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn has_listener(_port: u16) -> Option<bool> {
    None
}

/// Returns whether a process of this machine has a connection to this port of any machine; false where this machine does not
/// tell.
#[cfg(target_os = "linux")]
#[must_use]
pub fn is_connected_to(port: u16) -> bool {
    use procfs::net::{TcpState, tcp, tcp6};

    let sockets = [tcp(), tcp6()].into_iter().flatten().flatten();
    let mut connected = sockets.filter(|socket| socket.state == TcpState::Established);
    connected.any(|socket| socket.remote_address.port() == port)
}

/// Returns whether a process of this machine has a connection to this port of any machine; false where this machine does not
/// tell.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn is_connected_to(_port: u16) -> bool {
    false
}

/// Returns the process that holds the other end of a TCP connection of this machine or, as long as that is not accepted,
/// listens there; `None` if it is on another machine, or where this machine does not tell.
#[cfg(target_os = "linux")]
#[must_use]
pub fn holder_of_other_end(own: SocketAddr, other: SocketAddr) -> Option<u32> {
    use procfs::net::{TcpState, tcp, tcp6};
    use procfs::process::{FDTarget, all_processes};

    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (own, other) = (plain(own), plain(other));
    let sockets = [tcp(), tcp6()].into_iter().flatten().flatten();
    let mut ends = sockets.filter(|socket| {
        socket.state == TcpState::Established
            && plain(socket.local_address) == other
            && plain(socket.remote_address) == own
    });
    let inode = ends.next()?.inode;
    if inode == 0 {
        let listeners = listeners(&[other.port()]);
        return listeners.into_iter().find_map(|listener| listener.pid);
    }
    let mut processes = all_processes().ok()?.flatten();
    let holder = processes.find(|process| {
        let mut files = process.fd().into_iter().flatten().flatten();
        files.any(|file| matches!(file.target, FDTarget::Socket(held) if held == inode))
    });
    holder.map(|process| process.pid().cast_unsigned())
}

/// Returns the process that holds the other end of a TCP connection of this machine; `None` where this machine does not tell.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn holder_of_other_end(_own: SocketAddr, _other: SocketAddr) -> Option<u32> {
    None
}

/// Returns the port and the inode of each listening socket.
#[cfg(target_os = "linux")]
fn sockets() -> impl Iterator<Item = (u16, u64)> {
    use procfs::net::{TcpState, tcp, tcp6};

    let sockets = [tcp(), tcp6()].into_iter().flatten().flatten();
    sockets
        .filter(|socket| socket.state == TcpState::Listen)
        .map(|socket| (socket.local_address.port(), socket.inode))
}

/// How long the lookup of a host name may take. For a name that does not exist, some name servers need half a second.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns whether a host name or a numeric address resolves on this machine; `None` if there is no answer in time.
#[must_use]
pub fn resolves(host: &str) -> Option<bool> {
    let found = addresses(host.trim_matches(['[', ']']), LOOKUP_TIMEOUT)?;
    Some(found.is_ok_and(|found| !found.is_empty()))
}

/// Returns the addresses of a host, in order and each once; `None` if there is no answer within `patience`.
#[must_use]
pub fn addresses(host: &str, patience: Duration) -> Option<io::Result<Vec<IpAddr>>> {
    let host = host.to_owned();
    let (answer, answered) = mpsc::channel();
    // The call cannot be interrupted. A thread that takes longer is left running until the process ends, and its answer is
    // dropped.
    thread::spawn(move || answer.send((host.as_str(), 0).to_socket_addrs().map(Vec::from_iter)));
    let found = answered.recv_timeout(patience).ok()?;
    Some(found.map(|found| {
        let found: BTreeSet<IpAddr> = found.iter().map(SocketAddr::ip).collect();
        found.into_iter().collect()
    }))
}

/// How long a store may take to answer.
const STORE_TIMEOUT: Duration = Duration::from_millis(300);
/// First bytes of a client of TCPStore: query VALIDATE and the magic number of `TCPStoreBackend.hpp`, then query PING
/// with a number that comes back.
const VALIDATE: u8 = 0;
const MAGIC: u32 = 0x3C85_F7CE;
const PING: u8 = 13;
const NONCE: u32 = 0x616C_6C72;

/// How a listener answers the first bytes of a client of a `TCPStore`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreReply {
    /// As a `TCPStore` does.
    Store,
    /// It accepts the connection and sends nothing in time.
    Silent,
    /// In another way, so that clients notice that it is no store.
    Other,
}

/// Connects as a client of a `TCPStore` and returns how the listener answers; `None` if the connection is not accepted.
#[must_use]
pub fn probe_store(address: SocketAddr) -> Option<StoreReply> {
    let mut stream = TcpStream::connect_timeout(&address, STORE_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(STORE_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(STORE_TIMEOUT)).ok()?;
    let mut hello = vec![VALIDATE];
    hello.extend(MAGIC.to_le_bytes());
    hello.push(PING);
    hello.extend(NONCE.to_le_bytes());
    if stream.write_all(&hello).is_err() {
        return Some(StoreReply::Other);
    }
    let mut answer = [0; 4];
    Some(match stream.read_exact(&mut answer) {
        Ok(()) if u32::from_le_bytes(answer) == NONCE => StoreReply::Store,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            StoreReply::Silent
        }
        Ok(()) | Err(_) => StoreReply::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn names_mean_addresses_or_nothing() {
        assert_eq!(resolves("127.0.0.1"), Some(true));
        assert_eq!(resolves("[::1]"), Some(true));
        // Where the name server is slow, nothing is known.
        assert_ne!(resolves("no-such-host.invalid"), Some(true));
    }

    #[test]
    fn a_silent_listener_is_no_store() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(probe_store(address), Some(StoreReply::Silent));
        if cfg!(target_os = "linux") {
            let known = Listener {
                port: address.port(),
                pid: Some(std::process::id()),
            };
            assert_eq!(listeners(&[address.port()]), vec![known]);
        }
        drop(socket);
        assert_eq!(listeners(&[address.port()]), Vec::new());
        assert_eq!(probe_store(address), None);
    }
}
