//! The arguments of `history`, and those of `report` that look at stored runs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Where runs are stored if nothing else is said.
const FILE: &str = "target/allranks/history.sqlite";

/// The arguments of `history`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HistoryArguments {
    /// What to do instead of showing the runs.
    #[command(subcommand)]
    pub command: Option<HistoryCommand>,
    /// Only checks whose id, column or requirements contain each of these words; each check is then listed with its runs.
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// The file of stored runs.
    #[arg(long, value_name = "FILE", default_value = FILE)]
    pub db: PathBuf,
    /// Number of runs to look at: the newest N.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub last: u32,
    /// Only runs of this pipeline. Default: all pipelines.
    #[arg(long, value_name = "NAME")]
    pub pipeline: Option<String>,
    /// A file of owners, like CODEOWNERS: on each line a pattern for cases, requirements or columns, and owners.
    #[arg(long, value_name = "FILE")]
    pub owners: Option<PathBuf>,
    /// Print JSON: with a filter, every check that matches; without, those that are not steady.
    #[arg(long)]
    pub json: bool,
}

/// The subcommands of `history`.
#[derive(Debug, Subcommand)]
pub enum HistoryCommand {
    /// Store a run, with its environment. A run that is stored already is not stored twice.
    ///
    /// A run that was cut off is stored as such: checks without a record are ignored. If it is added again when it has more
    /// records, it replaces what was stored. Several processes may add at the same time. Merge the shards of a night first.
    Add(AddArguments),
}

/// The arguments of `history add`.
#[derive(Debug, Args)]
pub struct AddArguments {
    /// The run's folder.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The file of stored runs; made if there is none.
    #[arg(long, value_name = "FILE", default_value = FILE)]
    pub db: PathBuf,
    /// The pipeline that the run belongs to. Only runs of one pipeline are compared: give each kind of machine, and each branch,
    /// its own.
    #[arg(long, value_name = "NAME", default_value = "nightly")]
    pub pipeline: String,
    /// The environment file, if the run's folder has no environment.json, such as the folder of an older merged run.
    #[arg(long, value_name = "FILE")]
    pub environment: Option<PathBuf>,
}

/// The options of `report` that look at stored runs.
#[derive(Debug, Args)]
pub struct ReportHistory {
    /// A file of stored runs: report.html and summary.md then show what changed since the runs before, and when.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Number of runs to look at: the newest, and this one.
    #[arg(long, value_name = "N", default_value_t = 30, requires = "history", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub last: u32,
    /// The pipeline to compare with. Default: that in which the run is stored, otherwise `nightly`.
    #[arg(long, value_name = "NAME", requires = "history")]
    pub pipeline: Option<String>,
    /// A file of owners, as for `allranks history`.
    #[arg(long, value_name = "FILE", requires = "history")]
    pub owners: Option<PathBuf>,
}
