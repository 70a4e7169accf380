//! Finds the one rank that waits for another key of a store than all other ranks have waited for at that line.

use super::evidence::{EventKind, HangEvidence, JOINED, RankState};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};

/// Finds a rank that waits for keys of a store that no rank has set, where all others, two at least, have waited for other keys, one and the
/// same, as often as it has come to that line. Each time before it has waited for the same as they. Likely at most: it may be the only
/// one that is right.
#[must_use]
pub(crate) fn other_key(evidence: &HangEvidence) -> Option<Diagnosis> {
    if !evidence.is_whole {
        return None;
    }
    let mut found = evidence
        .ranks
        .iter()
        .filter_map(|state| Some((state, theirs(evidence, state)?)));
    let (state, (own, theirs)) = found.next()?;
    if found.next().is_some() {
        return None;
    }
    let (event, _) = state.doing.as_ref()?;
    let is_group = own.iter().chain(theirs).all(|key| key.starts_with(JOINED));
    let (kind, advice) = match is_group {
        true => (
            HangKind::PlaceMismatch,
            "print host, port and the prefixes of the store that each rank makes the group by",
        ),
        false => (
            HangKind::Behind,
            "print the key on all ranks: what it is made of (a hash of settings, a name, a time) differs on the named rank",
        ),
    };
    let summary = format!(
        "rank {} waits for `{}`, which no rank has set; all others wait for `{}` there",
        state.rank,
        own.join("`, `"),
        theirs.join("`, `")
    );
    let facts = (evidence.ranks.iter())
        .map(RankState::place_of_rank)
        .chain([format!("the line is {}", event.at)]);
    let verdict = conclude(
        evidence,
        kind,
        Confidence::Likely,
        vec![state.rank],
        summary,
    );
    Some(
        Diagnosis {
            advice: vec![advice.to_owned()],
            ..verdict
        }
        .because(facts.collect()),
    )
}

/// Returns the keys that a rank waits for, and those that all others have waited for in their place; `None` if it waits for none, if
/// they have not all waited for the same, or if one of them is in code of its own.
fn theirs<'a>(
    evidence: &'a HangEvidence,
    state: &'a RankState,
) -> Option<(&'a [String], &'a [String])> {
    let (event, _) = state.doing.as_ref()?;
    let EventKind::AwaitKeys(own) = &event.what else {
        return None;
    };
    let reads = state.reads.get(&event.at)?;
    let nth = reads.0;
    let is_set = |key: &String| evidence.ranks.iter().any(|one| one.keys_set.contains(key));
    let own_side = |key: &&String| !(key.starts_with(JOINED) && state.keys_set.contains(key));
    if event.at.is_empty() || reads.nth(nth)? != own || own.iter().filter(own_side).any(is_set) {
        return None;
    }
    let mut others = evidence
        .ranks
        .iter()
        .filter(|other| other.rank != state.rank);
    let first = others.next()?.reads.get(&event.at)?;
    let theirs = first.nth(nth).filter(|theirs| *theirs != own)?;
    let is_same = |other: &RankState| {
        let read = other.reads.get(&event.at);
        let is_known = |before: usize| {
            let usual = reads.nth(before);
            usual.is_none() || read.and_then(|read| read.nth(before)) == usual
        };
        read.and_then(|read| read.nth(nth)) == Some(theirs) && (1..nth).all(is_known)
    };
    let others = || {
        evidence
            .ranks
            .iter()
            .filter(|other| other.rank != state.rank)
    };
    // One that is in code of its own may set the key later.
    let is_busy = |other: &RankState| matches!(other.now(), Some(EventKind::Own(_)));
    let is_theirs = others().count() > 1 && others().all(|other| is_same(other) && !is_busy(other));
    is_theirs.then_some((own, theirs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reads;
    use crate::builders::{collective, rank_at as rank, verdict};

    const AT: &str = "vocab.py:30";

    fn keys(key: &str) -> Vec<String> {
        vec![key.to_owned()]
    }

    /// Builds ranks that have read these keys at one line; each but rank 0 waits for its last one if `waits`, and else in a collective.
    fn readers(read: [&[&str]; 3], waits: [bool; 3]) -> Vec<RankState> {
        let ranks = (0..3).zip(read).zip(waits);
        ranks
            .map(|((number, read), waits)| {
                let last = match waits {
                    true => (AT, EventKind::AwaitKeys(keys(read.last().unwrap()))),
                    false => ("vocab.py:40", collective("world", &[0, 1, 2])),
                };
                let reads = Reads(read.len(), read.iter().copied().map(keys).collect());
                RankState {
                    reads: [(AT.to_owned(), reads)].into(),
                    ..rank(number, [last])
                }
            })
            .collect()
    }

    #[test]
    fn the_one_rank_that_waits_for_another_key_than_all_others_is_named() {
        let behind = (HangKind::Behind, vec![2], Confidence::Likely);
        let alone = [false, false, true];
        assert_eq!(
            verdict(readers([&["v/a"], &["v/a"], &["v/b"]], alone)),
            behind
        );
        let second = [&["x", "v/a"][..], &["x", "v/a"], &["x", "v/b"]];
        assert_eq!(verdict(readers(second, alone)), behind);
    }

    #[test]
    fn no_rank_is_named_where_keys_differ_on_all_ranks_or_one_is_a_step_ahead() {
        let alone = [false, false, true];
        for read in [
            [&["v/0"][..], &["v/1"], &["v/2"]],
            [&["s/1"], &["s/1"], &["s/1", "s/2"]],
            [&["v/a"], &[], &["v/b"]],
        ] {
            let read = read.map(|keys| if keys.is_empty() { &["v/b"][..] } else { keys });
            assert_ne!(verdict(readers(read, alone)).1, [2], "{read:?}");
        }
        // Another rank has set it.
        let mut set = readers([&["v/a"], &["v/a"], &["v/b"]], alone);
        set[0].keys_set = keys("v/b");
        assert_ne!(verdict(set).1, [2]);
        // Another rank works, and may set it.
        let mut busy = readers([&["v/a"], &["v/a"], &["v/b"]], alone);
        let works = rank(0, [("rollout.py:9", EventKind::Own("`step()`".to_owned()))]);
        busy[0] = RankState {
            reads: busy[0].reads.clone(),
            ..works
        };
        assert_ne!(verdict(busy).1, [2]);
    }

    #[test]
    fn the_one_rank_that_makes_a_group_at_another_place_is_named() {
        let place = |prefix: &str| format!("{JOINED}127.0.0.1:7/{prefix}, rank 0");
        let (one, other) = (place("sync"), place("sync_v2"));
        let read = [&[one.as_str()][..], &[one.as_str()], &[other.as_str()]];
        let mut ranks = readers(read, [true; 3]);
        ranks[2].keys_set = keys(&other);
        let odd = (HangKind::PlaceMismatch, vec![2], Confidence::Likely);
        assert_eq!(verdict(ranks), odd);
    }
}
