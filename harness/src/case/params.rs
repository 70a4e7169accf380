//! Which parameters an op takes: the one table that loading, the schema and the plan share.

use super::program::PROGRAM;
use super::{SCRIPT, StepParams};
use crate::plan::Op;

/// What every op takes.
const EVERY: [&str; 4] = ["group", "sweep", "covers", "profile"];

impl Op {
    /// Every op, in the order of the case schema.
    pub const ALL: [Self; 26] = [
        Self::AllReduce,
        Self::AllReduceCoalesced,
        Self::AllReduceSparse,
        Self::Broadcast,
        Self::Reduce,
        Self::AllGather,
        Self::AllGatherCoalesced,
        Self::AllGatherIntoTensor,
        Self::Gather,
        Self::Scatter,
        Self::ReduceScatter,
        Self::ReduceScatterTensor,
        Self::AllToAll,
        Self::AllToAllSingle,
        Self::SendRecv,
        Self::IsendIrecv,
        Self::BatchIsendIrecv,
        Self::Barrier,
        Self::MonitoredBarrier,
        Self::CoalescedAllReduce,
        Self::CoalescedAllGatherIntoTensor,
        Self::CoalescedReduceScatterTensor,
        Self::AllGatherObject,
        Self::GatherObject,
        Self::BroadcastObjectList,
        Self::ScatterObjectList,
    ];

    /// The name in case files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllReduceCoalesced => "all_reduce_coalesced",
            Self::AllReduceSparse => "all_reduce_sparse",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllGather => "all_gather",
            Self::AllGatherCoalesced => "all_gather_coalesced",
            Self::AllGatherIntoTensor => "all_gather_into_tensor",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::ReduceScatter => "reduce_scatter",
            Self::ReduceScatterTensor => "reduce_scatter_tensor",
            Self::AllToAll => "all_to_all",
            Self::AllToAllSingle => "all_to_all_single",
            Self::SendRecv => "send_recv",
            Self::IsendIrecv => "isend_irecv",
            Self::BatchIsendIrecv => "batch_isend_irecv",
            Self::Barrier => "barrier",
            Self::MonitoredBarrier => "monitored_barrier",
            Self::CoalescedAllReduce => "coalesced_all_reduce",
            Self::CoalescedAllGatherIntoTensor => "coalesced_all_gather_into_tensor",
            Self::CoalescedReduceScatterTensor => "coalesced_reduce_scatter_tensor",
            Self::AllGatherObject => "all_gather_object",
            Self::GatherObject => "gather_object",
            Self::BroadcastObjectList => "broadcast_object_list",
            Self::ScatterObjectList => "scatter_object_list",
            Self::Script => SCRIPT,
            Self::Program => PROGRAM,
        }
    }

    /// Whether it moves tensors (not only objects, and not nothing).
    #[must_use]
    pub fn has_tensors(self) -> bool {
        !self.has_objects() && !self.is_barrier() && !matches!(self, Self::Script | Self::Program)
    }

    /// Whether a parameter of a step means something to it.
    #[must_use]
    pub fn takes(self, parameter: &str) -> bool {
        let mut rules = RULES.iter();
        rules.any(|(parameters, takes)| parameters.contains(&parameter) && takes(self))
            || EVERY.contains(&parameter)
    }
}

impl StepParams {
    /// The parameters an op takes besides `group`, `sweep`, `covers` and `profile`, which every op takes.
    #[must_use]
    pub fn allowed(op: Op) -> Vec<&'static str> {
        RULES
            .iter()
            .filter(|(_, takes)| takes(op))
            .flat_map(|(parameters, _)| *parameters)
            .copied()
            .collect()
    }

    /// Every parameter an op takes, those of every op first.
    #[must_use]
    pub fn all_allowed(op: Op) -> Vec<&'static str> {
        EVERY.into_iter().chain(Self::allowed(op)).collect()
    }
}

fn has_dense_tensors(op: Op) -> bool {
    op.has_tensors() && op != Op::AllReduceSparse
}

/// Parameters, and which ops take them.
type Rule = (&'static [&'static str], fn(Op) -> bool);

/// Which ops take what.
const RULES: &[Rule] = &[
    (&["dtype", "numel"], Op::has_tensors),
    (
        &["layout", "layout_of", "tensor", "values"],
        has_dense_tensors,
    ),
    (&["op"], Op::reduces),
    (&["factor"], |op| op.reduces() && has_dense_tensors(op)),
    (&["root", "by"], Op::has_root),
    (&["pairs", "by", "count", "tag"], Op::has_pairs),
    (&["count"], Op::is_coalesced),
    (&["object"], Op::has_objects),
    (&["non_root"], |op| op == Op::Reduce),
    (&["mode"], |op| {
        op == Op::Barrier || (has_dense_tensors(op) && !op.has_pairs())
    }),
    (&["joined"], |op| {
        matches!(op, Op::AllGatherIntoTensor | Op::ReduceScatterTensor)
    }),
    (&["splits"], |op| {
        matches!(
            op,
            Op::AllToAll
                | Op::AllToAllSingle
                | Op::AllGather
                | Op::Gather
                | Op::Scatter
                | Op::ReduceScatter
        )
    }),
    (&["placement"], |op| {
        matches!(
            op,
            Op::Gather
                | Op::Scatter
                | Op::AllGather
                | Op::AllGatherIntoTensor
                | Op::ReduceScatter
                | Op::ReduceScatterTensor
                | Op::CoalescedReduceScatterTensor
                | Op::AllGatherCoalesced
                | Op::CoalescedAllGatherIntoTensor
        )
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_serialised_names_and_every_op_is_listed_once() {
        for op in Op::ALL {
            assert_eq!(serde_json::to_value(op).unwrap(), op.name());
            assert_eq!(Op::ALL.iter().filter(|other| **other == op).count(), 1);
        }
    }

    #[test]
    fn every_parameter_of_the_table_is_a_field() {
        let fields = serde_json::to_value(StepParams::default()).unwrap();
        let fields = fields.as_object().unwrap();
        let mut used: Vec<_> = Op::ALL
            .into_iter()
            .flat_map(StepParams::all_allowed)
            .collect();
        used.sort_unstable();
        used.dedup();
        let mut fields: Vec<_> = fields.keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(used, fields);
    }
}
