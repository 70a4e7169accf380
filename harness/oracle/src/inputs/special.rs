//! Values that arithmetic treats specially: NaN, infinities, zeros with a sign, denormals, and sums that overflow.
//!
//! The index says which kind of value it is about, in turn, and which rank holds it, in turn; so over ten times as many
//! indices as there are ranks every rank has held every kind. What IEEE 754 leaves open (overflow within an average,
//! order-dependent overflow) does not occur.

use super::{CommonDraw, Draw};
use crate::number::Real;
use allranks_model::dtype::ReduceOp;

/// How many kinds of index there are.
pub(super) const KINDS: u64 = 10;

/// Special values on an ordinary ground.
pub(super) struct Special<D> {
    pub reduce: ReduceOp,
    pub ranks: u64,
    /// What ranks hold that hold nothing special.
    pub ordinary: D,
}

/// What one rank holds at an index: an ordinary value, or a special one.
enum Share {
    Ordinary,
    Number(f64),
}

impl<R: Real, D: Draw<Element = R>> Draw for Special<D> {
    type Element = R;

    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> R {
        let CommonDraw {
            index, position, ..
        } = turn();
        let place = (position + index / KINDS) % self.ranks;
        let kind = index % KINDS;
        let share = match self.reduce {
            ReduceOp::Min | ReduceOp::Max => compared::<R>(self.reduce, kind, place, own),
            ReduceOp::Product => multiplied::<R>(kind, place, own),
            _ => self.added::<R>(kind, place, own),
        };
        match share {
            Share::Ordinary => self.ordinary.input(own, turn),
            Share::Number(value) => R::from_f64(value),
        }
    }
}

impl<D> Special<D> {
    fn added<R: Real>(&self, kind: u64, place: u64, own: u64) -> Share {
        use Share::{Number, Ordinary};
        let room = 1 << (R::PRECISION - 3);
        match (kind, place) {
            (0, 0) => Number(nan(own)),
            (1 | 3, 0) => Number(f64::INFINITY),
            (2, 0) | (3, 1) => Number(f64::NEG_INFINITY),
            (4, _) | (5, 0) => Number(-0.0),
            (5, _) => Number(0.0),
            // So that dividing the parts, too, is exact.
            (6, 0) if self.reduce == ReduceOp::Avg => Number(self.ranks as f64 * denormal::<R>()),
            (6, _) if self.reduce == ReduceOp::Avg => Number(0.0),
            (6, place) if place < room => Number((1 + (own & 1)) as f64 * denormal::<R>()),
            (6, _) => Number(0.0),
            (7, _) if self.reduce == ReduceOp::Sum => Number(largest::<R>()),
            _ => Ordinary,
        }
    }
}

fn multiplied<R: Real>(kind: u64, place: u64, own: u64) -> Share {
    use Share::{Number, Ordinary};
    match (kind, place) {
        (0, 0) => Number(nan(own)),
        (1 | 3, 0) => Number(f64::INFINITY),
        (2, 0) => Number(f64::NEG_INFINITY),
        (3, 1) | (5, 0) => Number(0.0),
        (4, 0) => Number(-0.0),
        (6, 0) => Number((1 + (own >> 62)) as f64 * denormal::<R>()),
        (7, 0 | 1) => Number(largest::<R>()),
        (6 | 7, _) => Number(if own & 1 == 1 { -1.0 } else { 1.0 }),
        _ => Ordinary,
    }
}

fn compared<R: Real>(reduce: ReduceOp, kind: u64, place: u64, own: u64) -> Share {
    use Share::{Number, Ordinary};
    match (kind, place) {
        (0 | 8, 0) | (3, _) => Number(nan(own)),
        (1, 0) => Number(f64::INFINITY),
        (2, 0) => Number(f64::NEG_INFINITY),
        (4, _) | (5, 0) => Number(-0.0),
        (5, _) => Number(0.0),
        (6, _) => {
            let steps = 1 + (own >> (66 - R::PRECISION));
            let sign = if own & 1 == 1 { -1.0 } else { 1.0 };
            Number(sign * steps as f64 * denormal::<R>())
        }
        (7, 0) if own & 1 == 1 => Number(-largest::<R>()),
        (7, 0) => Number(largest::<R>()),
        // The extreme of nothing: a reduction that begins with a finite number does not find it.
        (9, _) if reduce == ReduceOp::Max => Number(f64::NEG_INFINITY),
        (9, _) => Number(f64::INFINITY),
        _ => Ordinary,
    }
}

/// Returns a quiet NaN of either sign.
fn nan(own: u64) -> f64 {
    f64::NAN.copysign(if own & 1 == 1 { -1.0 } else { 1.0 })
}

/// Returns the largest finite value.
fn largest<R: Real>() -> f64 {
    let significand = 2.0 - f64::powi(2.0, 1 - R::PRECISION as i32);
    significand * f64::powi(2.0, R::EXPONENTS.1)
}

/// Returns the smallest value above zero.
fn denormal<R: Real>() -> f64 {
    // In two steps: 2^-1074 is the reciprocal of an infinity.
    f64::powi(2.0, R::EXPONENTS.0) * f64::powi(2.0, 1 - R::PRECISION as i32)
}
