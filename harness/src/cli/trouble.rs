//! What is wrong with a run and belongs to no check, and what that does to its exit code.

use std::io;

use super::Exit;

/// A trouble; its text goes into the record of the run's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The results could not be written down: the system's reason.
    Unwritable(String),
    /// An expectation is about no check of the suite: where it is written.
    Stale(String),
    /// Something that was required was not run, with the reason.
    Missing(String),
    /// Somebody stopped the run.
    Interrupted,
}

impl Trouble {
    /// The results, or one of them, could not be written.
    #[must_use]
    pub fn unwritable(error: &io::Error) -> Self {
        Self::Unwritable(error.to_string())
    }

    /// One line for people.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Unwritable(error) => format!("the results could not be written: {error}"),
            Self::Stale(at) => format!("{at} is stale: it is about no check of the suite"),
            Self::Missing(what) => what.clone(),
            Self::Interrupted => "interrupted".to_owned(),
        }
    }

    /// The exit code of a run with nothing worse.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Unwritable(_) => Exit::Trouble,
            Self::Stale(_) => Exit::Unexpected,
            Self::Missing(_) | Self::Interrupted => Exit::Incomplete,
        }
    }
}
