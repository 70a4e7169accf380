//! What kind of machine a result comes from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a result proves; always shown.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// A real device.
    Hardware,
    /// A CPU backend.
    Host,
    /// A simulated device.
    Simulated,
}
