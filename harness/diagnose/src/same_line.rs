//! Compares the ranks that run the same lines on groups of their own, where the two members of a group contradict each other and have
//! no majority. Ranks that are no members still show which of their groups a line is for.

use super::evidence::{HangEvidence, RankState, as_collective, list};
use allranks_model::names::Rank;

/// A collective as all ranks of one program have it: its line, its name, and its group by the order in which the rank has first used
/// its groups.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Call<'a> {
    at: &'a str,
    name: &'a str,
    role: usize,
}

/// The one rank that is in a collective of another group than all others at the same line.
pub(crate) struct OddRank {
    pub(crate) rank: Rank,
    /// What shows it.
    pub(crate) fact: String,
}

/// Returns the rank of a pair, at the first of its calls that differs from those of the other one, if it makes the call from the same
/// line and by the same name on another one of its groups, while all ranks but it, three at least, have made the same calls up to that
/// one, and that one too. `None` if that is so of neither, or if calls are no longer known from the first on.
pub(crate) fn odd_rank(evidence: &HangEvidence, pair: [Rank; 2]) -> Option<OddRank> {
    if !evidence.is_whole || !evidence.forgotten.is_empty() || evidence.ranks.len() < 4 {
        return None;
    }
    let [one, other] = pair;
    odd(evidence, one, other).or_else(|| odd(evidence, other, one))
}

/// Returns `rank` if it is odd, and `partner` is as all others.
fn odd(evidence: &HangEvidence, rank: Rank, partner: Rank) -> Option<OddRank> {
    let own = calls(evidence.rank(rank)?);
    let model = calls(evidence.rank(partner)?);
    let place = own
        .iter()
        .zip(&model)
        .position(|(own, usual)| own != usual)?;
    let (call, usual) = (own.get(place)?, model.get(place)?);
    if call.at.is_empty() || (call.at, call.name) != (usual.at, usual.name) {
        return None;
    }
    let others = || evidence.ranks.iter().filter(|state| state.rank != rank);
    let agrees = |state: &RankState| calls(state).get(..=place) == model.get(..=place);
    if !others().all(agrees) {
        return None;
    }
    let ranks: Vec<Rank> = others().map(|state| state.rank).collect();
    let fact = format!(
        "call number {} of ranks {} is {} at {} on their group number {}, by first use; that of rank {rank}, from the same line, is on its group number {}",
        place + 1,
        list(&ranks),
        usual.name,
        usual.at,
        usual.role + 1,
        call.role + 1,
    );
    Some(OddRank { rank, fact })
}

fn calls(state: &RankState) -> Vec<Call<'_>> {
    let mut groups: Vec<&str> = Vec::new();
    let collectives = state
        .entered()
        .filter_map(|event| Some((event, as_collective(&event.what)?)));
    collectives
        .map(|(event, one)| {
            let role = groups.iter().position(|group| *group == one.group);
            let role = role.unwrap_or_else(|| {
                groups.push(&one.group);
                groups.len() - 1
            });
            Call {
                at: &event.at,
                name: &one.name,
                role,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventKind;
    use crate::builders::{collective, rank_at, verdict};
    use allranks_model::diagnosis::{Confidence, HangKind};

    fn row(rank: u32) -> EventKind {
        let first = rank / 2 * 2;
        collective(&format!("row {first}"), &[first, first + 1])
    }

    fn column(rank: u32) -> EventKind {
        let first = rank % 2;
        collective(&format!("column {first}"), &[first, first + 2])
    }

    /// Builds a rank of two rows and two columns that has made these calls, and is in the last.
    fn rank(number: u32, calls: &[(&str, EventKind)]) -> RankState {
        rank_at(number, calls.iter().cloned())
    }

    fn gather(what: EventKind) -> EventKind {
        match what {
            EventKind::Collective(one) => EventKind::Collective(crate::Collective {
                name: "all_gather".into(),
                ..one
            }),
            other => other,
        }
    }

    /// Each gathers in its row, and sums two gradients in its column; rank 3 sums the second one in its row, from this line.
    fn mesh(line: &str) -> Vec<RankState> {
        let step = |number: u32| {
            vec![
                ("model.py:3", gather(row(number))),
                ("train.py:8", column(number)),
                ("train.py:8", column(number)),
            ]
        };
        let next = |number: u32| [step(number), step(number)[..1].to_vec()].concat();
        let mut odd = step(3);
        odd[2] = (line, row(3));
        vec![
            rank(0, &next(0)),
            rank(1, &step(1)),
            rank(2, &next(2)),
            rank(3, &odd),
        ]
    }

    #[test]
    fn ranks_of_other_groups_show_which_member_of_a_pair_is_odd() {
        let odd = (HangKind::CollectiveMismatch, vec![3], Confidence::Likely);
        assert_eq!(verdict(mesh("train.py:8")), odd);
        // A line that no other rank is at may be right, and the other member have left it out.
        let both = (HangKind::CollectiveMismatch, vec![2, 3], Confidence::Proved);
        assert_eq!(verdict(mesh("train.py:9")), both);
        // So may either if not all others agree.
        let mut ranks = mesh("train.py:8");
        ranks[1] = rank(
            1,
            &[("model.py:3", gather(row(1))), ("train.py:8", column(1))],
        );
        assert_eq!(verdict(ranks), both);
    }
}
