//! Finds from which message on the traces of both sides have all messages between them: a trace keeps its newest calls only, and the two
//! sides of a message are told by their order.

use std::collections::HashMap;

use crate::watch::trace::call::Call;
use crate::watch::trace::call_trace::{CallTrace, MessageCount};
use allranks_model::names::Rank;

/// The messages of a group with one tag from a rank to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MessageSort {
    /// The name of the group, as verdicts have it.
    group: String,
    /// The sender and the receiver, by the ranks that the launcher gave them.
    sides: [Rank; 2],
    /// The tag of the messages.
    tag: u32,
}

impl MessageSort {
    /// Makes the sort of a message of `own`, which sends it to `peer` or receives it from there.
    pub fn new(group: String, own: Rank, sends: bool, peer: Rank, tag: u32) -> Self {
        let sides = match sends {
            true => [own, peer],
            false => [peer, own],
        };
        Self { group, sides, tag }
    }
}

/// The messages that can be compared.
#[derive(Debug, Default)]
pub struct KeptMessages {
    /// The number of the first message that both sides still have, where that is not 0.
    starts: HashMap<MessageSort, usize>,
    /// Whether a trace has dropped calls.
    has_lost: bool,
    /// Whether a rank has received from any other: such messages have no numbers that both sides share.
    has_any_source: bool,
}

impl KeptMessages {
    /// Adds what one trace still has. `sort_of` returns the sort of messages with this group, direction, peer and tag; none if they are of
    /// another world.
    pub fn read(
        &mut self,
        call_trace: &CallTrace,
        sort_of: impl Fn(&str, bool, Rank, u32) -> Option<MessageSort>,
    ) {
        self.has_lost |= call_trace.dropped > 0;
        let mut firsts: HashMap<(&str, bool, Rank, u32), usize> = HashMap::new();
        for entry in &call_trace.entries {
            let Call::Message {
                group,
                sends,
                peer,
                tag,
                number,
            } = &entry.call
            else {
                continue;
            };
            self.has_any_source |= peer.is_none();
            if let (Some(peer), Some(number)) = (peer, number) {
                let first = firsts
                    .entry((group, *sends, *peer, *tag))
                    .or_insert(*number);
                *first = (*first).min(*number);
            }
        }
        for MessageCount(group, sends, peer, tag, count) in &call_trace.messages {
            let Some(peer) = peer else {
                self.has_any_source = true;
                continue;
            };
            let first = firsts.get(&(group.as_str(), *sends, *peer, *tag));
            let first = first.copied().unwrap_or(*count);
            if first > 0
                && let Some(sort) = sort_of(group, *sends, *peer, *tag)
            {
                let start = self.starts.entry(sort).or_default();
                *start = (*start).max(first);
            }
        }
    }

    /// Returns true if one side of a message with this number is no longer kept.
    pub fn is_gone(&self, sort: Option<&MessageSort>, number: Option<usize>) -> bool {
        let start = sort.and_then(|sort| self.starts.get(sort));
        number
            .zip(start)
            .is_some_and(|(number, start)| number < *start)
    }

    /// Returns true if it is unknown which other side belongs to a message with this number.
    pub fn is_uncertain(&self, number: Option<usize>) -> bool {
        self.has_lost && (number.is_none() || self.has_any_source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(dropped: u64, numbers: &[usize], sends: bool, peer: Option<u32>) -> CallTrace {
        let entry = |(id, number): (usize, &usize)| {
            serde_json::json!({"id": id, "epoch": 1, "what": "message", "group": "1.0", "sends": sends, "peer": peer,
                "tag": 0, "number": number})
        };
        let entries: Vec<serde_json::Value> = numbers.iter().enumerate().map(entry).collect();
        let count = numbers.iter().max().map_or(9, |last| last + 1);
        let trace = serde_json::json!({"moves": 1, "epoch": 1, "dropped": dropped, "entries": entries,
            "messages": [["1.0", sends, peer, 0, count]]});
        serde_json::from_value(trace).unwrap()
    }

    fn kept(traces: &[(u32, CallTrace)]) -> KeptMessages {
        let mut kept = KeptMessages::default();
        for (rank, call_trace) in traces {
            kept.read(call_trace, |_, sends, peer, tag| {
                Some(sort(*rank, sends, peer, tag))
            });
        }
        kept
    }

    fn sort(rank: u32, sends: bool, peer: Rank, tag: u32) -> MessageSort {
        MessageSort::new("world".to_owned(), Rank(rank), sends, peer, tag)
    }

    #[test]
    fn messages_count_from_the_first_that_both_sides_still_have() {
        let all = kept(&[
            (0, trace(3, &[3, 4, 5], true, Some(1))),
            (1, trace(4, &[4, 5], false, Some(0))),
        ]);
        let sort = sort(0, true, Rank(1), 0);
        let gone = |number| all.is_gone(Some(&sort), Some(number));
        assert_eq!([3, 4, 5].map(gone), [true, false, false]);
        assert!(!all.is_uncertain(Some(4)) && all.is_uncertain(None));
        // A side of which nothing is kept has begun nine.
        let none = kept(&[
            (0, trace(3, &[3, 4, 9], true, Some(1))),
            (1, trace(9, &[], false, Some(0))),
        ]);
        assert!(none.is_gone(Some(&sort), Some(8)) && !none.is_gone(Some(&sort), Some(9)));
    }

    #[test]
    fn with_receives_from_any_rank_the_other_side_is_not_known() {
        let all = kept(&[
            (0, trace(3, &[3], true, Some(1))),
            (1, trace(0, &[0], false, None)),
        ]);
        assert!(all.is_uncertain(Some(3)));
        let whole = kept(&[(1, trace(0, &[0], false, None))]);
        assert!(!whole.is_uncertain(None));
    }
}
