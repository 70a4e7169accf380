//! The parameters of a check of redistribution, `torch.distributed.tensor.DTensor`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InvalidParameter;
use crate::dtype::DType;

/// The placement of a matrix of 7 rows and 5 columns on the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TensorPlacement {
    /// `Shard(0)`: each rank has some of the rows, divided as by `torch.chunk`.
    Rows,
    /// `Shard(1)`: each rank has some of the columns, divided as by `torch.chunk`.
    Columns,
    /// `Replicate()`: every rank has the whole matrix.
    Replicate,
    /// `Partial()`: each rank has a matrix, and their sum is the value.
    Partial,
}

/// A DTensor that is redistributed from one placement to another, and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dtensor {
    /// Element type of the matrix.
    pub dtype: DType,
    /// Placement of the matrix before it is redistributed.
    pub from: TensorPlacement,
    /// Placement of the matrix after it is redistributed.
    pub to: TensorPlacement,
    /// Whether the last rank is late.
    pub late: bool,
}

impl Default for Dtensor {
    fn default() -> Self {
        Self {
            dtype: DType::Float32,
            from: TensorPlacement::Rows,
            to: TensorPlacement::Replicate,
            late: false,
        }
    }
}

impl Dtensor {
    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        (self.to == TensorPlacement::Partial).then(|| {
            let message = "a DTensor is not made partial".into();
            ("to", message, "rows, columns or replicate")
        })
    }

    pub(super) fn unsupported_reason(&self) -> Option<String> {
        (self.from == self.to).then(|| "nothing has to be moved".into())
    }
}
