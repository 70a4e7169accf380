//! Finds ranks that all wait for keys of a store which none of them sets any more.

use super::evidence::{EventKind, HangEvidence, RankState};
use super::keys::{is_of_ranks, is_set};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};

/// Finds all ranks of a job waiting for keys that none of them has set, where ranks have set others of their form, by their main
/// threads alone. No rank is named: each of them leaves it to another, and the one that has set all others may just have come first.
/// `None` if other threads have set keys, as those of a server do when there is a request, or if a rank is elsewhere, or gone. Likely at
/// most: a process that is no rank may set them as well.
pub(crate) fn unset_key(evidence: &HangEvidence) -> Option<Diagnosis> {
    let waits = |state: &RankState| match state.now() {
        Some(EventKind::AwaitKeys(keys)) if state.is_there() && !state.keys_by_threads => {
            let mut open = keys.iter().filter(|key| !is_set(evidence, key));
            open.any(|key| is_of_ranks(evidence, key))
        }
        _ => false,
    };
    let first = evidence.ranks.first()?;
    if !evidence.is_whole || !evidence.ranks.iter().all(waits) {
        return None;
    }
    let is_common = evidence
        .ranks
        .iter()
        .all(|state| state.now() == first.now());
    let what = first.now()?;
    let summary = match is_common {
        true => format!("all ranks are in {what}, which none of them has set"),
        false => "all ranks wait for keys of a store which none of them has set".to_owned(),
    };
    let facts = evidence.ranks.iter().map(RankState::place_of_rank);
    let verdict = conclude(
        evidence,
        HangKind::Behind,
        Confidence::Likely,
        Vec::new(),
        summary,
    );
    let advice = vec![
        "look at who was to set this key, and at every way past the line that sets it: an error that is caught, a return, a condition".to_owned(),
        "set a key in any case, also to say that there is no result".to_owned(),
    ];
    Some(Diagnosis { advice, ..verdict }.because(facts.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, rank, verdict};

    fn waiting(number: u32, set: &[&str], keys: &[&str]) -> RankState {
        let keys = keys.iter().map(ToString::to_string).collect();
        RankState {
            keys_set: set.iter().map(ToString::to_string).collect(),
            ..rank(number, vec![EventKind::AwaitKeys(keys)])
        }
    }

    #[test]
    fn a_key_that_all_ranks_wait_for_is_behind() {
        let behind = (HangKind::Behind, vec![], Confidence::Likely);
        // Whoever comes first makes the plan.
        let first = |number: u32, set: &[&str]| waiting(number, set, &["plan/4"]);
        let ranks = vec![
            first(0, &["plan/1"]),
            first(1, &["plan/2", "plan/3"]),
            first(2, &[]),
        ];
        assert_eq!(verdict(ranks.clone()), behind);
        // One rank has come first every time.
        let made = vec![
            first(0, &[]),
            first(1, &["plan/1", "plan/2"]),
            first(2, &[]),
        ];
        assert_eq!(verdict(made), behind);
        // A thread that serves requests may set it, as may what is no rank, or a rank that is at work.
        let by_thread = |mut ranks: Vec<RankState>| {
            ranks[1].keys_by_threads = true;
            ranks
        };
        let none = (HangKind::Unknown, vec![], Confidence::None);
        assert_eq!(verdict(by_thread(ranks.clone())), none);
        let from_outside = (0..3).map(|number| waiting(number, &["ready/1"], &["job/4"]));
        assert_eq!(verdict(from_outside.collect()), none);
        let mut elsewhere = ranks;
        elsewhere[2] = rank(2, vec![collective("pair", &[2])]);
        assert_ne!(verdict(elsewhere), behind);
    }
}
