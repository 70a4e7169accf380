//! The bugs that the second implementation can be given.

use super::scalar::{self, Scalar};
use crate::{RankReply, RankStep};
use allranks_model::dtype::{DType, DTypeKind, ReduceOp};
use allranks_model::group::Group;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bug {
    None,
    /// Nothing is written.
    NoOp,
    OwnTimesWorld,
    AvgTwice,
    AvgDidSum,
    SumDidAvg,
    DidOp(ReduceOp),
    /// By position.
    Dropped(usize),
    Doubled(usize),
    /// Each rank leaves out its own contribution.
    OwnDropped,
    OwnOnly,
    /// An average is divided by this number.
    AvgBy(usize),
    /// Bits are taken for those of float16.
    AsFloat16,
    /// Real and imaginary parts change places.
    PartsSwapped,
    /// Blocks of the rank so many places further on.
    SourceShifted(usize),
    /// Blocks for the rank so many places further on.
    DestinationShifted(usize),
    DestinationPairs,
    Slice0,
    SourcesReversed,
    /// A gathered block that never arrives.
    Missing(usize),
    Reversed,
    Rotated(usize),
    /// The last elements are the rank's own contribution.
    Tail(usize),
    /// The last elements are never written.
    Prefix(usize),
    LastGarbage,
    Garbage,
    /// By global rank.
    WrongRoot(usize),
    World,
    ReadDense,
    WriteDense,
    ReadAndWriteDense,
    /// Each rank's own contribution to a reduction is garbage, too.
    WriteDenseMixed,
    WriteLost,
    NonRootWritten,
    Ulp,
    LowPrecision,
    /// Adds in the dtype, one after the other.
    InDtype,
    /// Rounds toward zero, once.
    Truncates,
    /// Rounds to nearest once, and ties toward zero.
    HalvesTowardZero,
    /// Rounds to either neighbour once, the nearer the likelier.
    RoundsStochastically,
    /// Now in the dtype, now exactly.
    Capricious,
    /// Contributions are bfloat16 on the way.
    Compressed,
    /// Results are off by more than rounding explains.
    Sloppy,
    /// NaN counts as nothing.
    NanDropped,
    /// MIN and MAX by comparing with <, from the first rank to the last.
    Compares,
    /// Infinities become the largest number.
    NoInfinity,
    /// Denormals become zero.
    Flushes,
    /// Negative zeros become positive.
    PlusZero,
    /// Integers stop at the ends of their range.
    Saturates,
    /// Reductions begin with a zero.
    BeginsAtZero,
    /// Integers are added up as float64.
    InDouble,
    /// The last elements are never written, and of the one before its second half is not.
    HalfPrefix(usize),
    /// NaNs lose their payload.
    QuietNan,
    /// Values are moved by adding them to zeros: denormals and the signs of zeros are lost, NaNs become the adder's.
    Added,
    /// Bools become 0 or 1.
    CleanBool,
    Zero,
    Nan,
    /// Members round differently.
    Disagree,
    EarlyLeave,
    SenderMisnamed,
    MessagesSwapped,
    WrongObject,
    /// Spoils bytes of the replies.
    GuardAfter,
    GuardBefore,
    InputModified,
    BystanderWritten,
    Short,
}

impl Bug {
    /// Where a member takes the block of another from.
    pub fn source(self, me: usize, from: usize, ranks: usize) -> usize {
        match self {
            Self::SourceShifted(by) => (from + by) % ranks,
            Self::SourcesReversed => ranks - 1 - from,
            Self::OwnTimesWorld => me,
            // Ranks 0.. of the world in place of the group's.
            Self::World if from > 0 => ranks + from - 1,
            _ => from,
        }
    }

    /// The destination of the block that a member gets.
    pub fn destination(self, me: usize, ranks: usize) -> usize {
        match self {
            Self::DestinationShifted(by) => (me + by) % ranks,
            Self::DestinationPairs if me ^ 1 < ranks => me ^ 1,
            Self::Slice0 => 0,
            _ => me,
        }
    }

