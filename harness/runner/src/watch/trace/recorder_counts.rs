//! The numbers of collectives that torch's flight recorder has counted.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The flight recorder's names for the numbers of collectives of a group that were issued, and that have ended.
const ENQUEUED: &str = "last_enqueued_collective";
const COMPLETED: &str = "last_completed_collective";

/// Numbers of collectives that torch's flight recorder has counted, by its own number for the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecorderCounts {
    /// The counts now.
    #[serde(default)]
    pub status: Value,
    /// The counts when the dump was last written.
    #[serde(default)]
    pub dumped: Value,
    /// False if the recorder does not count what is issued, so that the counts are those of the last time when the process read its record.
    #[serde(default = "yes")]
    pub counted: bool,
}

fn yes() -> bool {
    true
}

impl RecorderCounts {
    /// Returns the sum of one count over all groups.
    fn sum(counts: &Value, name: &str) -> u64 {
        let number = |value: &Value| match value {
            Value::String(text) => text.parse().unwrap_or(0),
            other => other.as_i64().unwrap_or(0),
        };
        let groups = counts
            .as_object()
            .into_iter()
            .flat_map(|groups| groups.values());
        groups.map(|one| number(&one[name]).max(0) as u64).sum()
    }

    /// Returns true if collectives were, or may have been, issued after the dump was written.
    pub fn is_stale(&self) -> bool {
        !self.counted || Self::sum(&self.status, ENQUEUED) != Self::sum(&self.dumped, ENQUEUED)
    }

    /// Returns a number that grows with each collective that is issued or ends.
    pub fn progress(&self) -> u64 {
        Self::sum(&self.status, ENQUEUED) + Self::sum(&self.status, COMPLETED)
    }
}
