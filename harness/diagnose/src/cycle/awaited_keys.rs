//! Blames a cycle on a key of a store that ranks of it wait for.

use crate::collectives::issued;
use crate::conclude;
use crate::evidence::as_collective;
use crate::evidence::{Collective, EventKind, HangEvidence, RankState, named, verb};
use crate::keys;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Finds ranks of the cycle that wait for keys of a store while the rest wait for them in something else. Only the rest could have set
/// the keys. The ranks whose turn it was are blamed if the names of keys show it, unless they are more than those that wait, which may be
/// the ones in the wrong: those are blamed if they are a minority in a barrier made of keys, and the rest are all in the same collective,
/// which they have left out. If the names show nothing, a single rank is blamed for a single key; else none is.
pub(super) fn key_not_set(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let states = || cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let (what, keys) = states().find_map(|state| match state.now() {
        Some(what @ EventKind::AwaitKeys(keys)) => Some((what, keys)),
        _ => None,
    })?;
    let (waiting, others): (Vec<&RankState>, Vec<&RankState>) =
        states().partition(|state| state.now() == Some(what));
    let ranks = |states: &[&RankState]| states.iter().map(|one| one.rank).collect::<Vec<_>>();
    let missed = missed_by_few(&waiting, &others);
    let (waiting, others) = (ranks(&waiting), ranks(&others));
    let missed = missed.filter(|_| keys::is_barrier(evidence, keys, &waiting, others.len()));
    let places = states().map(RankState::place_of_rank);
    let facts = places.chain(keys::look_alike(evidence, keys)).collect();
    let waits = format!(
        "{} {} in {what}",
        named(&waiting),
        verb(&waiting, "is", "are")
    );
    let verdict = match missed {
        Some(missed) => left_by_few(evidence, missed, &waits, waiting, &others),
        None => not_set(evidence, keys, &waits, &waiting, &others),
    };
    Some(verdict.because(facts))
}

/// Blames the few ranks that are at a barrier of keys, which `waits` says, for a collective that only they miss.
fn left_by_few(
    evidence: &HangEvidence,
    missed: &Collective,
    waits: &str,
    few: Vec<Rank>,
    others: &[Rank],
) -> Diagnosis {
    let summary = format!(
        "{waits}, while {} {} in {missed}, in which only {} {} missing",
        named(others),
        verb(others, "is", "are"),
        named(&few),
        verb(&few, "is", "are"),
    );
    conclude(
        evidence,
        HangKind::CollectiveSkipped,
        Confidence::Likely,
        few,
        summary,
    )
}

/// Blames the rank that has deleted a key, or those whose turn it was to set keys, that ranks wait for, which `waits` says.
fn not_set(
    evidence: &HangEvidence,
    keys: &[String],
    waits: &str,
    waiting: &[Rank],
    others: &[Rank],
) -> Diagnosis {
    let deleter = keys::deleter(evidence, keys).filter(|rank| others.contains(rank));
    let (culprits, summary, advice) = match deleter {
        Some(deleter) => (
            vec![deleter],
            format!("{waits}, which rank {deleter} has deleted"),
            vec!["delete a key only once all ranks that read it have done so"],
        ),
        None if waiting.len() == 1
            && keys
                .iter()
                .all(|key| keys::breaks_progression(evidence, key)) =>
        {
            (
                waiting.to_vec(),
                format!(
                    "{waits}, whose number does not fit the steps between those of the keys that are set"
                ),
                vec!["print the number that the key is made of on both sides"],
            )
        }
        None => (
            turn_to_set(evidence, keys, waiting, others),
            format!(
                "{waits}, which {} {} not set, and {} for them elsewhere",
                named(others),
                verb(others, "has", "have"),
                verb(others, "waits", "wait"),
            ),
            vec![
                "compare the names of the keys that are set and waited for, and the stores (host, port, prefix) they are in",
                "set the key before anything in which that rank waits for the others",
            ],
        ),
    };
    let verdict = conclude(
        evidence,
        HangKind::Behind,
        Confidence::Likely,
        culprits,
        summary,
    );
    let advice = advice.into_iter().map(str::to_owned).collect();
    Diagnosis { advice, ..verdict }
}

