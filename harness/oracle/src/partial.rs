//! Partial results: what a ring leaves behind where it was not carried to its end, or where nobody asked for the result.

use super::comparison::{Comparison, Contribution, ElementRef};
use allranks_model::dtype::ReduceOp;

/// Whether an element combines, with this operator, what some members that follow each other in the group contributed to a
/// slot: one of them, or several, or all.
pub(super) fn combines_some(
    scene: Comparison<'_>,
    spot: &ElementRef<'_>,
    slot: u32,
    op: ReduceOp,
) -> bool {
    let Some(elements) = scene.contributions(slot, spot.index) else {
        return false;
    };
    let count = elements.len();
    let ring: Vec<Contribution> = elements.iter().chain(&elements).copied().collect();
    let mut parts = (0..count).flat_map(|from| (1..=count).map(move |len| from..from + len));
    parts.any(|part| {
        scene
            .combined(op, count as u64, &ring[part], false)
            .is_some_and(|value| scene.is(scene.got(spot), value))
    })
}
