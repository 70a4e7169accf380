//! Finds a call that a rank has always made on one group and now makes on another. Programs that work on several groups have a
//! line for each: a rank that once passes the wrong group waits where it is not expected, and is waited for where it is. The
//! trace shows that it is another group than before, and not that this is wrong, so nothing is proved.

use super::evidence::as_collective;
use super::evidence::{HangEvidence, named, verb};
use super::habit;
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Finds the one rank of a circle that is in a collective on another group than all collectives that it has issued from that place
/// before, while ranks of the circle wait for it in that group. `None` if there is none or more than one, or if another rank has
/// changed the group at that place too, as all may have to.
#[must_use]
pub fn other_group(evidence: &HangEvidence, circle: &[Rank]) -> Option<Diagnosis> {
    let states = || circle.iter().filter_map(|rank| evidence.rank(*rank));
    let mut changed = states().filter_map(|state| {
        let (event, _) = state.doing.as_ref()?;
        let group = |event| Some(as_collective(event)?.group.as_str());
        Some((state, event, habit::broken(evidence, state, event, group)?))
    });
    let (state, event, habit) = changed.next()?;
    if changed.next().is_some() {
        return None;
    }
    let waiting: Vec<Rank> = states()
        .filter(|other| other.rank != state.rank)
        .filter(|other| {
            let now = other.now().and_then(as_collective);
            now.is_some_and(|one| one.group == habit.common && one.members.contains(&state.rank))
        })
        .map(|other| other.rank)
        .collect();
    if waiting.is_empty() {
        return None;
    }
    let summary = format!(
        "rank {} is in {event}, where all {} calls before were on {}; {} {} for it there",
        state.rank,
        habit.calls,
        habit.common,
        named(&waiting),
        verb(&waiting, "waits", "wait"),
    );
    let facts = states()
        .map(|one| format!("rank {} {}", one.rank, one.place()))
        .collect();
    let verdict = conclude(
        evidence,
        HangKind::CollectiveMismatch,
        Confidence::Likely,
        vec![state.rank],
        summary,
    );
    let advice = vec![
        format!(
            "look at which group rank {} passes at {}",
            state.rank, event.at
        ),
        "compare it with what the ranks pass that wait for it".to_owned(),
    ];
    Some(Diagnosis { advice, ..verdict }.because(facts))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::builders::verdict;
    use crate::{Collective, EventKind, Process, RankState, TraceEvent};

    fn event(group: &str, members: &[u32], at: &str) -> TraceEvent {
        TraceEvent {
            what: EventKind::Collective(Collective {
                group: group.into(),
                members: members.iter().copied().map(Rank).collect::<Arc<[Rank]>>(),
                name: "all_reduce".into(),
                nature: BTreeMap::new(),
                splits: None,
            }),
            at: at.into(),
        }
    }

    fn rank(number: u32, mut events: Vec<TraceEvent>) -> RankState {
        let doing = events.pop().map(|last| (last, Duration::from_secs(1)));
        RankState {
            process: Process::Running,
            done: events,
            doing,
            ..RankState::unknown(Rank(number))
        }
    }

    /// Builds rows and columns of two ranks: `steps` steps of a sum in the row, three in the column from one line, and a barrier. In the
    /// step after them the second of the three is in the row on the ranks of `wrong`, and all are as far as they come.
    fn mesh(steps: usize, wrong: &[u32]) -> Vec<RankState> {
        let row = |rank: u32, at| {
            let name = ["row 0", "row 1"][rank as usize / 2];
            event(name, &[rank / 2 * 2, rank / 2 * 2 + 1], at)
        };
        let column = |rank: u32| {
            let name = ["column 0", "column 1"][rank as usize % 2];
            event(name, &[rank % 2, rank % 2 + 2], "train.py:9")
        };
        let barrier = || event("world", &[0, 1, 2, 3], "train.py:12");
        (0..4)
            .map(|number| {
                let step = || {
                    let sums = [column(number), column(number), column(number)];
                    [row(number, "train.py:5")].into_iter().chain(sums)
                };
                let whole = || step().chain([barrier()]);
                let mut events: Vec<TraceEvent> = (0..steps).flat_map(|_| whole()).collect();
                if wrong.iter().all(|one| one % 2 != number % 2) {
                    events.extend(whole());
                } else {
                    events.extend(step().take(2));
                    events.push(match wrong.contains(&number) {
                        true => row(number, "train.py:9"),
                        false => column(number),
                    });
                }
                rank(number, events)
            })
            .collect()
    }

    #[test]
    fn a_rank_that_passes_another_group_is_named_alone() {
        let named = (HangKind::CollectiveMismatch, vec![3], Confidence::Likely);
        assert_eq!(verdict(mesh(4, &[3])), named);
        // Without a habit nothing tells it from the other one that all circles go through.
        let (kind, culprits, _) = verdict(mesh(0, &[3]));
        assert_eq!((kind, culprits), (HangKind::CyclicWait, Vec::new()));
    }

    #[test]
    fn a_group_that_others_change_too_is_no_ones_fault() {
        let mut ranks = mesh(4, &[3]);
        // Rank 0 has been on another group at that line, once.
        ranks[0]
            .done
            .insert(0, event("row 0", &[0, 1], "train.py:9"));
        let (kind, culprits, _) = verdict(ranks);
        assert_ne!((kind, culprits), (HangKind::CollectiveMismatch, vec![3]));
    }
}
