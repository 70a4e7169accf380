//! One op at one point of its axes, in one group: everything from which its inputs and expected bytes are computed.

use std::sync::Arc;

use crate::capability::Promises;
use crate::dtype::DType;
use crate::group::Group;
use crate::op::Op;

/// Makes [`OpCheck`] of the table of axes.
macro_rules! op_check {
    ($($(#[$about:meta])* $field:ident: $value:ty {
        key: $key:ident, $written:ty, $described:literal;
        ops: $ops:expr;
        neutral: $neutral:expr;
        $($rest:tt)*
    })*) => {
        /// An op as a check, or a move of a script, asks for it. Its axes are fields, see [`crate::axis`].
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
            $($(#[$about])* pub $field: $value,)*
            /// Which group rank is late, for barriers; `None`: the check makes no rank late.
            pub late: Option<u32>,
            /// What the platform file promises of the backend's arithmetic.
            pub promises: Promises,
        }

        impl OpCheck {
            /// Returns the op in a group, with what a step has that gives no parameter: 33 elements of float32, a sum, root 0, as
            /// far as the op has such things. No rank is late.
            #[must_use]
            pub fn new(index: u32, op: Op, group: Arc<Group>) -> Self {
                Self {
                    index,
                    op,
                    group,
                    $($field: {
                        let neutral: fn(Op) -> $value = $neutral;
                        neutral(op)
                    },)*
                    late: None,
                    promises: Promises::default(),
                }
            }
        }
    };
}

crate::for_each_axis!(op_check);

impl OpCheck {
    /// The number of elements of one contribution from which tensors are too large for the control connection: ranks fill them
    /// themselves, and parts of the result are compared.
    pub const LARGE: u64 = 1 << 26;

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
