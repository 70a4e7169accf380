//! What kind of thing each op is. Which parameters it takes in a case file is a table beside the loader.

use super::Op;

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
