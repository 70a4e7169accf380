//! The parameters of a check of FSDP2, `torch.distributed.fsdp.fully_shard`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InvalidParameter;
use crate::dtype::DType;

/// Largest number of training steps, so that sums over all of them stay exact.
const MAX_STEPS: u32 = 8;

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
            late: false,
        }
    }
}

impl Fsdp2 {
    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        match self.steps {
            1..=MAX_STEPS => None,
            steps => Some(("steps", format!("{steps} steps"), "1 to 8")),
        }
    }

    pub(super) fn unsupported_reason(&self, ranks: u32) -> Option<String> {
        let has_halves = ranks >= 4 && ranks.is_multiple_of(2);
        (self.sharding == Sharding::Hybrid && !has_halves).then(|| {
            "two halves of the ranks need an even number of them, and four at least".into()
        })
    }
}
