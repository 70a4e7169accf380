//! The parameters of a check of random numbers of a `DTensor`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Smallest number of ranks that make two rows of a device mesh with two ranks in each.
const TWO_BY_TWO: u32 = 4;

/// What draws the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RandomOp {
    /// `torch.distributed.tensor.rand`.
    #[default]
    Uniform,
    /// `torch.distributed.tensor.randn`.
    Normal,
    /// `torch.nn.functional.dropout` of ones.
    Dropout,
}

/// Where the drawn tensor is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RandomPlacement {
    /// Each rank has some of the rows.
    #[default]
    Rows,
    /// Every rank has the whole tensor.
    Replicate,
    /// The first half of the ranks and the second half each have all rows, divided over them.
    Hybrid,
}

/// Random numbers of a `DTensor` of float32, drawn by ranks whose own seeds differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RandomNumbers {
    /// What draws the numbers.
    pub op: RandomOp,
    /// Where the drawn tensor is.
    pub placement: RandomPlacement,
    /// Whether the last rank is late.
    pub late: bool,
}

impl RandomNumbers {
    pub(super) fn unsupported_reason(&self, ranks: u32) -> Option<String> {
        let has_halves = ranks >= TWO_BY_TWO && ranks.is_multiple_of(2);
        (self.placement == RandomPlacement::Hybrid && !has_halves).then(|| {
            "two halves of the ranks need an even number of them, and four at least".into()
        })
    }
}
