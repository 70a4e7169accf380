//! Sums and products to about 106 bits: pairs of `f64` whose unevaluated sum is the value.
//!
//! Two-sum and two-product are those of Knuth and of Dekker (with a fused multiply-add); Hida, Li and Bailey, "Library
//! for Double-Double and Quad-Double Arithmetic" (2007), section 2. The error is far below anything a bound of this
//! oracle can see, so results count as exact.

/// A value of about 106 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DoubleDouble {
    high: f64,
    low: f64,
}

impl From<f64> for DoubleDouble {
    fn from(value: f64) -> Self {
        Self {
            high: value,
            low: 0.0,
        }
    }
}

impl DoubleDouble {
    /// Returns the sum with a number.
    pub(super) fn plus(self, other: f64) -> Self {
        let sum = self.high + other;
        let part = sum - self.high;
        let error = (self.high - (sum - part)) + (other - part);
        Self::of(sum, error + self.low)
    }

    /// Returns the sum with another.
    pub(super) fn and(self, other: Self) -> Self {
        self.plus(other.high).plus(other.low)
    }

    /// Returns the product with a number.
    pub(super) fn times(self, other: f64) -> Self {
        let product = self.high * other;
        let error = self.high.mul_add(other, -product);
        Self::of(product, self.low.mul_add(other, error))
    }

    /// Returns the quotient by a number.
    pub(super) fn over(self, other: f64) -> Self {
        let quotient = self.high / other;
        let rest = (-quotient).mul_add(other, self.high) + self.low;
        Self::of(quotient, rest / other)
    }

    /// Returns a number near this value, less this value.
    pub(super) fn error_of(self, number: f64) -> f64 {
        (number - self.high) - self.low
    }

    /// Returns the nearest `f64`.
    pub(super) fn to_f64(self) -> f64 {
        self.high
    }

    /// Returns the sum of two parts, the first the larger.
    fn of(high: f64, low: f64) -> Self {
        let sum = high + low;
        Self {
            high: sum,
            low: low - (sum - high),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DoubleDouble;

    #[test]
    fn what_cancels_leaves_what_was_added() {
        let tiny = f64::powi(2.0, -60);
        let sum = DoubleDouble::from(1.0).plus(tiny).plus(-1.0);
        assert_eq!(sum.to_f64(), tiny);
        let third = DoubleDouble::from(1.0).over(3.0).times(3.0).plus(-1.0);
        assert!(third.to_f64().abs() < f64::powi(2.0, -100));
        let square = DoubleDouble::from(1.0 + f64::EPSILON).times(1.0 + f64::EPSILON);
        assert_eq!(
            square.plus(-1.0).plus(-2.0 * f64::EPSILON).to_f64(),
            f64::EPSILON * f64::EPSILON
        );
    }
}
