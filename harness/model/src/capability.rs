//! What a platform file declares and promises of a backend.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a platform file promises of a backend's arithmetic. Where it promises nothing, the behaviour is observed and
/// reported, and no check fails because of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Promises {
    /// The precision in which sums of floats of 16 bits and fewer are accumulated.
    pub accumulates: Option<Accumulation>,
    /// Whether the same sum of the same data gives the same bits again.
    pub deterministic: Option<bool>,
}

/// The precision in which a sum of floats of 16 bits and fewer is accumulated.
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
    /// Partial sums are float32 or wider, and the result is rounded to the dtype once.
    Float32,
    /// Partial sums are rounded to the dtype at every addition.
    Dtype,
}

impl Accumulation {
    /// Returns the name in platform files and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What a receive names as its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveSource {
    /// The rank whose message it is to get.
    Named,
    /// None: `recv` without `src`, which gets the message of any rank.
    Any,
}

/// Whether the platform file declares a check's combination of op, dtype and reduce operator as supported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Declared {
    /// The check must pass.
    Supported,
    /// The call must raise a clear error on every rank and leave the group usable; the text says what is not supported.
    Unsupported(String),
}
