//! A call that a coalescing manager has gathered for later, as data.

use tch::Tensor;

/// A call that was gathered instead of made.
#[derive(Debug)]
pub struct GatheredCall {
    /// The call.
    pub what: GatheredOp,
    /// The tensor that it reads, or reads and writes.
    pub input: Tensor,
    /// The tensor that it writes; `None` if that is `input`.
    pub output: Option<Tensor>,
    /// The reduce operator; `None` if the call does not reduce.
    pub op: Option<allranks_model::dtype::ReduceOp>,
}

/// The ops that are gathered; others are made at once even inside a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatheredOp {
    AllReduce,
    AllGatherIntoTensor,
    ReduceScatterTensor,
}
