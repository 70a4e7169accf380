//! The layers above c10d, each at one point of its axes, and the check that exercises one.
//!
//! A layer is what programs call (functional collectives, `DistributedDataParallel`, ...); PyTorch's own code issues the
//! collectives below it. The parameters of a layer in a case file are the fields of its struct here; the names are those of case
//! files and of the protocol.

mod batch_norm;
mod checkpoint;
mod context_parallel;
mod ddp;
mod dtensor;
mod fsdp2;
mod functional;
mod mesh;
mod pipeline;
mod random_numbers;
mod tensor_parallel;
mod zero;

pub use batch_norm::BatchNorm;
pub use checkpoint::{Checkpoint, Fault, Save};
pub use context_parallel::{ContextParallel, Rotation};
pub use ddp::{Buckets, Ddp, Hook};
pub use dtensor::{Dtensor, TensorPlacement};
pub use fsdp2::{Divide, Fsdp2, Precision, Sharding, Units};
pub use functional::{Collective, Functional, Splits, Wait};
pub use mesh::Mesh;
pub use pipeline::{Pipeline, Schedule};
pub use random_numbers::{RandomNumbers, RandomOp, RandomPlacement};
pub use tensor_parallel::TensorParallel;
pub use zero::Zero;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::group::Group;

/// Python modules that layers use and that take seconds to import; a zygote imports them once for all worlds. `networkx` and the
/// cache of `torch._functorch` are what the first traced function imports.
pub const MODULES: &[&str] = &[
    "networkx",
    "torch._dynamo",
    "torch._functorch._aot_autograd.autograd_cache",
    "torch.distributed.algorithms.ddp_comm_hooks",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.tensor",
    "torch.distributed.tensor.parallel",
];

/// A layer at one point of its axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, strum::EnumDiscriminants)]
#[serde(tag = "layer", content = "options", rename_all = "snake_case")]
#[strum_discriminants(
    name(LayerName),
    doc = "The name of a layer: the key of its steps in case files.",
    derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray),
    strum(serialize_all = "snake_case")
)]
pub enum Layer {
    /// Functional collectives (`torch.distributed._functional_collectives`).
    Functional(Functional),
    /// Data parallelism by `DistributedDataParallel`.
    Ddp(Ddp),
    /// FSDP2: sharded parameters by `fully_shard`.
    Fsdp2(Fsdp2),
    /// Process groups along the dimensions of a `DeviceMesh`.
    Mesh(Mesh),
    /// Redistribution of a `DTensor`.
    Dtensor(Dtensor),
    /// Pipeline parallelism by `torch.distributed.pipelining`.
    Pipeline(Pipeline),
    /// An optimiser whose state is sharded, by `ZeroRedundancyOptimizer`.
    Zero(Zero),
    /// Linear layers divided over the ranks, by `torch.distributed.tensor.parallel`.
    TensorParallel(TensorParallel),
    /// Distributed checkpoints by `torch.distributed.checkpoint`.
    Checkpoint(Checkpoint),
    /// Batches divided over the ranks, by `SyncBatchNorm`.
    BatchNorm(BatchNorm),
    /// Attention over a divided sequence, by `context_parallel`.
    ContextParallel(ContextParallel),
    /// Random numbers of a `DTensor`.
    RandomNumbers(RandomNumbers),
}

impl Layer {
    /// Returns the layer's name in case files and in the protocol.
    #[must_use]
    pub fn name(&self) -> &'static str {
        LayerName::from(self).name()
    }

    /// Returns the element type of the layer's tensors.
    #[must_use]
    pub fn dtype(&self) -> DType {
        match self {
            Self::Functional(point) => point.dtype,
            Self::Ddp(point) => point.dtype,
            Self::Fsdp2(point) => point.dtype,
            Self::Mesh(point) => point.dtype,
            Self::Dtensor(point) => point.dtype,
            Self::Pipeline(point) => point.dtype,
            Self::Zero(point) => point.dtype,
            Self::TensorParallel(point) => point.dtype,
            Self::Checkpoint(point) => point.dtype,
            Self::BatchNorm(point) => point.dtype,
            Self::ContextParallel(_) | Self::RandomNumbers(_) => DType::Float32,
        }
    }
}

/// A parameter with an invalid value: its name, what is wrong with the value, and which values are valid.
pub type InvalidParameter = (&'static str, String, &'static str);

/// Largest number of steps with an optimiser, so that sums over all of them stay exact.
const MAX_STEPS: u32 = 8;

/// Returns the number of steps with an optimiser if it is invalid: it must be 1 to 8.
fn invalid_steps(steps: u32) -> Option<InvalidParameter> {
    match steps {
        1..=MAX_STEPS => None,
        steps => Some(("steps", format!("{steps} steps"), "1 to 8")),
    }
}

impl Layer {
    /// Returns a parameter whose value is invalid in every combination, or `None` if all are valid.
    #[must_use]
    pub fn invalid(&self) -> Option<InvalidParameter> {
        let fits = "float64, float32, float16 or bfloat16";
        let dtype = self.dtype();
        match dtype {
            DType::Float64 | DType::Float32 | DType::Float16 | DType::Bfloat16 => {}
            _ => return Some(("dtype", format!("a layer has no tensors of {dtype}"), fits)),
        }
        match self {
            Self::Functional(point) => point.invalid(),
            Self::Ddp(point) => point.invalid(),
            Self::Fsdp2(point) => point.invalid(),
            Self::Mesh(point) => point.invalid(),
            Self::Dtensor(point) => point.invalid(),
            Self::Pipeline(point) => point.invalid(),
            Self::Zero(point) => point.invalid(),
            Self::TensorParallel(point) => point.invalid(),
            Self::Checkpoint(point) => point.invalid(),
            Self::BatchNorm(point) => point.invalid(),
            Self::ContextParallel(_) | Self::RandomNumbers(_) => None,
        }
    }

    /// Returns why this combination has no meaning on `ranks` ranks or is the same as another one, or `None` if it is a check of its
    /// own.
    #[must_use]
    pub fn unsupported_reason(&self, ranks: u32) -> Option<String> {
        match self {
            Self::Functional(point) => point.unsupported_reason(),
            Self::Ddp(point) => point.unsupported_reason(),
            Self::Fsdp2(point) => point.unsupported_reason(ranks),
            Self::Mesh(point) => point.unsupported_reason(ranks),
            Self::Dtensor(point) => point.unsupported_reason(ranks),
            Self::Pipeline(point) => point.unsupported_reason(ranks),
            Self::Zero(_) | Self::TensorParallel(_) | Self::BatchNorm(_) => None,
            Self::Checkpoint(point) => point.unsupported_reason(),
            Self::ContextParallel(point) => point.unsupported_reason(),
            Self::RandomNumbers(point) => point.unsupported_reason(ranks),
        }
    }
}

impl LayerName {
    /// Every layer, in the order of the case schema.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the layer's name in case files and in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A check of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct StackCheck {
    /// Number that the input data are derived from: two checks of a scenario with different numbers have different data.
    pub index: u32,
    /// The ranks that take part; always the world.
    pub group: Arc<Group>,
    /// The layer and its parameters.
    pub layer: Layer,
}
