//! Checks without an expected value.

use allranks_model::axes::{Placement, Splits};
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::names::{Rank, WorldSize};
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;

/// Why the oracle has no expected value for a check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpreparable {
    /// The group has no members.
    #[error("group {0} has no members")]
    EmptyGroup(String),
    /// A member is not in the world, or is named twice.
    #[error("group {group} cannot have rank {rank}")]
    BadMember {
        /// The group.
        group: String,
        /// The rank.
        rank: Rank,
    },
    /// An op that reduces has no operator.
    #[error("{0:?} needs a reduce operator")]
    NoOperator(Op),
    /// The operator means nothing on the element type.
    #[error("{op} is not defined on {dtype}")]
    Undefined {
        /// The operator.
        op: ReduceOp,
        /// The element type.
        dtype: DType,
    },
    /// An op with a root has none, or one outside the group.
    #[error("{0:?} needs a root in its group")]
    NoRoot(Op),
    /// The late rank of a barrier is not in the group.
    #[error("group rank {0} cannot be late: it is not in the group")]
    NoLateRank(u32),
    /// The split matrix is not square of the group's size.
    #[error("split sizes must be {0} lists of {0} sizes")]
    BadSplits(usize),
    /// A split matrix says what each rank sends to each, and the op does not exchange pairwise.
    #[error("{0:?} takes no split matrix")]
    NoMatrix(Op),
    /// What runs above c10d is for all ranks of a world, and at least two.
    #[error("a layer needs all ranks of a world of at least two, not group {0}")]
    NotTheWorld(String),
    /// The op reads its input while it writes its output.
    #[error("{0:?} has no in-place form")]
    NotInPlace(Op),
}

/// Refuses checks without an expected value.
pub(super) fn refuse(check: &OpCheck, world_size: WorldSize) -> Result<(), Unpreparable> {
    let ranks = &check.group.ranks;
    if ranks.is_empty() {
        return Err(Unpreparable::EmptyGroup(check.group.name.clone()));
    }
    for (position, rank) in ranks.iter().enumerate() {
        if rank.0 >= world_size.0 || ranks[..position].contains(rank) {
            return Err(Unpreparable::BadMember {
                group: check.group.name.clone(),
                rank: *rank,
            });
        }
    }
    if check.op.reduces() {
        let op = check.reduce.ok_or(Unpreparable::NoOperator(check.op))?;
        if !op.is_defined_for(check.dtype) {
            return Err(Unpreparable::Undefined {
                op,
                dtype: check.dtype,
            });
        }
    }
    if check.op.has_root()
        && check
            .root
            .is_none_or(|root| root.group_rank as usize >= ranks.len())
    {
        return Err(Unpreparable::NoRoot(check.op));
    }
    if let Some(late) = check.late.filter(|late| *late as usize >= ranks.len()) {
        return Err(Unpreparable::NoLateRank(late));
    }
    if let Splits::Explicit(sizes) = &check.splits
        && (sizes.len() != ranks.len() || sizes.iter().any(|row| row.len() != ranks.len()))
    {
        return Err(Unpreparable::BadSplits(ranks.len()));
    }
    if matches!(check.splits, Splits::Explicit(_))
        && !matches!(check.op, Op::AllToAll | Op::AllToAllSingle)
    {
        return Err(Unpreparable::NoMatrix(check.op));
    }
    if check.placement == Placement::InPlace
        && matches!(check.op, Op::AllToAll | Op::AllToAllSingle)
    {
        return Err(Unpreparable::NotInPlace(check.op));
    }
    Ok(())
}
