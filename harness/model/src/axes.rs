//! The values of the axes of a sweep: what varies from one check of an op to another. [`crate::axis`] is the table of the axes.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dtype::{DType, DTypeKind, ReduceOp};

/// The kind of tensor, as torch tells them apart: by `requires_grad`, inference mode and pinned memory.
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
    schemars::JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TensorKind {
    /// An ordinary tensor: no gradient, pageable memory.
    Plain,
    /// Tensors that the op only reads are leaves with `requires_grad`, as parameters are, and the call is made outside of `no_grad`.
    RequiresGrad,
    /// Tensors are made, and the call is made, in inference mode.
    Inference,
    /// Tensors in page-locked host memory; for platforms with a device.
    Pinned,
}

/// The number of elements and the shape of *one rank's contribution*: for all_gather the input, for reduce_scatter the output,
/// for all_to_all one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// A 0-dim tensor: one element, no dimension.
    Scalar,
    /// One dimension of this many elements.
    Flat(u64),
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar => f.write_str("scalar"),
            Self::Flat(n) => n.fmt(f),
        }
    }
}

impl Extent {
    /// Returns the number of elements; 1 for a 0-dim tensor.
    #[must_use]
    pub fn numel(self) -> u64 {
        match self {
            Self::Scalar => 1,
            Self::Flat(n) => n,
        }
    }
}

/// How a tensor's elements are laid out in its storage: strides and offset.
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
#[strum(serialize_all = "snake_case")]
pub enum Layout {
    /// Dense, but never at the start of its storage: guard bands lie on both sides.
    Contiguous,
    /// Every second element of a row of memory; the gaps are guard bytes, which must stay as they are.
    Strided,
    /// Two-dimensional and transposed; `numel` is rounded down to a multiple of two rows.
    Transposed,
    /// Dense, an odd number of elements into its storage, so not aligned to 16 bytes.
    Offset,
    /// Dense, at every distance from an address divisible by 16 that the dtype allows: another one for each tensor, each
    /// rank and each size. There is none for dtypes of 16 bytes.
    Unaligned,
    /// Rows of eight elements that are one row in memory: a stride of 0, as `expand` makes it. As an output it cannot
    /// hold a result and must be refused. `numel` is rounded down to whole rows.
    Expanded,
    /// Four-dimensional, in channels-last order; `numel` is rounded down to a multiple of 8.
    ChannelsLast,
}

/// Which of a check's tensors have its layout; the others have the same shape and are contiguous.
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
#[strum(serialize_all = "snake_case")]
pub enum LayoutOf {
    /// All tensors of the check.
    All,
    /// The tensors that the op only reads.
    Input,
    /// The tensors that the op only writes.
    Output,
    /// The tensors of odd group ranks: equal shapes with different strides in one call.
    OddRanks,
}

/// The shape of a tensor that holds the contributions of all ranks.
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
#[strum(serialize_all = "snake_case")]
pub enum Joined {
    /// One after another along their first dimension.
    Cat,
    /// Along a new first dimension.
    Stack,
}

/// Whether the call blocks, or returns a work to wait for.
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
#[strum(serialize_all = "snake_case")]
pub enum Mode {
    /// `async_op=False`.
    Sync,
    /// `async_op=True`, then `wait()`.
    Async,
}

/// Whether input and output share memory, for ops with both.
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
#[strum(serialize_all = "snake_case")]
pub enum Placement {
    /// Input and output have separate storages.
    OutOfPlace,
    /// The smaller one is a slice of the larger: this rank's own block.
    InPlace,
}

/// What is expected of the buffers of ranks that receive nothing from a `reduce`.
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
#[strum(serialize_all = "snake_case")]
pub enum NonRoot {
    /// Nothing: the documentation promises the result to the root only and says nothing of the others.
    Unspecified,
    /// They must hold what they held before the call.
    Untouched,
}

/// A root: a rank of the check's group, named to the library by global or by group rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Root {
    /// The rank's position in the group, from 0.
    pub group_rank: u32,
    /// Whether the call names the root by global or by group rank.
    pub by: RootBy,
}

impl Root {
    /// The first rank of the group, named by its rank in the world: the root of a step that names none.
    pub const FIRST: Self = Self {
        group_rank: 0,
        by: RootBy::Global,
    };
}

/// How a call names its root or peer.
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
#[strum(serialize_all = "snake_case")]
pub enum RootBy {
    /// `src=`, `dst=`: the rank in the world.
    Global,
    /// `group_src=`, `group_dst=`: the rank in the group.
    Group,
}

/// The split sizes of all_to_all, and the sizes of the tensors in the lists of other ops; `numel` is the base size of a slice.
/// An op on lists has one size for each rank, all_to_all one for each ordered pair.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Splits {
    /// No split sizes passed; every slice has `numel` elements.
    Even,
    /// A different size for every ordered pair of ranks.
    Uneven,
    /// Like `uneven`, with some pairs exchanging nothing and, from three ranks on, one rank sending nothing at all.
    WithZero,
    /// Explicit split sizes, all zero.
    AllZero,
    /// Explicit: `explicit[i][j]` elements from group rank i to group rank j.
    Explicit(Vec<Vec<u64>>),
}

