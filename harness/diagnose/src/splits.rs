//! Compares what the members of an all-to-all exchange: what one sends to another, the other must receive. No backend compares
//! them: the receiver waits for what never comes.

use std::collections::{BTreeMap, BTreeSet};

use super::advice;
use super::collectives::{current, group_label, nth_call};
use super::evidence::{Collective, HangEvidence, TraceEvent, named, verb};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// The most pairs that a verdict lists.
const LISTED: usize = 6;

/// One call of each rank, with its event.
type Calls<'a> = BTreeMap<Rank, (&'a TraceEvent, &'a Collective)>;

/// What one member sends to another, which receives something else.
#[derive(Clone, Copy, Debug)]
struct Pair {
    from: Rank,
    to: Rank,
    sent: u64,
    received: u64,
}

/// Finds an all-to-all that ranks are in, and whose members send other amounts than are received; `None` if there is none.
/// One that only some ranks have passed counts, one that all have passed does not: a backend may have ended it.
#[must_use]
pub fn mismatch(evidence: &HangEvidence) -> Option<Diagnosis> {
    let current: BTreeSet<(&str, usize)> = evidence.ranks.iter().filter_map(current).collect();
    current
        .into_iter()
        .find_map(|(group, number)| verdict(evidence, group, number))
}

fn verdict(evidence: &HangEvidence, group: &str, number: usize) -> Option<Diagnosis> {
    let calls: Calls<'_> = (evidence.ranks.iter())
        .filter_map(|state| Some((state.rank, nth_call(state, group, number - 1)?)))
        .collect();
    let (_, one) = calls.values().next()?;
    let pairs = pairs(&one.members, &calls);
    let first = pairs.first()?;
    let in_all_pairs = |rank: &&Rank| pairs.iter().all(|pair| pair.has(**rank));
    let common: Vec<Rank> = one.members.iter().filter(in_all_pairs).copied().collect();
    // Of two that do not go together either may be wrong, and so may one that is alone among few that are seen.
    let is_whole = calls.len() == one.members.len();
    let culprits = match &common[..] {
        [rank] if is_whole => vec![*rank],
        [_, _] if is_whole => at_another_site(&calls, &common).into_iter().collect(),
        _ => Vec::new(),
    };
    let nth = evidence.forgotten.get(group).unwrap_or(&0) + number;
    let subject = match &culprits[..] {
        [rank] => format!("rank {rank} and the other members do"),
        _ => "what is sent and received does".to_owned(),
    };
    let label = group_label(group);
    let summary = format!(
        "{subject} not go together in collective number {nth} of {label}, {}: {first}",
        one.name
    );
    let mut facts: Vec<String> = pairs.iter().take(LISTED).map(Pair::to_string).collect();
    if let Some(more @ 1..) = pairs.len().checked_sub(LISTED) {
        facts.push(format!("{more} more pairs do not go together"));
    }
    facts.extend(call_sites(&calls));
    let kind = HangKind::CollectiveMismatch;
    let verdict = conclude(evidence, kind, Confidence::Likely, culprits, summary);
    Some(Diagnosis {
        advice: advice::splits(),
        ..verdict.because(facts)
    })
}

/// Returns the lines of the program that call it, `FILE:LINE`, each with its ranks; those whose line is not known are left out.
fn sites<'a>(calls: &Calls<'a>) -> BTreeMap<&'a str, Vec<Rank>> {
    let mut sites: BTreeMap<&str, Vec<Rank>> = BTreeMap::new();
    for (rank, (event, _)) in calls.iter().filter(|(_, (event, _))| !event.at.is_empty()) {
        sites.entry(&event.at).or_default().push(*rank);
    }
    sites
}

/// Says where the ranks call it.
fn call_sites(calls: &Calls<'_>) -> Vec<String> {
    let line = |(at, ranks): (&str, Vec<Rank>)| {
        let verb = verb(&ranks, "calls", "call");
        format!("{} {verb} it at {at}", named(&ranks))
    };
    sites(calls).into_iter().map(line).collect()
}

/// Returns the pairs of members that do not go together, as far as both are known.
fn pairs(members: &[Rank], calls: &Calls<'_>) -> Vec<Pair> {
    let known: Vec<_> = members
        .iter()
        .enumerate()
        .filter_map(|(index, rank)| {
            let splits = calls.get(rank)?.1.splits.as_ref()?;
            let lists = [&splits.sends, &splits.receives];
            let is_whole = lists.iter().all(|list| list.len() == members.len());
            is_whole.then_some((index, *rank, splits))
        })
        .collect();
    let of_two = known
        .iter()
        .flat_map(|from| known.iter().map(move |to| (from, to)));
    of_two
        .map(|((sender, from, ours), (receiver, to, theirs))| Pair {
            from: *from,
            to: *to,
            sent: ours.sends[*receiver],
            received: theirs.receives[*sender],
        })
        .filter(|pair| pair.sent != pair.received)
        .collect()
}

