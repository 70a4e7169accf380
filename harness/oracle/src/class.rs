//! The classes of wrong answers: the first line of a failure. Names are stable, because result and expectations files hold them.

use super::rounding::Side;
use allranks_model::capability::Accumulation;
use allranks_model::dtype::{DType, ReduceOp};

/// What an answer looks like, and so which bug to look for.
#[derive(Clone, Copy, Debug, PartialEq, strum::EnumDiscriminants, strum::EnumCount)]
#[strum_discriminants(derive(PartialOrd, Ord), name(Sort), vis(pub(super)))]
pub enum Class {
    /// Every tensor is as it was before the call.
    NoOp,
    /// Every output is as it was before the call.
    StaleSentinel,
    /// As if every rank had contributed what this rank did: no communication.
    OwnTimesWorld,
    /// The average, divided by the number of ranks once more.
    AvgDividedTwice,
    /// The sum in place of the average.
    AvgDidSum,
    /// The average over a group, divided by the size of the world.
    AvgDividedByWorld,
    /// The sum, divided by this number, which is not that of the ranks.
    AvgDividedBy(u64),
    /// The average in place of the sum.
    SumDidAvg,
    /// Another operator was applied: this one.
    DidOp(ReduceOp),
    /// A rank's contribution is missing.
    RankDropped(u32),
    /// On every rank its own contribution is missing.
    OwnDropped,
    /// The output is this rank's own contribution, and nothing of the others is in it.
    OwnOnly,
    /// A rank's contribution counts twice.
    RankDoubled(u32),
    /// Each block is that of the rank this many places further on.
    ChunkShifted(u32),
    /// Elements lie this many places from where they belong.
    ElementsShifted(i64),
    /// Elements lie in reverse order.
    OrderReversed,
    /// Every block is some rank's, but not the right one's.
    BlocksPermuted,
    /// From this element on, results are contributions that were never combined.
    TailNotReduced(usize),
    /// From this element on, outputs are as they were before the call.
    PrefixOnly(usize),
    /// Only last elements are wrong.
    LastElement,
    /// As if this rank were the root.
    WrongRoot(u32),
    /// As if the group's first rank were the root.
    RootIgnored,
    /// Every rank got the block of the first destination.
    AllPeersGotSlice0,
    /// Ranks got blocks of other destinations.
    DestinationSwapped,
    /// Strides were ignored in reading.
    NonContiguousReadAsDense,
    /// The result never reached the strided tensor.
    StridedOutputLost,
    /// Strides were ignored in writing.
    OnlyDensePartWritten,
    /// An output with overlapping elements was not refused.
    OverlappingOutputAccepted,
    /// An output with overlapping elements was not refused, and holds what no order of writes gives.
    OverlappingOutputGarbled,
    /// Bytes around a tensor were written to: so many before it, after it, between its elements.
    GuardOverwritten {
        /// Before its first element.
        before: usize,
        /// After its last element.
        after: usize,
        /// Between its elements.
        between: usize,
    },
    /// An input was written to.
    InputModified,
    /// A tensor was written to on a rank that is not the root.
    NonRootWritten,
    /// The same, with what is no sum of contributions.
    NonRootGarbled,
    /// A rank outside the group was written to.
    BystanderWritten,
    /// A call raised, and yet a tensor it was given is not as it was.
    RefusedAndWritten,
    /// Ranks outside the group took part.
    GotWorldInsteadOfGroup,
    /// As exact as sums in this narrower type.
    LowPrecisionAccumulation(&'static str),
    /// Contributions were rounded to this narrower type before they were combined.
    CompressedInputs(&'static str),
    /// Farther from the exact result than rounding in any order explains, and yet near it.
    ErrorBeyondBound,
    /// Off by one unit in the last place.
    OffByOneUlp,
    /// Results that cannot be exact are all rounded to this side.
    OneSidedRounding(Side),
    /// A NaN among the contributions does not show in the result.
    NanDropped,
    /// MIN or MAX of a NaN and numbers is now a NaN, now a number.
    NanDependsOnRank,
    /// A NaN that was only moved arrived as another NaN.
    NanBitsChanged,
    /// An infinity came out finite.
    InfFlushed,
    /// A denormal came out zero.
    DenormalFlushed,
    /// A negative zero came out positive.
    NegativeZeroLost,
    /// An integer stopped at the end of its range instead of wrapping around.
    Saturated,
    /// A bool that was only moved arrived as 1 in place of another byte that is not 0.
    BoolNormalised,
    /// The same sum of the same data came out different.
    NotDeterministic,
    /// Accumulated in another type than the platform file promises: this one.
    AccumulatedIn(Accumulation),
    /// All within bounds, but not the same bits on every rank.
    RanksDisagree,
    /// A rank left a barrier before another entered it.
    EarlyLeave,
    /// A message from another sender than asked for, or a wrong name of the sender.
    WrongSender,
    /// Messages of one pair arrived in another order than sent.
    MessageOrderSwapped,
    /// Another Python object than sent.
    WrongObject,
    /// Wrong elements are all zero.
    ZeroOutput,
    /// Wrong elements are all NaN.
    NanOutput,
    /// Complex numbers came out conjugated.
    Conjugated,
    /// Real and imaginary parts changed places.
    PartsSwapped,
    /// Imaginary parts came out zero, or as they were.
    ImaginaryPartLost,
    /// The bytes of each element lie in reverse order.
    BytesSwapped,
    /// A bool came out as neither 0 nor 1.
    BoolOutOfRange,
    /// Integers were rounded as a floating-point type rounds them.
    ThroughFloat,
    /// The bits of contributions were combined as if they were numbers of this type.
    CombinedAs(DType),
    /// MIN or MAX compared signed integers as unsigned ones, or the other way round.
    ComparedWithOtherSign,
    /// What lies beyond one number came out as that number, with which MIN or MAX began.
    WrongIdentity,
    /// A bitwise operator was applied to truth values.
    LogicalInsteadOfBitwise,
    /// Only bits of the upper half of each element are wrong.
    HighBitsWrong,
    /// Every wrong element belongs elsewhere in the same block.
    ElementsPermuted,
    /// Every wrong element belongs somewhere in another block of the same call.
    BlocksMixed,
    /// Integers kept only so many of their low bits.
    Narrowed(u32),
    /// Each element is what lies this many bytes from the one that should have been moved.
    AddressShifted(i64),
    /// The factor of the first rank was applied to all contributions.
    FactorOfAnotherRank,
    /// Each factor was applied this many times.
    FactorRepeated(u32),
    /// The lowest bits of elements that were only moved are zero.
    LowBitsLost,
    /// Some ranks' contributions are those of another call.
    CallsCrossed,
    /// Every wrong element belongs to another call.
    DataOfAnotherCall,
    /// The answer has not the form of the step.
    MalformedReply,
    /// None of the above.
    Unclassified,
}

impl Class {
    /// Returns one of every kind, and of every name.
    #[must_use]
    pub fn every() -> Vec<Self> {
        let did = ReduceOp::ALL.iter().copied().map(Self::DidOp);
        let others = [
            Self::NoOp,
            Self::StaleSentinel,
            Self::OwnTimesWorld,
            Self::AvgDividedTwice,
            Self::AvgDidSum,
            Self::AvgDividedByWorld,
            Self::AvgDividedBy(2),
            Self::SumDidAvg,
            Self::RankDropped(0),
            Self::OwnDropped,
            Self::OwnOnly,
            Self::RankDoubled(0),
            Self::ChunkShifted(1),
            Self::ElementsShifted(1),
            Self::OrderReversed,
            Self::BlocksPermuted,
            Self::TailNotReduced(0),
            Self::PrefixOnly(0),
            Self::LastElement,
            Self::WrongRoot(0),
            Self::RootIgnored,
            Self::AllPeersGotSlice0,
            Self::DestinationSwapped,
            Self::NonContiguousReadAsDense,
            Self::StridedOutputLost,
            Self::OnlyDensePartWritten,
            Self::OverlappingOutputAccepted,
            Self::OverlappingOutputGarbled,
            Self::GuardOverwritten {
                before: 0,
                after: 1,
                between: 0,
            },
            Self::InputModified,
            Self::NonRootWritten,
            Self::NonRootGarbled,
            Self::BystanderWritten,
            Self::RefusedAndWritten,
            Self::GotWorldInsteadOfGroup,
            Self::LowPrecisionAccumulation("bfloat16"),
            Self::CompressedInputs("bfloat16"),
            Self::ErrorBeyondBound,
            Self::OffByOneUlp,
            Self::OneSidedRounding(Side::TowardZero),
            Self::NanDropped,
            Self::NanDependsOnRank,
            Self::NanBitsChanged,
            Self::InfFlushed,
            Self::DenormalFlushed,
            Self::NegativeZeroLost,
            Self::Saturated,
            Self::BoolNormalised,
            Self::NotDeterministic,
            Self::AccumulatedIn(Accumulation::Dtype),
            Self::RanksDisagree,
            Self::EarlyLeave,
            Self::WrongSender,
            Self::MessageOrderSwapped,
            Self::WrongObject,
            Self::ZeroOutput,
            Self::NanOutput,
            Self::Conjugated,
            Self::PartsSwapped,
            Self::ImaginaryPartLost,
            Self::BytesSwapped,
            Self::BoolOutOfRange,
            Self::ThroughFloat,
            Self::CombinedAs(DType::Float16),
            Self::ComparedWithOtherSign,
            Self::WrongIdentity,
            Self::LogicalInsteadOfBitwise,
            Self::HighBitsWrong,
            Self::ElementsPermuted,
            Self::BlocksMixed,
            Self::Narrowed(8),
            Self::AddressShifted(1),
            Self::FactorOfAnotherRank,
            Self::FactorRepeated(2),
            Self::LowBitsLost,
            Self::CallsCrossed,
            Self::DataOfAnotherCall,
            Self::MalformedReply,
            Self::Unclassified,
        ];
        did.chain(others).collect()
    }

    /// Returns the name in result files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoOp => "no-op",
            Self::StaleSentinel => "stale-sentinel",
            Self::OwnTimesWorld => "own-times-world",
            Self::AvgDividedTwice => "avg-divided-twice",
            Self::AvgDidSum => "avg-did-sum",
            Self::AvgDividedByWorld => "avg-divided-by-world",
            Self::AvgDividedBy(_) => "avg-divided-by-another-number",
            Self::SumDidAvg => "sum-did-avg",
            Self::DidOp(ReduceOp::Sum) => "op-did-sum",
            Self::DidOp(ReduceOp::Avg) => "did-avg",
            Self::DidOp(ReduceOp::Product) => "did-product",
            Self::DidOp(ReduceOp::Min) => "did-min",
            Self::DidOp(ReduceOp::Max) => "did-max",
            Self::DidOp(ReduceOp::Band) => "did-band",
            Self::DidOp(ReduceOp::Bor) => "did-bor",
            Self::DidOp(ReduceOp::Bxor) => "did-bxor",
            Self::DidOp(ReduceOp::PremulSum) => "did-premul-sum",
            Self::RankDropped(_) => "rank-dropped",
            Self::OwnDropped => "own-dropped",
            Self::OwnOnly => "own-only",
            Self::RankDoubled(_) => "rank-doubled",
            Self::ChunkShifted(_) => "chunk-shifted",
            Self::ElementsShifted(_) => "elements-shifted",
            Self::OrderReversed => "order-reversed",
            Self::BlocksPermuted => "blocks-permuted",
            Self::TailNotReduced(_) => "tail-not-reduced",
            Self::PrefixOnly(_) => "prefix-only",
            Self::LastElement => "last-element",
            Self::WrongRoot(_) => "wrong-root",
            Self::RootIgnored => "root-ignored",
            Self::AllPeersGotSlice0 => "all-peers-got-slice-0",
            Self::DestinationSwapped => "destination-swapped",
            Self::NonContiguousReadAsDense => "non-contiguous-read-as-dense",
            Self::StridedOutputLost => "strided-output-lost",
            Self::OnlyDensePartWritten => "only-dense-part-written",
            Self::OverlappingOutputAccepted => "overlapping-output-accepted",
            Self::OverlappingOutputGarbled => "overlapping-output-garbled",
            Self::GuardOverwritten { .. } => "guard-overwritten",
            Self::InputModified => "input-modified",
            Self::NonRootWritten => "non-root-written",
            Self::NonRootGarbled => "non-root-garbled",
            Self::BystanderWritten => "bystander-written",
            Self::RefusedAndWritten => "refused-and-written",
            Self::GotWorldInsteadOfGroup => "got-world-instead-of-group",
            Self::LowPrecisionAccumulation(_) => "low-precision-accumulation",
            Self::CompressedInputs(_) => "compressed-inputs",
            Self::ErrorBeyondBound => "error-beyond-bound",
            Self::OffByOneUlp => "off-by-one-ulp",
            Self::OneSidedRounding(_) => "one-sided-rounding",
            Self::NanDropped => "nan-dropped",
            Self::NanDependsOnRank => "nan-depends-on-rank",
            Self::NanBitsChanged => "nan-bits-changed",
            Self::InfFlushed => "inf-flushed",
            Self::DenormalFlushed => "denormal-flushed",
            Self::NegativeZeroLost => "negative-zero-lost",
            Self::Saturated => "saturated-instead-of-wrapped",
            Self::BoolNormalised => "bool-normalised",
            Self::NotDeterministic => "not-deterministic",
            Self::AccumulatedIn(_) => "accumulated-otherwise",
            Self::RanksDisagree => "ranks-disagree",
            Self::EarlyLeave => "early-leave",
            Self::WrongSender => "wrong-sender",
            Self::MessageOrderSwapped => "message-order-swapped",
            Self::WrongObject => "wrong-object",
            Self::ZeroOutput => "zero-output",
            Self::NanOutput => "nan-output",
            Self::Conjugated => "conjugated",
            Self::PartsSwapped => "parts-swapped",
            Self::ImaginaryPartLost => "imaginary-part-lost",
            Self::BytesSwapped => "bytes-swapped",
            Self::BoolOutOfRange => "bool-out-of-range",
            Self::ThroughFloat => "through-float",
            Self::CombinedAs(_) => "combined-as-other-type",
            Self::ComparedWithOtherSign => "compared-with-other-sign",
            Self::WrongIdentity => "wrong-identity",
            Self::LogicalInsteadOfBitwise => "logical-instead-of-bitwise",
            Self::HighBitsWrong => "high-bits-wrong",
            Self::ElementsPermuted => "elements-permuted",
            Self::BlocksMixed => "blocks-mixed",
            Self::Narrowed(_) => "narrowed",
            Self::AddressShifted(_) => "address-shifted",
            Self::FactorOfAnotherRank => "factor-of-another-rank",
            Self::FactorRepeated(_) => "factor-repeated",
            Self::LowBitsLost => "low-bits-lost",
            Self::CallsCrossed => "calls-crossed",
            Self::DataOfAnotherCall => "data-of-another-call",
            Self::MalformedReply => "malformed-reply",
            Self::Unclassified => "unclassified",
        }
    }

