//! The two 8-bit floats: `e4m3fn` (4 exponent bits, 3 mantissa bits, no infinity, one NaN per sign) and `e5m2` (an
//! IEEE-like 5/2 split), as in "FP8 Formats for Deep Learning" (arXiv 2209.05433) and `torch.float8_*`.
//!
//! In: bits or a number. Out: the number or the nearest bits, ties to even. Overflow gives NaN for `e4m3fn` and
//! infinity for `e5m2`, as a conversion without saturation does.

/// An 8-bit float with `E` exponent and `M` mantissa bits; `FINITE` ones spend no code on infinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Float8<const M: u32, const FINITE: bool>(pub u8);

/// An element of `torch.float8_e4m3fn`.
pub(super) type E4m3fn = Float8<3, true>;
/// An element of `torch.float8_e5m2`.
pub(super) type E5m2 = Float8<2, false>;

impl<const M: u32, const FINITE: bool> Float8<M, FINITE> {
    /// Exponent bits.
    const E: u32 = 7 - M;
    /// The exponent of the smallest normal number.
    const LOWEST: i32 = 2 - (1 << (Self::E - 1));

    /// Returns the number behind the bits.
    pub(super) fn to_f64(self) -> f64 {
        let exponent = i32::from((self.0 & 0x7f) >> M);
        let mantissa = f64::from(self.0 & ((1 << M) - 1));
        let whole = f64::from(1_u32 << M);
        let magnitude = if Self::is_not_finite(self.0) {
            if !FINITE && mantissa == 0.0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        } else if exponent == 0 {
            mantissa / whole * f64::powi(2.0, Self::LOWEST)
        } else {
            (1.0 + mantissa / whole) * f64::powi(2.0, exponent - 1 + Self::LOWEST)
        };
        if self.0 & 0x80 == 0 {
            magnitude
        } else {
            -magnitude
        }
    }

    /// Returns the nearest bits, ties to even.
    pub(super) fn from_f64(value: f64) -> Self {
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        let magnitude = value.abs();
        if magnitude.is_nan() {
            return Self(sign | 0x7f);
        }
        let overflow = if FINITE { 0x7f } else { 0x7c };
        if magnitude.is_infinite() {
            return Self(sign | overflow);
        }
        let exponent = (((magnitude.to_bits() >> 52) as i32) - 1023).max(Self::LOWEST);
        // Exact: a power of two times a number with 53 bits.
        let quanta = (magnitude * f64::powi(2.0, M as i32 - exponent)).round_ties_even();
        // A mantissa that rounds up to the next power of two carries into the exponent by itself.
        let code = ((exponent - Self::LOWEST) << M) + quanta as i32;
        let largest = if FINITE { 0x7e } else { 0x7b };
        if code > largest {
            Self(sign | overflow)
        } else {
            Self(sign | code as u8)
        }
    }

    /// Returns true if the bits are an infinity or a NaN.
    pub(super) fn is_not_finite(bits: u8) -> bool {
        if FINITE {
            bits & 0x7f == 0x7f
        } else {
            bits & 0x7f >= 0x7c
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{E4m3fn, E5m2};

    /// The crate `float8` is an independent implementation of both formats.
    #[test]
    fn every_code_means_what_the_float8_crate_says() {
        for bits in 0..=255_u8 {
            let pairs = [
                (
                    E4m3fn::to_f64(super::Float8(bits)),
                    float8::F8E4M3::from_bits(bits).to_f64(),
                ),
                (
                    E5m2::to_f64(super::Float8(bits)),
                    float8::F8E5M2::from_bits(bits).to_f64(),
                ),
            ];
            for (ours, theirs) in pairs {
                assert!(
                    ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                    "{bits:#04x}: {ours} {theirs}"
                );
            }
        }
    }

    /// Values from table 1 of arXiv 2209.05433.
    #[test]
    fn the_landmarks_of_the_paper_hold() {
        assert_eq!(super::Float8::<3, true>(0x7e).to_f64(), 448.0);
        assert_eq!(super::Float8::<3, true>(0x08).to_f64(), f64::powi(2.0, -6));
        assert_eq!(super::Float8::<3, true>(0x01).to_f64(), f64::powi(2.0, -9));
        assert_eq!(super::Float8::<2, false>(0x7b).to_f64(), 57344.0);
        assert_eq!(
            super::Float8::<2, false>(0x04).to_f64(),
            f64::powi(2.0, -14)
        );
        assert_eq!(
            super::Float8::<2, false>(0x01).to_f64(),
            f64::powi(2.0, -16)
        );
    }

    #[test]
    fn every_finite_code_survives_the_round_trip_and_midpoints_go_to_even() {
        for bits in 0..=255_u8 {
            if !E4m3fn::is_not_finite(bits) {
                assert_eq!(
                    E4m3fn::from_f64(super::Float8::<3, true>(bits).to_f64()).0,
                    bits
                );
            }
            if !E5m2::is_not_finite(bits) {
                assert_eq!(
                    E5m2::from_f64(super::Float8::<2, false>(bits).to_f64()).0,
                    bits
                );
            }
        }
        for bits in 0..0x7e_u8 {
            let (low, high) = (
                super::Float8::<3, true>(bits),
                super::Float8::<3, true>(bits + 1),
            );
            let middle = f64::midpoint(low.to_f64(), high.to_f64());
            let even = if bits % 2 == 0 { bits } else { bits + 1 };
            assert_eq!(E4m3fn::from_f64(middle).0, even);
            assert_eq!(E4m3fn::from_f64(middle.next_down()).0, bits);
            assert_eq!(E4m3fn::from_f64(middle.next_up()).0, bits + 1);
        }
        assert_eq!(E4m3fn::from_f64(1e9).0, 0x7f);
        assert_eq!(E5m2::from_f64(-1e9).0, 0xfc);
    }
}
