//! The element types: how each of the 17 dtypes is stored and how it adds, multiplies and compares.
//!
//! In: little-endian bytes. Out: the same. Everything generic over [`Number`] is compiled once for each type, so that
//! no inner loop looks at a dtype.

use half::{bf16, f16};

use super::float8::{E4m3fn, E5m2, Float8};

/// An element.
pub(super) trait Number: Copy + PartialEq + 'static {
    /// Bytes.
    const SIZE: usize;

    /// Reads an element from exactly [`Self::SIZE`] bytes.
    fn load(bytes: &[u8]) -> Self;
    /// Writes an element to exactly [`Self::SIZE`] bytes.
    fn store(self, bytes: &mut [u8]);
}

/// An element that can be added and multiplied.
pub(super) trait Ring: Number {
    /// Sum; wraps around on integers.
    fn plus(self, other: Self) -> Self;
    /// Product; wraps around on integers.
    fn times(self, other: Self) -> Self;
    /// Returns the number itself, rounded if it has to be; wraps around on integers.
    fn from_i64(value: i64) -> Self;
}

/// An element with an order.
pub(super) trait Ordered: Number {
    /// Returns true if it is smaller; never with NaN.
    fn below(self, other: Self) -> bool;
    /// Returns true if it is NaN.
    fn is_unordered(self) -> bool {
        false
    }
}

/// An element made of independent bits.
pub(super) trait Bits: Number {
    /// Returns the low bits of a word.
    fn from_word(word: u64) -> Self;
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
    /// Bitwise or.
    fn or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    fn xor(self, other: Self) -> Self;
}

/// A binary floating-point element.
pub(super) trait Real: Ring + Ordered {
    /// Bits of significand, the implicit one included; every integer up to `2^PRECISION` is exact.
    const PRECISION: u32;
    /// The lowest and the highest exponent at which every significand is a finite normal number.
    const EXPONENTS: (i32, i32);

    /// Returns the nearest value, ties to even.
    fn from_f64(value: f64) -> Self;
    /// Returns the value; exact.
    fn to_f64(self) -> f64;
    /// `value` times a power of two that gives it a fraction, for `|value| <= 2^PRECISION`; exact.
    fn scaled(value: i64) -> Self;
}

/// An integer element.
pub(super) trait Integer: Ring + Ordered + Bits {
    /// The largest value.
    const LARGEST: u64;
    /// Whether it has negative values.
    const SIGNED: bool;

    /// Returns the quotient, truncated towards zero; `by` is positive.
    fn divide(self, by: u64) -> Self;
    /// Returns the integer that this number holds.
    fn to_i128(self) -> i128;
}

macro_rules! native {
    ($($type:ty),*) => {$(
        impl Number for $type {
            const SIZE: usize = size_of::<$type>();

            fn load(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("an element's bytes"))
            }

            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }

        impl Ordered for $type {
            fn below(self, other: Self) -> bool {
                self < other
            }

            fn is_unordered(self) -> bool {
                self.partial_cmp(&self).is_none()
            }
        }
    )*};
}

