//! Sparse tensors: every rank has values at indices that all have, and at indices of its own.

use super::super::rank_plan::{Fill, Origin, PlanBuilder, Role};
use allranks_model::dtype::ReduceOp;
use allranks_protocol::Call;

/// The slot of what every rank has.
const COMMON: u32 = 0;
/// The slot of what a rank has alone.
const ALONE: u32 = 1;

/// The dense result has the common indices first, then each member's own.
pub(super) fn all_reduce(desk: &mut PlanBuilder<'_>) {
    let len = desk.len(0);
    let form = desk.joined();
    let values = desk.buffer(
        Role::Input,
        None,
        form,
        [COMMON, ALONE].map(|slot| (len, Fill::Own(slot), Origin::Keep)),
    );
    let values = desk.whole(values, form);
    let members: Vec<u32> = (0..desk.ranks())
        .map(|position| desk.member(position))
        .collect();
    let common = (len, Fill::Sentinel, Origin::Reduce { slot: COMMON });
    let alone = members.into_iter().map(|rank| {
        let after = Origin::Copy { rank, slot: ALONE };
        (len, Fill::Sentinel, after)
    });
    let output = desk.buffer(
        Role::Output,
        None,
        form,
        std::iter::once(common).chain(alone),
    );
    let output = desk.whole(output, form);
    let len = len as u64;
    let own = len * (1 + u64::from(desk.position));
    desk.call(Call::AllReduceSparse {
        group: desk.group(),
        values,
        indices: (0..len).chain(own..own + len).collect(),
        output,
        op: desk.check.reduce.unwrap_or(ReduceOp::Sum),
    });
}
