//! How a move of a script must go.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::OneOrMany;

/// How a move must go: `{raises: "timed out", within_s: 10}`. Without `raises` and `either` it must return.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectSpec {
    /// The call must raise, and the error (type and message) must match each of these regular expressions. Case is
    /// ignored.
    pub raises: Option<OneOrMany<String>>,
    /// `true`: it is enough if one of the ranks raises; the others may return.
    pub somewhere: bool,
    /// For `python` that must raise, `true`: the tensors that the statements passed to functions must be unchanged.
    pub untouched: bool,
    /// `true`: the call may raise or return.
    pub either: bool,
    /// The value that the move must have: the answer to `who_am_i`, the `result` of `python`.
    pub value: Option<Value>,
    /// The class that the check's record names if the value is another, in lower case with hyphens: `leaked`. Absent:
    /// `wrong-value`.
    #[schemars(regex(pattern = "^[a-z][a-z0-9-]*$"))]
    pub class: Option<String>,
    /// The move must end within this many seconds.
    pub within_s: Option<f64>,
    /// The move must take at least this many seconds.
    pub not_before_s: Option<f64>,
}

impl ExpectSpec {
    /// Returns true if the move may raise, or must.
    #[must_use]
    pub const fn may_raise(&self) -> bool {
        self.raises.is_some() || self.either
    }
}
