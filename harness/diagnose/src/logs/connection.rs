//! Reads whether a rank has come to the store of its rendezvous (texts of `socket.cpp` and `TCPStore.cpp`): it could not resolve the
//! host, or did not connect in time.

use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

/// What the lines of one rank say of its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Connection {
    /// The line that says why it has not connected; `None` if it has, or says nothing of it.
    pub(super) failed: Option<String>,
    /// Whether addresses of each family could not be found: IPv4, IPv6. A host without IPv6 is no fault.
    unresolved: [bool; 2],
    /// Whether it has connected.
    is_connected: bool,
}

static UNRESOLVED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"The IPv([46]) network addresses of \(\S+, \d+\) cannot be retrieved \(")
});
static TIMED_OUT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"The client socket has timed out (?:after \S+ )?while trying to connect to \(?\S+, ?\d+\)",
    )
});

impl Connection {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        // Most lines are about something else, and a look is cheaper than the patterns.
        if self.is_connected || !text.contains("socket") && !text.contains("network addresses of") {
            return;
        }
        if text.contains("The client socket has connected to") {
            *self = Self {
                is_connected: true,
                ..Self::default()
            };
        } else if let Some(found) = UNRESOLVED.as_ref().and_then(|line| line.captures(text)) {
            self.unresolved[usize::from(&found[1] == "6")] = true;
            if self.unresolved == [true; 2] {
                self.failed.get_or_insert_with(|| text.trim().to_owned());
            }
        } else if TIMED_OUT.as_ref().is_some_and(|line| line.is_match(text)) {
            self.failed.get_or_insert_with(|| text.trim().to_owned());
        }
    }

    /// Adds what another file of the same rank says.
    pub(super) fn merge(&mut self, other: Self) {
        if self.is_connected || other.is_connected {
            *self = Self {
                is_connected: true,
                ..Self::default()
            };
            return;
        }
        for (one, its) in self.unresolved.iter_mut().zip(other.unresolved) {
            *one |= its;
        }
        self.failed = self.failed.take().or(other.failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(lines: &[&str]) -> bool {
        let mut connection = Connection::default();
        lines.iter().for_each(|line| connection.read(line));
        connection.failed.is_some()
    }

    #[test]
    fn a_host_that_has_no_address_of_any_family_cannot_be_reached() {
        let six = "[c10d] The IPv6 network addresses of (n0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).";
        let four = "[c10d] The IPv4 network addresses of (n0, 29500) cannot be retrieved (gai error: -3 - Temporary failure in name resolution).";
        let late = "[c10d] The client socket has timed out after 20000ms while trying to connect to (n0, 29500).";
        let connected = "[c10d] The client socket has connected to [n0]:29500 on SocketImpl(fd=3).";
        assert!(failed(&[six, four]) && failed(&[six, late]) && failed(&[late]));
        assert!(!failed(&[six]));
        assert!(!failed(&[six, four, connected]));
        assert!(!failed(&[connected, late]));
    }
}
