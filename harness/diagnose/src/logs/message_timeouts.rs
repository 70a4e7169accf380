//! Reads the messages that a rank says have timed out, with their peer: `irecv peer=2 mb=7 error=[...] Timed out waiting 1800000ms for
//! recv operation to complete`; and those of which CANN's collectives are made.

use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

/// The peer of the last message of one rank that timed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MessageTimeouts {
    pub(super) peer: Option<u32>,
    /// Whether that message was part of a collective.
    pub(super) is_of_collective: bool,
}

/// The words of Gloo.
const TIMED_OUT: &str = "imed out waiting ";
const OPERATIONS: &[&str] = &["for send operation", "for recv operation"];

/// CANN, of the ranks that a rank waits for in a step of a collective.
static REMOTE: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"has not received the Notify record from remote rank: ?\[(\d+)\]"));
static PEER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:peer|dst|src)[ =:]+(\d+)\b|\b(?:to|from) rank[ =:]?(\d+)\b")
});

impl MessageTimeouts {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if text.contains("Notify record from")
            && let Some(found) = REMOTE.as_ref().and_then(|remote| remote.captures(text))
        {
            self.peer = found[1].parse().ok();
            self.is_of_collective = true;
            return;
        }
        let is_one =
            text.contains(TIMED_OUT) && OPERATIONS.iter().any(|words| text.contains(words));
        // In a barrier, all ranks wait for rank 0.
        if !is_one || text.contains("monitoredBarrier") {
            return;
        }
        if let Some(found) = PEER.as_ref().and_then(|peer| peer.captures(text)) {
            let peer = found.get(1).or(found.get(2));
            self.peer = peer.and_then(|peer| peer.as_str().parse().ok());
            self.is_of_collective = false;
        }
    }

    /// Adds what another file of the same rank says.
    pub(super) fn merge(&mut self, other: Self) {
        if other.peer.is_some() {
            *self = other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_read() {
        for (text, peer) in [
            (
                "irecv peer=2 mb=7 error=[../gloo/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
                Some(2),
            ),
            (
                "isend error=[x.cc:133] Timed out waiting 1800000ms for send operation to complete mb=7 peer=2 stage=1",
                Some(2),
            ),
            (
                "send to rank 3 failed: Timed out waiting 1800000ms for send operation to complete",
                Some(3),
            ),
            (
                "RuntimeError: [../gloo/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
                None,
            ),
            (
                "The Notify register has not received the Notify record from remote rank: [11]. base information: [streamID:[1]]",
                Some(11),
            ),
            ("irecv peer=2 mb=7 status=waiting", None),
        ] {
            let mut timeouts = MessageTimeouts::default();
            timeouts.read(text);
            assert_eq!(timeouts.peer, peer, "{text}");
        }
    }
}
