//! Compares what a launcher told a program's ranks with where the plan has them. A launcher that counts otherwise makes a program
//! whose ranks never meet, or meet in worlds of their own.

use crate::world::Slot;
use allranks_model::names::WorldSize;
use allranks_model::placement::Placement;
use allranks_model::record::RankLine;

/// Returns a line for each rank to which its launcher told something else than the plan has. `slots` has an entry for each rank, in
/// order; one that is not known is not judged, and neither is a number that was not told.
pub fn placement_faults(
    placement: &Placement,
    size: WorldSize,
    slots: &[Option<&Slot>],
) -> Vec<RankLine> {
    let mut faults = Vec::new();
    for (rank, slot) in size.ranks().zip(slots) {
        let (Some(slot), Some((node, local))) = (slot, placement.place_of(rank)) else {
            continue;
        };
        let here = placement.ranks_on(node);
        let told = [
            ("world size", slot.size, size.0),
            ("local rank", slot.local_rank, local),
            ("local size", slot.local_size, here),
        ];
        let wrong: Vec<String> = told
            .into_iter()
            .filter_map(|(what, told, planned)| {
                let told = told.filter(|told| *told != planned)?;
                Some(format!("{what} {told}, and the plan has {planned}"))
            })
            .collect();
        if !wrong.is_empty() {
            let text = format!("its launcher told it {} ({})", wrong.join("; "), slot.from);
            faults.push(RankLine { rank, text });
        }
    }
    faults
}

/// Returns the sum of the local sizes of all nodes, as the launcher told them; none if a node did not tell its own. A node is known
/// by its rank with local rank 0.
pub fn sum_of_local_sizes(slots: &[Option<&Slot>]) -> Option<u32> {
    let firsts = slots.iter().flatten();
    let mut firsts = firsts.filter(|slot| slot.local_rank == Some(0)).peekable();
    firsts.peek()?;
    firsts.map(|slot| slot.local_size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(size: u32, local_rank: u32, local_size: u32) -> Slot {
        Slot {
            dialect: "Slurm".to_owned(),
            from: "SLURM_PROCID".to_owned(),
            rank: 0,
            size: Some(size),
            local_rank: Some(local_rank),
            local_size: Some(local_size),
        }
    }

    fn faults(slots: &[Slot]) -> Vec<(u32, String)> {
        let placement = Placement::even(WorldSize(4), 2).unwrap();
        let slots: Vec<_> = slots.iter().map(Some).collect();
        let found = placement_faults(&placement, WorldSize(4), &slots);
        found
            .into_iter()
            .map(|one| (one.rank.0, one.text))
            .collect()
    }

    #[test]
    fn a_placement_of_the_launcher_s_own_is_a_fault() {
        let even = [(0, 2), (1, 2), (0, 2), (1, 2)].map(|(rank, size)| slot(4, rank, size));
        assert!(faults(&even).is_empty());
        let uneven = [(0, 3), (1, 3), (2, 3), (0, 1)].map(|(rank, size)| slot(4, rank, size));
        let found = faults(&uneven);
        assert_eq!(found.len(), 4);
        assert!(
            found[2]
                .1
                .contains("local rank 2, and the plan has 0; local size 3, and the plan has 2"),
            "{found:?}"
        );
        let nodes = [(0, 2), (1, 2), (0, 2), (1, 2)].map(|(rank, size)| slot(2, rank, size));
        assert!(
            faults(&nodes)[0]
                .1
                .contains("world size 2, and the plan has 4")
        );
        let untold = Slot {
            size: None,
            local_rank: None,
            local_size: None,
            ..slot(0, 0, 0)
        };
        assert!(faults(&vec![untold; 4]).is_empty());
    }

    #[test]
    fn nodes_are_counted_once() {
        let sum = |slots: &[Slot]| {
            let slots: Vec<_> = slots.iter().map(Some).collect();
            sum_of_local_sizes(&slots)
        };
        assert_eq!(sum(&[slot(4, 0, 3), slot(4, 1, 3), slot(4, 0, 1)]), Some(4));
        let untold = Slot {
            local_size: None,
            ..slot(4, 0, 0)
        };
        assert_eq!(sum(&[slot(4, 0, 3), untold]), None);
        assert_eq!(sum(&[slot(4, 1, 3)]), None);
    }
}
