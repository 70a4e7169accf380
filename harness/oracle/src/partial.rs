//! Recognises partial results: what a ring algorithm leaves in a buffer where it stopped early, or on a rank that is not the
//! root.

use super::comparison::{Comparison, Contribution, ElementRef};
use allranks_model::dtype::ReduceOp;

/// Returns true if an element combines, with this operator, what some members that follow each other in the group contributed
/// to a slot: one of them, or several, or all.
pub(super) fn combines_some(
    comparison: Comparison<'_>,
    element: &ElementRef<'_>,
    slot: u32,
    op: ReduceOp,
) -> bool {
    let Some(elements) = comparison.contributions(slot, element.index) else {
        return false;
    };
    let count = elements.len();
    let ring: Vec<Contribution> = elements.iter().chain(&elements).copied().collect();
    let mut parts = (0..count).flat_map(|from| (1..=count).map(move |len| from..from + len));
    parts.any(|part| {
        comparison
            .combined(op, count as u64, &ring[part], false)
            .is_some_and(|value| comparison.is(comparison.got(element), value))
    })
}
