//! The arguments of `allranks prove`.

use std::path::PathBuf;

use clap::Args;

use crate::prove::SharedChecks;

/// The arguments of `prove`.
#[derive(Debug, Args)]
pub struct ProveArguments {
    /// Mutants, by name; default: all of the index.
    #[arg(value_name = "MUTANT")]
    pub names: Vec<String>,
    /// Another folder of mutants: an index.yaml and a Python package allranks_mutants.
    #[arg(long, value_name = "FOLDER")]
    pub mutants: Option<PathBuf>,
    /// The checks that run against every mutant besides its own.
    #[arg(long, value_enum, default_value_t = SharedChecks::Quick)]
    pub panel: SharedChecks,
    /// Folder for the kill matrix. Default: target/allranks/<time>.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The Python that has torch. Default: as for `run`.
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Seed of all inputs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}
