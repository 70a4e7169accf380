//! Finds an address at which one node reaches another: the other listens and sends a word back, the first tries addresses.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::facts::interface_of;
use crate::world::lease_port;

/// How long one address may take. A packet that is dropped on the way is sent again after 1 and 3 seconds.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);

/// Where another node was reached.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// The first address at which it was; none if it was at none.
    pub(super) address: Option<String>,
    /// The interface of this host that leads there; none if that is not known.
    pub(super) interface: Option<String>,
    /// Why it was not reached at the addresses before.
    pub(super) failures: Vec<String>,
    /// How long the exchange at that address took.
    pub(super) took: Duration,
}

/// Listens at a port of the system's choice at all addresses, and sends to each peer that sends `word` the word back, as long
/// as the runtime lives. Returns the port.
///
/// # Errors
/// Fails if no port is free.
pub(super) async fn listen(word: String) -> io::Result<u16> {
    let (listener, port) = bind(0).await?;
    tokio::spawn(answer(listener, word));
    Ok(port)
}

/// Does the same at a leased port: firewalls tell such ports from those of the system's choice.
///
/// # Errors
/// Fails if no port is free.
pub(super) async fn listen_as_rendezvous(word: String) -> io::Result<u16> {
    let lease = lease_port()?;
    let (listener, port) = bind(lease.port).await?;
    tokio::spawn(async move {
        answer(listener, word).await;
        drop(lease);
    });
    Ok(port)
}

async fn bind(port: u16) -> io::Result<(TcpListener, u16)> {
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind(("0.0.0.0", port)).await?,
    };
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

async fn answer(listener: TcpListener, word: String) {
    while let Ok((mut peer, _)) = listener.accept().await {
        let word = word.clone();
        tokio::spawn(timeout(ADDRESS_TIMEOUT, async move {
            let mut said = vec![0; word.len()];
            if peer.read_exact(&mut said).await.is_ok() && said == word.as_bytes() {
                let _ = peer.write_all(&said).await;
            }
        }));
    }
}

/// Tries addresses until one answers with the word at all of the ports.
pub(super) async fn reach(addresses: Vec<String>, ports: &[u16], word: &str) -> Reached {
    let mut reached = Reached::default();
    for address in addresses {
        let Ok(ip) = address.parse::<IpAddr>() else {
            reached.failures.push(format!("{address} is no address"));
            continue;
        };
        match at_all(ip, ports, word).await {
            Ok((own, took)) => {
                reached.took = took;
                reached.interface = interface_of(own);
                reached.address = Some(address);
                return reached;
            }
            Err(failure) => reached.failures.push(format!("{address}: {failure}")),
        }
    }
    reached
}

/// Exchanges the word with all ports at once. Returns this end's own address, and how long the longest took.
///
/// # Errors
/// Says what failed, and at which port if it did not fail at all.
async fn at_all(address: IpAddr, ports: &[u16], word: &str) -> Result<(IpAddr, Duration), String> {
    let mut trying = JoinSet::new();
    for port in ports.iter().copied() {
        let word = word.to_owned();
        trying.spawn(async move {
            let began = Instant::now();
            let own = match timeout(ADDRESS_TIMEOUT, exchange(address, port, &word)).await {
                Ok(own) => own.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer for {} s", ADDRESS_TIMEOUT.as_secs())),
            };
            own.map(|own| (own, began.elapsed()))
                .map_err(|failure| (port, failure))
        });
    }
    let tried = trying.join_all().await;
    let (fine, failed): (Vec<_>, Vec<_>) = tried.into_iter().partition(Result::is_ok);
    let failed = failed.into_iter().find_map(Result::err);
    let slowest = fine.into_iter().flatten().max_by_key(|(_, took)| *took);
    match (failed, slowest) {
        (None, Some(found)) => Ok(found),
        (Some((port, failure)), Some(_)) => {
            let mut others = ports.iter().filter(|other| **other != port);
            let other = others.next().copied().unwrap_or_default();
            Err(format!(
                "port {port}: {failure}, while port {other} answers; does a firewall let some ports through?"
            ))
        }
        (Some((_, failure)), None) => Err(failure),
        (None, None) => Err("it has no port to answer at".to_owned()),
    }
}

/// Sends the word and compares what comes back. Returns this end's own address.
async fn exchange(address: IpAddr, port: u16, word: &str) -> io::Result<IpAddr> {
    let mut peer = TcpStream::connect((address, port)).await?;
    peer.set_nodelay(true)?;
    peer.write_all(word.as_bytes()).await?;
    let mut said = vec![0; word.len()];
    peer.read_exact(&mut said).await?;
    if said != word.as_bytes() {
        return Err(io::Error::other("another program answers there"));
    }
    Ok(peer.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_address_that_answers_rightly_is_taken() {
        let port = listen("word".to_owned()).await.unwrap();
        let addresses = || {
            let addresses = ["nonsense", "127.0.0.1", "::1"];
            addresses.map(str::to_owned).to_vec()
        };
        let found = reach(addresses(), &[port], "word").await;
        assert_eq!(found.address.as_deref(), Some("127.0.0.1"));
        assert_eq!(found.failures, ["nonsense is no address"]);
        if cfg!(target_os = "linux") {
            assert_eq!(found.interface.as_deref(), Some("lo"));
        }
        // Whoever has the port there may be another program.
        let found = reach(vec!["127.0.0.1".to_owned()], &[port], "other").await;
        assert_eq!(found.address, None, "{found:?}");
    }

    #[tokio::test]
    async fn each_port_must_answer_and_the_one_that_does_not_is_named() {
        let port = listen("word".to_owned()).await.unwrap();
        let as_rendezvous = listen_as_rendezvous("word".to_owned()).await.unwrap();
        assert!((20_000..32_000).contains(&as_rendezvous));
        let at = || vec!["127.0.0.1".to_owned()];
        let found = reach(at(), &[port, as_rendezvous], "word").await;
        assert_eq!(found.address.as_deref(), Some("127.0.0.1"), "{found:?}");
        let closed = lease_port().unwrap().port;
        let found = reach(at(), &[port, closed], "word").await;
        assert_eq!(found.address, None);
        let said = found.failures.join("");
        assert!(
            said.starts_with(&format!("127.0.0.1: port {closed}: ")),
            "{said}"
        );
        assert!(
            said.contains(&format!("while port {port} answers")),
            "{said}"
        );
    }
}
