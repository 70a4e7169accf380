//! A check with its inputs and expected bytes: of an op, or of a layer above c10d.

use super::{Mismatch, Observations, Prepared, RankReply, RankStep, StackPrepared};

/// A check with its inputs and expected bytes.
#[derive(Debug)]
pub enum PreparedCheck {
    /// Of an op.
    Op(Prepared),
    /// Of a layer above c10d.
    Stack(StackPrepared),
}

impl PreparedCheck {
    /// Returns one step for each rank of the world, in rank order.
    #[must_use]
    pub fn steps(&self) -> &[RankStep] {
        match self {
            Self::Op(prepared) => prepared.steps(),
            Self::Stack(prepared) => prepared.steps(),
        }
    }

    /// Compares every rank's answer, all of whose calls returned, with the expected bytes. Returns the number of elements
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

    /// Returns the number of elements that [`Self::verify`] checks on each rank.
    #[must_use]
    pub fn checked(&self) -> Vec<u64> {
        match self {
            Self::Op(prepared) => prepared.checked(),
            Self::Stack(prepared) => prepared.checked(),
        }
    }

    /// Compares what every rank holds after a refused call of an op with what it was sent; returns the first difference. None
    /// for a layer above c10d, which makes tensors of its own.
    #[must_use]
    pub fn written(&self, replies: &[RankReply]) -> Option<Mismatch> {
        match self {
            Self::Op(prepared) => prepared.written(replies),
            Self::Stack(_) => None,
        }
    }

    /// Classifies a mismatch that is unclassified so far, if its data are those of another call of an op. `others` are the
    /// candidates, each with its name in the sentence.
    #[must_use]
    pub fn named_by_others<'o>(
        &self,
        mismatch: Mismatch,
        replies: &[RankReply],
        others: impl IntoIterator<Item = (String, &'o Self)>,
    ) -> Mismatch {
        let Self::Op(prepared) = self else {
            return mismatch;
        };
        let ops = others.into_iter().filter_map(|(words, other)| match other {
            Self::Op(other) => Some((words, other)),
            Self::Stack(_) => None,
        });
        prepared.named_by_others(mismatch, replies, ops)
    }

    /// Returns what the answers show of the backend's arithmetic.
    #[must_use]
    pub fn observe(&self, replies: &[RankReply]) -> Observations {
        match self {
            Self::Op(prepared) => prepared.observe(replies),
            // Its numbers are exact whatever the order.
            Self::Stack(_) => Observations::new(),
        }
    }
}
