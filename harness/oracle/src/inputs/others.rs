//! Values to be multiplied, compared, combined bit by bit, or only moved.

use std::marker::PhantomData;

use super::{CommonDraw, Draw};
use crate::hash::{below, mix};
use crate::number::{Bits, Bool, Complex, Integer, Number, Real, Ring};

/// Numbers to be multiplied: at each index three ranks carry a factor and the others carry 1 or -1, so that no product
/// overflows or rounds, whatever the order.
pub(super) struct Factor<T> {
    /// Factors of the three carriers: the first carries an odd number of at most three bits.
    tables: [[i64; 4]; 3],
    signed: bool,
    element: PhantomData<T>,
}

impl<T: Ring> Factor<T> {
    /// `wide`: seven bits of significand hold the product. Otherwise only the first factor is not a power of two.
    pub(super) fn new(wide: bool, signed: bool) -> Self {
        Self {
            tables: if wide {
                [[3, 5, 6, 7], [2, 3, 4, 5], [2, 3, 2, 3]]
            } else {
                [[3, 5, 6, 7], [2, 4, 2, 4], [2, 4, 2, 4]]
            },
            signed,
            element: PhantomData,
        }
    }
}

impl<T: Ring> Draw for Factor<T> {
    type Element = T;

    #[inline]
    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> T {
        let factor = match self.tables.get(turn().place as usize) {
            Some(table) => table[(own >> 62) as usize],
            None => 1,
        };
        let negative = self.signed && own & 1 == 1;
        T::from_i64(if negative { -factor } else { factor })
    }
}

/// Complex numbers to be multiplied: three Gaussian integers at each index, and units.
pub(super) struct GaussianFactor<R>(PhantomData<R>);

impl<R> Default for GaussianFactor<R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R: Real> Draw for GaussianFactor<R> {
    type Element = Complex<R>;

    #[inline]
    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> Complex<R> {
        const TABLES: [[(i64, i64); 2]; 3] = [[(3, 2), (1, 4)], [(2, 1), (1, 2)], [(1, 1), (2, 1)]];
        let (re, im) = match TABLES.get(turn().place as usize) {
            Some(table) => table[(own >> 63) as usize],
            None => (1, 0),
        };
        // A quarter turn for each of two bits.
        let (re, im) = match own & 3 {
            0 => (re, im),
            1 => (-im, re),
            2 => (-re, -im),
            _ => (im, -re),
        };
        Complex {
            re: R::from_i64(re),
            im: R::from_i64(im),
        }
    }
}

/// Floats to be compared: normal values of every exponent and either sign, and for the rank whose turn it is one that nearly
/// always wins, so that every rank matters. NaN, zeros and denormals, on which backends differ, belong to
/// [`Special`](super::special::Special).
pub(super) struct Finite<R> {
    largest_wins: bool,
    element: PhantomData<R>,
}

impl<R> Finite<R> {
    pub(super) fn new(largest_wins: bool) -> Self {
        Self {
            largest_wins,
            element: PhantomData,
        }
    }
}

impl<R: Real> Draw for Finite<R> {
    type Element = R;

    #[inline]
    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> R {
        let (lowest, highest) = R::EXPONENTS;
        let mut exponent = below(own, (highest - lowest) as u64 + 1) as i64 + i64::from(lowest);
        let mut negative = own & 1 == 1;
        let turn = turn();
        let wins = turn.place == 0;
        if turn.is_beyond_zero() {
            negative = self.largest_wins;
            if wins {
                exponent = exponent.min(i64::from(lowest) + 1);
            }
        } else if wins {
            exponent = exponent.max(i64::from(highest) - 1);
            negative = !self.largest_wins;
        }
        let dropped = 53 - R::PRECISION;
        let fraction = mix(own) >> 12 >> dropped << dropped;
        let sign = u64::from(negative) << 63;
        R::from_f64(f64::from_bits(
            sign | ((exponent + 1023) as u64) << 52 | fraction,
        ))
    }
}

/// Integers to be compared: any, and for the rank whose turn it is one among the sixteenth that wins. At some indices all ranks'
/// are on the side of zero that loses.
pub(super) struct Extreme<I> {
    largest_wins: bool,
    element: PhantomData<I>,
}

impl<I> Extreme<I> {
    pub(super) fn new(largest_wins: bool) -> Self {
        Self {
            largest_wins,
            element: PhantomData,
        }
    }
}

impl<I: Integer> Draw for Extreme<I> {
    type Element = I;

    #[inline]
    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> I {
        let turn = turn();
        let near = below(own, (I::LARGEST >> 3) + 1);
        if I::SIGNED && turn.is_beyond_zero() {
            let from_zero = if turn.place == 0 {
                near
            } else {
                own & I::LARGEST
            };
            return I::from_word(if self.largest_wins {
                !from_zero
            } else {
                from_zero
            });
        }
        if turn.place != 0 {
            return I::from_word(own);
        }
        let lowest = if I::SIGNED { !I::LARGEST } else { 0 };
        I::from_word(if self.largest_wins {
            I::LARGEST - near
        } else {
            lowest.wrapping_add(near)
        })
    }
}

