//! Finds the rank of which a thread that sets keys of a store has failed, where all ranks wait for keys that none sets.

use super::errors::{ErrorCause, error_cause};
use super::evidence::{EventKind, HangEvidence, RankState};
use super::keys::is_set;
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};

/// Finds the only rank of which an error has ended a thread, where the main threads of all ranks wait for keys of a store that no rank has
/// set, and threads of that rank have set keys. `None` if threads of several ranks have failed, or because of other ranks. Likely at
/// most: the thread may have had to do with something else.
pub(crate) fn failed_thread(evidence: &HangEvidence) -> Option<Diagnosis> {
    let waits = |state: &RankState| match state.now() {
        Some(EventKind::AwaitKeys(keys)) => {
            state.is_there() && keys.iter().any(|key| !is_set(evidence, key))
        }
        _ => false,
    };
    if !evidence.is_whole || !evidence.ranks.iter().all(waits) {
        return None;
    }
    let mut failed = evidence
        .ranks
        .iter()
        .filter(|state| !state.thread_errors.is_empty());
    let (Some(state), None) = (failed.next(), failed.next()) else {
        return None;
    };
    let error = state.thread_errors.last()?;
    if !state.keys_by_threads || error_cause(error) == ErrorCause::Effect {
        return None;
    }
    let summary = format!(
        "a thread of rank {}, whose threads set keys of the store, was ended by an error: {error}",
        state.rank
    );
    let facts = evidence.ranks.iter().map(RankState::place_of_rank);
    let culprits = vec![state.rank];
    let (kind, confidence) = (HangKind::PeerRaised, Confidence::Likely);
    Some(conclude(evidence, kind, confidence, culprits, summary).because(facts.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, rank, verdict};

    #[test]
    fn the_rank_whose_thread_failed_is_named() {
        let waiting = |number: u32, errors: &[&str]| RankState {
            thread_errors: errors.iter().map(ToString::to_string).collect(),
            keys_by_threads: true,
            ..rank(
                number,
                vec![EventKind::AwaitKeys(vec!["all_done".to_owned()])],
            )
        };
        let failed = ["UnicodeDecodeError: x"];
        let ranks = vec![waiting(0, &[]), waiting(1, &[]), waiting(2, &failed)];
        let raised = (HangKind::PeerRaised, vec![2], Confidence::Likely);
        assert_eq!(verdict(ranks.clone()), raised);
        let mut several = ranks.clone();
        several[0] = waiting(0, &failed);
        assert_ne!(verdict(several).0, HangKind::PeerRaised);
        let mut effect = ranks.clone();
        effect[2] = waiting(2, &["RuntimeError: Connection closed by peer"]);
        assert_ne!(verdict(effect).0, HangKind::PeerRaised);
        let mut by_main = ranks.clone();
        by_main[2].keys_by_threads = false;
        assert_ne!(verdict(by_main).0, HangKind::PeerRaised);
        let mut elsewhere = ranks;
        elsewhere[0] = rank(0, vec![collective("pair", &[0])]);
        assert_ne!(verdict(elsewhere).0, HangKind::PeerRaised);
    }
}