    pub fn reduced(
        self,
        dtype: DType,
        op: ReduceOp,
        me: usize,
        index: usize,
        len: usize,
        mut elements: Vec<Vec<u8>>,
    ) -> Vec<u8> {
        let ranks = elements.len();
        match self {
            Self::OwnTimesWorld => elements = vec![elements[me].clone(); ranks],
            Self::WriteDenseMixed => elements[me] = elements[(me + 1) % ranks].clone(),
            Self::AvgTwice => return scalar::reduce(dtype, op, ranks * ranks, &elements),
            Self::AvgDidSum => return scalar::reduce(dtype, ReduceOp::Sum, 1, &elements),
            Self::SumDidAvg => return scalar::reduce(dtype, ReduceOp::Avg, ranks, &elements),
            Self::DidOp(op) => return scalar::reduce(dtype, op, ranks, &elements),
            Self::Dropped(rank) => {
                elements.remove(rank);
            }
            Self::OwnDropped => {
                elements.remove(me);
            }
            Self::OwnOnly => return elements[me].clone(),
            Self::AvgBy(number) => return scalar::reduce(dtype, op, number, &elements),
            Self::AsFloat16 => return scalar::reduce(DType::Float16, op, ranks, &elements),
            Self::Doubled(rank) => elements.push(elements[rank].clone()),
            Self::Tail(count) if index + count >= len => return elements[me].clone(),
            Self::Truncates | Self::HalvesTowardZero | Self::RoundsStochastically => {
                return self.rounded(dtype, op, index, &elements);
            }
            Self::InDtype => return self.one_by_one(dtype, op, &elements),
            Self::Capricious if len.is_multiple_of(2) => {
                return self.one_by_one(dtype, op, &elements);
            }
            Self::Compressed => {
                for element in &mut elements {
                    if let Scalar::Float(value) = scalar::decode(dtype, element) {
                        let narrow = half::bf16::from_f64(value).to_f64();
                        *element = scalar::encode(dtype, Scalar::Float(narrow));
                    }
                }
            }
            Self::NanDropped => {
                for element in &mut elements {
                    if matches!(scalar::decode(dtype, element), Scalar::Float(value) if value.is_nan())
                    {
                        *element = scalar::encode(dtype, Scalar::Float(0.0));
                    }
                }
            }
            Self::Compares => {
                let value = |bytes: &Vec<u8>| match scalar::decode(dtype, bytes) {
                    Scalar::Float(value) => value,
                    other => panic!("{other:?}"),
                };
                let least = |a: Vec<u8>, b: &Vec<u8>| match op {
                    ReduceOp::Min if value(b) < value(&a) => b.clone(),
                    ReduceOp::Max if value(b) > value(&a) => b.clone(),
                    _ => a,
                };
                return elements[1..].iter().fold(elements[0].clone(), least);
            }
            Self::BeginsAtZero => elements.push(vec![0; dtype.size()]),
            Self::InDouble => {
                let whole = |bytes: &Vec<u8>| match scalar::decode(dtype, bytes) {
                    Scalar::Whole(value) => value as f64,
                    other => panic!("{other:?}"),
                };
                let sum: f64 = elements.iter().map(whole).sum();
                return (sum as i64).to_le_bytes().to_vec();
            }
            Self::Saturates => {
                let bits = 8 * dtype.size() as u32;
                let (lowest, largest) = match dtype.kind() {
                    DTypeKind::Signed => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
                    _ => (0, (1_i128 << bits) - 1),
                };
                let sum: i128 = elements
                    .iter()
                    .map(|bytes| match scalar::decode(dtype, bytes) {
                        Scalar::Whole(value) => value,
                        other => panic!("{other:?}"),
                    })
                    .sum();
                return scalar::encode(dtype, Scalar::Whole(sum.clamp(lowest, largest)));
            }
            Self::LowPrecision => {
                let mut sum = half::bf16::ZERO;
                for element in &elements {
                    if let Scalar::Float(value) = scalar::decode(dtype, element) {
                        sum += half::bf16::from_f64(value);
                    }
                }
                return scalar::encode(dtype, Scalar::Float(sum.to_f64()));
            }
            Self::Disagree if me > 0 && index == 3 => {
                let mut bits = scalar::reduce(dtype, op, ranks, &elements);
                bits[0] ^= 1;
                return bits;
            }
            _ => {}
        }
        scalar::reduce(dtype, op, ranks, &elements)
    }

    /// The result, rounded once in another way than to nearest.
    fn rounded(self, dtype: DType, op: ReduceOp, index: usize, elements: &[Vec<u8>]) -> Vec<u8> {
        let number = |bytes: &Vec<u8>| match scalar::decode(dtype, bytes) {
            Scalar::Float(value) => value,
            other => panic!("{other:?}"),
        };
        let terms = elements.iter().map(number);
        let exact = match op {
            ReduceOp::Product => terms.product::<f64>(),
            ReduceOp::Avg => terms.sum::<f64>() / elements.len() as f64,
            _ => terms.sum(),
        };
        let nearest = scalar::encode(dtype, Scalar::Float(exact));
        let rounded = number(&nearest);
        if rounded == exact {
            return nearest;
        }
        // As sign and magnitude, neighbours in value are neighbours in bits.
        let is_larger = rounded.abs() > exact.abs();
        let mut bits = [0; 4];
        bits[..nearest.len()].copy_from_slice(&nearest);
        let bits = match u32::from_le_bytes(bits) {
            bits if is_larger => bits - 1,
            bits => bits + 1,
        };
        let other = bits.to_le_bytes()[..nearest.len()].to_vec();
        let chance = (rounded - exact).abs() / (number(&other) - rounded).abs();
        let word = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let drawn = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11;
        let takes_other = match self {
            Self::Truncates => is_larger,
            Self::HalvesTowardZero => chance == 0.5 && is_larger,
            _ => (drawn as f64) * f64::powi(2.0, -53) < chance,
        };
        if takes_other { other } else { nearest }
    }

