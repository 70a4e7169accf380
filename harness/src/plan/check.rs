//! A check: one assertion inside a scenario, at one point of its step's sweep. Plain data, complete in itself: the
//! oracle and the judge need nothing else from the case.

use std::sync::Arc;

use super::{Demand, Script};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dtype::{DType, Kind, ReduceOp};
use crate::names::{CheckId, Rank, RequirementId};
use crate::platform::Promises;
use crate::protocol::TensorKind;

/// What a check exercises. The names are those of case files: the function of `torch.distributed`, or a
/// pattern made of several.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// `all_reduce`.
    AllReduce,
    /// `all_reduce_coalesced` over `count` tensors of different sizes.
    AllReduceCoalesced,
    /// `all_reduce` of sparse tensors (COO): `numel` indices that every rank has, and as many for each rank alone.
    AllReduceSparse,
    /// `broadcast`.
    Broadcast,
    /// `reduce`.
    Reduce,
    /// `all_gather` into a list.
    AllGather,
    /// `all_gather_coalesced` over `count` tensors.
    AllGatherCoalesced,
    /// `all_gather_into_tensor`.
    AllGatherIntoTensor,
    /// `gather`.
    Gather,
    /// `scatter`.
    Scatter,
    /// `reduce_scatter` from a list.
    ReduceScatter,
    /// `reduce_scatter_tensor`.
    ReduceScatterTensor,
    /// `all_to_all` on lists.
    AllToAll,
    /// `all_to_all_single`.
    AllToAllSingle,
    /// Blocking `send` and `recv` along a [`Pairs`] pattern.
    SendRecv,
    /// `isend` and `irecv` along a [`Pairs`] pattern.
    IsendIrecv,
    /// `batch_isend_irecv` along a [`Pairs`] pattern.
    BatchIsendIrecv,
    /// `barrier`, each rank late in turn: no rank leaves before the last one enters.
    Barrier,
    /// `monitored_barrier`, likewise.
    MonitoredBarrier,
    /// `count` calls of `all_reduce` inside `_coalescing_manager`.
    CoalescedAllReduce,
    /// `count` calls of `all_gather_into_tensor` inside `_coalescing_manager`.
    CoalescedAllGatherIntoTensor,
    /// `count` calls of `reduce_scatter_tensor` inside `_coalescing_manager`.
    CoalescedReduceScatterTensor,
    /// `all_gather_object`.
    AllGatherObject,
    /// `gather_object`.
    GatherObject,
    /// `broadcast_object_list`.
    BroadcastObjectList,
    /// `scatter_object_list`.
    ScatterObjectList,
    /// A script: its own list of moves, not one op. Written as `script:`, never as an op.
    #[schemars(skip)]
    Script,
    /// What a program is asked for, see [`Demand`]. Written as `program:` of a case.
    #[serde(skip_deserializing)]
    #[schemars(skip)]
    Program,
}

/// How many elements, and in what shape: the size of *one rank's contribution* (for all_gather the input, for
/// reduce_scatter the output, for all_to_all one slice).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// A 0-dim tensor: one element, no dimension.
    Scalar,
    /// One dimension of this many elements.
    Flat(u64),
}

impl Extent {
    /// The number of elements.
    #[must_use]
    pub fn numel(self) -> u64 {
        match self {
            Self::Scalar => 1,
            Self::Flat(n) => n,
        }
    }
}

/// How a tensor lies in its storage.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Dense, but never at the start of its storage: guard bands lie on both sides.
    Contiguous,
    /// Every second element; the gaps belong to the guard.
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
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LayoutOf {
    /// All of them.
    All,
    /// Those that are only read.
    Input,
    /// Those that are only written.
    Output,
    /// Those of odd group ranks: equal shapes with different strides in one call.
    OddRanks,
}

/// In what shape all ranks' contributions lie in one tensor.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Joined {
    /// One after another along their first dimension.
    Cat,
    /// Along a new first dimension.
    Stack,
}

/// Whether the call returns a work to wait for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// `async_op=False`.
    Sync,
    /// `async_op=True`, then `wait()`.
    Async,
}

/// Whether input and output share memory, for ops with both.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Separate storages.
    OutOfPlace,
    /// The smaller one is a slice of the larger: this rank's own block.
    InPlace,
}