/// The variants of [`Splits`] without their data.
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
#[expect(missing_docs, reason = "the kinds are those of `Splits`")]
#[strum(serialize_all = "snake_case")]
pub enum SplitsKind {
    Even,
    Uneven,
    WithZero,
    AllZero,
    Explicit,
}

impl Splits {
    /// Returns the variant without the explicit sizes.
    #[must_use]
    pub fn kind(&self) -> SplitsKind {
        match self {
            Self::Even => SplitsKind::Even,
            Self::Uneven => SplitsKind::Uneven,
            Self::WithZero => SplitsKind::WithZero,
            Self::AllZero => SplitsKind::AllZero,
            Self::Explicit(_) => SplitsKind::Explicit,
        }
    }

    /// Returns the word for it in ids and records: `matrix` for what is explicit.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Explicit(_) => "matrix",
            other => other.kind().into(),
        }
    }
}

/// Which rank sends to which in a point-to-point check.
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
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Pairs {
    /// Each rank to the next, cyclically.
    Ring,
    /// Every ordered pair, each with its own data.
    All,
    /// Every rank to itself (only `batch_isend_irecv` allows it on some backends).
    Own,
    /// One group rank to another: a script's message, not written in a sweep.
    #[serde(skip)]
    #[schemars(skip)]
    Link {
        /// Group rank of the sender.
        from: u32,
        /// Group rank of the receiver.
        to: u32,
    },
}

/// The kind of values that the input tensors hold.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
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
#[strum(serialize_all = "snake_case")]
pub enum Values {
    /// Values whose result is exact in any order; every bit pattern for ops that only move data.
    #[default]
    Exact,
    /// Random reals of which pairs of ranks nearly cancel; the result may be off by what rounding in any order explains.
    Random,
    /// NaN, infinities, negative zeros, denormals and overflow, each rank holding them in turn; for ops that only move
    /// data, mostly NaNs of every kind, and bools that are neither 0 nor 1.
    Special,
    /// Integers of the whole range, the extremes among them: sums and products wrap around, averages are of negative
    /// sums that the number of ranks does not divide.
    Extremes,
}

impl Values {
    /// Returns why these values have no defined result for a dtype and a reduce operator (`None`: an op that only moves data), or
    /// `None` if they have one.
    #[must_use]
    pub fn are_undefined(self, dtype: DType, reduce: Option<ReduceOp>) -> Option<String> {
        let kind = dtype.kind();
        let sums = matches!(
            reduce,
            Some(ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum)
        );
        let narrow = matches!(dtype, DType::Float8E4m3fn | DType::Float8E5m2);
        let whole = matches!(kind, DTypeKind::Signed | DTypeKind::Unsigned);
        match self {
            Self::Exact => None,
            Self::Random if sums && matches!(kind, DTypeKind::Float | DTypeKind::Complex) => None,
            Self::Random if reduce == Some(ReduceOp::Product) && kind == DTypeKind::Float => None,
            Self::Random => Some("only sums and products of floats round".to_owned()),
            Self::Special if whole => Some("integers have no special values".to_owned()),
            Self::Special if reduce.is_none() => None,
            Self::Special if kind == DTypeKind::Float && !narrow => None,
            Self::Special => Some(format!(
                "IEEE 754 says nothing of special values of {dtype} in reductions"
            )),
            Self::Extremes if whole && reduce.is_some() => None,
            Self::Extremes => Some("only reductions of integers have extremes".to_owned()),
        }
    }
}

/// The factor by which `premul_sum` multiplies each rank's contribution.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
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
#[strum(serialize_all = "snake_case")]
pub enum Factor {
    /// The number 3 on every rank.
    #[default]
    Scalar,
    /// A tensor of one element of the check's dtype that holds 3, on every rank.
    Tensor,
    /// A number that differs from rank to rank: 3, -5, 6, -7 and again.
    PerRank,
}

impl Factor {
    /// Returns the factor of the rank at a position of the group, from 0.
    #[must_use]
    pub fn of(self, position: usize) -> f64 {
        match self {
            Self::Scalar | Self::Tensor => 3.0,
            Self::PerRank => [3.0, -5.0, 6.0, -7.0][position % 4],
        }
    }

    /// Returns the largest magnitude of the factors of all ranks.
    #[must_use]
    pub fn largest(self) -> u64 {
        match self {
            Self::Scalar | Self::Tensor => 3,
            Self::PerRank => 7,
        }
    }
}

/// The Python object that an object collective carries; each rank's differs in content and in size.
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
#[strum(serialize_all = "snake_case")]
pub enum ObjectKind {
    /// A small dict of numbers, strings, lists and None.
    Small,
    /// A string of about 100 kB, its length different on each rank.
    Large,
    /// None on even group ranks, a list on odd ones.
    Mixed,
}
