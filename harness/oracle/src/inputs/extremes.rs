//! Integers of the whole range: sums and products that wrap around, extremes to be compared, averages that truncate.

use std::marker::PhantomData;

use super::{CommonDraw, Draw};
use crate::hash::below;
use crate::number::Integer;
use allranks_model::dtype::ReduceOp;

/// Integers for an operator.
pub(super) struct Whole<I> {
    reduce: ReduceOp,
    ranks: u64,
    element: PhantomData<I>,
}

impl<I: Integer> Whole<I> {
    pub(super) fn new(reduce: ReduceOp, ranks: u64) -> Self {
        Self {
            reduce,
            ranks,
            element: PhantomData,
        }
    }

    /// Any integer, the ends of the range and -1 (or the largest) often among them.
    fn any(own: u64) -> I {
        let lowest = if I::SIGNED { !I::LARGEST } else { 0 };
        I::from_word(match own & 7 {
            0 => I::LARGEST,
            1 => lowest,
            2 => u64::MAX,
            // The highest bit alone.
            3 => 1 << (8 * I::SIZE - 1),
            _ => own >> (64 - 8 * I::SIZE),
        })
    }
}

impl<I: Integer> Draw for Whole<I> {
    type Element = I;

    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> I {
        match self.reduce {
            // Odd: even factors would soon leave nothing but zero.
            ReduceOp::Product => I::from_word(own >> (64 - 8 * I::SIZE) | 1),
            // Mostly negative, and no multiples of the number of ranks.
            ReduceOp::Avg => {
                let most = (I::LARGEST / self.ranks).min(1000);
                let value = below(own, most + 1);
                if I::SIGNED && own & 7 != 0 {
                    I::from_i64(-(value as i64))
                } else {
                    I::from_word(value)
                }
            }
            ReduceOp::Min | ReduceOp::Max if turn().place == 0 && own & 8 != 0 => {
                let lowest = if I::SIGNED { !I::LARGEST } else { 0 };
                let largest_wins = self.reduce == ReduceOp::Max;
                I::from_word(if largest_wins { I::LARGEST } else { lowest })
            }
            ReduceOp::Min | ReduceOp::Max => I::from_word(own >> (64 - 8 * I::SIZE)),
            _ => Self::any(own),
        }
    }
}
