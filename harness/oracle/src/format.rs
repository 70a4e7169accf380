//! Elements as numbers, for tolerances, and as text, for messages.

use half::{bf16, f16};
use strum::VariantArray;

use super::float8::{E4m3fn, E5m2};
use super::number::{Complex, Number, Real};
use allranks_model::dtype::DType;

/// Returns the numbers in an element as `f64`s, real part first; `None` for the part a real number has not. Exact, except for
/// 64-bit integers, and meant for tolerances and for messages.
pub(super) fn parts(dtype: DType, bytes: &[u8]) -> (f64, Option<f64>) {
    match dtype {
        DType::Float64 => (f64::load(bytes), None),
        DType::Float32 => (f64::from(f32::load(bytes)), None),
        DType::Float16 => (f16::load(bytes).to_f64(), None),
        DType::Bfloat16 => (bf16::load(bytes).to_f64(), None),
        DType::Float8E4m3fn => (E4m3fn::load(bytes).to_f64(), None),
        DType::Float8E5m2 => (E5m2::load(bytes).to_f64(), None),
        DType::Int8 => (f64::from(i8::load(bytes)), None),
        DType::Int16 => (f64::from(i16::load(bytes)), None),
        DType::Int32 => (f64::from(i32::load(bytes)), None),
        DType::Int64 => (i64::load(bytes) as f64, None),
        DType::Uint8 | DType::Bool => (f64::from(bytes[0]), None),
        DType::Uint16 => (f64::from(u16::load(bytes)), None),
        DType::Uint32 => (f64::from(u32::load(bytes)), None),
        DType::Uint64 => (u64::load(bytes) as f64, None),
        DType::Complex64 => {
            let Complex { re, im } = Complex::<f32>::load(bytes);
            (f64::from(re), Some(f64::from(im)))
        }
        DType::Complex128 => {
            let Complex { re, im } = Complex::<f64>::load(bytes);
            (re, Some(im))
        }
    }
}

/// Formats an element for messages; bits that a number does not show (NaN payloads, bools that are neither 0 nor 1) are
/// added in hexadecimal.
pub(super) fn format_element(dtype: DType, bytes: &[u8]) -> String {
    let hex = || {
        bytes
            .iter()
            .rev()
            .fold(String::from("0x"), |text, byte| format!("{text}{byte:02x}"))
    };
    match dtype {
        DType::Int64 => return i64::load(bytes).to_string(),
        DType::Uint64 => return u64::load(bytes).to_string(),
        DType::Bool if bytes[0] > 1 => return format!("bool {}", hex()),
        DType::Float32 if !f32::load(bytes).is_nan() => return f32::load(bytes).to_string(),
        _ => {}
    }
    match parts(dtype, bytes) {
        (re, None) if re.is_nan() => format!("NaN ({})", hex()),
        (re, None) => re.to_string(),
        (re, Some(im)) if re.is_nan() || im.is_nan() => format!("{re}{im:+}j ({})", hex()),
        (re, Some(im)) => format!("{re}{im:+}j"),
    }
}

/// Bits of significand of a float, or of a complex number's parts; none for other dtypes.
pub(super) fn precision(dtype: DType) -> Option<u32> {
    match dtype {
        DType::Float64 | DType::Complex128 => Some(f64::PRECISION),
        DType::Float32 | DType::Complex64 => Some(f32::PRECISION),
        DType::Float16 => Some(f16::PRECISION),
        DType::Bfloat16 => Some(bf16::PRECISION),
        DType::Float8E4m3fn => Some(E4m3fn::PRECISION),
        DType::Float8E5m2 => Some(E5m2::PRECISION),
        DType::Int8
        | DType::Int16
        | DType::Int32
        | DType::Int64
        | DType::Uint8
        | DType::Uint16
        | DType::Uint32
        | DType::Uint64
        | DType::Bool => None,
    }
}

/// A type that values are rounded to in order to save bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Narrow {
    Float32,
    Float16,
    Bfloat16,
}

impl Narrow {
    pub(super) const ALL: &[Self] = Self::VARIANTS;

    pub(super) fn name(self) -> &'static str {
        self.into()
    }

    /// Returns a wider element rounded to it; none if the element is no wider.
    pub(super) fn rounded(self, dtype: DType, bits: u128) -> Option<u128> {
        let round = |value: f64| match self {
            Self::Float32 => f64::from(value as f32),
            Self::Float16 => f16::from_f64(value).to_f64(),
            Self::Bfloat16 => bf16::from_f64(value).to_f64(),
        };
        match dtype {
            DType::Float64 => Some(round(f64::from_bits(bits as u64)).to_bits().into()),
            DType::Float32 if self != Self::Float32 => {
                let value = round(f32::from_bits(bits as u32).into()) as f32;
                Some(value.to_bits().into())
            }
            _ => None,
        }
    }
}
