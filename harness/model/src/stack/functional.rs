//! The parameters of a check of functional collectives, `torch.distributed._functional_collectives`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InvalidParameter;
use crate::dtype::{DType, ReduceOp};

/// A function of `torch.distributed._functional_collectives`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// `all_reduce` of one tensor.
    AllReduce,
    /// `all_gather_tensor` along a dimension.
    AllGatherTensor,
    /// `reduce_scatter_tensor` along a dimension.
    ReduceScatterTensor,
    /// `all_to_all_single` of one tensor.
    AllToAllSingle,
    /// `broadcast`, from the last rank.
    Broadcast,
    /// `all_reduce_coalesced`, of two tensors.
    AllReduceCoalesced,
    /// `all_gather_into_tensor_coalesced`, of two tensors.
    AllGatherIntoTensorCoalesced,
    /// `reduce_scatter_tensor_coalesced`, of two tensors.
    ReduceScatterTensorCoalesced,
}

impl Collective {
    /// Returns true if the function combines values with a reduce operator.
    #[must_use]
    pub fn reduces(self) -> bool {
        match self {
            Self::AllReduce
            | Self::ReduceScatterTensor
            | Self::AllReduceCoalesced
            | Self::ReduceScatterTensorCoalesced => true,
            Self::AllGatherTensor
            | Self::AllToAllSingle
            | Self::Broadcast
            | Self::AllGatherIntoTensorCoalesced => false,
        }
    }

    /// Returns the number of tensors that one call takes.
    #[must_use]
    pub fn tensors(self) -> u32 {
        match self {
            Self::AllReduceCoalesced
            | Self::AllGatherIntoTensorCoalesced
            | Self::ReduceScatterTensorCoalesced => 2,
            Self::AllReduce
            | Self::AllGatherTensor
            | Self::ReduceScatterTensor
            | Self::AllToAllSingle
            | Self::Broadcast => 1,
        }
    }
}

/// How the result of a functional collective is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// No explicit wait: the first use of the tensor waits.
    #[default]
    Use,
    /// By `wait_tensor`, in the opposite order of the calls.
    Explicit,
}

/// The number of rows that go from each rank to each in `all_to_all_single`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Splits {
    /// The same number for each pair; no split sizes are passed.
    #[default]
    Even,
    /// A different number for each pair, 0 for some.
    Uneven,
}

/// A functional collective, called twice before either result is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Functional {
    /// The function that is called.
    pub collective: Collective,
    /// Element type of the tensors.
    pub dtype: DType,
    /// Reduce operator, sum or avg; ignored by functions that do not reduce.
    pub op: ReduceOp,
    /// Dimension along which to gather or scatter, 0 or 1.
    pub dim: u32,
    /// Split sizes of `all_to_all_single`.
    pub splits: Splits,
    /// How results are waited for.
    pub wait: Wait,
    /// Whether the inputs require gradients, which are then computed and compared.
    pub backward: bool,
    /// Whether the calls are traced by `torch.compile` with backend `aot_eager`.
    pub traced: bool,
    /// Whether the last rank is late.
    pub late: bool,
}

impl Default for Functional {
    fn default() -> Self {
        Self {
            collective: Collective::AllReduce,
            dtype: DType::Float32,
            op: ReduceOp::Sum,
            dim: 0,
            splits: Splits::default(),
            wait: Wait::default(),
            backward: false,
            traced: false,
            late: false,
        }
    }
}

impl Functional {
    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        match (self.op, self.dim) {
            (ReduceOp::Sum | ReduceOp::Avg, 0 | 1) => None,
            (ReduceOp::Sum | ReduceOp::Avg, dim) => {
                Some(("dim", format!("a matrix has no dimension {dim}"), "0 or 1"))
            }
            (op, _) => Some((
                "op",
                format!("{op} of exact numbers is not compared here"),
                "sum or avg",
            )),
        }
    }

    /// Returns why this combination has no meaning or is the same as another one, or `None` if it is a check of its own.
    pub(super) fn unsupported_reason(&self) -> Option<String> {
        let has_dim = matches!(
            self.collective,
            Collective::AllGatherTensor | Collective::ReduceScatterTensor
        );
        if self.dim > 0 && !has_dim {
            return Some(
                "only all_gather_tensor and reduce_scatter_tensor take a dimension".into(),
            );
        }
        if self.op != ReduceOp::Sum && !self.collective.reduces() {
            return Some("it reduces nothing".into());
        }
        if self.splits != Splits::Even && self.collective != Collective::AllToAllSingle {
            return Some("only all_to_all_single takes split sizes".into());
        }
        if self.backward && self.traced {
            return Some("what is traced is compared without a backward".into());
        }
        if self.backward && self.op != ReduceOp::Sum {
            return Some("only sums have a backward".into());
        }
        if self.backward && self.collective == Collective::Broadcast {
            return Some("broadcast has no backward".into());
        }
        None
    }
}
