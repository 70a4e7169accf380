//! The tensor dtypes and reduce operators of `torch.distributed`: names, sizes, and which pairs have a defined result. Arithmetic
//! on them is in the crate `allranks-oracle`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// A tensor dtype, named as in `torch.<name>`.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are torch's own dtype names")]
#[strum(serialize_all = "snake_case")]
pub enum DType {
    Float64,
    Float32,
    Float16,
    Bfloat16,
    #[serde(rename = "float8_e4m3fn")]
    Float8E4m3fn,
    #[serde(rename = "float8_e5m2")]
    Float8E5m2,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Bool,
    Complex64,
    Complex128,
}

/// The kind of number a dtype holds; it decides which reduce operators have a defined result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DTypeKind {
    /// IEEE-like binary floating point, any width.
    Float,
    /// Two's-complement integers.
    Signed,
    /// Unsigned integers.
    Unsigned,
    /// One byte, 0 or 1.
    Bool,
    /// A pair of floats, real then imaginary.
    Complex,
}

impl DType {
    /// Every dtype, widest floats first.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the name in `torch.<name>`, in case files and in the rank protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the size of one element in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 | Self::Bool | Self::Float8E4m3fn | Self::Float8E5m2 => 1,
            Self::Float16 | Self::Bfloat16 | Self::Int16 | Self::Uint16 => 2,
            Self::Float32 | Self::Int32 | Self::Uint32 => 4,
            Self::Float64 | Self::Int64 | Self::Uint64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
        }
    }

    /// Returns the kind of number that the dtype holds.
    #[must_use]
    pub fn kind(self) -> DTypeKind {
        match self {
            Self::Float64
            | Self::Float32
            | Self::Float16
            | Self::Bfloat16
            | Self::Float8E4m3fn
            | Self::Float8E5m2 => DTypeKind::Float,
            Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64 => DTypeKind::Signed,
            Self::Uint8 | Self::Uint16 | Self::Uint32 | Self::Uint64 => DTypeKind::Unsigned,
            Self::Bool => DTypeKind::Bool,
            Self::Complex64 | Self::Complex128 => DTypeKind::Complex,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A reduce operator, named as in `torch.distributed.ReduceOp`, in lower case.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are torch's own operator names")]
#[strum(serialize_all = "snake_case")]
pub enum ReduceOp {
    Sum,
    Avg,
    Product,
    Min,
    Max,
    Band,
    Bor,
    Bxor,
    PremulSum,
}

impl ReduceOp {
    /// Every reduce operator, in the order of the case schema.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the name in case files and in the rank protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns true if the operator on this dtype has one mathematical meaning, so that an expected value exists.
    ///
    /// - complex numbers have no order and no bits: `sum`, `avg`, `product`, `premul_sum` only;
    /// - floats have no bitwise operators;
    /// - integers have no `premul_sum` (the factor is a float: `torch.distributed._make_nccl_premul_sum`);
    /// - bool has no arithmetic: backends disagree on whether `sum` is `or` or wraps, so only the operators that
    ///   are closed on {0, 1} have a value.
    #[must_use]
    pub fn is_defined_for(self, dtype: DType) -> bool {
        match dtype.kind() {
            DTypeKind::Float => !matches!(self, Self::Band | Self::Bor | Self::Bxor),
            DTypeKind::Signed | DTypeKind::Unsigned => !matches!(self, Self::PremulSum),
            DTypeKind::Bool => matches!(
                self,
                Self::Min | Self::Max | Self::Band | Self::Bor | Self::Bxor
            ),
            DTypeKind::Complex => matches!(
                self,
                Self::Sum | Self::Avg | Self::Product | Self::PremulSum
            ),
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_reduce_op_and_bool_has_no_arithmetic() {
        for dtype in DType::ALL.iter().copied() {
            assert!(ReduceOp::ALL.iter().any(|op| op.is_defined_for(dtype)));
        }
        assert!(!ReduceOp::Sum.is_defined_for(DType::Bool));
        assert!(!ReduceOp::Band.is_defined_for(DType::Float32));
        assert!(!ReduceOp::Max.is_defined_for(DType::Complex64));
    }
}
