//! Finds the rank that a message begins with, where no header names one: `rank 5 step 218`, `(Rank 3) batch 0`, `[RANK 1] [I] iter = 810`.
//!
//! Such words may also be about another rank, so they count only in a source whose lines name several ranks in this way, and no other.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::line::RANKS;
use super::pattern::pattern;

/// The rank, with a name in brackets and a level around it, and what parts it from the message.
static SIGNATURE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^\W{0,3}(?P<name>[\w.-]{1,40}(?:\]\s*\[?|:\s+))?(?i:global[_ ]?rank|rankid|rank|rk|r)(?:[ _=:#]{0,2})(?P<rank>\d{1,6})(?:\s*(?:/|of)\s*\d+)?(?:[\])}>|:,-]+|\s|$)\s*(?:\[[A-Z]\]\s*)?",
    )
});
/// Lines of a rank that name it before it counts as one that signs.
const LINES: usize = 2;
/// The same where headers name ranks, too.
const MORE_LINES: usize = 3;

/// Returns the rank that a message begins with, and where the rest of it begins; `None` if it begins with none. What is named before the
/// rank, such as a host, is part of the rest.
pub(super) fn signature(text: &str) -> Option<(u32, usize)> {
    // Most messages begin with something else, and a look is cheaper than the pattern.
    let beginning = text.get(..48).unwrap_or(text);
    if !beginning.contains(['r', 'R']) {
        return None;
    }
    // `ncclras` lists ranks: `Rank 9 -- GPU 1 managed by process 41`.
    if text.contains(" managed by process ") {
        return None;
    }
    let found = SIGNATURE.as_ref()?.captures(text)?;
    let rank = found["rank"].parse().ok().filter(|rank| *rank < RANKS)?;
    // An error may name a rank that is another.
    match found.name("name").map(|name| name.as_str()) {
        Some(name) if name.contains("rror") || name.contains("xception") => None,
        Some(_) => Some((rank, 0)),
        None => Some((rank, found.get(0)?.end())),
    }
}

/// Counts the messages that begin with each rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Signatures {
    lines: BTreeMap<u32, usize>,
}

impl Signatures {
    /// Reads a message of which no header names the rank. Returns the rank that it begins with; `None` if it begins with none.
    pub(super) fn read(&mut self, text: &str) -> Option<u32> {
        let (rank, _) = signature(text)?;
        *self.lines.entry(rank).or_default() += 1;
        Some(rank)
    }

    /// Returns the only rank that signs messages; `None` if none does, or several do.
    pub(super) fn only(&self) -> Option<u32> {
        let mut signing = self.lines.iter();
        let (Some((rank, lines)), None) = (signing.next(), signing.next()) else {
            return None;
        };
        (*lines >= LINES).then_some(*rank)
    }

    /// Returns the ranks that sign their messages; none if it is a single one. `has_others`: headers of other lines name ranks, too.
    pub(super) fn ranks(&self, has_others: bool) -> impl Iterator<Item = u32> + '_ {
        let least = if has_others { MORE_LINES } else { LINES };
        let signing = self.lines.iter().filter(move |(_, lines)| **lines >= least);
        let is_several = signing.clone().count() > 1;
        signing.filter(move |_| is_several).map(|(rank, _)| *rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_a_message_begins_with_is_read() {
        for (text, rank, rest) in [
            ("rank 5 step 218 reading", 5, "step 218 reading"),
            ("rank 0/8 device npu:0", 0, "device npu:0"),
            ("rank 1 of 4, waiting", 1, "waiting"),
            ("(Rank 3) batch 0, epoch 0/10", 3, "batch 0, epoch 0/10"),
            ("[r2] => init_process_group", 2, "=> init_process_group"),
            ("rank=3 training finished", 3, "training finished"),
            ("absl: rank=1 init_group", 1, "absl: rank=1 init_group"),
            ("[n17] rank 2 joined", 2, "[n17] rank 2 joined"),
        ] {
            let (found, end) = signature(text).unwrap();
            assert_eq!((found, text[end..].trim_start()), (rank, rest), "{text}");
        }
        for text in [
            "ranks 0, 1 are late",
            "step 3 of rank 2",
            "rank of this process: 0",
            "rankings 5",
            "Rank 9 -- GPU 1 managed by process 41 on node 10.0.0.1",
            "RuntimeError: Rank 2, iteration 4: nan",
        ] {
            assert_eq!(signature(text), None, "{text}");
        }
    }

    #[test]
    fn several_ranks_must_sign_more_than_once() {
        let signing = |texts: &[&str]| {
            let mut signatures = Signatures::default();
            for text in texts {
                signatures.read(text);
            }
            signatures.ranks(false).collect::<Vec<_>>()
        };
        assert_eq!(
            signing(&["rank 0 a", "rank 1 a", "rank 0 b", "rank 1 b"]),
            [0, 1]
        );
        assert!(signing(&["rank 3 has died", "rank 3 is restarted"]).is_empty());
        assert!(signing(&["rank 0 a", "rank 1 a", "step 2"]).is_empty());
        let mut signatures = Signatures::default();
        signatures.read("rank 2: a");
        assert_eq!(signatures.only(), None);
        signatures.read("rank 2: b");
        assert_eq!(signatures.only(), Some(2));
        signatures.read("rank 1 is late");
        assert_eq!(signatures.only(), None);
    }
}