impl Pair {
    fn has(&self, rank: Rank) -> bool {
        self.from == rank || self.to == rank
    }
}

/// Returns the rank of a pair that calls it at another line than all other members, which share a line and are two at least; `None` if
/// there is none, or if the line of a member is not known.
fn at_another_site(calls: &Calls<'_>, pair: &[Rank]) -> Option<Rank> {
    let sites: Vec<Vec<Rank>> = sites(calls).into_values().collect();
    let [one, other] = &sites[..] else {
        return None;
    };
    let (few, rest) = if one.len() < other.len() {
        (one, other)
    } else {
        (other, one)
    };
    let [rank] = few[..] else { return None };
    let is_known = rest.len() + 1 == calls.len();
    (rest.len() > 1 && is_known && pair.contains(&rank)).then_some(rank)
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            from,
            to,
            sent,
            received,
        } = self;
        let (to, pronoun) = match from == to {
            true => ("itself".to_owned(), "and"),
            false => (format!("rank {to}"), "which"),
        };
        write!(
            f,
            "rank {from} sends {sent} elements to {to}, {pronoun} receives {received}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{collective, rank};
    use crate::evidence::{EventKind, RankState, Splits};

    /// Builds a rank in an all-to-all with these amounts.
    fn member(number: u32, sends: &[u64], receives: &[u64]) -> RankState {
        let all: Vec<u32> = (0..sends.len() as u32).collect();
        let mut what = collective("world", &all);
        if let EventKind::Collective(one) = &mut what {
            one.name = "all_to_all_single".into();
            one.splits = Some(Splits {
                sends: sends.to_vec(),
                receives: receives.to_vec(),
            });
        }
        let mut state = rank(number, vec![collective("world", &all), what]);
        if let Some((event, _)) = &mut state.doing {
            event.at = "moe.py:7".into();
        }
        state
    }

    /// Builds the first three ranks of a group, of which rank 1 exchanges 9 elements with each member, and the others 8.
    fn one_differs(size: usize) -> Vec<RankState> {
        let of = |number| {
            let amounts = vec![if number == 1 { 9 } else { 8 }; size];
            member(number, &amounts, &amounts)
        };
        (0..3).map(of).collect()
    }

    fn found(ranks: Vec<RankState>) -> Option<Diagnosis> {
        mismatch(&HangEvidence {
            ranks,
            ..HangEvidence::default()
        })
    }

    #[test]
    fn the_rank_that_all_pairs_have_in_common_is_named() {
        let verdict = found(one_differs(3)).unwrap();
        assert_eq!(verdict.culprits, [Rank(1)]);
        assert_eq!(verdict.confidence, Confidence::Likely);
        assert_eq!(
            verdict.summary,
            "rank 1 and the other members do not go together in collective number 2 of group world, all_to_all_single: \
             rank 0 sends 8 elements to rank 1, which receives 9"
        );
        assert_eq!(verdict.evidence.len(), 5, "four pairs and one place");
        assert_eq!(verdict.evidence[4], "ranks 0, 1 and 2 call it at moe.py:7");
    }

    #[test]
    fn of_two_ranks_neither_is_named_and_neither_is_one_whose_side_may_not_be_seen() {
        let two = vec![member(0, &[4, 4], &[4, 4]), member(1, &[5, 4], &[4, 4])];
        let verdict = found(two).unwrap();
        assert_eq!((verdict.culprits, verdict.evidence.len()), (vec![], 2));
        assert_eq!(found(one_differs(4)).unwrap().culprits, []);
    }

    #[test]
    fn uneven_amounts_that_go_together_and_calls_that_all_have_passed_are_no_mismatch() {
        let even = vec![member(0, &[1, 2], &[1, 3]), member(1, &[3, 4], &[2, 4])];
        assert!(found(even).is_none());
        let mut passed = one_differs(3);
        for state in &mut passed {
            let (event, since) = state.doing.take().unwrap();
            state.done.push(event);
            let next = TraceEvent {
                what: collective("world", &[0, 1, 2]),
                at: String::new(),
            };
            state.doing = Some((next, since));
        }
        assert!(found(passed.clone()).is_none());
        // As on a device: the call has returned, and the rank waits for its end.
        if let Some((event, _)) = &mut passed[2].doing {
            event.what = EventKind::Await("world".into(), 1);
        }
        assert_eq!(found(passed).unwrap().culprits, [Rank(1)]);
    }
}
