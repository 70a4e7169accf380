//! The options that say what a suite is loaded from.

use std::path::PathBuf;

use clap::Args;

use crate::suite::Request;

/// The files that a suite is loaded from besides its cases.
#[derive(Debug, Args)]
pub struct FilesArguments {
    /// More platform files, or folders of them.
    #[arg(long, value_name = "FILE_OR_DIR")]
    pub platforms: Vec<PathBuf>,
    /// More expectation files, or folders of them.
    #[arg(long, value_name = "FILE_OR_DIR")]
    pub expectations: Vec<PathBuf>,
    /// Files of waivers, or folders of them. A waiver accepts failures of one requirement until a date, and names who answers for
    /// it.
    #[arg(long, value_name = "FILE_OR_DIR")]
    pub waivers: Vec<PathBuf>,
}

impl FilesArguments {
    /// Returns what to load of a suite, with these cases.
    #[must_use]
    pub fn request(&self, cases: &[PathBuf]) -> Request {
        Request {
            cases: cases.to_vec(),
            platforms: self.platforms.clone(),
            expectations: self.expectations.clone(),
            waivers: self.waivers.clone(),
        }
    }
}

/// The files that a suite is loaded from, for commands that do not run it.
#[derive(Debug, Args)]
pub struct SuiteArguments {
    /// Case files or folders; default: the suite's own.
    #[arg(long, value_name = "CASE_OR_DIR")]
    pub cases: Vec<PathBuf>,
    /// Files besides the cases.
    #[command(flatten)]
    pub files: FilesArguments,
}

impl SuiteArguments {
    /// Returns what to load of a suite.
    #[must_use]
    pub fn request(&self) -> Request {
        self.files.request(&self.cases)
    }
}
