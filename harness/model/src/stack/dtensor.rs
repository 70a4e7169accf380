//! The parameters of a check of redistribution, `torch.distributed.tensor.DTensor`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InvalidParameter;
use crate::dtype::{DType, ReduceOp};

/// The placement of a matrix of 7 rows and 5 columns on the ranks along a dimension of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TensorPlacement {
    /// `Shard(0)`: each rank has some of the rows, divided as by `torch.chunk`.
    Rows,
    /// `Shard(1)`: each rank has some of the columns, divided as by `torch.chunk`.
    Columns,
    /// `Replicate()`: every rank has the whole matrix.
    Replicate,
    /// `Partial(op)`: each rank has a matrix, and all of them reduced are the value.
    Partial,
}

/// A DTensor that is redistributed from one placement to another, and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dtensor {
    /// Element type of the matrix.
    pub dtype: DType,
    /// Placement of the matrix along the mesh's first dimension before it is redistributed.
    pub from: TensorPlacement,
    /// Placement of the matrix along the mesh's first dimension after it is redistributed.
    pub to: TensorPlacement,
    /// Size of the mesh's first dimension if it has two, of which the second has the rest; 1 for a mesh of one dimension.
    pub outer: u32,
    /// Placement of the matrix along the mesh's second dimension before it is redistributed.
    pub inner_from: TensorPlacement,
    /// Placement of the matrix along the mesh's second dimension after it is redistributed.
    pub inner_to: TensorPlacement,
    /// How the ranks' matrices are reduced where a placement is partial.
    pub op: ReduceOp,
    /// Whether the last rank is late.
    pub late: bool,
}

impl Default for Dtensor {
    fn default() -> Self {
        Self {
            dtype: DType::Float32,
            from: TensorPlacement::Rows,
            to: TensorPlacement::Replicate,
            outer: 1,
            inner_from: TensorPlacement::Replicate,
            inner_to: TensorPlacement::Replicate,
            op: ReduceOp::Sum,
            late: false,
        }
    }
}

impl Dtensor {
    /// Returns true if each rank has a matrix of its own before, along a dimension of the mesh.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        [self.from, self.inner_from].contains(&TensorPlacement::Partial)
    }

    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        let placements = "rows, columns or replicate";
        for (name, placement) in [("to", self.to), ("inner_to", self.inner_to)] {
            if placement == TensorPlacement::Partial {
                return Some((name, "a DTensor is not made partial".into(), placements));
            }
        }
        if self.outer == 0 {
            return Some(("outer", "a dimension has ranks".into(), "1 or more"));
        }
        match self.op {
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Min | ReduceOp::Max => None,
            op => {
                let message = format!("{} is not tried with a DTensor", op.name());
                Some(("op", message, "sum, avg, min or max"))
            }
        }
    }

    pub(super) fn unsupported_reason(&self, ranks: u32) -> Option<String> {
        let (from, to) = ([self.from, self.inner_from], [self.to, self.inner_to]);
        if from == to {
            return Some("nothing has to be moved".into());
        }
        if self.op != ReduceOp::Sum && !self.is_partial() {
            return Some("nothing has to be reduced".into());
        }
        let outer = self.outer;
        match outer {
            1 if [self.inner_from, self.inner_to] != [TensorPlacement::Replicate; 2] => {
                Some("a mesh of one dimension has no second".into())
            }
            2.. if !ranks.is_multiple_of(outer) || ranks == outer => Some(format!(
                "{ranks} ranks are no mesh of {outer} rows of two or more"
            )),
            _ => None,
        }
    }
}
