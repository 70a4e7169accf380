//! Problems of a run that belong to no single check, and the exit code that each leads to.

use std::io;

use super::exit::Exit;
use allranks_model::record::STOPPED;
use allranks_suite::expectation::{Entry, Expectations};

/// A problem of a run that belongs to no single check. Its text goes into the record of the run's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunIssue {
    /// The results could not be written down: the system's reason.
    Unwritable(String),
    /// What the harness failed at while it ran.
    Harness(String),
    /// An expectation is about no check of the suite: where it is written.
    Stale(String),
    /// A waiver has run out: where it is written, and its term.
    Expired(String),
    /// Something that was required was not run, with the reason.
    Missing(String),
    /// The run was interrupted by a signal.
    Interrupted,
    /// A problem that was recorded by the run which is judged again.
    Recorded(String),
    /// This number of checks could not be judged again.
    Kept(usize),
}

impl RunIssue {
    /// Makes the issue that results could not be written.
    #[must_use]
    pub fn unwritable(error: &io::Error) -> Self {
        Self::Unwritable(error.to_string())
    }

    /// Makes an issue for each waiver that has expired.
    #[must_use]
    pub fn expired(expectations: &Expectations) -> Vec<Self> {
        let told = |entry: &Entry| Self::Expired(format!("{}: {}", entry.at, entry.why()));
        expectations.expired().map(told).collect()
    }

    /// Returns the problem as one line.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Unwritable(error) => format!("the results could not be written: {error}"),
            Self::Stale(at) => format!("{at} is stale: it is about no check of the suite"),
            Self::Expired(what) => format!("{what}: renew it or remove it"),
            Self::Harness(what) | Self::Missing(what) => what.clone(),
            Self::Interrupted => STOPPED.to_owned(),
            Self::Recorded(text) => text.clone(),
            Self::Kept(count) => format!(
                "{count} checks keep their verdicts: they are not planned any more, or their records do not tell what \
                 happened from what was expected"
            ),
        }
    }

    /// Returns the exit code of a run with no worse issue.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Unwritable(_) | Self::Harness(_) => Exit::HarnessFailed,
            Self::Stale(_) | Self::Expired(_) => Exit::Unexpected,
            Self::Missing(_) | Self::Interrupted | Self::Recorded(_) | Self::Kept(_) => {
                Exit::Incomplete
            }
        }
    }
}