/// Returns the collective in which all other members but these few wait; `None` if they are in another one each, or no more than these.
fn missed_by_few<'a>(few: &[&RankState], others: &[&'a RankState]) -> Option<&'a Collective> {
    let collective = |state: &&'a RankState| {
        let one = as_collective(state.now()?)?;
        Some((one, issued(state, &one.group)))
    };
    let (one, number) = collective(others.first()?)?;
    let is_same = |state| collective(state) == Some((one, number));
    let is_missing = |state: &&RankState| {
        one.members.contains(&state.rank) && issued(state, &one.group) + 1 == number
    };
    let all = few.len() + others.len() == one.members.len();
    (all && few.len() < others.len() && others.iter().all(is_same) && few.iter().all(is_missing))
        .then_some(one)
}

/// Returns those of `others` that have still to set keys that ranks of a cycle wait for; empty if nothing shows which they are.
fn turn_to_set(
    evidence: &HangEvidence,
    keys: &[String],
    waiting: &[Rank],
    others: &[Rank],
) -> Vec<Rank> {
    let mut culprits = keys::setters(evidence, keys);
    culprits.retain(|rank| others.contains(rank));
    if culprits.len() > waiting.len() {
        culprits.clear();
    }
    // Ranks that wait for several keys, one of each rank, are in another barrier than the rest: either side may be ahead.
    if culprits.is_empty() && keys.len() == 1 && others.len() == 1 {
        culprits.extend(others);
    }
    culprits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, rank, verdict};

    #[test]
    fn a_minority_at_a_barrier_of_keys_has_left_out_the_collective_of_the_rest() {
        let world = || collective("world", &[0, 1, 2]);
        let done = |rank: u32| format!("done/{rank}");
        let all = |keys: &[String]| {
            let waiting = RankState {
                keys_set: vec![done(0)],
                ..rank(0, vec![world(), EventKind::AwaitKeys(keys.into())])
            };
            let in_loop = |number| rank(number, vec![world(), world()]);
            verdict(vec![waiting, in_loop(1), in_loop(2)])
        };
        let skips = (HangKind::CollectiveSkipped, vec![0], Confidence::Likely);
        assert_eq!(all(&[done(0), done(1), done(2)]), skips);
        // One of the rest may have left out a key that all would have waited for.
        let nobody = (HangKind::Behind, vec![], Confidence::Likely);
        assert_eq!(all(&[done(2)]), nobody);
    }

    #[test]
    fn a_key_that_only_one_rank_can_have_set_is_its_own() {
        let barrier = || rank(0, vec![collective("world", &[0, 1, 2])]);
        let waits = |number, key: &str| rank(number, vec![EventKind::AwaitKeys(vec![key.into()])]);
        let behind = |culprits| (HangKind::Behind, culprits, Confidence::Likely);
        let one = vec![barrier(), waits(1, "run"), waits(2, "run")];
        assert_eq!(verdict(one), behind(vec![0]));
        let two = vec![barrier(), waits(1, "run"), waits(2, "walk")];
        assert_eq!(verdict(two), behind(vec![]));
        // Both wait for all at the end of what they do.
        let all = |number| {
            let keys = vec!["done/0".into(), "done/1".into()];
            rank(number, vec![EventKind::AwaitKeys(keys)])
        };
        let last = vec![rank(0, vec![collective("world", &[0, 1])]), all(1)];
        assert_eq!(verdict(last), behind(vec![]));
        // Three have added to the counter of this round, as all did before.
        let round = |number, keys: &[&str], what| RankState {
            keys_set: keys.iter().map(ToString::to_string).collect(),
            ..rank(number, vec![what])
        };
        let counter = || EventKind::AwaitKeys(vec!["round/2".into()]);
        let reduce = || collective("world", &[0, 1, 2]);
        let skips = vec![
            round(0, &["round/1", "round/2"], counter()),
            round(1, &["round/1"], reduce()),
            round(2, &["round/1", "round/2"], counter()),
        ];
        assert_eq!(verdict(skips), behind(vec![1]));
        let alone = vec![
            round(0, &["round/1", "round/2"], counter()),
            round(1, &["round/1"], reduce()),
            round(2, &["round/1"], reduce()),
        ];
        assert_eq!(verdict(alone), behind(vec![]));
        let deleted = |number| RankState {
            keys_deleted: vec!["round/2".into()],
            ..round(number, &["round/1", "round/2"], reduce())
        };
        let gone = vec![
            deleted(0),
            round(1, &[], reduce()),
            round(2, &[], counter()),
        ];
        assert_eq!(verdict(gone), behind(vec![0]));
        // A rank that is at work may set it yet.
        let busy = rank(0, vec![EventKind::Own("its own code".into())]);
        let (kind, culprits, _) = verdict(vec![busy, waits(1, "run"), waits(2, "run")]);
        assert_eq!((kind, culprits), (HangKind::Slow, vec![0]));
    }
}
