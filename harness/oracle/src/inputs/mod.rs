//! Input values: how a hash word becomes an element, for each compare mode, dtype and reduce operator.
//!
//! In: the word of (rank, slot, index), and where an operator needs it a word that all ranks share at that index. Out:
//! an element. The ranges make every result exactly representable in whatever order ranks are combined (see
//! [`super::CompareMode`]); no value is constant along the index, equal across ranks, or a power of two throughout.
//!
//! Where a type is too narrow for every rank to contribute at every index, a few **carriers** do, chosen by the shared
//! word, so that over the indices every rank matters.

mod extremes;
mod others;
mod random;
mod special;
mod sums;

use half::{bf16, f16};

use self::extremes::Whole;
use self::others::{
    AnyBits, Extreme, Factor, Finite, FragileBits, GaussianFactor, OneDecides, Pair, Pattern,
    SkewedBits,
};
use self::random::{Cancelling, NearOne};
use self::special::Special;
use self::sums::{Parts, RealShare, Share, Small, Summand};
use super::CompareMode;
use super::float8::{E4m3fn, E5m2};
use super::geometry::TensorGeometry;
use super::hash::{Key, Stream};
use super::number::{Bits, Bool, Integer, Number, Real};
use allranks_model::axes::Values;
use allranks_model::dtype::{DType, ReduceOp};

/// Makes elements.
trait Draw {
    /// Of this type.
    type Element: Number;

    /// Returns the element for a rank's own word. An input that does not call `turn` costs nothing for it.
    fn input(&self, own: u64, turn: impl Fn() -> CommonDraw) -> Self::Element;
}

/// The part of the input that all ranks share at one index.
struct CommonDraw {
    /// The same on every rank.
    word: u64,
    /// This rank's place in the turn: the ranks of a group have `0..ranks` between them, and in every run of that many
    /// indices each rank has each place once.
    place: u64,
    /// The index itself.
    index: u64,
    /// The rank's position in the group.
    position: u64,
}

impl CommonDraw {
    /// Returns true at the indices, one in eight, at which the result of a comparison is to lie on the side of zero that loses,
    /// so that a comparison that begins with zero is wrong.
    fn is_beyond_zero(&self) -> bool {
        self.word & 7 == 0
    }
}

/// One rank's contribution to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// The check's key.
    pub key: Key,
    /// The global rank that contributes it.
    pub rank: u32,
    /// Position in the group; non-members count on after the members.
    pub position: u32,
    /// Which of the rank's blocks.
    pub slot: u32,
    /// The number of elements.
    pub len: usize,
}

/// What values must suit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose {
    /// The element type.
    pub dtype: DType,
    /// How results are compared.
    pub mode: CompareMode,
    /// How contributions are combined, if they are.
    pub reduce: Option<ReduceOp>,
    /// How many ranks contribute to a result.
    pub ranks: u32,
    /// What kind of values.
    pub values: Values,
    /// What `premul_sum` multiplies by.
    pub factor: allranks_model::axes::Factor,
    /// Whether all slots are one and the same data, the longer ones going on where the shorter end.
    pub repeated: bool,
}

impl Purpose {
    /// Returns the largest factor that a contribution is multiplied by.
    fn largest_factor(&self) -> u64 {
        match self.reduce {
            Some(ReduceOp::PremulSum) => self.factor.largest(),
            _ => 1,
        }
    }
}

/// Writes a block's elements to its place in a payload.
pub(super) fn fill(purpose: Purpose, block: &Block, payload: &mut [u8], place: &TensorGeometry) {
    let target = &mut Target {
        ranks: u64::from(purpose.ranks),
        values: purpose.values,
        factor: purpose.largest_factor(),
        block,
        payload,
        place,
    };
    let Some(reduce) = purpose
        .reduce
        .filter(|_| purpose.mode != CompareMode::Payload)
    else {
        return fill_payload(purpose.dtype, target);
    };
    match purpose.dtype {
        DType::Float64 => fill_real::<f64>(reduce, target),
        DType::Float32 => fill_real::<f32>(reduce, target),
        DType::Float16 => fill_real::<f16>(reduce, target),
        DType::Bfloat16 => fill_real::<bf16>(reduce, target),
        DType::Float8E4m3fn => fill_real::<E4m3fn>(reduce, target),
        DType::Float8E5m2 => fill_real::<E5m2>(reduce, target),
        DType::Int8 => fill_integer::<i8>(reduce, target),
        DType::Int16 => fill_integer::<i16>(reduce, target),
        DType::Int32 => fill_integer::<i32>(reduce, target),
        DType::Int64 => fill_integer::<i64>(reduce, target),
        DType::Uint8 => fill_integer::<u8>(reduce, target),
        DType::Uint16 => fill_integer::<u16>(reduce, target),
        DType::Uint32 => fill_integer::<u32>(reduce, target),
        DType::Uint64 => fill_integer::<u64>(reduce, target),
        DType::Bool => fill_bool(reduce, target),
        DType::Complex64 => fill_complex::<f32>(reduce, target),
        DType::Complex128 => fill_complex::<f64>(reduce, target),
    }
}

