//! One op at one point of its axes, in one group: everything from which its inputs and expected bytes are computed.

use std::sync::Arc;

use crate::axes::{
    Extent, Factor, Joined, Layout, LayoutOf, Mode, NonRoot, ObjectKind, Pairs, Placement, Root,
    RootBy, Splits, TensorKind, Values,
};
use crate::capability::Promises;
use crate::dtype::{DType, ReduceOp};
use crate::group::Group;
use crate::op::Op;

/// One op as a check, or a move of a script, exercises it.
///
/// Fields that the op has no use for hold their neutral value, that of [`OpCheck::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct OpCheck {
    /// Number that the input data are derived from: two checks of a scenario with different numbers have different data.
    pub index: u32,
    /// The op that is called.
    pub op: Op,
    /// The process group of the call.
    pub group: Arc<Group>,
    /// Element type (object collectives and barriers: uint8, unused).
    pub dtype: DType,
    /// The reduce operator; `None` for ops that do not reduce.
    pub reduce: Option<ReduceOp>,
    /// Number of elements and shape of one rank's contribution.
    pub extent: Extent,
    /// The root; `None` for ops without one.
    pub root: Option<Root>,
    /// Layout of tensors in their storages.
    pub layout: Layout,
    /// Which of the check's tensors have that layout.
    pub layout_of: LayoutOf,
    /// The kind of tensors, as torch tells them apart.
    pub tensor: TensorKind,
    /// Shape of the tensor that holds all ranks' contributions, for ops with one.
    pub joined: Joined,
    /// Whether the call blocks, or returns a work to wait for.
    pub mode: Mode,
    /// Whether input and output share memory.
    pub placement: Placement,
    /// What is expected of the buffers of ranks other than the root, for `reduce`.
    pub non_root: NonRoot,
    /// Split sizes of all_to_all, and sizes of the tensors in the lists of other ops.
    pub splits: Splits,
    /// Which rank sends to which, for point-to-point ops.
    pub pairs: Pairs,
    /// Whether point-to-point calls name peers by global or by group rank.
    pub peer_by: RootBy,
    /// Number of tensors (coalesced ops) or of messages for each pair (point-to-point).
    pub count: u32,
    /// Message tag (point-to-point).
    pub tag: u32,
    /// The Python object carried, for object collectives.
    pub object: ObjectKind,
    /// The group rank that is late, for barriers; `None`: the check makes no rank late.
    pub late: Option<u32>,
    /// The kind of values that the input tensors hold.
    pub values: Values,
    /// The factor of `premul_sum`.
    pub factor: Factor,
    /// What the platform file promises of the backend's arithmetic.
    pub promises: Promises,
}

impl OpCheck {
    /// The number of elements of one contribution from which tensors are too large for the control connection: ranks fill them
    /// themselves, and parts of the result are compared.
    pub const LARGE: u64 = 1 << 26;

    /// Returns a check of the op on 33 elements of float32 where it has tensors, with every other field neutral: no reduce operator,
    /// no root, and no rank late.
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

    /// Returns the element type of an op whose step names none.
    #[must_use]
    pub fn neutral_dtype(op: Op) -> DType {
        match op.has_tensors() {
            true => DType::Float32,
            false => DType::Uint8,
        }
    }

    /// Returns the number of tensors or messages of an op whose step names none.
    #[must_use]
    pub fn neutral_count(op: Op) -> u32 {
        match op.is_coalesced() {
            true => 3,
            false => 1,
        }
    }

    /// Returns true if the tensors are too large for the control connection; see [`Self::LARGE`].
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.op.has_tensors() && self.extent.numel() >= Self::LARGE
    }

    /// Returns the bytes of memory that the ranks need together on one host: their tensors, and as much again for the backend's own
    /// buffers.
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
