//! Arithmetic of the second implementation: one element at a time, in `f64` and `i128`, sharing no code with the oracle.

use allranks_model::dtype::{DType, DTypeKind, ReduceOp};

/// A number, wide enough for every dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    Whole(i128),
    Float(f64),
    Complex(f64, f64),
}

fn float(bits: u64, exponent_bits: u32, mantissa_bits: u32) -> f64 {
    let bias = (1 << (exponent_bits - 1)) - 1;
    let mantissa =
        (bits & ((1 << mantissa_bits) - 1)) as f64 / f64::powi(2.0, mantissa_bits as i32);
    let exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let negative = bits >> (mantissa_bits + exponent_bits) & 1 == 1;
    let value = match exponent {
        0 => mantissa * f64::powi(2.0, 1 - bias),
        top if top == (1 << exponent_bits) - 1 && mantissa != 0.0 => f64::NAN,
        top if top == (1 << exponent_bits) - 1 => f64::INFINITY,
        _ => (1.0 + mantissa) * f64::powi(2.0, exponent as i32 - bias),
    };
    if negative { -value } else { value }
}

pub fn decode(dtype: DType, bytes: &[u8]) -> Scalar {
    let mut word = [0; 8];
    let low = &bytes[..bytes.len().min(8)];
    word[..low.len()].copy_from_slice(low);
    let bits = u64::from_le_bytes(word);
    let part = |at: usize, size: usize| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(&bytes[at..at + size]);
        u64::from_le_bytes(word)
    };
    match dtype {
        DType::Float64 => Scalar::Float(f64::from_bits(bits)),
        DType::Float32 => Scalar::Float(float(bits, 8, 23)),
        DType::Float16 => Scalar::Float(float(bits, 5, 10)),
        DType::Bfloat16 => Scalar::Float(float(bits, 8, 7)),
        DType::Float8E4m3fn => Scalar::Float(float8::F8E4M3::from_bits(bytes[0]).to_f64()),
        DType::Float8E5m2 => Scalar::Float(float(bits, 5, 2)),
        DType::Int8 => Scalar::Whole(i128::from(bits as u8 as i8)),
        DType::Int16 => Scalar::Whole(i128::from(bits as u16 as i16)),
        DType::Int32 => Scalar::Whole(i128::from(bits as u32 as i32)),
        DType::Int64 => Scalar::Whole(i128::from(bits as i64)),
        DType::Uint8 | DType::Uint16 | DType::Uint32 | DType::Uint64 | DType::Bool => {
            Scalar::Whole(i128::from(bits))
        }
        DType::Complex64 => Scalar::Complex(float(part(0, 4), 8, 23), float(part(4, 4), 8, 23)),
        DType::Complex128 => {
            Scalar::Complex(f64::from_bits(part(0, 8)), f64::from_bits(part(8, 8)))
        }
    }
}

pub fn encode(dtype: DType, value: Scalar) -> Vec<u8> {
    match (dtype, value) {
        (DType::Float64, Scalar::Float(value)) => value.to_le_bytes().to_vec(),
        (DType::Float32, Scalar::Float(value)) => (value as f32).to_le_bytes().to_vec(),
        (DType::Float16, Scalar::Float(value)) => half::f16::from_f64(value).to_le_bytes().to_vec(),
        (DType::Bfloat16, Scalar::Float(value)) => {
            half::bf16::from_f64(value).to_le_bytes().to_vec()
        }
        (DType::Float8E4m3fn, Scalar::Float(value)) => {
            vec![float8::F8E4M3::from_f64(value).to_bits()]
        }
        (DType::Float8E5m2, Scalar::Float(value)) => {
            vec![float8::F8E5M2::from_f64(value).to_bits()]
        }
        (DType::Complex64, Scalar::Complex(re, im)) => {
            [(re as f32).to_le_bytes(), (im as f32).to_le_bytes()].concat()
        }
        (DType::Complex128, Scalar::Complex(re, im)) => {
            [re.to_le_bytes(), im.to_le_bytes()].concat()
        }
        (_, Scalar::Whole(value)) => value.to_le_bytes()[..dtype.size()].to_vec(),
        _ => panic!("{value:?} is no {dtype}"),
    }
}

fn pairwise(op: ReduceOp, a: Scalar, b: Scalar) -> Scalar {
    use Scalar::{Complex, Float, Whole};
    match (op, a, b) {
        (ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum, Whole(a), Whole(b)) => Whole(a + b),
        (ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum, Float(a), Float(b)) => Float(a + b),
        (ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum, Complex(a, b), Complex(c, d)) => {
            Complex(a + c, b + d)
        }
        (ReduceOp::Product, Whole(a), Whole(b)) => Whole(a.wrapping_mul(b)),
        (ReduceOp::Product, Float(a), Float(b)) => Float(a * b),
        (ReduceOp::Product, Complex(a, b), Complex(c, d)) => Complex(a * c - b * d, a * d + b * c),
        (ReduceOp::Min, Whole(a), Whole(b)) => Whole(a.min(b)),
        (ReduceOp::Min, Float(a), Float(b)) => Float(a.min(b)),
        (ReduceOp::Max, Whole(a), Whole(b)) => Whole(a.max(b)),
        (ReduceOp::Max, Float(a), Float(b)) => Float(a.max(b)),
        (ReduceOp::Band, Whole(a), Whole(b)) => Whole(a & b),
        (ReduceOp::Bor, Whole(a), Whole(b)) => Whole(a | b),
        (ReduceOp::Bxor, Whole(a), Whole(b)) => Whole(a ^ b),
        _ => panic!("{op} of {a:?} and {b:?}"),
    }
}

/// Combines from the last to the first: another order than the oracle's.
pub fn reduce(dtype: DType, op: ReduceOp, divisor: usize, elements: &[Vec<u8>]) -> Vec<u8> {
    let mut values: Vec<Scalar> = elements.iter().map(|bytes| decode(dtype, bytes)).collect();
    if op == ReduceOp::PremulSum {
        values = values.into_iter().map(|value| scale(value, 3.0)).collect();
    }
    let total = values
        .into_iter()
        .rev()
        .reduce(|a, b| pairwise(op, a, b))
        .unwrap();
    let value = match (op, total) {
        (ReduceOp::Avg, total @ Scalar::Whole(_)) => match decode(dtype, &encode(dtype, total)) {
            Scalar::Whole(total) => Scalar::Whole(total / divisor as i128),
            _ => unreachable!(),
        },
        (ReduceOp::Avg, total) => scale(total, 1.0 / divisor as f64),
        (_, total) => total,
    };
    assert!(dtype.kind() != DTypeKind::Bool || matches!(value, Scalar::Whole(0 | 1)));
    encode(dtype, value)
}

pub fn scale(value: Scalar, by: f64) -> Scalar {
    match value {
        Scalar::Whole(value) => Scalar::Whole((value as f64 * by) as i128),
        Scalar::Float(value) => Scalar::Float(value * by),
        Scalar::Complex(re, im) => Scalar::Complex(re * by, im * by),
    }
}