/// What is asked of the buffers of ranks that receive nothing from a `reduce`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NonRoot {
    /// Nothing: the documentation promises the result to the root only and says nothing of the others.
    Unspecified,
    /// That they are as before.
    Untouched,
}

/// A root: a rank of the check's group, named to the library by global or by group rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Root {
    /// Position in the group.
    pub group_rank: u32,
    /// How the call names it.
    pub by: RootBy,
}

/// How a call names its root or peer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RootBy {
    /// `src=`, `dst=`: the rank in the world.
    Global,
    /// `group_src=`, `group_dst=`: the rank in the group.
    Group,
}

/// How all_to_all divides its tensors, and of what sizes the lists of other ops are (`numel` is the base size of a
/// slice). A list op has one size for each rank, all_to_all one for each ordered pair.
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

/// A kind of split sizes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the kinds are those of `Splits`")]
pub enum SplitsKind {
    Even,
    Uneven,
    WithZero,
    AllZero,
    Explicit,
}

impl Splits {
    /// Its kind.
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
}

/// Who sends to whom in a point-to-point check.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
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
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
    },
}

/// What values the tensors hold.
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
)]
#[serde(rename_all = "snake_case")]
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
    /// Why no dtype and operator of this kind has such values with a defined result, if so.
    #[must_use]
    pub fn are_undefined(self, dtype: DType, reduce: Option<ReduceOp>) -> Option<String> {
        let kind = dtype.kind();
        let sums = matches!(
            reduce,
            Some(ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum)
        );
        let narrow = matches!(dtype, DType::Float8E4m3fn | DType::Float8E5m2);
        let whole = matches!(kind, Kind::Signed | Kind::Unsigned);
        match self {
            Self::Exact => None,
            Self::Random if sums && matches!(kind, Kind::Float | Kind::Complex) => None,
            Self::Random if reduce == Some(ReduceOp::Product) && kind == Kind::Float => None,
            Self::Random => Some("only sums and products of floats round".to_owned()),
            Self::Special if whole => Some("integers have no special values".to_owned()),
            Self::Special if reduce.is_none() => None,
            Self::Special if kind == Kind::Float && !narrow => None,
            Self::Special => Some(format!(
                "IEEE 754 says nothing of special values of {dtype} in reductions"
            )),
            Self::Extremes if whole && reduce.is_some() => None,
            Self::Extremes => Some("only reductions of integers have extremes".to_owned()),
        }
    }
}

/// What `premul_sum` multiplies each rank's contribution by.
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
)]
#[serde(rename_all = "snake_case")]
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
    /// The factor of the rank at a position of the group.
    #[must_use]
    pub fn of(self, position: usize) -> f64 {
        match self {
            Self::Scalar | Self::Tensor => 3.0,
            Self::PerRank => [3.0, -5.0, 6.0, -7.0][position % 4],
        }
    }

    /// The largest magnitude among them.
    #[must_use]
    pub fn largest(self) -> u64 {
        match self {
            Self::Scalar | Self::Tensor => 3,
            Self::PerRank => 7,
        }
    }
}

/// What Python object an object collective carries; each rank's differs in content and in size.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// A small dict of numbers, strings, lists and None.
    Small,
    /// A string of about 100 kB, its length different on each rank.
    Large,
    /// None on even group ranks, a list on odd ones.
    Mixed,
}

/// How a process group is made, apart from its members and its backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Creation {
    /// Members in the order in which the library is given them; empty: in group order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<Rank>,
    /// The library's own timeout, seconds, if not the world's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// With `use_local_synchronization`.
    #[serde(default)]
    pub local_sync: bool,
    /// By `split_group`.
    #[serde(default)]
    pub split: bool,
    /// The name that all copies of a group have in common, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
}

/// A process group of a scenario, with its members worked out for the scenario's world size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// `world`, or the name in the case.
    pub name: String,
    /// Members as global ranks, in group order: the group rank is the position here.
    pub ranks: Vec<Rank>,
    /// Its backend, if not the world's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Whether its tensors are the host's although the platform has a device: its backend is not one for the device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_host: bool,
    /// How it is made.
    #[serde(default)]
    pub how: Creation,
}