native!(f64, f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! integer {
    ($($type:ty: $signed:literal),*) => {$(
        impl Ring for $type {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn from_i64(value: i64) -> Self {
                value as Self
            }
        }

        impl Bits for $type {
            fn from_word(word: u64) -> Self {
                word as Self
            }

            fn and(self, other: Self) -> Self {
                self & other
            }

            fn or(self, other: Self) -> Self {
                self | other
            }

            fn xor(self, other: Self) -> Self {
                self ^ other
            }
        }

        impl Integer for $type {
            const LARGEST: u64 = <$type>::MAX as u64;
            const SIGNED: bool = $signed;

            fn divide(self, by: u64) -> Self {
                (self.to_i128() / i128::from(by)) as Self
            }

            fn to_i128(self) -> i128 {
                i128::from(self)
            }
        }
    )*};
}

integer!(i8: true, i16: true, i32: true, i64: true, u8: false, u16: false, u32: false, u64: false);

macro_rules! real {
    ($($type:ty: $precision:literal, $scale:literal, $exponents:expr, $from:expr, $to:expr;)*) => {$(
        impl Ring for $type {
            fn plus(self, other: Self) -> Self {
                self + other
            }

            fn times(self, other: Self) -> Self {
                self * other
            }

            fn from_i64(value: i64) -> Self {
                Self::from_f64(value as f64)
            }
        }

        impl Real for $type {
            const PRECISION: u32 = $precision;
            const EXPONENTS: (i32, i32) = $exponents;

            fn from_f64(value: f64) -> Self {
                let from: fn(f64) -> Self = $from;
                from(value)
            }

            fn to_f64(self) -> f64 {
                let to: fn(Self) -> f64 = $to;
                to(self)
            }

            fn scaled(value: i64) -> Self {
                const FACTOR: f64 = power_of_two($scale);
                // Processors convert narrow integers several at a time.
                let value = if $precision <= 24 { f64::from(value as i32) } else { value as f64 };
                Self::from_f64(value * FACTOR)
            }
        }
    )*};
}

const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

real! {
    f64: 53, -4, (-1022, 1023), |value| value, |value| value;
    f32: 24, -4, (-126, 127), |value| value as f32, f64::from;
    f16: 11, -4, (-14, 15), f16::from_f64, f16::to_f64;
    bf16: 8, -4, (-126, 127), bf16::from_f64, bf16::to_f64;
    E4m3fn: 4, -1, (-6, 7), E4m3fn::from_f64, E4m3fn::to_f64;
    E5m2: 3, -1, (-14, 15), E5m2::from_f64, E5m2::to_f64;
}

impl<const M: u32, const FINITE: bool> Number for Float8<M, FINITE> {
    const SIZE: usize = 1;

    fn load(bytes: &[u8]) -> Self {
        Self(bytes[0])
    }

    fn store(self, bytes: &mut [u8]) {
        bytes[0] = self.0;
    }
}

impl<const M: u32, const FINITE: bool> Ordered for Float8<M, FINITE> {
    fn below(self, other: Self) -> bool {
        self.to_f64() < other.to_f64()
    }

    fn is_unordered(self) -> bool {
        self.to_f64().is_nan()
    }
}

impl<const M: u32, const FINITE: bool> std::ops::Add for Float8<M, FINITE> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::from_f64(self.to_f64() + other.to_f64())
    }
}

impl<const M: u32, const FINITE: bool> std::ops::Mul for Float8<M, FINITE> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self::from_f64(self.to_f64() * other.to_f64())
    }
}

/// A bool as torch stores it: one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bool(pub u8);

impl Number for Bool {
    const SIZE: usize = 1;

    fn load(bytes: &[u8]) -> Self {
        Self(bytes[0])
    }

    fn store(self, bytes: &mut [u8]) {
        bytes[0] = self.0;
    }
}

impl Ordered for Bool {
    fn below(self, other: Self) -> bool {
        self.0 < other.0
    }
}

impl Bits for Bool {
    fn from_word(word: u64) -> Self {
        Self((word & 1) as u8)
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn xor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

/// A complex number: real part first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Complex<R> {
    /// The real part.
    pub re: R,
    /// The imaginary part.
    pub im: R,
}

impl<R: Real> Number for Complex<R> {
    const SIZE: usize = 2 * R::SIZE;

    fn load(bytes: &[u8]) -> Self {
        let (re, im) = bytes.split_at(R::SIZE);
        Self {
            re: R::load(re),
            im: R::load(im),
        }
    }

    fn store(self, bytes: &mut [u8]) {
        let (re, im) = bytes.split_at_mut(R::SIZE);
        self.re.store(re);
        self.im.store(im);
    }
}

impl<R: Real> Ring for Complex<R> {
    fn plus(self, other: Self) -> Self {
        Self {
            re: self.re.plus(other.re),
            im: self.im.plus(other.im),
        }
    }

    fn times(self, other: Self) -> Self {
        let minus = |value: R| value.times(R::from_i64(-1));
        Self {
            re: self.re.times(other.re).plus(minus(self.im.times(other.im))),
            im: self.re.times(other.im).plus(self.im.times(other.re)),
        }
    }

    fn from_i64(value: i64) -> Self {
        Self {
            re: R::from_i64(value),
            im: R::from_i64(0),
        }
    }
}
