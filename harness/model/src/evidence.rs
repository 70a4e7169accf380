//! The kind of machine a result comes from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of device a result was measured on, and so what it proves; shown with every result.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// A real accelerator.
    Hardware,
    /// The host's CPU and memory.
    Host,
    /// A simulated device: the host's memory and Gloo's collectives behind a device type of its own.
    Simulated,
}
