//! Reads the messages that a rank writes down with their peer and tag: `isend -> 4 tag=1012`, `Recv(halo) source=3 tag=1405`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

/// Tags that are kept of the messages between two ranks in one direction.
const MOST: usize = 10_000;

/// The tags of one rank's messages, in the order in which it has written of them.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageTags {
    /// By the rank that they were sent to.
    pub(super) sent: BTreeMap<u32, Vec<u64>>,
    /// By the rank that they are from, whether they have come or are waited for.
    pub(super) received: BTreeMap<u32, Vec<u64>>,
    /// The peer and the tag of the receive that is the last thing it has written of; `None` if it is another thing.
    pub(super) awaited: Option<(u32, u64)>,
}

static MESSAGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:(?P<send>i?send)|i?recv)\b(?:\([\w ]*\))?[ :,]*(?:->|<-|(?:to|from|dst|dest|src|source|peer)\b)[ =:]*(?:rank[ =:]*)?(?P<peer>\d+)\b.*\btag[ =:]*(?P<tag>\d+)\b(?P<rest>.*)$",
    )
});
/// What ends a line about a receive that is over.
const OVER: &[&str] = &["ok", "done", "complete", "received", "got"];

impl MessageTags {
    /// Reads the next line. Lines of a traceback do not say that a rank has gone on.
    pub(super) fn read(&mut self, text: &str) {
        if text.trim().is_empty() || text.starts_with([' ', '\t']) || text.starts_with("Traceback")
        {
            return;
        }
        let may_be_one = text.contains("tag") || text.contains("Tag");
        let found = MESSAGE.as_ref().filter(|_| may_be_one);
        let Some(found) = found.and_then(|message| message.captures(text)) else {
            self.awaited = self.awaited.filter(|_| text.contains("Error"));
            return;
        };
        let (Ok(peer), Ok(tag)) = (found["peer"].parse(), found["tag"].parse()) else {
            return;
        };
        if found.name("send").is_some() {
            self.awaited = None;
            push(&mut self.sent, peer, tag);
            return;
        }
        let rest = found["rest"].to_lowercase();
        let is_over = OVER.iter().any(|word| rest.contains(word));
        // A second line about the same receive says that it is over.
        let is_known = self.received.get(&peer).and_then(|tags| tags.last()) == Some(&tag);
        if !is_known || !is_over {
            push(&mut self.received, peer, tag);
        }
        self.awaited = (!is_over).then_some((peer, tag));
    }

    /// Adds what another file of the same rank says.
    pub(super) fn merge(&mut self, other: Self) {
        for (own, others) in [
            (&mut self.sent, other.sent),
            (&mut self.received, other.received),
        ] {
            for (peer, tags) in others {
                own.entry(peer).or_default().extend(tags);
            }
        }
        self.awaited = other.awaited.or(self.awaited);
    }
}

fn push(tags: &mut BTreeMap<u32, Vec<u64>>, peer: u32, tag: u64) {
    let tags = tags.entry(peer).or_default();
    if tags.len() < MOST {
        tags.push(tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> MessageTags {
        let mut tags = MessageTags::default();
        lines.iter().for_each(|line| tags.read(line));
        tags
    }

    #[test]
    fn messages_are_read_with_peer_and_tag() {
        let tags = read(&[
            "step 401 Send(halo) dest=5 tag=1401",
            "rank 4 x=10 isend -> 5 tag=1010",
            "step 401 Recv(halo) source=3 tag=1401",
        ]);
        assert_eq!(tags.sent, [(5, vec![1401, 1010])].into());
        assert_eq!(tags.received, [(3, vec![1401])].into());
        assert_eq!(tags.awaited, Some((3, 1401)));
        assert_eq!(read(&["recv <- 3 tag=7 ...", "halo ok"]).awaited, None);
        assert_eq!(read(&["recv <- 3 tag=7 ok"]).awaited, None);
        assert_eq!(read(&["recv <- 3 tag=7 ..."]).awaited, Some((3, 7)));
        assert!(read(&["tag=3 of the release"]).sent.is_empty());
    }
}
