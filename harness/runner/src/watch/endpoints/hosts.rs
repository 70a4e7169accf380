//! Decides which addresses name the same host. `localhost`, `127.0.0.1` and this machine's name are one, so two ranks
//! that use different ones of them do meet.

use std::collections::HashMap;
use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

/// The name that stands for every address of this machine.
const LOCALHOST: &str = "localhost";

/// Host names looked up so far.
#[derive(Debug, Default)]
pub struct Hosts {
    /// Whether all names are taken for one host.
    is_unresolved: bool,
    known: HashMap<String, Name>,
}

#[derive(Debug)]
enum Name {
    Known(String),
    Asked(Receiver<String>),
}

impl Hosts {
    /// Looks nothing up: what other machines call a host says nothing here, so that all are taken for one.
    pub fn unresolved() -> Self {
        Self {
            is_unresolved: true,
            ..Self::default()
        }
    }

    /// Returns the canonical name of a host; none while it is being looked up in the background.
    pub fn name(&mut self, host: &str) -> Option<String> {
        if self.is_unresolved {
            return Some(LOCALHOST.to_owned());
        }
        if let Some(name) = literal(host) {
            return Some(name);
        }
        let name = self.known.entry(host.to_owned()).or_insert_with(|| {
            let (sender, receiver) = channel();
            let host = host.to_owned();
            thread::spawn(move || sender.send(resolve(&host)));
            Name::Asked(receiver)
        });
        if let Name::Asked(answer) = name {
            match answer.try_recv() {
                Ok(found) => *name = Name::Known(found),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => *name = Name::Known(host.to_owned()),
            }
        }
        match name {
            Name::Known(name) => Some(name.clone()),
            Name::Asked(_) => None,
        }
    }

    /// Returns `HOST:PORT` with the canonical name of the host; none while that is being looked up. A place without a
    /// port is returned unchanged.
    pub fn place(&mut self, place: &str) -> Option<String> {
        let Some((host, port)) = place.rsplit_once(':') else {
            return Some(place.to_owned());
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        Some(format!("{}:{port}", self.name(bare)?))
    }
}

/// Returns the canonical name of a host that needs no look-up: this machine, or an IP address.
fn literal(host: &str) -> Option<String> {
    let own = rustix::system::uname();
    if host.is_empty() || host == LOCALHOST || own.nodename().to_str() == Ok(host) {
        return Some(if host.is_empty() { "" } else { LOCALHOST }.to_owned());
    }
    host.parse().ok().map(of_address)
}

/// Returns the canonical name of an address. It is this machine's if a socket can be bound to it.
fn of_address(address: IpAddr) -> String {
    match TcpListener::bind((address, 0)) {
        Ok(_) => LOCALHOST.to_owned(),
        Err(_) => address.to_string(),
    }
}

fn resolve(host: &str) -> String {
    let found = (host, 0).to_socket_addrs().ok();
    match found.and_then(|mut all| all.next()) {
        Some(address) => of_address(address.ip()),
        None => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_one_place() {
        let mut hosts = Hosts::default();
        for place in ["localhost:1", "127.0.0.1:1", "127.0.0.2:1", "[::1]:1"] {
            assert_eq!(hosts.place(place).unwrap(), "localhost:1", "{place}");
        }
        assert_eq!(hosts.place("203.0.113.7:1").unwrap(), "203.0.113.7:1");
        assert_eq!(hosts.place("/tmp/file").unwrap(), "/tmp/file");
        let unknown = loop {
            if let Some(place) = hosts.place("no-such-host.invalid:1") {
                break place;
            }
            thread::yield_now();
        };
        assert_eq!(unknown, "no-such-host.invalid:1");
    }
}
