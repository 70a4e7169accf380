//! The arguments of `expectations`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::suite_arguments::SuiteArguments;

pub const EXPECTATIONS_EXIT_CODES: &str = "\
Exit codes of update:
  0   every unexpected result has a new entry, or there is none
  1   there are unexpected results that no new entry settles; they are listed
  2   usage, results that cannot be read, a bad file, or a file to which entries cannot be added
  10  the harness or the machine failed

Examples:
  allranks expectations update nightly                      print the entries
  allranks expectations update nightly --out known.yaml     write them, or add them to the file
  allranks judge nightly --expectations known.yaml --out judged";

/// The arguments of `expectations`.
#[derive(Debug, Args)]
pub struct ExpectationsArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: ExpectationsCommand,
}

/// The subcommands of `expectations`.
#[derive(Debug, Subcommand)]
pub enum ExpectationsCommand {
    /// Write an entry for each kind of failure in a run that nothing expects yet.
    ///
    /// An entry names outcome, class and a part of the message. It matches the checks that failed in this way, and no other check
    /// of the suite, run or not. Its `reason` and `url` are empty, and the file is refused until they are filled in. Existing
    /// entries are not changed: those that are out of date or describe another failure are listed, and so are failures that no
    /// entry can excuse.
    #[command(after_help = EXPECTATIONS_EXIT_CODES)]
    Update(UpdateArguments),
}

/// The arguments of `expectations update`.
#[derive(Debug, Args)]
pub struct UpdateArguments {
    /// The run's folder.
    pub run: PathBuf,
    /// The file to write. If it exists, the entries are added at its end. Default: standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The suite that was run, with its files of expectations and waivers.
    #[command(flatten)]
    pub suite: SuiteArguments,
}
