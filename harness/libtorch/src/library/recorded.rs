//! A call that a coalescing manager has gathered, as data.

use tch::Tensor;

/// A call that was gathered instead of made.
#[derive(Debug)]
pub struct Recorded {
    /// Which.
    pub what: What,
    /// What it reads, or reads and writes.
    pub input: Tensor,
    /// What it writes, if that is another.
    pub output: Option<Tensor>,
    /// Its reduce operator.
    pub op: Option<allranks_model::dtype::ReduceOp>,
}

/// The calls that are gathered; others are made at once even inside a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    AllReduce,
    AllGatherIntoTensor,
    ReduceScatterTensor,
}
