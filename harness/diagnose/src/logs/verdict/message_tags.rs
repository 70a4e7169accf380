//! The verdict by the tags of messages that ranks have written down.

use super::Rules;
use crate::tag_order::{LEAST, odd_one};
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// A rank that waits for a message which its peer has not sent.
struct Unmatched<'a> {
    rank: u32,
    peer: u32,
    tag: u64,
    /// The tags that the peer has sent to the rank.
    sent: &'a [u64],
    /// The tags that the rank has received from the peer, and last the one that it waits for.
    received: &'a [u64],
}

impl Rules<'_> {
    /// Finds the rank at which tags do not go on as they did before, `7, 8, 9, 11`, where ranks wait for messages with tags that their
    /// peers have not sent, although these have sent as many messages.
    pub(super) fn message_tags(&self) -> Option<Diagnosis> {
        let ranks = self.job.ranks.keys();
        let all: Vec<Unmatched> = ranks.filter_map(|rank| self.unmatched(*rank)).collect();
        let first = all.first()?;
        let culprit = first.culprit()?;
        if all.iter().any(|one| one.culprit() != Some(culprit)) {
            return None;
        }
        let Unmatched {
            rank, peer, tag, ..
        } = first;
        let last = first.sent.last()?;
        let summary = format!(
            "rank {rank} waits for a message of rank {peer} with tag {tag}, and the last that rank {peer} has sent it has tag {last}"
        );
        let facts = vec![
            format!("last tags that rank {peer} has sent: {}", ends(first.sent)),
            format!(
                "last tags that rank {rank} has received or waits for: {}",
                ends(first.received)
            ),
        ];
        let (kind, confidence) = (HangKind::MessageUnmatched, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, vec![culprit], summary, facts))
    }

    /// Returns the message that a rank waits for, if its peer has sent it as many messages, and not this one.
    fn unmatched(&self, rank: u32) -> Option<Unmatched<'_>> {
        let tags = |rank: u32| Some(&self.job.ranks.get(&rank)?.log.message_tags);
        let (peer, tag) = tags(rank)?.awaited?;
        let sent = tags(peer)?.sent.get(&rank)?;
        let received = tags(rank)?.received.get(&peer)?;
        let is_unmatched = !sent.contains(&tag) && sent.len() >= received.len();
        is_unmatched.then_some(Unmatched {
            rank,
            peer,
            tag,
            sent,
            received,
        })
    }
}

impl Unmatched<'_> {
    /// Returns the [`odd_one`] of the two.
    fn culprit(&self) -> Option<Rank> {
        odd_one(
            (Rank(self.rank), self.received),
            (Rank(self.peer), self.sent),
        )
    }
}

/// Lists the last of these tags.
fn ends(tags: &[u64]) -> String {
    let last = &tags[tags.len().saturating_sub(LEAST)..];
    let last: Vec<String> = last.iter().map(u64::to_string).collect();
    last.join(", ")
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    /// Rank 0 sends these tags to rank 1, which waits for the last of its own.
    fn job(sent: &[u64], received: &[u64]) -> String {
        let mut text = String::new();
        for tag in sent {
            text += &format!("[rank0] isend -> 1 tag={tag}\n");
        }
        for (index, tag) in received.iter().enumerate() {
            let end = if index + 1 < received.len() {
                "ok"
            } else {
                "..."
            };
            text += &format!("[rank1] recv <- 0 tag={tag} {end}\n");
        }
        text + "[rank0] enter barrier\n"
    }

    #[test]
    fn the_rank_whose_tags_do_not_go_on_is_named() {
        let of = |sent: &[u64], received: &[u64]| said(&job(sent, received));
        let kind = HangKind::MessageUnmatched;
        assert_eq!(of(&[7, 8, 9, 11], &[7, 8, 9, 10]), (kind, vec![0]));
        assert_eq!(of(&[7, 8, 9, 9], &[7, 8, 9, 10]), (kind, vec![0]));
        assert_eq!(of(&[7, 8, 9, 10], &[7, 8, 9, 12]), (kind, vec![1]));
        // The message is still to come.
        assert_ne!(of(&[7, 8, 9], &[7, 8, 9, 10]).0, kind);
        // Tags without an order.
        assert_ne!(of(&[7, 3, 9, 11], &[7, 3, 9, 10]).0, kind);
    }
}
