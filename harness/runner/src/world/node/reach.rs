//! Finds an address at which one node is reached from another: the one listens and sends a word back, the other tries addresses.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::facts::interface_of;

/// How long one address may take. A packet that is dropped on the way is sent again after 1 and 3 seconds.
const PATIENCE: Duration = Duration::from_secs(5);

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

/// Listens at all addresses, and sends to each peer that sends `word` the word back, as long as the runtime lives. Returns the
/// port.
///
/// # Errors
/// Fails if no port is free.
pub(super) async fn listen(word: String) -> io::Result<u16> {
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind(("0.0.0.0", 0)).await?,
    };
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            let word = word.clone();
            tokio::spawn(timeout(PATIENCE, async move {
                let mut said = vec![0; word.len()];
                if peer.read_exact(&mut said).await.is_ok() && said == word.as_bytes() {
                    let _ = peer.write_all(&said).await;
                }
            }));
        }
    });
    Ok(port)
}

/// Tries addresses until one answers with the word.
pub(super) async fn reach(addresses: Vec<String>, port: u16, word: &str) -> Reached {
    let mut reached = Reached::default();
    for address in addresses {
        let Ok(ip) = address.parse::<IpAddr>() else {
            reached.failures.push(format!("{address} is no address"));
            continue;
        };
        let began = Instant::now();
        let tried = timeout(PATIENCE, exchange(ip, port, word)).await;
        match tried {
            Ok(Ok(own)) => {
                reached.took = began.elapsed();
                reached.interface = interface_of(own);
                reached.address = Some(address);
                return reached;
            }
            Ok(Err(error)) => reached.failures.push(format!("{address}: {error}")),
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                let failure = format!("{address}: no answer for {seconds} s");
                reached.failures.push(failure);
            }
        }
    }
    reached
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
        let found = reach(addresses(), port, "word").await;
        assert_eq!(found.address.as_deref(), Some("127.0.0.1"));
        assert_eq!(found.failures, ["nonsense is no address"]);
        if cfg!(target_os = "linux") {
            assert_eq!(found.interface.as_deref(), Some("lo"));
        }
        // Whoever has the port there may be another program.
        let found = reach(vec!["127.0.0.1".to_owned()], port, "other").await;
        assert_eq!(found.address, None, "{found:?}");
    }
}
