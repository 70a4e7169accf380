//! Storages: each tensor in one of its own, with a guard band on either side, and sentinels where nothing is given.

use super::data::{Entry, World};
use crate::float8::{E4m3fn, E5m2};
use crate::geometry::GUARD;
use crate::hash::{Key, Stream};
use crate::number::{Number, Real};
use crate::payload::pattern;
use allranks_model::dtype::DType;
use allranks_protocol::Tensor;
use half::{bf16, f16};

/// A tensor in its storage.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// The tensor of the layer that is placed here.
    pub entry: Entry,
    /// Where its elements lie in the rank's payload.
    pub range: std::ops::Range<usize>,
}

impl Placed {
    /// Bytes of its storage.
    pub(super) fn bytes(&self) -> u64 {
        (self.range.len() + 2 * GUARD) as u64
    }

    /// Its storage in the rank's payload.
    pub(super) fn storage(&self) -> std::ops::Range<usize> {
        self.range.start - GUARD..self.range.end + GUARD
    }

    /// Returns true if an element is the one that is wanted, or as near to it as the layer can be.
    pub(super) fn is_near(&self, dtype: DType, wanted: &[u8], got: &[u8]) -> bool {
        // False for NaN, which is near to nothing.
        wanted == got || (number(dtype, wanted) - number(dtype, got)).abs() <= self.entry.within
    }

    /// Returns the view of its elements.
    pub(super) fn tensor(&self, storage: usize, dtype: DType) -> Tensor {
        let shape = self.entry.shape.clone();
        let strides = (0..shape.len())
            .map(|at| shape[at + 1..].iter().map(|size| (*size).max(1)).product())
            .collect();
        Tensor {
            storage,
            dtype,
            shape,
            strides,
            offset: (GUARD / dtype.size()) as u64,
            host: false,
        }
    }
}

/// Lays tensors out, each in a storage; gives them and the rank's payload.
pub(super) fn placed(
    dtype: DType,
    world: World,
    rank: u32,
    entries: Vec<Entry>,
) -> (Vec<Placed>, Vec<u8>) {
    let mut payload = Vec::new();
    let mut tensors = Vec::new();
    for (number, entry) in (0..).zip(entries) {
        let guard = world.key.stream(Stream::Guard, rank, number);
        let band = |from| {
            let mut bytes = [0; GUARD];
            pattern(guard, from, &mut bytes);
            bytes
        };
        payload.extend(band(0));
        let start = payload.len();
        match &entry.before {
            Some(numbers) => payload.extend(encoded(dtype, numbers)),
            None => {
                let words = world.key.stream(Stream::Sentinel, rank, number);
                payload.extend(sentinels(dtype, words, entry.len()));
            }
        }
        let range = start..payload.len();
        payload.extend(band(1 << 32));
        tensors.push(Placed { entry, range });
    }
    (tensors, payload)
}

/// NaNs of many bits, where the type has them: no result is one.
fn sentinels(dtype: DType, words: Key, len: usize) -> Vec<u8> {
    let (bits, size): (u64, usize) = match dtype {
        DType::Float64 => (0x7ff8_0000_0000_0000, 8),
        DType::Float16 => (0x7e00, 2),
        DType::Bfloat16 => (0x7fc0, 2),
        _ => (0x7fc0_0000, 4),
    };
    let element = |index: u64| (words.word(index) | bits).to_le_bytes();
    (0..len as u64)
        .flat_map(|index| element(index).into_iter().take(size))
        .collect()
}

/// Numbers as elements; exact, as all numbers of a layer are.
pub(super) fn encoded(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    match dtype {
        DType::Float64 => stored::<f64>(numbers),
        DType::Float16 => stored::<f16>(numbers),
        DType::Bfloat16 => stored::<bf16>(numbers),
        DType::Float8E4m3fn => stored::<E4m3fn>(numbers),
        DType::Float8E5m2 => stored::<E5m2>(numbers),
        _ => stored::<f32>(numbers),
    }
}

/// Returns the number that an element is.
fn number(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::Float64 => f64::load(bytes).to_f64(),
        DType::Float16 => f16::load(bytes).to_f64(),
        DType::Bfloat16 => bf16::load(bytes).to_f64(),
        DType::Float8E4m3fn => E4m3fn::load(bytes).to_f64(),
        DType::Float8E5m2 => E5m2::load(bytes).to_f64(),
        _ => f32::load(bytes).to_f64(),
    }
}

fn stored<R: Real>(numbers: &[f64]) -> Vec<u8> {
    let mut bytes = vec![0; numbers.len() * <R as Number>::SIZE];
    for (bytes, number) in bytes.chunks_exact_mut(R::SIZE).zip(numbers) {
        let element = R::from_f64(*number);
        debug_assert_eq!(element.to_f64(), *number, "a number of a layer is exact");
        element.store(bytes);
    }
    bytes
}