/// Where a block's elements go.
struct Target<'a> {
    ranks: u64,
    values: Values,
    factor: u64,
    block: &'a Block,
    payload: &'a mut [u8],
    place: &'a TensorGeometry,
}

impl Target<'_> {
    fn write_special<R: Real>(&mut self, reduce: ReduceOp, ordinary: impl Draw<Element = R>) {
        self.write(&Special {
            reduce,
            ranks: self.ranks,
            ordinary,
        });
    }

    fn write<D: Draw>(&mut self, input: &D) {
        let Block {
            key,
            rank,
            position,
            slot,
            len,
        } = *self.block;
        let ranks = self.ranks;
        let own = key.stream(Stream::Block, rank, slot);
        let shared = key.stream(Stream::Shared, 0, slot);
        let element = |index: u64| {
            input.input(own.word(index), || CommonDraw {
                word: shared.word(index),
                place: (shared.word(!(index / ranks)) % ranks + index + u64::from(position))
                    % ranks,
                index,
                position: u64::from(position),
            })
        };
        let size = D::Element::SIZE;
        if let Some(bytes) = self.place.dense_mut(self.payload, len) {
            for (index, bytes) in bytes.chunks_exact_mut(size).enumerate() {
                element(index as u64).store(bytes);
            }
        } else {
            for index in 0..len {
                element(index as u64).store(&mut self.payload[self.place.range(index)]);
            }
        }
    }
}

fn fill_real<R: Real>(reduce: ReduceOp, target: &mut Target<'_>) {
    let ranks = target.ranks;
    let summand = Summand::<R>::new(target.factor, ranks);
    match (target.values, reduce) {
        (Values::Exact | Values::Extremes, _) => {}
        (Values::Random, ReduceOp::Product) => return target.write(&NearOne::<R>::new(ranks)),
        (Values::Random, _) => return target.write(&Cancelling::<R>::new(ranks)),
        (Values::Special, ReduceOp::Product) => {
            let ordinary = Factor::<R>::new(R::PRECISION >= 7, true);
            return target.write_special(reduce, ordinary);
        }
        (Values::Special, ReduceOp::Min | ReduceOp::Max) => {
            let ordinary = Finite::<R>::new(reduce == ReduceOp::Max);
            return target.write_special(reduce, ordinary);
        }
        (Values::Special, _) => return target.write_special(reduce, summand),
    }
    match reduce {
        ReduceOp::Sum | ReduceOp::PremulSum => target.write(&summand),
        ReduceOp::Avg if ranks.is_power_of_two() => target.write(&summand),
        ReduceOp::Avg => target.write(&RealShare::<R>::new(target.ranks)),
        ReduceOp::Product => target.write(&Factor::<R>::new(R::PRECISION >= 7, true)),
        ReduceOp::Min => target.write(&Finite::<R>::new(false)),
        ReduceOp::Max => target.write(&Finite::<R>::new(true)),
        ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => unreachable!("refused by the oracle"),
    }
}

fn fill_integer<I: Integer>(reduce: ReduceOp, target: &mut Target<'_>) {
    if target.values == Values::Extremes {
        return target.write(&Whole::<I>::new(reduce, target.ranks));
    }
    match reduce {
        ReduceOp::Sum => target.write(&Small::<I>::new(target.ranks)),
        ReduceOp::Avg => target.write(&Share::<I>::new(
            I::LARGEST,
            I::SIGNED,
            target.ranks,
            I::from_i64,
        )),
        ReduceOp::Product => target.write(&Factor::<I>::new(true, I::SIGNED)),
        ReduceOp::Min => target.write(&Extreme::<I>::new(false)),
        ReduceOp::Max => target.write(&Extreme::<I>::new(true)),
        ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => fill_bits::<I>(reduce, target),
        ReduceOp::PremulSum => unreachable!("refused by the oracle"),
    }
}

