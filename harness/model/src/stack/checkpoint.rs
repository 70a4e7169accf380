//! The parameters of a check of distributed checkpoints, `torch.distributed.checkpoint`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InvalidParameter, TensorPlacement};
use crate::dtype::DType;

/// How a checkpoint is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Save {
    /// Written by `save`, which returns when all is written.
    #[default]
    Now,
    /// Written by `async_save`: what is saved is overwritten, and summed over all ranks, before it is waited for.
    Later,
}

/// What the checkpoint that is loaded lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing is missing.
    #[default]
    None,
    /// A key that is asked for: `load` must fail on every rank.
    Key,
    /// The file that the last rank wrote: `load` must fail on every rank.
    File,
}

/// A matrix that is saved in one placement by all ranks, and loaded in another by all or fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Element type of the matrix.
    pub dtype: DType,
    /// Placement of the matrix when it is saved.
    pub from: TensorPlacement,
    /// Placement of the matrix when it is loaded.
    pub to: TensorPlacement,
    /// Whether all ranks but the last load it, as another group would.
    pub fewer: bool,
    /// How it is written.
    pub save: Save,
    /// What the checkpoint that is loaded lacks.
    pub fault: Fault,
    /// Whether the last rank is late.
    pub late: bool,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            dtype: DType::Float32,
            from: TensorPlacement::Rows,
            to: TensorPlacement::Rows,
            fewer: false,
            save: Save::default(),
            fault: Fault::default(),
            late: false,
        }
    }
}

impl Checkpoint {
    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        let fits = "rows, columns or replicate";
        let message = || "a partial matrix is not saved".to_owned();
        match (self.from, self.to) {
            (TensorPlacement::Partial, _) => Some(("from", message(), fits)),
            (_, TensorPlacement::Partial) => Some(("to", message(), fits)),
            _ => None,
        }
    }

    pub(super) fn unsupported_reason(&self) -> Option<String> {
        (self.fault != Fault::None && self.fewer)
            .then(|| "a load that fails does so on all ranks".into())
    }
}
