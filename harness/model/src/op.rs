//! The ops that checks exercise, and properties of each: whether it reduces, has a root, moves tensors. The parameters that each
//! takes in a case file are in the table of [axes](crate::axis).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumMessage, VariantArray};

/// The op that a check exercises: a function of `torch.distributed`, or a pattern of several calls. Names are those of case files.
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
    strum::EnumMessage,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Op {
    /// `all_reduce` of one tensor.
    AllReduce,
    /// `all_reduce_coalesced` over `count` tensors of different sizes.
    AllReduceCoalesced,
    /// `all_reduce` of sparse tensors (COO): `numel` indices that every rank has, and as many for each rank alone.
    AllReduceSparse,
    /// `broadcast` of one tensor from the root.
    Broadcast,
    /// `reduce` of one tensor to the root.
    Reduce,
    /// `all_gather` into a list.
    AllGather,
    /// `all_gather_coalesced` over `count` tensors.
    AllGatherCoalesced,
    /// `all_gather_into_tensor`: into one tensor.
    AllGatherIntoTensor,
    /// `gather` into a list on the root.
    Gather,
    /// `scatter` from a list on the root.
    Scatter,
    /// `reduce_scatter` from a list.
    ReduceScatter,
    /// `reduce_scatter_tensor`: from one tensor.
    ReduceScatterTensor,
    /// `all_to_all` on lists.
    AllToAll,
    /// `all_to_all_single`: from one tensor into one tensor.
    AllToAllSingle,
    /// Blocking `send` and `recv` along a pattern, see `pairs`.
    SendRecv,
    /// `isend` and `irecv` along a pattern, see `pairs`.
    IsendIrecv,
    /// `batch_isend_irecv` along a pattern, see `pairs`.
    BatchIsendIrecv,
    /// `barrier`, each rank late in turn: no rank leaves before the last one enters.
    Barrier,
    /// `monitored_barrier`, each rank late in turn: no rank leaves before the last one enters.
    MonitoredBarrier,
    /// `count` calls of `all_reduce` inside `_coalescing_manager`.
    CoalescedAllReduce,
    /// `count` calls of `all_gather_into_tensor` inside `_coalescing_manager`.
    CoalescedAllGatherIntoTensor,
    /// `count` calls of `reduce_scatter_tensor` inside `_coalescing_manager`.
    CoalescedReduceScatterTensor,
    /// `all_gather_object`: every rank's object to every rank.
    AllGatherObject,
    /// `gather_object`: every rank's object to the root.
    GatherObject,
    /// `broadcast_object_list`: the root's objects to every rank.
    BroadcastObjectList,
    /// `scatter_object_list`: one object of the root's to each rank.
    ScatterObjectList,
}

impl Op {
    /// Returns true if the op combines values with a reduce operator.
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

    /// Returns true if the call names a root.
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

    /// Returns true if the op is point to point, along a pattern, see `pairs`.
    #[must_use]
    pub fn has_pairs(self) -> bool {
        matches!(
            self,
            Self::SendRecv | Self::IsendIrecv | Self::BatchIsendIrecv
        )
    }

    /// Returns true if the op carries Python objects.
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

    /// Returns true if the op is a barrier.
    #[must_use]
    pub fn is_barrier(self) -> bool {
        matches!(self, Self::Barrier | Self::MonitoredBarrier)
    }

    /// Returns true if the op handles several tensors in one call, `count` of them.
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

    /// Returns the name in case files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns what the op calls, in one sentence.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// Returns true if the op moves tensors, that is unless it carries objects or is a barrier.
    #[must_use]
    pub fn has_tensors(self) -> bool {
        !self.has_objects() && !self.is_barrier()
    }

    /// Returns true if it moves tensors, and dense ones.
    #[must_use]
    pub fn has_dense_tensors(self) -> bool {
        self.has_tensors() && self != Self::AllReduceSparse
    }

    /// Returns true if its input and its output are tensors of their own, which may share memory.
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

    /// Returns true if it handles a slice for each rank, and the slices may differ in size.
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
