//! What happened in a check ([`Outcome`]), and what it means against the expectations ([`Verdict`]). They are two types so that no
//! expectation can turn a failure into a pass.

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
    /// Every call returned on every rank, but some bytes differ from what the oracle expects.
    Mismatch,
    /// A call raised on some rank.
    Error,
    /// A rank made no progress within the harness's own deadline.
    Hang,
    /// A rank died, or broke the protocol.
    Crash,
    /// The world did not initialise on every rank.
    InitFailed,
    /// The call was refused with a clear error on every rank, and the group was usable afterwards.
    Unsupported,
    /// The harness or the machine failed; this says nothing about the backend.
    HarnessError,
    /// The check did not run; the summary says why.
    NotRun,
}

/// What an outcome means against the platform file and the expectations.
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
    /// The outcome is as required: a pass where support is declared, a verified refusal where it is not.
    Expected,
    /// The outcome is not as required, and no expectation covers it: the run fails. A verdict `flaky` in a file of an earlier version
    /// is read as this one.
    #[serde(alias = "flaky")]
    Regression,
    /// The check fails as an expectation with a public link says.
    KnownFailure,
    /// An expectation or the platform file says that the check fails, and it does not: the file is out of date, and the run fails.
    UnexpectedPass,
    /// The check fails, and a waiver excuses it, or an expectation accepts it.
    Waived,
    /// The check did not run.
    NotRun,
}

impl Outcome {
    /// Returns the name in result files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Verdict {
    /// Returns the name in result files.
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
