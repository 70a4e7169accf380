//! One op at one point of its axes, in one group: all that its inputs and expected bytes are made of.

use std::sync::Arc;

use crate::axes::{
    Extent, Factor, Joined, Layout, LayoutOf, Mode, NonRoot, ObjectKind, Pairs, Placement, Root,
    RootBy, Splits, TensorKind, Values,
};
use crate::capability::Promises;
use crate::dtype::{DType, ReduceOp};
use crate::group::Group;
use crate::op::Op;

/// An op as a check, or a move of a script, asks for it.
///
/// Fields that the op has no use for hold their neutral value, that of [`OpCheck::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct OpCheck {
    /// Number of its data: two checks of a scenario with different numbers share none.
    pub index: u32,
    /// What is called.
    pub op: Op,
    /// The group, with members.
    pub group: Arc<Group>,
    /// Element type (object collectives and barriers: uint8, unused).
    pub dtype: DType,
    /// Reduce operator, for ops that reduce.
    pub reduce: Option<ReduceOp>,
    /// Size of one rank's contribution.
    pub extent: Extent,
    /// Root, for ops that have one.
    pub root: Option<Root>,
    /// How tensors lie in their storages.
    pub layout: Layout,
    /// Which tensors do.
    pub layout_of: LayoutOf,
    /// What kind of tensors they are to torch.
    pub tensor: TensorKind,
    /// For ops with one tensor for all ranks' contributions.
    pub joined: Joined,
    /// Sync or async.
    pub mode: Mode,
    /// Shared memory between input and output.
    pub placement: Placement,
    /// For `reduce`.
    pub non_root: NonRoot,
    /// For all_to_all, and ops on lists.
    pub splits: Splits,
    /// For point-to-point ops.
    pub pairs: Pairs,
    /// How peers are named in point-to-point ops.
    pub peer_by: RootBy,
    /// Number of tensors (coalesced ops) or of messages for each pair (point-to-point).
    pub count: u32,
    /// Message tag (point-to-point).
    pub tag: u32,
    /// For object collectives.
    pub object: ObjectKind,
    /// Which group rank is late, for barriers; `None`: the check makes no rank late.
    pub late: Option<u32>,
    /// What values its tensors hold.
    pub values: Values,
    /// For `premul_sum`.
    pub factor: Factor,
    /// What the platform file promises of the backend's arithmetic.
    pub promises: Promises,
}

impl OpCheck {
    /// From how many elements of one contribution on tensors are too large to travel: ranks make them themselves, and
    /// windows are compared.
    pub const LARGE: u64 = 1 << 26;

    /// The op in a group, on 33 elements of float32 where it has tensors, with every other field neutral: no reduce
    /// operator, no root, and no rank late.
    #[must_use]
    pub fn new(index: u32, op: Op, group: Arc<Group>) -> Self {
        Self {
            index,
            op,
            group,
            dtype: Self::neutral_dtype(op),
            reduce: None,
            extent: Extent::Flat(33),
            root: None,
            layout: Layout::Contiguous,
            layout_of: LayoutOf::All,
            tensor: TensorKind::Plain,
            joined: Joined::Cat,
            mode: Mode::Sync,
            placement: Placement::OutOfPlace,
            non_root: NonRoot::Unspecified,
            splits: Splits::Even,
            pairs: Pairs::Ring,
            peer_by: RootBy::Global,
            count: Self::neutral_count(op),
            tag: 0,
            object: ObjectKind::Small,
            late: None,
            values: Values::Exact,
            factor: Factor::Scalar,
            promises: Promises::default(),
        }
    }

    /// The element type of an op whose step names none.
    #[must_use]
    pub fn neutral_dtype(op: Op) -> DType {
        match op.has_tensors() {
            true => DType::Float32,
            false => DType::Uint8,
        }
    }

    /// The number of tensors or messages of an op whose step names none.
    #[must_use]
    pub fn neutral_count(op: Op) -> u32 {
        match op.is_coalesced() {
            true => 3,
            false => 1,
        }
    }

    /// Whether its tensors are too large to travel.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.op.has_tensors() && self.extent.numel() >= Self::LARGE
    }

    /// Bytes of memory its ranks need together on one host: their tensors, as much again for the backend's own buffers.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let contribution = self.extent.numel().saturating_mul(self.dtype.size() as u64);
        let ranks = self.group.size() as u64;
        let tensors = match self.op {
            Op::AllGatherIntoTensor => 1 + ranks,
            Op::SendRecv => 2,
            _ => 1,
        };
        contribution
            .saturating_mul(ranks)
            .saturating_mul(tensors)
            .saturating_mul(2)
    }
}
