//! A check whose data the oracle has made: of an op, or of a layer above c10d.

use super::{Mismatch, Observations, Prepared, RankReply, RankStep, StackPrepared};

/// A check made ready.
#[derive(Debug)]
pub enum PreparedCheck {
    /// Of an op.
    Op(Prepared),
    /// Of a layer above c10d.
    Stack(StackPrepared),
}

impl PreparedCheck {
    /// One step for each rank of the world, in rank order.
    #[must_use]
    pub fn steps(&self) -> &[RankStep] {
        match self {
            Self::Op(prepared) => prepared.steps(),
            Self::Stack(prepared) => prepared.steps(),
        }
    }

    /// Compares every rank's answer, all of whose calls returned, with what must have come of it. Gives the number of elements
    /// checked on each rank.
    ///
    /// # Errors
    /// The mismatch, classified.
    #[expect(
        clippy::result_large_err,
        reason = "callers take the mismatch apart at once"
    )]
    pub fn verify(&self, replies: &[RankReply]) -> Result<Vec<u64>, Mismatch> {
        match self {
            Self::Op(prepared) => prepared.verify(replies),
            Self::Stack(prepared) => prepared.verify(replies),
        }
    }

    /// What the answers show of the backend's arithmetic.
    #[must_use]
    pub fn observe(&self, replies: &[RankReply]) -> Observations {
        match self {
            Self::Op(prepared) => prepared.observe(replies),
            // Its numbers are exact whatever the order.
            Self::Stack(_) => Observations::new(),
        }
    }
}
