//! The oracle: inputs and expected bytes, from the check alone. It knows nothing of torch.

use crate::names::WorldSize;
use crate::plan::Check;
use crate::protocol::{Step, StepResult};
use crate::report::Difference;

/// What one rank is asked to do in a check.
#[derive(Clone, Debug)]
pub struct RankStep {
    /// Storages, tensors, calls; `step.step` is filled in by the world.
    pub step: Step,
    /// Initial bytes of the storages, one after another.
    pub payload: Vec<u8>,
}

/// What one rank answered.
#[derive(Clone, Debug)]
pub struct RankReply {
    /// How its calls went.
    pub result: StepResult,
    /// Final bytes of the storages, one after another.
    pub payload: Vec<u8>,
}

/// A wrong answer, classified.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// Stable name of the class, `avg-divided-twice`.
    pub class: String,
    /// One line for people.
    pub sentence: String,
    /// The first wrong element, if the mismatch is about elements.
    pub difference: Option<Difference>,
}

/// A check made ready: what each rank does, and what must come of it.
#[derive(Debug)]
pub struct Prepared {
    steps: Vec<RankStep>,
}

impl Prepared {
    /// Inputs and expectations for every rank of the world (non-members of the check's group get bystander
    /// buffers and no call).
    #[must_use]
    pub fn new(check: &Check, world_size: WorldSize, seed: u64) -> Result<Self, String> {
        let _ = (check, world_size, seed);
        Err(String::new())
    }

    /// One step for each rank of the world, in rank order.
    #[must_use]
    pub fn steps(&self) -> &[RankStep] {
        &self.steps
    }

    /// Compares every rank's answer, all of whose calls returned, with what must have come of it.
    /// Gives the number of elements checked on each rank.
    ///
    /// # Errors
    /// The mismatch, classified.
    pub fn verify(&self, replies: &[RankReply]) -> Result<Vec<u64>, Mismatch> {
        let _ = replies;
        Ok(Vec::new())
    }
}
