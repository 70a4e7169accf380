//! Sparse tensors: every rank has values at indices that all have, and at indices of its own.

use super::super::rank_plan::{Fill, Origin, PlanBuilder, Role};
use allranks_model::dtype::ReduceOp;
use allranks_protocol::Call;

/// The slot of what every rank has.
const COMMON: u32 = 0;
/// The slot of what a rank has alone.
const ALONE: u32 = 1;

/// The dense result has the common indices first, then each member's own.
pub(super) fn all_reduce(builder: &mut PlanBuilder<'_>) {
    let len = builder.len(0);
    let form = builder.joined();
    let values = builder.buffer(
        Role::Input,
        None,
        form,
        [COMMON, ALONE].map(|slot| (len, Fill::Own(slot), Origin::Keep)),
    );
    let values = builder.whole(values, form);
    let members: Vec<u32> = (0..builder.ranks())
        .map(|position| builder.member(position))
        .collect();
    let common = (len, Fill::Sentinel, Origin::Reduce { slot: COMMON });
    let alone = members.into_iter().map(|rank| {
        let after = Origin::Copy { rank, slot: ALONE };
        (len, Fill::Sentinel, after)
    });
    let output = builder.buffer(
        Role::Output,
        None,
        form,
        std::iter::once(common).chain(alone),
    );
    let output = builder.whole(output, form);
    let len = len as u64;
    let own = len * (1 + u64::from(builder.position));
    builder.call(Call::AllReduceSparse {
        group: builder.group(),
        values,
        indices: (0..len).chain(own..own + len).collect(),
        output,
        op: builder.check.reduce.unwrap_or(ReduceOp::Sum),
    });
}
