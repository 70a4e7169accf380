//! An [`Outcome`] is what happened in a check; a [`Verdict`] is what it means against the expectations. They are two types so that
//! no failure can be wished away and no pass can be wished into being.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What happened in a check.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Outcome {
    /// Every rank voted and every byte is right.
    Pass,
    /// Every call returned on every rank, but something is not as the oracle says.
    Mismatch,
    /// A call raised on some rank.
    Error,
    /// No progress within the harness's own deadline.
    Hang,
    /// A rank died, or broke the protocol.
    Crash,
    /// The world did not initialise on every rank.
    InitFailed,
    /// Refused with a clear error on every rank, group usable afterwards.
    Unsupported,
    /// The harness or the machine failed; says nothing about the backend.
    HarnessError,
    /// It never ran; the summary says why.
    NotRun,
}

/// What an outcome means against platform and expectations.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Verdict {
    /// As it must be: a pass where support is declared, a verified refusal where it is not.
    Expected,
    /// Not as it must be, and nobody said so: the run fails. A verdict `flaky` in a file of an earlier version is one too.
    #[serde(alias = "flaky")]
    Regression,
    /// Fails as an expectation with a public link says it does.
    KnownFailure,
    /// An expectation or the platform file says it fails, and it does not: the file is stale, the run fails.
    UnexpectedPass,
    /// A failure that a waiver excuses.
    Waived,
    /// Did not run.
    NotRun,
}

impl Outcome {
    /// The name in result files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Verdict {
    /// The name in result files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_that_is_given_no_more_is_read() {
        let read = |text: &str| serde_json::from_str::<Verdict>(text).unwrap();
        assert_eq!(read(r#""flaky""#), Verdict::Regression);
        assert_eq!(read(r#""regression""#), Verdict::Regression);
    }
}
