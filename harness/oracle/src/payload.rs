//! Computes payloads: the bytes that each rank is sent, and the bytes that must come back.
//!
//! Blocks are written where the ranks hold them; results are computed from those very bytes, once for each distinct
//! result. What must come back is never written down as a whole: [`source`] says where the bytes of each piece are
//! found, and everything else must come back as it was sent.

use super::CompareMode;
use super::combine::{Reduction, Source, combine, write_whole};
use super::geometry::TensorGeometry;
use super::hash::{Key, Stream};
use super::inputs::{Block, Purpose, fill};
use super::rank_plan::{Buffer, Fill, Origin, RankPlan, Segment};
use allranks_model::axes::Values;
use allranks_model::dtype::DType;

/// Where a rank holds one of its blocks before the calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldBlock {
    /// The whole buffer's place in the rank's payload.
    pub buffer: TensorGeometry,
    /// The block's first element in the buffer.
    pub start: usize,
    /// The number of elements.
    pub len: usize,
}

impl HeldBlock {
    /// Returns the block's place in the rank's payload.
    pub(super) fn place(&self) -> TensorGeometry {
        self.buffer.from(self.start)
    }
}

/// The blocks of all ranks: `block_index[rank][slot]`.
pub(super) type BlockIndex = Vec<Vec<Option<HeldBlock>>>;

/// Combined blocks, dense, by slot; empty where no rank must hold one.
pub(super) type Results = Vec<Vec<u8>>;

/// All bytes of a check.
#[derive(Debug)]
pub(super) struct Image {
    /// What each rank is sent.
    pub payloads: Vec<Vec<u8>>,
    /// Where each rank holds its blocks.
    pub block_index: BlockIndex,
    /// The blocks of each slot combined, where some rank must hold that.
    pub results: Results,
}

/// Makes all bytes. `members` are global ranks in group order.
pub(super) fn image(purpose: Purpose, key: Key, works: &[RankPlan], members: &[u32]) -> Image {
    let block_index = block_index(works);
    let outsiders = (0..works.len() as u32).filter(|rank| !members.contains(rank));
    let mut positions = vec![0; works.len()];
    for (position, rank) in members.iter().copied().chain(outsiders).enumerate() {
        positions[rank as usize] = position as u32;
    }
    let mut payloads: Vec<Vec<u8>> = works
        .iter()
        .enumerate()
        .map(|(rank, work)| guarded_payload(key, rank as u32, work))
        .collect();
    for (rank, block_index) in block_index.iter().enumerate() {
        for (slot, held) in block_index.iter().enumerate() {
            let Some(held) = held else { continue };
            let block = Block {
                key,
                rank: rank as u32,
                position: positions[rank],
                slot: if purpose.repeated { 0 } else { slot as u32 },
                len: held.len,
            };
            fill(purpose, &block, &mut payloads[rank], &held.place());
        }
    }
    for (work, (payload, position)) in works.iter().zip(payloads.iter_mut().zip(&positions)) {
        let factor = purpose.factor.of(*position as usize);
        for buffer in work.buffers.iter().filter(|buffer| buffer.holds_a_factor()) {
            let bytes = &mut payload[buffer.place.range(0)];
            write_whole(purpose.dtype, factor as i64, bytes);
        }
    }
    for (rank, work) in works.iter().enumerate() {
        sentinels(purpose, key, rank as u32, work, &mut payloads[rank]);
    }
    let results = results(purpose, works, members, &block_index, &payloads);
    for (rank, work) in (0_u32..).zip(works) {
        let coincidences = coincidences(rank, work, &payloads, &block_index, &results);
        for byte in coincidences {
            payloads[rank as usize][byte] ^= 1;
        }
    }
    Image {
        payloads,
        block_index,
        results,
    }
}

