//! The status of a check: outcome and verdict in one word for people.

use serde::Serialize;
use strum::VariantArray;

use crate::outcome::{Outcome, Verdict};
use crate::record::CheckRecord;

/// Outcome and verdict of a check in one word; the order is from worst to best.
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
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    /// The outcome is not as required, and no expectation covers it.
    Regression,
    /// The harness or the machine failed.
    #[serde(rename = "trouble")]
    #[strum(serialize = "harness error")]
    HarnessError,
    /// Expected to fail, but passed.
    #[strum(serialize = "unexpected pass")]
    UnexpectedPass,
    /// The check did not run.
    #[strum(serialize = "not run")]
    NotRun,
    /// The check failed, and a waiver excuses it, or an expectation accepts it.
    Waived,
    /// The check failed as an expectation says.
    #[strum(serialize = "known failure")]
    KnownFailure,
    /// The call was refused with a clear error on every rank, as the platform file declares.
    #[strum(serialize = "refused as declared")]
    Refused,
    /// The check passed, or failed in the way that its case requires.
    Passed,
}

impl Status {
    /// Every status, worst first.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the place in [`ALL`](Self::ALL), from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the status of an outcome with a verdict. An expected outcome that proves nothing (the harness failed, or the check
    /// never ran) is not a pass.
    #[must_use]
    pub fn of(outcome: Outcome, verdict: Verdict) -> Self {
        match verdict {
            Verdict::Regression => match outcome {
                Outcome::HarnessError => Self::HarnessError,
                Outcome::Pass
                | Outcome::Mismatch
                | Outcome::Error
                | Outcome::Hang
                | Outcome::Crash
                | Outcome::InitFailed
                | Outcome::Unsupported
                | Outcome::NotRun => Self::Regression,
            },
            Verdict::Expected => match outcome {
                Outcome::Unsupported => Self::Refused,
                Outcome::HarnessError => Self::HarnessError,
                Outcome::NotRun => Self::NotRun,
                // A case that kills a rank expects what follows.
                Outcome::Pass
                | Outcome::Mismatch
                | Outcome::Error
                | Outcome::Hang
                | Outcome::Crash
                | Outcome::InitFailed => Self::Passed,
            },
            Verdict::KnownFailure => Self::KnownFailure,
            Verdict::UnexpectedPass => Self::UnexpectedPass,
            Verdict::Waived => Self::Waived,
            Verdict::NotRun => Self::NotRun,
        }
    }

    /// Returns true if the status makes a run fail.
    #[must_use]
    pub fn is_failing(self) -> bool {
        match self {
            Self::Regression | Self::HarnessError | Self::UnexpectedPass => true,
            Self::NotRun | Self::Waived | Self::KnownFailure | Self::Refused | Self::Passed => {
                false
            }
        }
    }

    /// Returns the word for the status in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns one character for the status, so that reports do not depend on colour alone.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Regression => "✗",
            Self::HarnessError => "‼",
            Self::UnexpectedPass => "★",
            Self::NotRun => "–",
            Self::Waived => "w",
            Self::KnownFailure => "k",
            Self::Refused => "∅",
            Self::Passed => "✓",
        }
    }
}

impl CheckRecord {
    /// Returns the status that follows from outcome and verdict.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(self.outcome, self.verdict)
    }
}
