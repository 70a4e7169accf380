//! Finds the ranks that have still to set the store keys that other ranks wait for. A store does not record which rank sets
//! which key, but the names of the keys that ranks have set before may show it: one rank sets all keys of a form, each rank sets
//! the one with its own number, or all ranks add to one counter after another.

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::{EventKind, HangEvidence, RankState, named, verb};
use allranks_model::names::Rank;

/// The most keys that are described.
const LISTED: usize = 4;
/// The fewest numbers that make an arithmetic progression.
const PROGRESSION: usize = 4;

/// Returns the ranks that have still to set one of these keys, as all that was set before shows; empty if it does not show it for every
/// key that is not set.
pub(crate) fn setters(evidence: &HangEvidence, keys: &[String]) -> Vec<Rank> {
    let (set, open): (Vec<&String>, Vec<&String>) =
        keys.iter().partition(|key| is_set(evidence, key));
    let ranks: BTreeSet<Rank> = match open.is_empty() {
        true => (set.iter())
            .flat_map(|key| left_out(evidence, key))
            .collect(),
        false => {
            let setter = |key| only_setter(evidence, key).or_else(|| rank_in_name(evidence, key));
            let known: Option<_> = open.into_iter().map(|key| setter(key)).collect();
            known.unwrap_or_default()
        }
    };
    ranks.into_iter().collect()
}

/// Returns the rank that has deleted the only one of these keys; `None` if no rank has, or several have.
pub(crate) fn deleter(evidence: &HangEvidence, keys: &[String]) -> Option<Rank> {
    let [key] = keys else { return None };
    let mut deleters = (evidence.ranks.iter()).filter(|state| state.keys_deleted.contains(key));
    let only = deleters.next()?;
    deleters.next().is_none().then_some(only.rank)
}

/// Describes a key that a rank has set, and that differs from one of these, which no rank has set, only in its case, its separators or
/// the zeros before its numbers; `None` if there is none.
pub(crate) fn look_alike(evidence: &HangEvidence, keys: &[String]) -> Option<String> {
    let mut open = keys.iter().filter(|key| !is_set(evidence, key));
    open.find_map(|key| {
        let wanted = words(key);
        let find = |state: &RankState| {
            let set = state.keys_set.iter().find(|set| words(set) == wanted)?;
            let rank = state.rank;
            Some(format!(
                "rank {rank} has set `{set}`, and not `{key}`: they differ in no word"
            ))
        };
        evidence.ranks.iter().find_map(find)
    })
}

/// Returns the words and numbers of a key, in lower case and without leading zeros.
fn words(key: &str) -> Vec<String> {
    let words = key.split(|letter: char| !letter.is_alphanumeric());
    (words.filter(|word| !word.is_empty()))
        .map(|word| match word.trim_start_matches('0') {
            "" => "0".to_owned(),
            rest if rest.bytes().all(|letter| letter.is_ascii_digit()) => rest.to_owned(),
            _ => word.to_lowercase(),
        })
        .collect()
}

/// Returns true if these keys are a barrier that only the ranks `waiting` have come to: one key of each rank, of one form, of which each
/// of them has set one, and at least `others` are not set.
pub(crate) fn is_barrier(
    evidence: &HangEvidence,
    keys: &[String],
    waiting: &[Rank],
    others: usize,
) -> bool {
    let forms: BTreeSet<String> = keys.iter().map(|key| form(key).0).collect();
    let [wanted] = &forms.into_iter().collect::<Vec<_>>()[..] else {
        return false;
    };
    let is_open = |key: &&String| !is_set(evidence, key);
    let has_come = |rank: &Rank| {
        let state = evidence.rank(*rank);
        state.is_some_and(|state| of_form(state, wanted).next().is_some())
    };
    keys.iter().filter(is_open).count() >= others && waiting.iter().all(has_come)
}

/// Describes at most [`LISTED`] keys that ranks wait for and none is known to have set, and which ranks have set others of their form.
pub(crate) fn not_set(evidence: &HangEvidence) -> Vec<String> {
    let mut open: BTreeMap<&String, Vec<Rank>> = BTreeMap::new();
    for state in &evidence.ranks {
        if let Some(EventKind::AwaitKeys(keys)) = state.now() {
            for key in keys.iter().filter(|key| !is_set(evidence, key)) {
                open.entry(key).or_default().push(state.rank);
            }
        }
    }
    let line = |(key, waiting): (&String, Vec<Rank>)| {
        let (wanted, _) = form(key);
        let has_one = |state: &&RankState| of_form(state, &wanted).next().is_some();
        let setters = evidence.ranks.iter().filter(has_one);
        let setters: Vec<Rank> = setters.map(|state| state.rank).collect();
        format!(
            "no rank has set `{key}`, for which {} {}; {} {} set others of its form",
            named(&waiting),
            verb(&waiting, "waits", "wait"),
            named(&setters),
            verb(&setters, "has", "have"),
        )
    };
    open.into_iter().take(LISTED).map(line).collect()
}