impl Group {
    /// Whether a step that names `name` means it.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.how.family.as_deref() == Some(name)
    }

    /// The rank's position in the group, if it is a member.
    #[must_use]
    pub fn group_rank(&self, rank: Rank) -> Option<u32> {
        self.ranks
            .iter()
            .position(|member| *member == rank)
            .map(|position| position as u32)
    }

    /// The number of members.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ranks.len()
    }
}

/// Whether the platform file declares the check's combination as supported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Declared {
    /// It must work.
    Supported,
    /// It must raise a clear error on every rank and leave the group usable; the text says what is not supported.
    Unsupported(String),
}

impl Check {
    /// From how many elements of one contribution on tensors are too large to travel: ranks make them themselves, and
    /// windows are compared.
    pub const LARGE: u64 = 1 << 26;

    /// Whether it is a point of an op's sweep.
    #[must_use]
    pub fn is_of_sweep(&self) -> bool {
        self.script.is_none() && self.demand.is_none()
    }

    /// Whether its tensors are too large to travel.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.op.has_tensors() && self.extent.numel() >= Self::LARGE
    }

    /// Bytes of memory its ranks need together on one host: their tensors, as much again for the backend's own buffers.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let contribution = self.extent.numel().saturating_mul(self.dtype.size() as u64);
        let ranks = self.group.size() as u64;
        let tensors = match self.op {
            Op::AllGatherIntoTensor => 1 + ranks,
            Op::SendRecv => 2,
            _ => 1,
        };
        contribution
            .saturating_mul(ranks)
            .saturating_mul(tensors)
            .saturating_mul(2)
    }
}

/// One assertion, at one point of a step's sweep.
///
/// Fields that an op has no use for hold their neutral value (`None`, `Layout::Contiguous`, `Mode::Sync`, ...).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Unique in the run.
    pub id: CheckId,
    /// Position in the scenario, from 0; also the oracle's `call` number, so that no two checks share data.
    pub index: u32,
    /// What it exercises.
    pub op: Op,
    /// The group, with members.
    pub group: Arc<Group>,
    /// Element type (object collectives and barriers: uint8, unused).
    pub dtype: DType,
    /// Reduce operator, for ops that reduce.
    pub reduce: Option<ReduceOp>,
    /// Size of one rank's contribution.
    pub extent: Extent,
    /// Root, for ops that have one.
    pub root: Option<Root>,
    /// How tensors lie in their storages.
    pub layout: Layout,
    /// Which tensors do.
    pub layout_of: LayoutOf,
    /// What kind of tensors they are to torch.
    pub tensor: TensorKind,
    /// For ops with one tensor for all ranks' contributions.
    pub joined: Joined,
    /// Sync or async.
    pub mode: Mode,
    /// Shared memory between input and output.
    pub placement: Placement,
    /// For `reduce`.
    pub non_root: NonRoot,
    /// For all_to_all, and ops on lists.
    pub splits: Splits,
    /// For point-to-point ops.
    pub pairs: Pairs,
    /// How peers are named in point-to-point ops.
    pub peer_by: RootBy,
    /// Number of tensors (coalesced ops) or of messages for each pair (point-to-point).
    pub count: u32,
    /// Message tag (point-to-point).
    pub tag: u32,
    /// For object collectives.
    pub object: ObjectKind,
    /// Which group rank is late, for barriers.
    pub late: Option<u32>,
    /// The requirements it covers.
    pub covers: Arc<[RequirementId]>,
    /// What values its tensors hold.
    pub values: Values,
    /// For `premul_sum`.
    pub factor: Factor,
    /// What the platform file says of it.
    pub declared: Declared,
    /// What the platform file promises of the backend's arithmetic.
    pub promises: Promises,
    /// The sweep's axes and their values as written in the report, in order: `("dtype", "float32")`.
    pub params: Vec<(String, String)>,
    /// Where its step is written, `collectives/all_reduce/dtypes.yaml:12`.
    pub at: Arc<str>,
    /// What the ranks do, if it is a script.
    #[serde(skip)]
    pub script: Option<Arc<Script>>,
    /// What is asked, if the ranks run a program.
    #[serde(skip)]
    pub demand: Option<Demand>,
}
