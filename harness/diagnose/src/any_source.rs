//! Finds a message that a rank takes from any sender, and that no rank sends any more.

use super::evidence::{HangEvidence, Message, RankState};
use super::messages::{answers, awaited, messages};
use super::waits::Waits;
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};

/// Finds a rank that waits for a message from any rank while each of the others, three at least, waits for it alone. Named is the one of
/// these that has sent it fewer such messages than all the rest, which have sent equally many, one at least; `None` if there is none: the
/// rank may expect one too many. Likely at most: it may be a rank that has nothing to send.
#[must_use]
pub fn not_sent(evidence: &HangEvidence) -> Option<Diagnosis> {
    let is_of_any = |state: &&RankState| {
        awaited(state).is_some_and(|(message, _)| message.peer.is_none() && !message.sends)
    };
    let mut receivers = evidence.ranks.iter().filter(is_of_any);
    let receiver = receivers.next()?;
    let (message, _) = awaited(receiver)?;
    let waits = Waits::of(evidence);
    let others = || {
        let all = evidence.ranks.iter();
        all.filter(|state| state.rank != receiver.rank)
    };
    // A thread of it may send one meanwhile.
    let are_held = others().all(|state| {
        !state.calls_by_threads && waits.awaited_ranks(state).as_deref() == Some(&[receiver.rank])
    });
    if receivers.next().is_some() || !evidence.is_whole || !are_held {
        return None;
    }
    let sent = |state: &RankState| {
        let is_it = |own: &&Message| own.peer.is_some() && answers(own, message, receiver.rank);
        messages(state).filter(is_it).count()
    };
    let usual = others().map(sent).max().filter(|usual| *usual > 0)?;
    let mut fewer = others().filter(|state| sent(state) < usual);
    let sender = fewer.next()?;
    if fewer.next().is_some() || others().count() < 3 {
        return None;
    }
    let summary = format!(
        "rank {} is in {}, and no rank will send it one: rank {} has sent it {} such messages, each of the others {usual}",
        receiver.rank,
        receiver.now()?,
        sender.rank,
        sent(sender),
    );
    let facts = (evidence.ranks.iter()).map(RankState::place_of_rank);
    let verdict = conclude(
        evidence,
        HangKind::MessageUnmatched,
        Confidence::Likely,
        vec![sender.rank],
        summary,
    );
    let advice = vec![
        "let a rank that has nothing to send say so, or let the receiver ask how many will come"
            .to_owned(),
    ];
    Some(Diagnosis { advice, ..verdict }.because(facts.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventKind;
    use crate::builders::{collective, message, rank, verdict};

    /// Builds a rank that takes a message from any of three others, of which each has sent so many, and which then wait for it.
    fn gathered(sent: [usize; 3]) -> Vec<RankState> {
        let EventKind::Message(from_one) = message(false, 1, 5) else {
            unreachable!()
        };
        let any = EventKind::Message(Message {
            peer: None,
            ..from_one
        });
        let taken = (1..)
            .zip(sent)
            .flat_map(|(from, count)| vec![message(false, from, 5); count]);
        let receiver = rank(0, taken.chain([any]).collect());
        let world = || collective("world", &[0, 1, 2, 3]);
        let sender = |(number, count): (u32, usize)| {
            rank(
                number,
                [vec![message(true, 0, 5); count], vec![world()]].concat(),
            )
        };
        [vec![receiver], (1..).zip(sent).map(sender).collect()].concat()
    }

    #[test]
    fn the_one_that_has_sent_less_to_who_takes_from_any_is_named() {
        let unmatched = (HangKind::MessageUnmatched, vec![2], Confidence::Likely);
        assert_eq!(verdict(gathered([1, 0, 1])), unmatched);
        assert_eq!(verdict(gathered([3, 2, 3])), unmatched);
        // The receiver may expect too many, or all have another share.
        for sent in [[1, 1, 1], [0, 0, 0], [1, 2, 3]] {
            assert_eq!(verdict(gathered(sent)).1, [0; 0], "{sent:?}");
        }
        // One that does not wait for it may send yet.
        let mut busy = gathered([1, 0, 1]);
        busy[2] = rank(2, vec![EventKind::Own("its own code".into())]);
        assert_ne!(verdict(busy).0, HangKind::MessageUnmatched);
    }
}
