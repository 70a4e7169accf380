//! Compares how often ranks have added to a counter in a store that all of them wait for, as in a barrier made of one.

use super::advice;
use super::call_sequence::majority;
use super::evidence::{EventKind, HangEvidence, RankState, named};
use super::keys::has_set;
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};

/// Finds the rank that has set a key, or added to it, more or less often than all others, if all ranks wait for that key alone. `None`
/// if they are not three at least, or if it is not one rank. Likely at most: the others may have left something out.
pub(crate) fn miscounted(evidence: &HangEvidence) -> Option<Diagnosis> {
    let first = evidence.ranks.first()?.now()?;
    let EventKind::AwaitKeys(keys) = first else {
        return None;
    };
    let [key] = &keys[..] else { return None };
    if !evidence
        .ranks
        .iter()
        .all(|state| state.now() == Some(first))
    {
        return None;
    }
    let counted = || evidence.ranks.iter().map(|state| times(state, key));
    let usual = majority(counted())?;
    let mut odd = evidence
        .ranks
        .iter()
        .zip(counted())
        .filter(|(_, own)| *own != usual);
    let (other, own) = odd.next()?;
    if odd.next().is_some() {
        return None;
    }
    let summary = format!(
        "all ranks are in {first}; {} has set it or added to it {}, each of the others {}",
        named(&[other.rank]),
        count(own),
        count(usual),
    );
    let verdict = conclude(
        evidence,
        HangKind::Behind,
        Confidence::Likely,
        vec![other.rank],
        summary,
    );
    Some(Diagnosis {
        advice: advice::counter(),
        ..verdict
    })
}

/// Returns how often a rank has set a key, as far as that is kept.
fn times(state: &RankState, key: &str) -> u32 {
    let once = || u32::from(has_set(state, key));
    state.keys_set_again.get(key).copied().unwrap_or_else(once)
}

fn count(times: u32) -> String {
    match times {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        times => format!("{times} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Process, TraceEvent, diagnose};
    use allranks_model::names::Rank;
    use std::time::Duration;

    fn verdict(times: &[u32]) -> (HangKind, Vec<u32>) {
        let state = |(rank, times): (usize, &u32)| {
            let key = || "arrived/2".to_owned();
            let event = TraceEvent {
                what: EventKind::AwaitKeys(vec![key()]),
                at: "train.py:20".into(),
            };
            RankState {
                process: Process::Running,
                doing: Some((event, Duration::from_secs(9))),
                keys_set: (0..*times).take(1).map(|_| key()).collect(),
                keys_set_again: (2..=*times).map(|times| (key(), times)).collect(),
                ..RankState::unknown(Rank(rank as u32))
            }
        };
        let verdict = diagnose(&HangEvidence {
            ranks: times.iter().enumerate().map(state).collect(),
            is_whole: true,
            ..HangEvidence::default()
        });
        let culprits = verdict.culprits.iter().map(|rank| rank.0).collect();
        (verdict.kind, culprits)
    }

    #[test]
    fn the_one_rank_that_has_added_another_number_of_times_is_named() {
        assert_eq!(verdict(&[2, 1, 1]), (HangKind::Behind, vec![0]));
        assert_eq!(verdict(&[3, 3, 2, 3]), (HangKind::Behind, vec![2]));
        assert_eq!(verdict(&[2, 1]).1, vec![0; 0], "either of two may be right");
        assert_eq!(verdict(&[2, 2, 1, 1]).1, vec![0; 0]);
        assert_eq!(verdict(&[1, 1, 1]).1, vec![0; 0]);
        assert_eq!(verdict(&[1, 2, 3]).1, vec![0; 0]);
    }
}