/// Returns true if a rank has set a key.
pub(crate) fn is_set(evidence: &HangEvidence, key: &str) -> bool {
    evidence.ranks.iter().any(|state| has_set(state, key))
}

/// Returns true if a rank has set a key of the form of this one.
pub(crate) fn is_of_ranks(evidence: &HangEvidence, key: &str) -> bool {
    let (wanted, _) = form(key);
    let mut ranks = evidence.ranks.iter();
    ranks.any(|state| of_form(state, &wanted).next().is_some())
}

/// Returns true if a rank has set a key, as far as that is kept.
pub(crate) fn has_set(state: &RankState, key: &str) -> bool {
    state.keys_set.iter().any(|own| own == key)
}

/// Returns a key with `#` for each number in it, and these numbers.
fn form(key: &str) -> (String, Vec<u32>) {
    let (mut text, mut numbers) = (String::new(), Vec::new());
    let mut rest = key;
    while let Some(start) = rest.find(|one: char| one.is_ascii_digit()) {
        let digits = &rest[start..];
        let end = digits
            .find(|one: char| !one.is_ascii_digit())
            .unwrap_or(digits.len());
        text += &rest[..start];
        text.push('#');
        // What is too large for a number is no rank's.
        numbers.push(digits[..end].parse().unwrap_or(u32::MAX));
        rest = &digits[end..];
    }
    (text + rest, numbers)
}

/// Returns the keys of a form that a rank has set, each with its numbers.
fn of_form<'a>(
    state: &'a RankState,
    wanted: &'a str,
) -> impl Iterator<Item = (&'a String, Vec<u32>)> {
    state.keys_set.iter().filter_map(move |key| {
        let (text, numbers) = form(key);
        (text == wanted).then_some((key, numbers))
    })
}

/// Returns true if one rank has set keys of this form whose numbers are an arithmetic progression with a step above 1, and the number in
/// this key does not continue it: `ckpt/32` after `ckpt/5`, `ckpt/10`, `ckpt/15` and `ckpt/20`.
pub(crate) fn breaks_progression(evidence: &HangEvidence, key: &str) -> bool {
    let (wanted, numbers) = form(key);
    let [number] = numbers[..] else { return false };
    let Some(setter) = only_setter(evidence, key).and_then(|rank| evidence.rank(rank)) else {
        return false;
    };
    let set: BTreeSet<u32> = of_form(setter, &wanted)
        .filter_map(|(_, numbers)| numbers.first().copied())
        .collect();
    let set: Vec<u32> = set.into_iter().collect();
    let mut steps = set.windows(2).map(|pair| pair[1] - pair[0]);
    let (Some(step), Some(first)) = (steps.next(), set.first()) else {
        return false;
    };
    let is_progression = set.len() >= PROGRESSION && step > 1 && steps.all(|other| other == step);
    is_progression && number > *first && (number - first) % step != 0
}

/// Returns the rank that alone has set keys of the form of this one, two at least.
fn only_setter(evidence: &HangEvidence, key: &str) -> Option<Rank> {
    let (wanted, _) = form(key);
    let count = |state: &RankState| of_form(state, &wanted).count();
    let mut setters = evidence.ranks.iter().filter(|state| count(state) > 0);
    let only = setters.next()?;
    (setters.next().is_none() && count(only) > 1).then_some(only.rank)
}

/// Returns the rank whose number is in a key, where each rank that has set such keys, two at least, had its own number there.
fn rank_in_name(evidence: &HangEvidence, key: &str) -> Option<Rank> {
    let (wanted, numbers) = form(key);
    let (mut setters, mut places) = (BTreeSet::new(), vec![true; numbers.len()]);
    for state in &evidence.ranks {
        for (_, own) in of_form(state, &wanted) {
            setters.insert(state.rank);
            for (place, number) in places.iter_mut().zip(own) {
                *place &= number == state.rank.0;
            }
        }
    }
    let place = places.iter().position(|is_rank| *is_rank)?;
    let rank = Rank(*numbers.get(place)?);
    (setters.len() > 1 && evidence.rank(rank).is_some()).then_some(rank)
}

