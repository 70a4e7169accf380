//! Reads the records of a run.

use std::path::Path;

use super::Failure;
use allranks_report::{self as report, Results};

/// Reads the records of a run from its folder.
///
/// # Errors
/// The folder has no records, or they cannot be read.
pub fn read(run: &Path) -> Result<Results, Failure> {
    report::jsonl::read(run).map_err(|error| {
        Failure::Usage(
            error.to_string(),
            "name the folder that `allranks run` printed".to_owned(),
        )
    })
}
