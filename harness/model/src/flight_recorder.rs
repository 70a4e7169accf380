//! An op as torch's flight recorder, the backend's own record, describes it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::excerpt::excerpt_within;

/// An op that a rank has issued and that has not completed, as the flight recorder describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedOp {
    /// The op's name: `all_reduce`.
    pub op: String,
    /// The backend's name of the process group: `0 default_pg`.
    pub group: String,
    /// The op's sequence number among the group's collectives, or among its messages, from 1.
    pub number: u64,
    /// Dtype and shape of each input: `float[33]`.
    pub inputs: Vec<String>,
    /// The op's state: `scheduled` or `started`.
    pub state: String,
}

impl RecordedOp {
    /// Cuts its texts to lengths that no op of a backend needs, and its inputs to the first sixteen.
    #[must_use]
    pub fn cut(self) -> Self {
        let cut = |text: String| excerpt_within(text, 256);
        Self {
            op: cut(self.op),
            group: cut(self.group),
            number: self.number,
            inputs: self.inputs.into_iter().take(16).map(cut).collect(),
            state: cut(self.state),
        }
    }
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
