//! Problems of a run that belong to no single check, and the exit code that each leads to.

use std::io;

use super::exit::Exit;
use allranks_model::record::STOPPED;
use allranks_suite::expectation::{Entry, Expectations};

/// A problem of a run that belongs to no single check. Its text goes into the record of the run's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunIssue {
    /// The results could not be written; the system's error.
    Unwritable(String),
    /// A failure of the harness during the run.
    Harness(String),
    /// An expectation matches no check of the suite; its file and line.
    Stale(String),
    /// A waiver has expired; its file and line, and its last day.
    Expired(String),
    /// Something that `--require` names was not run; the reason.
    Missing(String),
    /// The run was interrupted by a signal.
    Interrupted,
    /// A problem that the run had recorded, which is now judged again.
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
        let expired = |entry: &Entry| Self::Expired(format!("{}: {}", entry.at, entry.why()));
        expectations.expired().map(expired).collect()
    }

    /// Returns the problem as one line.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Unwritable(error) => format!("the results could not be written: {error}"),
            Self::Stale(at) => format!("{at} is out of date: it matches no check of the suite"),
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
