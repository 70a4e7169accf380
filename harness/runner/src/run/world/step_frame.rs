//! A step for one rank, with the bytes that go with it.

use allranks_model::names::Rank;
use allranks_oracle::RankStep;
use allranks_protocol::Step;

/// A step for one rank, and the bytes of its storages.
pub type StepFrame = (Rank, Step, Vec<u8>);

/// Returns a step without tensors.
pub const fn bare(step: Step) -> RankStep {
    RankStep {
        step,
        payload: Vec::new(),
    }
}
