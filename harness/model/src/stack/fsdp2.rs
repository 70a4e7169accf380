//! The parameters of a check of FSDP2, `torch.distributed.fsdp.fully_shard`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InvalidParameter, invalid_steps};
use crate::dtype::DType;

/// Largest number of ranks for which there are gradients whose norm is known.
const MOST_RANKS_OF_A_NORM: u32 = 4;

/// How parameters are laid out over the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    /// One shard for each rank.
    #[default]
    Full,
    /// The first half of the ranks and the second half each hold all shards (HSDP).
    Hybrid,
}

/// By which operator gradients are averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Divide {
    /// The operator that FSDP2 chooses by itself.
    #[default]
    Average,
    /// `set_gradient_divide_factor` with the number of shards: under hybrid sharding this is not the average.
    Factor,
    /// `set_force_sum_reduction_for_comms`: by SUM, and a division of FSDP2's own.
    Sum,
}

/// The element types of a `MixedPrecisionPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// No policy: all is in the parameters' own type.
    #[default]
    Own,
    /// `param_dtype` bfloat16 and `reduce_dtype` float32.
    ReduceWide,
    /// `reduce_dtype` bfloat16, and parameters in their own type.
    ReduceNarrow,
}

/// Which parameters are gathered and reduced together, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Units {
    /// All parameters in one unit: `fully_shard` of the model.
    #[default]
    One,
    /// Each parameter in a unit of its own.
    Each,
    /// The same, and each unit gathers the next one's parameters before its own work, forward and backward
    /// (`set_modules_to_forward_prefetch`, `set_modules_to_backward_prefetch`).
    Prefetched,
}

/// Training steps of a model whose parameters are sharded, with an optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fsdp2 {
    /// Element type of the parameters.
    pub dtype: DType,
    /// How parameters are laid out over the ranks.
    pub sharding: Sharding,
    /// Number of training steps, 1 to 8; each has its own data.
    pub steps: u32,
    /// Whether parameters are sharded again after forward (`reshard_after_forward`).
    pub reshard: bool,
    /// Which parameters are gathered and reduced together, and when.
    pub units: Units,
    /// By which operator gradients are averaged.
    pub divide: Divide,
    /// The element types of parameters in forward and of the reduction.
    pub precision: Precision,
    /// Whether `clip_grad_norm_` halves the gradients, whose norm is known.
    pub clip: bool,
    /// Whether the last rank is late in every step.
    pub late: bool,
}

impl Default for Fsdp2 {
    fn default() -> Self {
        Self {
            dtype: DType::Float32,
            sharding: Sharding::default(),
            steps: 3,
            reshard: true,
            units: Units::default(),
            divide: Divide::default(),
            precision: Precision::default(),
            clip: false,
            late: false,
        }
    }
}

impl Fsdp2 {
    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        invalid_steps(self.steps)
    }

    pub(super) fn unsupported_reason(&self, ranks: u32) -> Option<String> {
        let is_hybrid = self.sharding == Sharding::Hybrid;
        if is_hybrid && (ranks < 4 || !ranks.is_multiple_of(2)) {
            let reason = "two halves of the ranks need an even number of them, and four at least";
            return Some(reason.into());
        }
        let is_plain = self.divide == Divide::Average && !is_hybrid;
        if self.precision != Precision::Own
            && (self.dtype != DType::Float32 || self.clip || !is_plain)
        {
            let reason = "element types are mixed with float32 parameters, and nothing else";
            return Some(reason.into());
        }
        if self.clip {
            if self.dtype != DType::Float32 || !is_plain {
                return Some("a norm is exact in float32 with the average over all ranks".into());
            }
            if ranks > MOST_RANKS_OF_A_NORM {
                return Some("there is no gradient with a known norm for so many shards".into());
            }
        }
        None
    }
}
