//! Compares the ranks and sizes that a launcher assigned to a program's processes with those of the plan. If they differ, the
//! ranks never meet, or meet in several worlds.

use crate::world::RankAssignment;
use allranks_model::names::WorldSize;
use allranks_model::placement::Placement;
use allranks_model::record::RankLine;

/// Returns a line for each rank whose assignment differs from the plan. `assignments` has an entry for each rank, in order.
/// What is not known is not compared: an assignment that is none, and a number that the launcher did not set.
pub fn placement_faults(
    placement: &Placement,
    size: WorldSize,
    assignments: &[Option<&RankAssignment>],
) -> Vec<RankLine> {
    let mut faults = Vec::new();
    for (rank, assignment) in size.ranks().zip(assignments) {
        let (Some(assignment), Some((node, local))) = (assignment, placement.place_of(rank)) else {
            continue;
        };
        let here = placement.ranks_on(node);
        let told = [
            ("world size", assignment.size, size.0),
            ("local rank", assignment.local_rank, local),
            ("local size", assignment.local_size, here),
        ];
        let wrong: Vec<String> = told
            .into_iter()
            .filter_map(|(what, told, planned)| {
                let told = told.filter(|told| *told != planned)?;
                Some(format!("{what} {told}, and the plan has {planned}"))
            })
            .collect();
        if !wrong.is_empty() {
            let text = format!(
                "its launcher told it {} ({})",
                wrong.join("; "),
                assignment.from
            );
            faults.push(RankLine { rank, text });
        }
    }
    faults
}

/// Returns the sum of the local sizes that the launcher set on all nodes; none if it set none on some node. A node is
/// represented by its rank with local rank 0.
pub fn sum_of_local_sizes(assignments: &[Option<&RankAssignment>]) -> Option<u32> {
    let firsts = assignments.iter().flatten();
    let mut firsts = firsts
        .filter(|assignment| assignment.local_rank == Some(0))
        .peekable();
    firsts.peek()?;
    firsts.map(|assignment| assignment.local_size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(size: u32, local_rank: u32, local_size: u32) -> RankAssignment {
        RankAssignment {
            dialect: "Slurm".to_owned(),
            from: "SLURM_PROCID".to_owned(),
            rank: 0,
            size: Some(size),
            local_rank: Some(local_rank),
            local_size: Some(local_size),
        }
    }

    fn faults(assignments: &[RankAssignment]) -> Vec<(u32, String)> {
        let placement = Placement::even(WorldSize(4), 2).unwrap();
        let assignments: Vec<_> = assignments.iter().map(Some).collect();
        let found = placement_faults(&placement, WorldSize(4), &assignments);
        found
            .into_iter()
            .map(|one| (one.rank.0, one.text))
            .collect()
    }

    #[test]
    fn a_placement_of_the_launcher_s_own_is_a_fault() {
        let even = [(0, 2), (1, 2), (0, 2), (1, 2)].map(|(rank, size)| assignment(4, rank, size));
        assert!(faults(&even).is_empty());
        let uneven = [(0, 3), (1, 3), (2, 3), (0, 1)].map(|(rank, size)| assignment(4, rank, size));
        let found = faults(&uneven);
        assert_eq!(found.len(), 4);
        assert!(
            found[2]
                .1
                .contains("local rank 2, and the plan has 0; local size 3, and the plan has 2"),
            "{found:?}"
        );
        let nodes = [(0, 2), (1, 2), (0, 2), (1, 2)].map(|(rank, size)| assignment(2, rank, size));
        assert!(
            faults(&nodes)[0]
                .1
                .contains("world size 2, and the plan has 4")
        );
        let unset = RankAssignment {
            size: None,
            local_rank: None,
            local_size: None,
            ..assignment(0, 0, 0)
        };
        assert!(faults(&vec![unset; 4]).is_empty());
    }

    #[test]
    fn nodes_are_counted_once() {
        let sum = |assignments: &[RankAssignment]| {
            let assignments: Vec<_> = assignments.iter().map(Some).collect();
            sum_of_local_sizes(&assignments)
        };
        assert_eq!(
            sum(&[
                assignment(4, 0, 3),
                assignment(4, 1, 3),
                assignment(4, 0, 1)
            ]),
            Some(4)
        );
        let unset = RankAssignment {
            local_size: None,
            ..assignment(4, 0, 0)
        };
        assert_eq!(sum(&[assignment(4, 0, 3), unset]), None);
        assert_eq!(sum(&[assignment(4, 1, 3)]), None);
    }
}