    /// Describes the class in one sentence, as the console and reports print it.
    #[must_use]
    pub fn sentence(&self) -> String {
        let text = match *self {
            Self::NoOp => "the call changed nothing",
            Self::StaleSentinel => "outputs still hold what they held before the call",
            Self::OwnTimesWorld => {
                "each rank used its own data in place of every other rank's: no communication"
            }
            Self::AvgDividedTwice => "AVG divided by the world size twice",
            Self::AvgDidSum => "AVG returned the sum: never divided by the world size",
            Self::AvgDividedByWorld => {
                "AVG over a group divided by the size of the world, not of the group"
            }
            Self::AvgDividedBy(by) => return format!("AVG divided by {by}"),
            Self::SumDidAvg => "SUM returned the average: divided by the world size",
            Self::DidOp(op) => {
                return format!("the values are those of {}", op.name().to_uppercase());
            }
            Self::RankDropped(rank) => return format!("rank {rank}'s contribution is missing"),
            Self::OwnDropped => "each rank's own contribution is missing",
            Self::OwnOnly => "the rank's own contribution alone: nothing was combined with it",
            Self::RankDoubled(rank) => return format!("rank {rank}'s contribution counts twice"),
            Self::ChunkShifted(by) => {
                return format!("each block is the one that belongs {by} further on");
            }
            Self::ElementsShifted(by) => {
                return format!("elements lie {by:+} from where they belong");
            }
            Self::OrderReversed => "elements lie in reverse order",
            Self::BlocksPermuted => "blocks are in the wrong rank order",
            Self::TailNotReduced(from) => {
                return format!("the tail is not reduced, from element {from} on");
            }
            Self::PrefixOnly(from) => {
                return format!("only the first {from} elements were written");
            }
            Self::LastElement => "only the last element is wrong",
            Self::WrongRoot(rank) => return format!("rank {rank} was taken for the root"),
            Self::RootIgnored => "the root was ignored: the group's first rank was taken for it",
            Self::AllPeersGotSlice0 => "every rank got the slice meant for the group's first rank",
            Self::DestinationSwapped => "ranks got what was meant for other ranks",
            Self::NonContiguousReadAsDense => "a non-contiguous input was read as if it were dense",
            Self::StridedOutputLost => "the result never reached the non-contiguous output",
            Self::OnlyDensePartWritten => "a non-contiguous output was written as if it were dense",
            Self::OverlappingOutputAccepted => {
                "an output several of whose elements are one in memory was not refused"
            }
            Self::OverlappingOutputGarbled => {
                "an output several of whose elements are one in memory was not refused, and holds what no order of writes gives"
            }
            Self::GuardOverwritten {
                before,
                after,
                between,
            } => {
                let parts = [
                    (before, "before it"),
                    (after, "after it"),
                    (between, "between its elements"),
                ];
                let parts: Vec<String> = parts
                    .iter()
                    .filter(|(bytes, _)| *bytes > 0)
                    .map(|(bytes, place)| format!("{bytes} bytes {place}"))
                    .collect();
                return format!(
                    "memory outside a tensor was written to: {}",
                    parts.join(", ")
                );
            }
            Self::InputModified => "an input was modified",
            Self::NonRootWritten => "a rank that is not the root had its tensor written to",
            Self::NonRootGarbled => {
                "a rank that is not the root had its tensor written to, with what is no partial result"
            }
            Self::BystanderWritten => "a rank outside the group had its memory written to",
            Self::RefusedAndWritten => "the call was refused, and yet memory was written to",
            Self::GotWorldInsteadOfGroup => {
                "the result is that of the whole world, not of the group"
            }
            Self::LowPrecisionAccumulation(name) => {
                return format!("as inexact as if it had been accumulated in {name}");
            }
            Self::CompressedInputs(name) => {
                return format!("contributions were rounded to {name} before they were combined");
            }
            Self::ErrorBeyondBound => {
                "farther from the exact result than rounding in any order explains"
            }
            Self::NanDropped => "a NaN among the contributions does not show in the result",
            Self::NanDependsOnRank => {
                "whether a NaN wins MIN or MAX depends on the rank that holds it"
            }
            Self::NanBitsChanged => "a NaN that was only moved arrived with other bits",
            Self::InfFlushed => "an infinity, or a sum too large for the type, came out finite",
            Self::DenormalFlushed => "denormal numbers came out as zero",
            Self::NegativeZeroLost => "a negative zero came out as a positive one",
            Self::Saturated => "integers stopped at the end of their range: no wrap-around",
            Self::BoolNormalised => "the byte of a bool that was only moved came out as 1",
            Self::NotDeterministic => {
                "the same call on the same data gave other bits, although the platform file promises the same"
            }
            Self::AccumulatedIn(how) => {
                return format!(
                    "accumulated in {}, although the platform file promises otherwise",
                    how.name()
                );
            }
            Self::OneSidedRounding(side) => {
                return format!("results are rounded {}, not to nearest", side.words());
            }
            Self::OffByOneUlp => "off by one unit in the last place: a rounding difference",
            Self::RanksDisagree => "every rank is within bounds, but not all hold the same bits",
            Self::EarlyLeave => "a rank left the barrier before every rank had entered it",
            Self::WrongSender => "a message came from another sender than asked for",
            Self::MessageOrderSwapped => "messages of one pair of ranks overtook each other",
            Self::WrongObject => "a rank received another object than was sent",
            Self::ZeroOutput => "wrong elements are all zero",
            Self::NanOutput => "wrong elements are all NaN",
            Self::Conjugated => "complex numbers came out conjugated",
            Self::PartsSwapped => "real and imaginary parts changed places",
            Self::ImaginaryPartLost => "imaginary parts came out as zero, or as they were",
            Self::BytesSwapped => "the bytes of each element lie in reverse order",
            Self::BoolOutOfRange => "a bool came out as neither 0 nor 1",
            Self::ThroughFloat => {
                "integers came out rounded, as if carried in a floating-point type"
            }
            Self::CombinedAs(dtype) => {
                return format!("elements were combined as if they were {dtype}");
            }
            Self::ComparedWithOtherSign => {
                "signed integers were compared as unsigned ones, or unsigned as signed"
            }
            Self::WrongIdentity => {
                "MIN or MAX began with a number that is not its identity: what lies beyond came out as that number"
            }
            Self::LogicalInsteadOfBitwise => {
                "a bitwise operator was applied to truth values, not to bits"
            }
            Self::HighBitsWrong => "only bits of the upper half of each element are wrong",
            Self::ElementsPermuted => "elements of the right block lie at other places",
            Self::BlocksMixed => "elements of other blocks lie among the right ones",
            Self::Narrowed(bits) => {
                return format!("integers kept only their low {bits} bits");
            }
            Self::AddressShifted(by) => {
                return format!(
                    "each element is what lies {by:+} bytes from where it must be read"
                );
            }
            Self::FactorOfAnotherRank => {
                "the factor of the group's first rank was applied to every contribution"
            }
            Self::FactorRepeated(times) => {
                return format!("each factor was applied {times} times");
            }
            Self::LowBitsLost => {
                "the lowest bits of elements that were only moved came out as zero"
            }
            Self::CallsCrossed => "some ranks' contributions are those of another call",
            Self::DataOfAnotherCall => "wrong elements belong to another call",
            Self::MalformedReply => "the answer does not have the form of the step",
            Self::Unclassified => "the values are wrong in a way allranks has no name for",
        };
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use strum::EnumCount;

    use super::*;

    #[test]
    fn every_class_is_listed_and_has_a_name_and_a_sentence_of_its_own() {
        let every = Class::every();
        let kinds: BTreeSet<Sort> = every.iter().map(Sort::from).collect();
        assert_eq!(kinds.len(), Class::COUNT);
        let names: BTreeSet<&str> = every.iter().map(Class::name).collect();
        assert_eq!(names.len(), every.len());
        let sentences: BTreeSet<String> = every.iter().map(Class::sentence).collect();
        assert_eq!(sentences.len(), every.len());
    }
}