/// Returns the ranks that have not set a key that others have set, though they set an earlier one of its form as all of these did.
fn left_out(evidence: &HangEvidence, key: &str) -> Vec<Rank> {
    let (wanted, _) = form(key);
    let (set, others): (Vec<&RankState>, Vec<&RankState>) =
        evidence.ranks.iter().partition(|state| has_set(state, key));
    let Some(first) = set.first() else {
        return Vec::new();
    };
    let before = of_form(first, &wanted).map(|(own, _)| own);
    let is_common = |own: &&String| *own != key && set.iter().all(|state| has_set(state, own));
    let common: Vec<&String> = before.filter(is_common).collect();
    let others = others
        .into_iter()
        .filter(|state| common.iter().any(|own| has_set(state, own)));
    others.map(|state| state.rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::rank;

    fn evidence(keys: &[&[&str]]) -> HangEvidence {
        let state = |(rank, keys): (usize, &&[&str])| RankState {
            keys_set: keys.iter().map(ToString::to_string).collect(),
            ..RankState::unknown(Rank(rank as u32))
        };
        HangEvidence {
            ranks: keys.iter().enumerate().map(state).collect(),
            ..HangEvidence::default()
        }
    }

    fn ranks(keys_set: &[&[&str]], awaited: &[&str]) -> Vec<u32> {
        let awaited: Vec<String> = awaited.iter().map(ToString::to_string).collect();
        setters(&evidence(keys_set), &awaited)
            .iter()
            .map(|rank| rank.0)
            .collect()
    }

    #[test]
    fn a_key_with_the_number_of_a_rank_is_its_own_if_two_others_did_so() {
        let two: [&[&str]; 4] = [&["total/0"], &["total/1"], &[], &[]];
        assert_eq!(ranks(&two, &["total/2"]), [2]);
        assert_eq!(
            ranks(&two, &["total/0", "total/1", "total/2", "total/3"]),
            [2, 3]
        );
        assert_eq!(ranks(&two, &["total/7"]), [0; 0], "there is no such rank");
        assert_eq!(
            ranks(&two, &["total/2", "go"]),
            [0; 0],
            "whoever sets the other one is not known"
        );
        assert_eq!(
            ranks(&[&["total/0"], &[]], &["total/1"]),
            [0; 0],
            "one rank may count from 0"
        );
        let one: [&[&str]; 3] = [&["start"], &["step/1", "step/2"], &[]];
        assert_eq!(ranks(&one, &["step/3"]), [1]);
        assert_eq!(
            ranks(&[&["step/1"], &[]], &["step/2"]),
            [0; 0],
            "once is no habit"
        );
        let counts: [&[&str]; 3] = [&["epoch/0", "epoch/1"], &["epoch/1"], &[]];
        assert_eq!(
            ranks(&counts, &["epoch/2"]),
            [0; 0],
            "the number is not always the rank's"
        );
        let rounds: [&[&str]; 3] = [&["1/at/0", "2/at/0"], &["1/at/1", "2/at/1"], &["1/at/2"]];
        assert_eq!(ranks(&rounds, &["2/at/0", "2/at/1", "2/at/2"]), [2]);
    }

    #[test]
    fn a_key_that_nobody_has_set_is_described() {
        let mut evidence = evidence(&[&["plan/1", "go"], &["plan/2"], &[]]);
        for state in &mut evidence.ranks {
            let keys = ["plan/3", "go"].map(str::to_owned);
            let waiting = rank(state.rank.0, vec![EventKind::AwaitKeys(keys.into())]);
            state.doing = waiting.doing;
        }
        assert_eq!(
            not_set(&evidence),
            [
                "no rank has set `plan/3`, for which ranks 0, 1 and 2 wait; ranks 0 and 1 have set others of its form"
            ]
        );
    }

    #[test]
    fn a_barrier_of_keys_has_one_of_each_rank_that_has_not_come() {
        let of_first = |keys: &[&str], others| {
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            let set: [&[&str]; 3] = [&["done/0"], &[], &["go"]];
            is_barrier(&evidence(&set), &keys, &[Rank(0)], others)
        };
        assert!(of_first(&["done/0", "done/1", "done/2"], 2));
        assert!(of_first(&["done/1", "done/2"], 2));
        assert!(
            !of_first(&["done/1"], 2),
            "one rank is to set one for the others"
        );
        assert!(!of_first(&["done/1", "go/2"], 2));
        assert!(!of_first(&["ready/1", "ready/2"], 2));
    }

    #[test]
    fn a_counter_waits_for_the_ranks_that_added_to_the_one_before() {
        let keys: [&[&str]; 4] = [
            &["round/1", "round/2"],
            &["round/1"],
            &["round/1", "round/2"],
            &[],
        ];
        assert_eq!(
            ranks(&keys, &["round/2"]),
            [1],
            "rank 3 has never taken part"
        );
        let in_turn: [&[&str]; 3] = [&["turn/0"], &["turn/1"], &["turn/2"]];
        assert_eq!(
            ranks(&in_turn, &["turn/2"]),
            [0; 0],
            "each sets one of its own"
        );
        assert_eq!(ranks(&[&["flag"], &[]], &["flag"]), [0; 0]);
    }

    #[test]
    fn a_key_that_differs_only_in_its_separators_is_told() {
        let told = |set: &str, key: &str| {
            let keys = [key.to_owned()];
            look_alike(&evidence(&[&["other"], &[set]]), &keys)
        };
        let expected = "rank 1 has set `ticket/0/ap-south`, and not `ticket/0/ap south`: they differ in no word";
        assert_eq!(
            told("ticket/0/ap-south", "ticket/0/ap south").unwrap(),
            expected
        );
        assert!(told("Step_007", "step/7").is_some());
        assert!(told("rank/1/12", "rank/11/2").is_none());
        assert!(told("ready", "ready").is_none(), "it is set");
    }
}
