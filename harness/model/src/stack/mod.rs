//! What runs above c10d: layers, each at one point of its axes, and the check that exercises one.
//!
//! A layer is what people's programs call (functional collectives, `DistributedDataParallel`, ...); the collectives below it
//! are issued by PyTorch's own code. What a layer takes in a case file is its struct here; the names are those of case files
//! and of the protocol.

mod ddp;
mod dtensor;
mod fsdp2;
mod functional;
mod mesh;
mod pipeline;

pub use ddp::{Buckets, Ddp, Hook};
pub use dtensor::{Dtensor, TensorPlacement};
pub use fsdp2::{Fsdp2, Sharding};
pub use functional::{Collective, Functional, Splits, Wait};
pub use mesh::Mesh;
pub use pipeline::{Pipeline, Schedule};

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::group::Group;

/// Python modules that layers import and that take seconds: worth importing once for all worlds.
pub const MODULES: &[&str] = &[
    "torch._dynamo",
    "torch.distributed.algorithms.ddp_comm_hooks",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor",
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
    /// Functional collectives.
    Functional(Functional),
    /// `DistributedDataParallel`.
    Ddp(Ddp),
    /// `fully_shard`.
    Fsdp2(Fsdp2),
    /// `DeviceMesh`.
    Mesh(Mesh),
    /// `DTensor`.
    Dtensor(Dtensor),
    /// A pipeline.
    Pipeline(Pipeline),
}

impl Layer {
    /// Its name in case files and in the protocol.
    #[must_use]
    pub fn name(&self) -> &'static str {
        LayerName::from(self).name()
    }

    /// The element type of its tensors.
    #[must_use]
    pub fn dtype(&self) -> DType {
        match self {
            Self::Functional(point) => point.dtype,
            Self::Ddp(point) => point.dtype,
            Self::Fsdp2(point) => point.dtype,
            Self::Mesh(point) => point.dtype,
            Self::Dtensor(point) => point.dtype,
            Self::Pipeline(point) => point.dtype,
        }
    }
}

/// A parameter with a value that it cannot have, what is wrong, and what fits.
pub type InvalidParameter = (&'static str, String, &'static str);

impl Layer {
    /// A value that makes no sense in any combination, if there is one.
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
        }
    }

    /// Why the point has no meaning on so many ranks, or is that of another one, if so.
    #[must_use]
    pub fn meaningless(&self, ranks: u32) -> Option<String> {
        match self {
            Self::Functional(point) => point.meaningless(),
            Self::Ddp(point) => point.meaningless(),
            Self::Fsdp2(point) => point.meaningless(ranks),
            Self::Mesh(point) => point.meaningless(ranks),
            Self::Dtensor(point) => point.meaningless(),
            Self::Pipeline(point) => point.meaningless(ranks),
        }
    }
}

impl LayerName {
    /// Every layer, in the order of the case schema.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Its name in case files and in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A layer as a check asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct StackCheck {
    /// Number of its data: two checks of a scenario with different numbers share none.
    pub index: u32,
    /// The ranks that take part: the world.
    pub group: Arc<Group>,
    /// What they use.
    pub layer: Layer,
}
