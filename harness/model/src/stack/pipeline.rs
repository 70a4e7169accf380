//! The parameters of a check of a pipeline, `torch.distributed.pipelining`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InvalidParameter;
use crate::dtype::DType;

/// Largest number of steps, and of microbatches, so that sums over all of them stay exact.
const MOST: u32 = 8;
/// Largest number of stages whose products are exact in float32.
const MOST_STAGES: u32 = 7;

/// The order in which a stage works through its microbatches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Schedule {
    /// `ScheduleGPipe`: all forwards, then all backwards.
    #[default]
    #[serde(rename = "gpipe")]
    GPipe,
    /// `Schedule1F1B`: one forward, one backward.
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    /// `ScheduleLoopedBFS`: all forwards, stage by stage, then all backwards; two stages on each rank.
    #[serde(rename = "looped_bfs")]
    LoopedBfs,
    /// `ScheduleInterleaved1F1B`: one forward, one backward; two stages on each rank.
    #[serde(rename = "interleaved_1f1b")]
    Interleaved,
    /// `ScheduleInterleavedZeroBubble`: the same, and gradients of weights after those of inputs, where a rank would wait.
    #[serde(rename = "zero_bubble")]
    ZeroBubble,
}

impl Schedule {
    /// Returns how many stages each rank has. Stages are dealt to the ranks in turn.
    #[must_use]
    pub fn stages_per_rank(self) -> u32 {
        match self {
            Self::GPipe | Self::OneForwardOneBackward => 1,
            Self::LoopedBfs | Self::Interleaved | Self::ZeroBubble => 2,
        }
    }

    /// Returns true if microbatches must come in rounds of equal size, about as many as there are ranks.
    fn has_rounds(self) -> bool {
        matches!(self, Self::Interleaved | Self::ZeroBubble)
    }
}

/// A pipeline of affine stages, one or two on each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipeline {
    /// Element type of parameters and activations.
    pub dtype: DType,
    /// The order in which a stage works through its microbatches.
    pub schedule: Schedule,
    /// Number of microbatches of a step, 2 to 8.
    pub microbatches: u32,
    /// Number of training steps, 1 to 8; each has its own data.
    pub steps: u32,
    /// Whether the last rank is late in every step.
    pub late: bool,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self {
            dtype: DType::Float32,
            schedule: Schedule::default(),
            microbatches: 4,
            steps: 2,
            late: false,
        }
    }
}

impl Pipeline {
    pub(super) fn invalid(&self) -> Option<InvalidParameter> {
        match (self.dtype, self.microbatches, self.steps) {
            (DType::Float16 | DType::Bfloat16, ..) => {
                let message = format!("{} has no room for products", self.dtype);
                Some(("dtype", message, "float32 or float64"))
            }
            (_, 2..=MOST, 1..=MOST) => None,
            (_, 2..=MOST, steps) => Some(("steps", format!("{steps} steps"), "1 to 8")),
            (_, microbatches, _) => {
                let message = format!("{microbatches} microbatches");
                Some(("microbatches", message, "2 to 8"))
            }
        }
    }

    pub(super) fn unsupported_reason(&self, ranks: u32) -> Option<String> {
        if self.microbatches < ranks {
            return Some("some versions of torch want as many microbatches as ranks".into());
        }
        if self.schedule.has_rounds()
            && !self.microbatches.is_multiple_of(self.microbatches / ranks)
        {
            return Some("microbatches must come in rounds of equal size".into());
        }
        let stages = ranks * self.schedule.stages_per_rank();
        (stages > MOST_STAGES && self.dtype == DType::Float32)
            .then(|| "products of so many stages are not exact".into())
    }
}
