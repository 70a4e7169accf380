//! The parameters that each op takes in a case file; loader, schema and plan share this table.

use crate::op::Op;

/// Parameters that every op takes.
const EVERY: &[&str] = &["group", "sweep", "covers", "profile"];

impl Op {
    /// Returns true if the op takes the parameter of a step.
    #[must_use]
    pub fn takes(self, parameter: &str) -> bool {
        let mut rules = RULES.iter();
        rules.any(|(parameters, takes)| parameters.contains(&parameter) && takes(self))
            || EVERY.contains(&parameter)
    }

    /// Returns the parameters that the op takes besides `group`, `sweep`, `covers` and `profile`, which every op takes.
    #[must_use]
    pub fn parameters(self) -> Vec<&'static str> {
        RULES
            .iter()
            .filter(|(_, takes)| takes(self))
            .flat_map(|(parameters, _)| *parameters)
            .copied()
            .collect()
    }

    /// Returns every parameter that the op takes, those of every op first.
    #[must_use]
    pub fn all_parameters(self) -> Vec<&'static str> {
        EVERY.iter().copied().chain(self.parameters()).collect()
    }
}

fn has_dense_tensors(op: Op) -> bool {
    op.has_tensors() && op != Op::AllReduceSparse
}

/// Parameters, and a function that returns true for the ops that take them.
type Rule = (&'static [&'static str], fn(Op) -> bool);

/// The parameters of the ops, in the order of the case schema; a parameter of several rows is taken by the ops of each.
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
