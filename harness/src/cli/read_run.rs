//! Reads the records of a run.

use std::path::Path;

use super::Failure;
use allranks_report::jsonl::ReadError;
use allranks_report::{self as report, PackedResults, Results};

/// Reads the records of a run from its folder.
///
/// # Errors
/// The folder has no records, or they cannot be read.
pub fn read(run: &Path) -> Result<Results, Failure> {
    report::jsonl::read(run).map_err(unreadable)
}

/// Reads the records of a run as [`read`] does, into little memory.
///
/// # Errors
/// Those of [`read`].
pub fn read_packed(run: &Path) -> Result<PackedResults, Failure> {
    report::jsonl::read_packed(run).map_err(unreadable)
}

fn unreadable(error: ReadError) -> Failure {
    Failure::Usage(
        error.to_string(),
        "name the folder that `allranks run` printed".to_owned(),
    )
}