/// Returns where the bytes are that a piece must hold in the end. `payload` gives what a rank was sent.
pub(super) fn source<'a>(
    payload: impl Fn(u32) -> &'a [u8],
    block_index: &BlockIndex,
    results: &'a Results,
    rank: u32,
    buffer: &Buffer,
    piece: &Segment,
) -> Source<'a> {
    match piece.after {
        Origin::Keep => (payload(rank), buffer.place.from(piece.start)),
        Origin::Copy { rank, slot } => {
            let held =
                block_index[rank as usize][slot as usize].expect("a block that some rank holds");
            (payload(rank), held.place())
        }
        Origin::Reduce { slot } => (
            &results[slot as usize],
            TensorGeometry::of_dense(buffer.place.size, 0),
        ),
    }
}

fn block_index(works: &[RankPlan]) -> BlockIndex {
    let of = |work: &RankPlan| {
        let mut block_index: Vec<Option<HeldBlock>> = Vec::new();
        for buffer in &work.buffers {
            for piece in &buffer.pieces {
                if let Fill::Own(slot) = piece.before {
                    let slot = slot as usize;
                    if block_index.len() <= slot {
                        block_index.resize(slot + 1, None);
                    }
                    block_index[slot] = Some(HeldBlock {
                        buffer: buffer.place,
                        start: piece.start,
                        len: piece.len,
                    });
                }
            }
        }
        block_index
    };
    works.iter().map(of).collect()
}

/// Returns a payload with guard bands, and with gaps filled where tensors have any.
fn guarded_payload(key: Key, rank: u32, work: &RankPlan) -> Vec<u8> {
    let mut payload = vec![0; work.bytes];
    for (number, buffer) in work.buffers.iter().enumerate() {
        let words = key.stream(Stream::Guard, rank, number as u32);
        let (start, len) = buffer.storage;
        let end = start + len;
        match buffer.place.dense_range(buffer.len) {
            Some(tensor) => {
                pattern(words, 0, &mut payload[start..tensor.start]);
                pattern(words, 1 << 32, &mut payload[tensor.end..end]);
            }
            None => pattern(words, 0, &mut payload[start..end]),
        }
    }
    payload
}

