//! The parameters of a check of `torch.distributed.device_mesh.DeviceMesh`.

use serde::{Deserialize, Serialize};

use super::InvalidParameter;
use crate::dtype::DType;

/// A mesh of two dimensions over all ranks, with its slices and its flattened form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mesh {
    /// Element type of the tensors that are summed along its dimensions.
    pub dtype: DType,
    /// Size of the first dimension, 1 or more; it must divide the world size.
    pub outer: u32,
}

impl Default for Mesh {
    fn default() -> Self {
        Self {
            dtype: DType::Float32,
            outer: 2,
        }
    }
}

impl Mesh {
    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        (self.outer == 0).then(|| ("outer", "a dimension of size 0".into(), "1 or more"))
    }

    pub(super) fn unsupported_reason(&self, ranks: u32) -> Option<String> {
        (!ranks.is_multiple_of(self.outer))
            .then(|| format!("{ranks} ranks do not divide by {}", self.outer))
    }
}