/// Bools of which, at most indices, one rank's decides: the rank whose turn it is holds this value and the others the
/// opposite. At some indices no rank holds it, or two ranks do.
pub(super) struct OneDecides(pub bool);

impl Draw for OneDecides {
    type Element = Bool;

    #[inline]
    fn input(&self, _: u64, turn: impl Fn() -> CommonDraw) -> Bool {
        let CommonDraw { word, place, .. } = turn();
        let holders = match word >> 60 {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        Bool(u8::from((place < holders) == self.0))
    }
}

/// A generator of elements with any bit pattern.
pub(super) struct AnyBits<B>(PhantomData<B>);

impl<B> Default for AnyBits<B> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<B: Bits> Draw for AnyBits<B> {
    type Element = B;

    #[inline]
    fn input(&self, own: u64, _: impl Fn() -> CommonDraw) -> B {
        B::from_word(own)
    }
}

/// Integers in which nearly all bits are alike, mostly 1 or mostly 0, so that neither `and` nor `or` over many ranks makes all
/// bits equal.
pub(super) struct SkewedBits<B> {
    thinning: u32,
    ones: bool,
    element: PhantomData<B>,
}

impl<B: Bits> SkewedBits<B> {
    /// One bit in `2^thinning` is 0.
    pub(super) fn mostly_ones(thinning: u32) -> Self {
        Self {
            thinning,
            ones: true,
            element: PhantomData,
        }
    }

    /// One bit in `2^thinning` is 1.
    pub(super) fn mostly_zeros(thinning: u32) -> Self {
        Self {
            ones: false,
            ..Self::mostly_ones(thinning)
        }
    }
}

impl<B: Bits> Draw for SkewedBits<B> {
    type Element = B;

    #[inline]
    fn input(&self, own: u64, _: impl Fn() -> CommonDraw) -> B {
        let (mut rare, mut word) = (own, own);
        for _ in 1..self.thinning {
            word = mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15));
            rare &= word;
        }
        B::from_word(if self.ones { !rare } else { rare })
    }
}

/// Float bits to be moved: every pattern, with infinities, NaNs of any payload and denormals more often than chance
/// would have them. `E` exponent bits over `M` mantissa bits.
pub(super) struct Pattern<B, const E: u32, const M: u32>(PhantomData<B>);

impl<B, const E: u32, const M: u32> Default for Pattern<B, E, M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<B: Bits, const E: u32, const M: u32> Draw for Pattern<B, E, M> {
    type Element = B;

    #[inline]
    fn input(&self, own: u64, _: impl Fn() -> CommonDraw) -> B {
        let exponent = ((1_u64 << E) - 1) << M;
        B::from_word(match own >> 60 {
            0 => own | exponent,
            1 => own & !exponent,
            _ => own,
        })
    }
}

/// Float bits that copying through a floating-point register may change: signalling and quiet NaNs with a payload, of either
/// sign, denormals, and negative zeros. `E` exponent bits over `M` mantissa bits.
pub(super) struct FragileBits<B, const E: u32, const M: u32>(PhantomData<B>);

impl<B, const E: u32, const M: u32> Default for FragileBits<B, E, M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<B: Bits, const E: u32, const M: u32> Draw for FragileBits<B, E, M> {
    type Element = B;

    fn input(&self, own: u64, _: impl Fn() -> CommonDraw) -> B {
        let exponent = ((1_u64 << E) - 1) << M;
        let quiet = 1_u64 << (M - 1);
        let sign = 1_u64 << (E + M);
        B::from_word(match own >> 61 {
            0..=2 => own & !quiet | exponent | 1,
            3 | 4 => own | exponent | quiet,
            5 => own & !exponent,
            6 => sign,
            _ => own,
        })
    }
}

/// Two independent elements side by side, as complex numbers are stored.
pub(super) struct Pair<D>(pub D);

/// Two elements.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Both<T>(T, T);

impl<T: Number> Number for Both<T> {
    const SIZE: usize = 2 * T::SIZE;

    fn load(bytes: &[u8]) -> Self {
        let (first, second) = bytes.split_at(T::SIZE);
        Self(T::load(first), T::load(second))
    }

    fn store(self, bytes: &mut [u8]) {
        let (first, second) = bytes.split_at_mut(T::SIZE);
        self.0.store(first);
        self.1.store(second);
    }
}

impl<D: Draw> Draw for Pair<D> {
    type Element = Both<D::Element>;

    #[inline]
    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> Self::Element {
        Both(self.0.input(own, &turn), self.0.input(mix(own), &turn))
    }
}
