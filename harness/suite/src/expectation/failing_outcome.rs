//! The outcomes that an entry may expect, as the schema names them.

use schemars::JsonSchema;

/// The outcomes that can be expected of a check, for the schema.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum FailingOutcome {
    /// Every call returned on every rank, but some bytes are wrong.
    Mismatch,
    /// A call raised on some rank.
    Error,
    /// No progress within the deadline of the harness.
    Hang,
    /// A rank died or broke the protocol.
    Crash,
    /// The world did not initialise on every rank.
    InitFailed,
    /// Every rank refused with a clear error, although support is declared.
    Unsupported,
}
