//! What a platform file declares and promises of a backend.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a backend promises of its arithmetic. What it says nothing of is observed and reported, and never fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Promises {
    /// How sums of floats of 16 bits and fewer are accumulated.
    pub accumulates: Option<Accumulation>,
    /// Whether the same sum of the same data gives the same bits again.
    pub deterministic: Option<bool>,
}

/// How a sum of narrow floats comes about.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Accumulation {
    /// In float32 or wider, rounded to the dtype once.
    Float32,
    /// In the dtype, rounded at every addition.
    Dtype,
}

impl Accumulation {
    /// The name in platform files and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Whether the platform file declares the check's combination as supported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Declared {
    /// It must work.
    Supported,
    /// It must raise a clear error on every rank and leave the group usable; the text says what is not supported.
    Unsupported(String),
}
