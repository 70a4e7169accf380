//! What the backend's own records (torch's flight recorder) say of an op.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An op that a rank has issued and that has not ended, as the backend's own records have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedOp {
    /// `all_reduce`.
    pub op: String,
    /// The group, by the backend's name for it: `0 default_pg`.
    pub group: String,
    /// Its number among the group's collectives, or messages, from 1.
    pub number: u64,
    /// Dtype and shape of each input: `float[33]`.
    pub inputs: Vec<String>,
    /// `scheduled`, `started`.
    pub state: String,
}

impl fmt::Display for RecordedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            op,
            group,
            number,
            inputs,
            state,
        } = self;
        write!(f, "{op} number {number} of group {group}")?;
        if !inputs.is_empty() {
            write!(f, ", {}", inputs.join(" and "))?;
        }
        write!(f, ", is {state}")
    }
}