/// Fills bytes with the words of a stream from number `from` on.
pub(super) fn pattern(words: Key, from: u64, bytes: &mut [u8]) {
    for (index, bytes) in bytes.chunks_mut(8).enumerate() {
        let word = words.word(from + index as u64).to_le_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// Fills outputs with what they hold before the calls: NaN where results are floats that cannot be one, no NaN where they can,
/// neither 0 nor 1 where they are bools, any pattern otherwise.
fn sentinels(purpose: Purpose, key: Key, rank: u32, work: &RankPlan, payload: &mut [u8]) {
    let mask = impossible(purpose);
    let finite = finite(purpose);
    for (number, buffer) in work.buffers.iter().enumerate() {
        let words = key.stream(Stream::Sentinel, rank, number as u32);
        for piece in buffer
            .pieces
            .iter()
            .filter(|piece| piece.before == Fill::Sentinel)
        {
            let place = buffer.place.from(piece.start);
            let from = 2 * piece.start as u64;
            if let Some(bytes) = place.dense_mut(payload, piece.len) {
                pattern(words, from, bytes);
                suit(bytes, mask, finite);
            } else {
                for index in 0..piece.len {
                    let bytes = &mut payload[place.range(index)];
                    pattern(words, from + 2 * index as u64, bytes);
                    suit(bytes, mask, finite);
                }
            }
        }
    }
}

/// Sets the bits of `ones` in each number and clears the top bit of its exponent, if asked for: no infinity, no NaN.
fn suit(bytes: &mut [u8], ones: &[u8], finite: Option<usize>) {
    if !ones.is_empty() {
        for bytes in bytes.chunks_exact_mut(ones.len()) {
            for (byte, ones) in bytes.iter_mut().zip(ones) {
                *byte |= ones;
            }
        }
    }
    if let Some(size) = finite {
        for bytes in bytes.chunks_exact_mut(size) {
            bytes[size - 1] &= 0xbf;
        }
    }
}

/// Returns the size in bytes of an element whose sentinel must not be NaN, because NaN may be the result; `None` if it may be
/// NaN.
fn finite(purpose: Purpose) -> Option<usize> {
    (purpose.mode == CompareMode::Special).then(|| purpose.dtype.size())
}

/// Bits that no result has all of, for each number in an element; none if any bits may be a result.
fn impossible(purpose: Purpose) -> &'static [u8] {
    match (purpose.dtype, purpose.mode) {
        (_, CompareMode::Special) => &[],
        (DType::Bool, CompareMode::Payload) if purpose.values == Values::Special => &[],
        (DType::Bool, _) => &[2],
        (_, CompareMode::Payload) => &[],
        (DType::Float64 | DType::Complex128, _) => &[0, 0, 0, 0, 0, 0, 0xf8, 0x7f],
        (DType::Float32 | DType::Complex64, _) => &[0, 0, 0xc0, 0x7f],
        (DType::Float16, _) => &[0, 0x7e],
        (DType::Bfloat16, _) => &[0xc0, 0x7f],
        (DType::Float8E4m3fn, _) => &[0x7f],
        (DType::Float8E5m2, _) => &[0x7e],
        (
            DType::Int8
            | DType::Int16
            | DType::Int32
            | DType::Int64
            | DType::Uint8
            | DType::Uint16
            | DType::Uint32
            | DType::Uint64,
            _,
        ) => &[],
    }
}

/// Returns every combination that some rank must hold.
fn results(
    purpose: Purpose,
    works: &[RankPlan],
    members: &[u32],
    block_index: &BlockIndex,
    payloads: &[Vec<u8>],
) -> Results {
    let mut results = Results::new();
    let pieces = works
        .iter()
        .flat_map(|work| &work.buffers)
        .flat_map(|buffer| &buffer.pieces);
    for piece in pieces {
        if let Origin::Reduce { slot } = piece.after {
            let slot = slot as usize;
            if results.len() <= slot {
                results.resize(slot + 1, Vec::new());
            }
            if results[slot].is_empty() {
                results[slot] = reduce(purpose, members, payloads, block_index, slot, piece.len);
            }
        }
    }
    results
}

/// Returns the dense result of combining the members' blocks of a slot.
fn reduce(
    purpose: Purpose,
    members: &[u32],
    payloads: &[Vec<u8>],
    block_index: &BlockIndex,
    slot: usize,
    len: usize,
) -> Vec<u8> {
    let sources: Vec<Source<'_>> = members
        .iter()
        .map(|rank| {
            let rank = *rank as usize;
            let held = block_index[rank][slot].expect("every member contributes");
            (payloads[rank].as_slice(), held.place())
        })
        .collect();
    let factors: Vec<f64> = (0..members.len())
        .map(|position| purpose.factor.of(position))
        .collect();
    let reduction = Reduction {
        dtype: purpose.dtype,
        op: purpose.reduce.expect("an op that reduces has an operator"),
        divisor: members.len() as u64,
        factors: &factors,
        wide: purpose.values == Values::Random,
    };
    let mut out = vec![0; len * purpose.dtype.size()];
    combine(reduction, &sources, len, &mut out);
    out
}

/// Bytes of sentinels that happen to equal the expected result: their first bytes, to be changed.
fn coincidences(
    rank: u32,
    work: &RankPlan,
    payloads: &[Vec<u8>],
    block_index: &BlockIndex,
    results: &Results,
) -> Vec<usize> {
    let mut found = Vec::new();
    for buffer in &work.buffers {
        for piece in buffer
            .pieces
            .iter()
            .filter(|piece| piece.before == Fill::Sentinel)
        {
            let payload = |rank: u32| payloads[rank as usize].as_slice();
            let (bytes, from) = source(payload, block_index, results, rank, buffer, piece);
            let place = buffer.place.from(piece.start);
            let equal = |index: &usize| {
                payloads[rank as usize][place.range(*index)] == bytes[from.range(*index)]
            };
            found.extend(
                (0..piece.len)
                    .filter(equal)
                    .map(|index| place.range(index).start),
            );
        }
    }
    found
}
