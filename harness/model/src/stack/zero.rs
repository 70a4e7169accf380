//! The parameters of a check of `torch.distributed.optim.ZeroRedundancyOptimizer`.

use serde::{Deserialize, Serialize};

use super::{InvalidParameter, invalid_steps};
use crate::dtype::DType;

/// Training steps of a model under DDP with an optimiser whose state is sharded over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zero {
    /// Element type of the parameters.
    pub dtype: DType,
    /// Number of training steps, 1 to 8; each has its own data.
    pub steps: u32,
    /// Whether all parameters of a rank's shard are views of one bucket (`parameters_as_bucket_view`).
    pub view: bool,
    /// Whether the last rank is late in every step.
    pub late: bool,
}

impl Default for Zero {
    fn default() -> Self {
        Self {
            dtype: DType::Float32,
            steps: 3,
            view: false,
            late: false,
        }
    }
}

impl Zero {
    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        invalid_steps(self.steps)
    }
}
