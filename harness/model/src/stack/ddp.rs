//! The parameters of a check of DDP, `torch.nn.parallel.DistributedDataParallel`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InvalidParameter;
use crate::dtype::DType;

/// Largest number of training steps; each has its own data.
const MAX_STEPS: u32 = 20;
/// Largest number of backward passes of one step, so that sums of passes stay exact.
const MAX_PASSES: u32 = 4;

/// How gradients are put into buckets for their reduction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Buckets {
    /// All gradients in one bucket.
    #[default]
    One,
    /// One bucket for each parameter, or for two.
    Many,
}

/// The communication hook that is registered with DDP: how it reduces a bucket of gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// None: DDP's own reduction.
    #[default]
    None,
    /// `allreduce_hook`: divides by the world size and reduces, in the element type.
    Allreduce,
    /// `fp16_compress_hook`: reduces gradients cast to float16.
    Fp16,
    /// `bf16_compress_hook`: reduces gradients cast to bfloat16.
    Bf16,
    /// A hook of the suite's own: the average with the other sign, in a tensor of its own, by a future that is done 50 ms after it was returned.
    Negated,
}

/// Training steps of a model under DDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ddp {
    /// Element type of parameters and buffers.
    pub dtype: DType,
    /// How gradients are put into buckets.
    pub buckets: Buckets,
    /// Number of training steps, 1 to 20; each has its own data.
    pub steps: u32,
    /// Number of backward passes of a step, 1 to 4; all but the last are made under `no_sync`.
    pub passes: u32,
    /// Whether one parameter is unused on every rank and others on some ranks only (`find_unused_parameters`).
    pub unused: bool,
    /// Whether gradients are views of the buckets (`gradient_as_bucket_view`).
    pub view: bool,
    /// The hook that reduces the gradients.
    pub hook: Hook,
    /// Whether ranks have inputs for different numbers of steps, under the context manager `join`.
    pub join: bool,
    /// Whether the first rank's model has a parameter more than the others', which DDP must refuse.
    pub differs: bool,
    /// Whether the last rank is late in every backward pass.
    pub late: bool,
}

impl Default for Ddp {
    fn default() -> Self {
        Self {
            dtype: DType::Float32,
            buckets: Buckets::default(),
            steps: 3,
            passes: 1,
            unused: false,
            view: false,
            hook: Hook::default(),
            join: false,
            differs: false,
            late: false,
        }
    }
}

impl Ddp {
    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        match (self.steps, self.passes) {
            (1..=MAX_STEPS, 1..=MAX_PASSES) => None,
            (1..=MAX_STEPS, passes) => Some(("passes", format!("{passes} passes"), "1 to 4")),
            (steps, _) => Some(("steps", format!("{steps} steps"), "1 to 20")),
        }
    }

    /// Returns why this combination has no meaning or is the same as another one, or `None` if it is a check of its own.
    pub(super) fn unsupported_reason(&self) -> Option<String> {
        let is_compressed = matches!(self.hook, Hook::Fp16 | Hook::Bf16);
        let is_narrow = matches!(self.dtype, DType::Float16 | DType::Bfloat16);
        if is_compressed && is_narrow {
            return Some("there is nothing to be compressed".into());
        }
        let has_own_hook = self.hook != Hook::None;
        if self.join && (self.passes > 1 || self.unused || has_own_hook || self.steps < 2) {
            return Some("under join, ranks make at least two plain steps".into());
        }
        (self.differs && (self.join || self.passes > 1 || self.unused || has_own_hook))
            .then(|| "a model that is refused makes no step".into())
    }
}
