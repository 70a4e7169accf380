//! Detects that another process took the port of a world before a rank listened at it. The port was free when it was leased,
//! but only runs that share a folder of locks respect the lease.

use std::io;
use std::net::TcpListener;
use std::sync::LazyLock;

use regex::Regex;

/// Returns the port among `chosen` that a text reports as in use; `None` if it reports none of them. A port that a backend
/// chose by itself is not among `chosen`, and does not count.
pub(super) fn taken_port(text: &str, chosen: &[u16]) -> Option<u16> {
    static IN_USE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("(?i)EADDRINUSE|address already in use").expect("two words are an expression")
    });
    static PORT: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)(?:port:?\s*|[\w\]]:)(\d{2,5})\b").expect("a number is an expression")
    });
    text.lines().find_map(|line| {
        let said = IN_USE.find_iter(line);
        // The port stands before the words, as in `port: 29500, ..., name: EADDRINUSE` and `[::]:29500 (errno: 98 - Address ...`.
        let ports = said.filter_map(|said| PORT.captures_iter(&line[..said.start()]).last());
        let mut ports = ports.filter_map(|port| port[1].parse().ok());
        ports.find(|port| chosen.contains(port))
    })
}

/// Returns true if a process of this machine uses the port now.
pub(super) fn is_held(port: u16) -> bool {
    ["127.0.0.1", "0.0.0.0"].into_iter().any(|host| {
        let bound = TcpListener::bind((host, port));
        bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_the_harness_is_told_from_one_of_the_backend() {
        let chosen = [20_123, 20_124];
        let torch = |port: u16| {
            format!(
                "DistNetworkError: The server socket has failed to listen on any local network address. port: {port}, \
                 useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
            )
        };
        let older = |port: u16| {
            format!(
                "RuntimeError: The server socket has failed to bind to [::]:{port} (errno: 98 - Address already in use)."
            )
        };
        for text in [
            torch(20_124),
            older(20_124),
            format!("x\n{}\ny", torch(20_124)),
        ] {
            assert_eq!(taken_port(&text, &chosen), Some(20_124), "{text}");
        }
        for text in [
            torch(51_000),
            older(51_000),
            // The harness's port is named, and another one is in use.
            "joined 127.0.0.1:20123; bind to 0.0.0.0:51000 failed: Address already in use"
                .to_owned(),
            "connect to 127.0.0.1:20123: Connection refused".to_owned(),
            "OSError: [Errno 98] Address already in use".to_owned(),
            "port: 120123, name: EADDRINUSE".to_owned(),
        ] {
            assert_eq!(taken_port(&text, &chosen), None, "{text}");
        }
    }

    #[test]
    fn a_port_is_held_as_long_as_it_is_listened_on() {
        // Another test may be given the port as soon as it is free.
        let is_held_and_free = |_| {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(is_held(port));
            drop(listener);
            !is_held(port)
        };
        assert!((0..20).any(is_held_and_free));
    }
}
