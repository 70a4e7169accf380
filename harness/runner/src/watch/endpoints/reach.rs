//! Finds out whether the endpoint that ranks dial can be reached from this machine.

use std::collections::HashMap;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// After this long, an endpoint is tried again.
const FRESH: Duration = Duration::from_secs(5);

/// Endpoints that were tried.
#[derive(Debug, Default)]
pub struct Reach {
    tried: HashMap<(String, u16), Try>,
}

#[derive(Debug)]
enum Try {
    Asked(Receiver<Option<String>>),
    Known(Option<String>, Instant),
}

impl Reach {
    /// Returns why nothing answers at an endpoint, or none if something does; the outer option is none while that is being tried
    /// in the background. A connection is opened and closed at once, as a port scanner's is: a store takes no notice.
    pub fn unreachable_reason(&mut self, host: &str, port: u16) -> Option<Option<String>> {
        let key = (host.to_owned(), port);
        let ask = || {
            let (sender, receiver) = channel();
            let host = host.to_owned();
            thread::spawn(move || sender.send(unreachable_reason(&host, port)));
            Try::Asked(receiver)
        };
        let tried = self.tried.entry(key).or_insert_with(ask);
        match tried {
            Try::Known(_, at) if at.elapsed() > FRESH => *tried = ask(),
            Try::Known(..) => {}
            Try::Asked(answer) => match answer.try_recv() {
                Ok(found) => *tried = Try::Known(found, Instant::now()),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => *tried = Try::Known(None, Instant::now()),
            },
        }
        match tried {
            Try::Known(found, _) => Some(found.clone()),
            Try::Asked(_) => None,
        }
    }
}

/// Returns why no address of the host takes a connection; none if one does.
fn unreachable_reason(host: &str, port: u16) -> Option<String> {
    let addresses = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => return Some(error.to_string()),
    };
    let mut unreachable_reason = "the name has no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            // A port of the range that the kernel gives to connections may have been given to this one: it has met itself.
            Ok(stream) if stream.local_addr().is_ok_and(|own| own == address) => {
                "connection refused".clone_into(&mut unreachable_reason);
            }
            Ok(_) => return None,
            Err(error) => unreachable_reason = error.to_string().to_lowercase(),
        }
    }
    Some(unreachable_reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};
    use std::net::{SocketAddr, TcpListener};

    #[test]
    fn an_endpoint_where_something_listens_is_told_from_one_where_nothing_does() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let find = |port: u16| {
            let mut reach = Reach::default();
            loop {
                if let Some(found) = reach.unreachable_reason("127.0.0.1", port) {
                    break found;
                }
                thread::yield_now();
            }
        };
        assert_eq!(find(port), None);
        // Bound, so that no other test is given it, and not listened on.
        let silent = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        silent.bind(&any.into()).unwrap();
        let port = silent.local_addr().unwrap().as_socket().unwrap().port();
        let refused = find(port).unwrap();
        assert!(refused.contains("refused"), "{refused}");
    }
}
