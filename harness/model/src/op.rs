//! What kind of thing each op is. Which parameters it takes in a case file says the table of [axes](crate::axis).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// What a check exercises. The names are those of case files: the function of `torch.distributed`, or a
/// pattern made of several.
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
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
}

impl Op {
    /// Whether it combines values with a reduce operator.
    #[must_use]
    pub fn reduces(self) -> bool {
        matches!(
            self,
            Self::AllReduce
                | Self::AllReduceCoalesced
                | Self::AllReduceSparse
                | Self::Reduce
                | Self::ReduceScatter
                | Self::ReduceScatterTensor
                | Self::CoalescedAllReduce
                | Self::CoalescedReduceScatterTensor
        )
    }

    /// Whether one rank is special.
    #[must_use]
    pub fn has_root(self) -> bool {
        matches!(
            self,
            Self::Broadcast
                | Self::Reduce
                | Self::Gather
                | Self::Scatter
                | Self::GatherObject
                | Self::BroadcastObjectList
                | Self::ScatterObjectList
        )
    }

    /// Whether it is point to point.
    #[must_use]
    pub fn has_pairs(self) -> bool {
        matches!(
            self,
            Self::SendRecv | Self::IsendIrecv | Self::BatchIsendIrecv
        )
    }

    /// Whether it carries Python objects.
    #[must_use]
    pub fn has_objects(self) -> bool {
        matches!(
            self,
            Self::AllGatherObject
                | Self::GatherObject
                | Self::BroadcastObjectList
                | Self::ScatterObjectList
        )
    }

    /// Whether it is a barrier.
    #[must_use]
    pub fn is_barrier(self) -> bool {
        matches!(self, Self::Barrier | Self::MonitoredBarrier)
    }

    /// Whether it handles several tensors in one call, `count` of them.
    #[must_use]
    pub fn is_coalesced(self) -> bool {
        matches!(
            self,
            Self::AllReduceCoalesced
                | Self::AllGatherCoalesced
                | Self::CoalescedAllReduce
                | Self::CoalescedAllGatherIntoTensor
                | Self::CoalescedReduceScatterTensor
        )
    }
}

impl Op {
    /// Every op, in the order of the case schema.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The name in case files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether it moves tensors (not only objects, and not nothing).
    #[must_use]
    pub fn has_tensors(self) -> bool {
        !self.has_objects() && !self.is_barrier()
    }

    /// Whether it moves tensors, and dense ones.
    #[must_use]
    pub fn has_dense_tensors(self) -> bool {
        self.has_tensors() && self != Self::AllReduceSparse
    }

    /// Whether its input and its output are tensors of their own, which may share memory.
    #[must_use]
    pub fn has_input_and_output(self) -> bool {
        matches!(
            self,
            Self::Gather
                | Self::Scatter
                | Self::AllGather
                | Self::AllGatherIntoTensor
                | Self::ReduceScatter
                | Self::ReduceScatterTensor
                | Self::CoalescedReduceScatterTensor
                | Self::AllGatherCoalesced
                | Self::CoalescedAllGatherIntoTensor
        )
    }

    /// Whether it handles a slice for each rank, and the slices may differ in size.
    #[must_use]
    pub fn has_slices(self) -> bool {
        matches!(
            self,
            Self::AllToAll
                | Self::AllToAllSingle
                | Self::AllGather
                | Self::Gather
                | Self::Scatter
                | Self::ReduceScatter
        )
    }
}