    fn one_by_one(self, dtype: DType, op: ReduceOp, elements: &[Vec<u8>]) -> Vec<u8> {
        let add =
            |sum: Vec<u8>, element: &Vec<u8>| scalar::reduce(dtype, op, 1, &[sum, element.clone()]);
        elements[1..].iter().fold(elements[0].clone(), add)
    }

    /// What is written where; none: nothing.
    pub fn written(self, dtype: DType, elements: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
        let len = elements.len();
        let all = |elements: Vec<Vec<u8>>| elements.into_iter().map(Some).collect::<Vec<_>>();
        let noise = |index: usize| vec![(37 * index + 11) as u8 & 0x3f; dtype.size()];
        let mut list = elements.to_vec();
        match self {
            Self::NoOp => return vec![None; len],
            Self::Reversed => list.reverse(),
            Self::Rotated(by) if len > 0 => list.rotate_left(by % len),
            Self::Zero => list = vec![vec![0; dtype.size()]; len],
            Self::Nan => list = vec![scalar::encode(dtype, Scalar::Float(f64::NAN)); len],
            Self::Ulp => list.iter_mut().step_by(3).for_each(|bytes| bytes[0] ^= 1),
            Self::Sloppy => list.iter_mut().for_each(|bytes| {
                let value = scalar::scale(scalar::decode(dtype, bytes), 1.0 + 1e-5);
                *bytes = scalar::encode(dtype, value);
            }),
            Self::NoInfinity | Self::Flushes | Self::PlusZero | Self::QuietNan | Self::Added => {
                list.iter_mut().for_each(|bytes| self.touch(dtype, bytes));
            }
            Self::PartsSwapped => {
                let half = dtype.size() / 2;
                list.iter_mut().for_each(|bytes| bytes.rotate_left(half));
            }
            Self::CleanBool => list.iter_mut().for_each(|bytes| bytes[0] = bytes[0].min(1)),
            Self::LastGarbage if len > 0 => list[len - 1] = noise(len),
            Self::Garbage => list = (0..len).map(noise).collect(),
            Self::Prefix(count) => {
                let mut list = all(list);
                let from = len.saturating_sub(count);
                list[from..].iter_mut().for_each(|element| *element = None);
                return list;
            }
            Self::HalfPrefix(count) => {
                let mut list = all(list);
                let from = len.saturating_sub(count);
                list[from..].iter_mut().for_each(|element| *element = None);
                if let Some(Some(cut)) = list.get_mut(from.saturating_sub(1)) {
                    cut.truncate(dtype.size() / 2);
                }
                return list;
            }
            _ => {}
        }
        all(list)
    }

    /// What a processor may make of a float.
    fn touch(self, dtype: DType, bytes: &mut Vec<u8>) {
        let Scalar::Float(value) = scalar::decode(dtype, bytes) else {
            return;
        };
        let tiny = match dtype {
            DType::Float16 => f64::powi(2.0, -14),
            DType::Float64 => f64::MIN_POSITIVE,
            _ => f64::powi(2.0, -126),
        };
        let largest = match dtype {
            DType::Float16 => 65504.0,
            DType::Bfloat16 => half::bf16::MAX.to_f64(),
            _ => f64::from(f32::MAX),
        };
        let other = match self {
            Self::NoInfinity if value.is_infinite() => largest.copysign(value),
            Self::Flushes | Self::Added if value.abs() < tiny => 0.0,
            Self::PlusZero if value == 0.0 => 0.0,
            Self::QuietNan | Self::Added if value.is_nan() => f64::NAN,
            _ => return,
        };
        *bytes = scalar::encode(dtype, Scalar::Float(other));
    }

    pub fn objects(self, mut objects: Vec<Value>) -> Value {
        if self == Self::WrongObject {
            objects.rotate_left(1);
        }
        Value::Array(objects)
    }

    /// Spoils what is sent back.
    pub fn spoil(self, steps: &[RankStep], group: &Group, replies: &mut [RankReply]) {
        let member = group.ranks[group.ranks.len() - 1].index();
        let step = &steps[member].step;
        let payload = &mut replies[member].payload;
        match self {
            Self::GuardAfter => {
                let last = step.tensors.last().unwrap();
                let size = last.dtype.size();
                let addresses = super::world::addresses(last);
                let end = addresses
                    .iter()
                    .max()
                    .map_or(last.offset as usize, |last| last + 1);
                let start: u64 = step.storages[..last.storage].iter().sum();
                let at = start as usize + end * size;
                payload[at..at + size]
                    .iter_mut()
                    .for_each(|byte| *byte ^= 0x55);
            }
            Self::GuardBefore => payload[3] ^= 0x55,
            Self::InputModified => {
                let first = &step.tensors[0];
                payload[first.offset as usize * first.dtype.size()] ^= 1;
            }
            Self::BystanderWritten => {
                let outsider = (0..steps.len())
                    .find(|rank| group.ranks.iter().all(|member| member.index() != *rank))
                    .unwrap();
                let first = &steps[outsider].step.tensors[0];
                replies[outsider].payload[first.offset as usize * first.dtype.size()] ^= 1;
            }
            Self::Short => {
                payload.pop();
            }
            _ => {}
        }
    }
}
