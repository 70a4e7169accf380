//! Where a check stands: outcome and verdict in one word for people.

use serde::Serialize;
use strum::VariantArray;

use crate::outcome::{Outcome, Verdict};
use crate::record::CheckRecord;

/// Outcome and verdict put together; the order is from worst to best.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Not as it must be, and nobody said so.
    Regression,
    /// The harness or the machine failed.
    Trouble,
    /// Said to fail, and does not.
    UnexpectedPass,
    /// Did not run.
    NotRun,
    /// A failure that a waiver excuses.
    Waived,
    /// Fails as an expectation says.
    KnownFailure,
    /// Refused with a clear error on every rank, as the platform declares.
    Refused,
    /// As it must be.
    Passed,
}

impl Status {
    /// Every standing, worst first.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The standing of an outcome with a verdict. An expected outcome that proves nothing (the harness failed, or the
    /// check never ran) is not let through as a pass.
    #[must_use]
    pub fn of(outcome: Outcome, verdict: Verdict) -> Self {
        match verdict {
            Verdict::Regression => match outcome {
                Outcome::HarnessError => Self::Trouble,
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
                Outcome::HarnessError => Self::Trouble,
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

    /// Whether somebody has to act.
    #[must_use]
    pub fn is_failing(self) -> bool {
        match self {
            Self::Regression | Self::Trouble | Self::UnexpectedPass => true,
            Self::NotRun | Self::Waived | Self::KnownFailure | Self::Refused | Self::Passed => {
                false
            }
        }
    }

    /// The word for it in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Regression => "regression",
            Self::Trouble => "harness error",
            Self::UnexpectedPass => "unexpected pass",
            Self::NotRun => "not run",
            Self::Waived => "waived",
            Self::KnownFailure => "known failure",
            Self::Refused => "refused as declared",
            Self::Passed => "passed",
        }
    }

    /// One character for it, so that colour never stands alone.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Regression => "✗",
            Self::Trouble => "‼",
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
    /// Where it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(self.outcome, self.verdict)
    }
}
