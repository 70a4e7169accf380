//! Random reals to be added, averaged or multiplied: nothing about their results is exact.

use std::marker::PhantomData;

use super::{CommonDraw, Draw};
use crate::hash::mix;
use crate::number::Real;

/// Reals of which, at every other index, pairs of ranks nearly cancel, so that a sum is far smaller than its terms. The
/// difference of near numbers is exact (Sterbenz), so at the indices between them signs are free, and every order rounds; at
/// half of those one rank's real is far smaller than the others, so that even a sum of two is no tie.
/// The bound on the error grows with the square of the number of terms; where a type is too coarse for all
/// ranks, as many carry a value as leave the bound smaller than one rank's contribution.
pub(super) struct Cancelling<R> {
    carriers: u64,
    element: PhantomData<R>,
}

impl<R: Real> Cancelling<R> {
    pub(super) fn new(ranks: u64) -> Self {
        // n terms of up to 2.125 each, n - 1 roundings: the bound is 2.125 n (n - 1) / 2^p, a contribution about 1.
        let fits =
            |n: &u64| 2.125 * (n * (n - 1)) as f64 <= 0.6 * f64::powi(2.0, R::PRECISION as i32);
        let carriers = (2..=ranks.min(1 << 20)).take_while(fits).last();
        Self {
            carriers: carriers.unwrap_or(1).min(ranks),
            element: PhantomData,
        }
    }
}

impl<R: Real> Draw for Cancelling<R> {
    type Element = R;

    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> R {
        let CommonDraw { word, place, .. } = turn();
        if place >= self.carriers {
            return R::scaled(0);
        }
        let pair = mix(word ^ (place / 2));
        let scale = f64::powi(2.0, (word >> 61) as i32 % 5 - 2);
        let lone = place + 1 == self.carriers && place % 2 == 0;
        let (magnitude, negative) = if word & 1 == 0 {
            // Two ranks of a pair differ by up to an eighth; that is what is left of them.
            let magnitude = (1.0 + unit(pair)) * (1.0 + (unit(own) - 0.5) / 8.0);
            (magnitude, if lone { own & 1 == 1 } else { place % 2 == 1 })
        } else {
            let small = word & 2 == 2 && place == 0 && self.carriers > 1;
            let shrunk = if small { 1 << (1 + (own >> 1 & 3)) } else { 1 };
            ((1.0 + unit(own)) / f64::from(shrunk), own & 1 == 1)
        };
        let sign = if negative { -scale } else { scale };
        R::from_f64(sign * magnitude)
    }
}

/// Reals to be multiplied: between 1/2 and 2 in magnitude, and as many as the precision bears; the others hold 1 or -1.
pub(super) struct NearOne<R> {
    carriers: u64,
    element: PhantomData<R>,
}

impl<R: Real> NearOne<R> {
    pub(super) fn new(ranks: u64) -> Self {
        Self {
            carriers: ranks.min(1 + (1 << R::PRECISION) / 4),
            element: PhantomData,
        }
    }
}

impl<R: Real> Draw for NearOne<R> {
    type Element = R;

    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> R {
        let place = turn().place;
        let magnitude = match place {
            far if far >= self.carriers => 1.0,
            // Products stay near 1.
            place if place % 2 == 0 => 1.0 + unit(own),
            _ => 0.5 + unit(own) / 2.0,
        };
        R::from_f64(if own & 1 == 1 { -magnitude } else { magnitude })
    }
}

/// Returns a real in `0..1`.
fn unit(word: u64) -> f64 {
    (word >> 11) as f64 * f64::powi(2.0, -53)
}
