//! The parameters of a check of `torch.distributed.tensor.experimental.context_parallel`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How keys and values go from rank to rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Rotation {
    /// All are gathered once.
    #[default]
    #[serde(rename = "allgather")]
    AllGather,
    /// Each rank sends its own to the next one, again and again.
    #[serde(rename = "alltoall")]
    AllToAll,
}

/// Attention over a sequence of which each rank has a part, in float32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextParallel {
    /// Whether a position attends to no later one.
    pub causal: bool,
    /// Whether each rank has a part from either end of the sequence.
    pub balanced: bool,
    /// How keys and values go from rank to rank.
    pub rotation: Rotation,
    /// Whether the last rank is late.
    pub late: bool,
}

impl ContextParallel {
    pub(super) fn unsupported_reason(&self) -> Option<String> {
        (self.balanced && !self.causal)
            .then(|| "torch balances attention that is causal, and no other".into())
    }
}
