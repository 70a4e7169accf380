//! The parameters of a check of `torch.nn.SyncBatchNorm`.

use serde::{Deserialize, Serialize};

use super::InvalidParameter;
use crate::dtype::DType;

/// Batches of which each rank has some rows, normalised by the mean and variance of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchNorm {
    /// Element type of parameters and batches.
    pub dtype: DType,
    /// Whether later ranks have more rows than earlier ones.
    pub uneven: bool,
    /// Whether the last rank is late in every step.
    pub late: bool,
}

impl Default for BatchNorm {
    fn default() -> Self {
        Self {
            dtype: DType::Float32,
            uneven: false,
            late: false,
        }
    }
}

impl BatchNorm {
    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        let is_narrow = matches!(self.dtype, DType::Float16 | DType::Bfloat16);
        is_narrow.then(|| {
            let message = format!("{} has no room for variances", self.dtype);
            ("dtype", message, "float32 or float64")
        })
    }
}