fn fill_bits<B: Bits>(reduce: ReduceOp, target: &mut Target<'_>) {
    // One bit in 2^thinning is against the grain, so that neither value is rare in results.
    let thinning = target.ranks.next_power_of_two().trailing_zeros().max(1);
    match reduce {
        ReduceOp::Band => target.write(&SkewedBits::<B>::mostly_ones(thinning)),
        ReduceOp::Bor => target.write(&SkewedBits::<B>::mostly_zeros(thinning)),
        ReduceOp::Bxor => target.write(&AnyBits::<B>::default()),
        ReduceOp::Sum
        | ReduceOp::Avg
        | ReduceOp::Product
        | ReduceOp::PremulSum
        | ReduceOp::Min
        | ReduceOp::Max => {
            unreachable!("not bitwise, or refused by the oracle")
        }
    }
}

fn fill_bool(reduce: ReduceOp, target: &mut Target<'_>) {
    match reduce {
        ReduceOp::Band | ReduceOp::Min => target.write(&OneDecides(false)),
        ReduceOp::Bor | ReduceOp::Max => target.write(&OneDecides(true)),
        ReduceOp::Bxor => target.write(&AnyBits::<Bool>::default()),
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Product | ReduceOp::PremulSum => {
            unreachable!("refused by the oracle")
        }
    }
}

fn fill_complex<R: Real>(reduce: ReduceOp, target: &mut Target<'_>) {
    if target.values == Values::Random {
        return target.write(&Parts(Cancelling::<R>::new(target.ranks)));
    }
    let summand = Summand::<R>::new(target.factor, target.ranks);
    match reduce {
        ReduceOp::Sum | ReduceOp::PremulSum => target.write(&Parts(summand)),
        ReduceOp::Avg if target.ranks.is_power_of_two() => target.write(&Parts(summand)),
        ReduceOp::Avg => target.write(&Parts(RealShare::<R>::new(target.ranks))),
        ReduceOp::Product => target.write(&GaussianFactor::<R>::default()),
        ReduceOp::Min | ReduceOp::Max | ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {
            unreachable!("refused by the oracle")
        }
    }
}

fn fill_payload(dtype: DType, target: &mut Target<'_>) {
    if target.values == Values::Special {
        match dtype {
            DType::Float64 => return target.write(&FragileBits::<u64, 11, 52>::default()),
            DType::Float32 => return target.write(&FragileBits::<u32, 8, 23>::default()),
            DType::Float16 => return target.write(&FragileBits::<u16, 5, 10>::default()),
            DType::Bfloat16 => return target.write(&FragileBits::<u16, 8, 7>::default()),
            DType::Complex64 => return target.write(&Pair(FragileBits::<u32, 8, 23>::default())),
            DType::Complex128 => return target.write(&Pair(FragileBits::<u64, 11, 52>::default())),
            // No bool has such bytes, and yet they are bytes.
            DType::Bool => return target.write(&AnyBits::<u8>::default()),
            _ => {}
        }
    }
    match dtype {
        DType::Float64 => target.write(&Pattern::<u64, 11, 52>::default()),
        DType::Float32 => target.write(&Pattern::<u32, 8, 23>::default()),
        DType::Float16 => target.write(&Pattern::<u16, 5, 10>::default()),
        DType::Bfloat16 => target.write(&Pattern::<u16, 8, 7>::default()),
        DType::Float8E4m3fn => target.write(&Pattern::<u8, 4, 3>::default()),
        DType::Float8E5m2 => target.write(&Pattern::<u8, 5, 2>::default()),
        DType::Complex64 => target.write(&Pair(Pattern::<u32, 8, 23>::default())),
        DType::Complex128 => target.write(&Pair(Pattern::<u64, 11, 52>::default())),
        DType::Int8 | DType::Uint8 => target.write(&AnyBits::<u8>::default()),
        DType::Int16 | DType::Uint16 => target.write(&AnyBits::<u16>::default()),
        DType::Int32 | DType::Uint32 => target.write(&AnyBits::<u32>::default()),
        DType::Int64 | DType::Uint64 => target.write(&AnyBits::<u64>::default()),
        DType::Bool => target.write(&AnyBits::<Bool>::default()),
    }
}
