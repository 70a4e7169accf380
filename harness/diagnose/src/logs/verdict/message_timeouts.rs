//! The verdict by the peer of all messages that timed out.

use std::collections::BTreeSet;

use super::Rules;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Ranks whose messages with one peer must have timed out.
const LEAST: usize = 2;

impl Rules<'_> {
    /// Finds the only peer of all messages that timed out, if it has written lines and no error: it waits in none of them.
    pub(super) fn message_timeouts(&self) -> Option<Diagnosis> {
        let waiting = self.job.ranks.iter();
        let waiting = waiting
            .filter_map(|(rank, logged)| Some((Rank(*rank), logged.log.message_timeouts.peer?)));
        let (victims, peers): (Vec<Rank>, BTreeSet<u32>) = waiting.unzip();
        let mut peers = peers.into_iter();
        let (peer, None) = (peers.next()?, peers.next()) else {
            return None;
        };
        let is_free = !victims.contains(&Rank(peer)) && self.could_write(peer);
        let has_cause = || {
            let mut all = self.job.ranks.values();
            all.any(|logged| logged.log.cause().is_some())
        };
        // The peer may wait for a rank that is not here, or has failed.
        if !self.job.absent().is_empty() || has_cause() {
            return None;
        }
        if victims.len() < LEAST || !is_free {
            return None;
        }
        let mut all = victims.iter().map(|rank| &self.job.ranks[&rank.0].log);
        let is_of_collective = all.all(|log| log.message_timeouts.is_of_collective);
        let (kind, what) = match is_of_collective {
            true => (HangKind::Behind, "collectives"),
            false => (HangKind::MessageUnmatched, "messages"),
        };
        let summary = format!(
            "{what} of {} with rank {peer} have timed out, which has written no error",
            named(&victims)
        );
        let facts = vec![format!("all {what} that timed out wait for rank {peer}")];
        let confidence = Confidence::Likely;
        let found = self.diagnosis(kind, confidence, vec![Rank(peer)], summary, facts);
        Some(Diagnosis { victims, ..found })
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn the_peer_of_all_messages_that_timed_out_is_named() {
        let late = |rank: u32, call: &str, peer: u32| {
            format!(
                "[rank{rank}]: i{call} peer={peer} mb=7 error=[x.cc:81] Timed out waiting 1800000ms for {call} operation to complete\n"
            )
        };
        let both = format!("{}{}", late(1, "send", 2), late(3, "recv", 2));
        let steps = "[rank0]: step 3\n[rank2]: step 3\n";
        let all = format!("{steps}{both}");
        assert_eq!(said(&all), (HangKind::MessageUnmatched, vec![2]));
        let chain = format!("{all}{}", late(2, "recv", 0));
        assert_eq!(said(&chain).1, Vec::<u32>::new());
        let one = format!("{steps}{}", late(1, "send", 2));
        assert_eq!(said(&one).1, Vec::<u32>::new());
    }
}
