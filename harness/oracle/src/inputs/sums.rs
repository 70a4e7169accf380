//! Values to be added or averaged.

use std::marker::PhantomData;

use super::{CommonDraw, Draw};
use crate::hash::{below, mix, narrow};
use crate::number::{Complex, Integer, Real};

/// Floats to be added: multiples of one power of two, so small that the sum of all magnitudes still fits the
/// significand. Every partial sum is then exact, in any order and association. In 8-bit types few ranks carry a value.
pub(super) struct Summand<R> {
    ranks: u64,
    carriers: u64,
    largest: i64,
    element: PhantomData<R>,
}

impl<R: Real> Summand<R> {
    /// `factor` is the largest that a value is multiplied by.
    pub(super) fn new(factor: u64, ranks: u64) -> Self {
        let room = (1 << R::PRECISION) / factor;
        // Room for 3 at least, where the type has any: sums of powers of two hide bugs.
        let carriers = ranks.min((room / 3).max(1));
        Self {
            ranks,
            carriers,
            largest: (room / carriers) as i64,
            element: PhantomData,
        }
    }
}

impl<R: Real> Draw for Summand<R> {
    type Element = R;

    #[inline]
    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> R {
        let bound = 2 * self.largest as u64 + 1;
        let value = if R::PRECISION <= 24 {
            narrow(own, bound)
        } else {
            below(own, bound)
        };
        let value = value as i64 - self.largest;
        if self.carriers < self.ranks && turn().place >= self.carriers {
            return R::scaled(0);
        }
        R::scaled(value)
    }
}

/// Integers to be added: mostly small, one in four as large as all ranks can be without the sum wrapping around.
pub(super) struct Small<I> {
    small: u64,
    large: u64,
    element: PhantomData<I>,
}

impl<I: Integer> Small<I> {
    pub(super) fn new(ranks: u64) -> Self {
        let large = I::LARGEST / ranks;
        Self {
            small: large.min(100),
            large,
            element: PhantomData,
        }
    }
}

impl<I: Integer> Draw for Small<I> {
    type Element = I;

    #[inline]
    fn input(&self, own: u64, _: impl Fn() -> CommonDraw) -> I {
        let bound = if own & 3 == 0 { self.large } else { self.small };
        // `below` hardly looks at the low bits, so one word makes both choices.
        if I::SIGNED {
            I::from_i64(below(own, 2 * bound + 1).wrapping_sub(bound) as i64)
        } else {
            I::from_word(below(own, bound.saturating_add(1)))
        }
    }
}

/// Integers whose sum over the ranks is a multiple of their number, so that the average is exact; the contributions
/// themselves are not multiples of it. Carriers come in pairs `W*a + t` and `W*b + (W - t)`; one left over has no `t`.
pub(super) struct Share<I> {
    ranks: u64,
    carriers: u64,
    /// `a` is in `lowest..=highest`.
    lowest: i64,
    highest: i64,
    make: fn(i64) -> I,
}

impl<I> Share<I> {
    /// Shares whose sum of magnitudes stays within `room`.
    pub(super) fn new(room: u64, signed: bool, ranks: u64, make: fn(i64) -> I) -> Self {
        // A carrier can be as large as 2W when `a` may be 1.
        let carriers = ranks.min((room / (2 * ranks)).max(1));
        let each = (room / carriers / ranks).min(i64::MAX as u64 / ranks) as i64;
        let pairs = i64::from(carriers > 1);
        Self {
            ranks,
            carriers,
            lowest: if signed { -each } else { 0 },
            highest: (each - pairs).max(0),
            make,
        }
    }
}

impl<I: Integer> Draw for Share<I> {
    type Element = I;

    #[inline]
    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> I {
        (self.make)(self.value(own, &turn()))
    }
}

impl<I> Share<I> {
    fn value(&self, own: u64, turn: &CommonDraw) -> i64 {
        if turn.place >= self.carriers {
            return 0;
        }
        let span = self.highest.wrapping_sub(self.lowest) as u64 + 1;
        let a = (below(own, span) as i64).wrapping_add(self.lowest);
        let t = below(mix(turn.word ^ (turn.place / 2)), self.ranks + 1);
        let t = match turn.place {
            last if last + 1 == self.carriers && last % 2 == 0 => 0,
            place if place % 2 == 0 => t,
            _ => self.ranks - t,
        };
        a * self.ranks as i64 + t as i64
    }
}

/// Floats to be averaged where dividing by the number of ranks is not exact. A backend may sum and then divide, or
/// multiply every contribution by the rounded reciprocal first, so results are compared within a bound; the bound grows
/// with the number of contributions and with the coarseness of the type, so coarse types have few carriers, of one size.
pub(super) struct RealShare<R> {
    share: Share<i64>,
    element: PhantomData<R>,
}

impl<R: Real> RealShare<R> {
    pub(super) fn new(ranks: u64) -> Self {
        let room = 1 << R::PRECISION;
        let most = match R::PRECISION {
            ..=4 => 1,
            5..=11 => 8,
            _ => u64::MAX,
        };
        let mut share = Share::new(room, true, ranks, |value| value);
        if share.carriers > most {
            share = Share {
                carriers: most,
                ..share
            };
        }
        let each = (room / share.carriers / ranks) as i64;
        let pairs = i64::from(share.carriers > 1);
        share.lowest = -each.max(1);
        share.highest = (each - pairs).max(1 - pairs);
        Self {
            share,
            element: PhantomData,
        }
    }
}

impl<R: Real> Draw for RealShare<R> {
    type Element = R;

    #[inline]
    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> R {
        let turn = turn();
        let value = self.share.value(own, &turn);
        if self.share.carriers == 1 && turn.place == 0 && value == 0 {
            // A lone carrier that carries nothing would be no test at all.
            return R::scaled(self.share.ranks as i64);
        }
        R::scaled(value)
    }
}

/// The same input for the real and for the imaginary part.
pub(super) struct Parts<D>(pub D);

impl<R: Real, D: Draw<Element = R>> Draw for Parts<D> {
    type Element = Complex<R>;

    #[inline]
    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> Complex<R> {
        Complex {
            re: self.0.input(own, &turn),
            im: self.0.input(mix(own), &turn),
        }
    }
}
