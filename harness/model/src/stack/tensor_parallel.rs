//! The parameters of a check of `torch.distributed.tensor.parallel`.

use serde::{Deserialize, Serialize};

use super::InvalidParameter;
use crate::dtype::DType;

/// Two linear layers, of which the first is divided by columns and the second by rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorParallel {
    /// Element type of parameters and activations.
    pub dtype: DType,
    /// Whether input and output are divided by rows over the ranks (sequence parallelism).
    pub sequence: bool,
    /// Whether the layers have a bias.
    pub bias: bool,
    /// Whether the last rank is late.
    pub late: bool,
}

impl Default for TensorParallel {
    fn default() -> Self {
        Self {
            dtype: DType::Float32,
            sequence: false,
            bias: true,
            late: false,
        }
    }
}

impl TensorParallel {
    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        let is_narrow = matches!(self.dtype, DType::Float16 | DType::Bfloat16);
        is_narrow.then(|| {
            let message = format!("{} has no room for products", self.dtype);
            ("dtype", message, "float32 or float64")
        })
    }
}
