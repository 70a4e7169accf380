//! The arguments that select what is run, on which platforms, by which driver and launcher.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::suite_arguments::FilesArguments;
use crate::suite::Request;
use allranks_model::launcher::Launcher;
use allranks_model::names::WorldSize;
use allranks_runner::probe;
use allranks_runner::world::node::Engine;
use allranks_suite::plan::{Filter, Shard};

/// What to run.
#[derive(Debug, Args)]
pub struct SelectArguments {
    /// Case files or folders, or ids of the suite's cases; default: the suite's own, narrowed by --profile.
    #[arg(value_name = "CASE_OR_DIR")]
    pub cases: Vec<PathBuf>,
    /// Only these platforms, by their files' names. Simulated ones run only if they are named.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub platform: Vec<String>,
    /// Only this backend; may be given more than once.
    #[arg(long, value_name = "NAME")]
    pub backend: Vec<String>,
    /// Only worlds of these sizes.
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(WorldSize::MAX)))]
    pub world_size: Vec<u32>,
    /// A named part of the suite: smoke, core, full, stack, simulated, libraries, xla or fleet. Default: core, unless cases are named.
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Only checks that match, such as 'all_gather dtype=int8,uint8 !async'. If given more than once, checks must match all.
    #[arg(long, value_name = "EXPR")]
    pub filter: Vec<Filter>,
    /// Only part I of N of the scenarios; the parts are the same on every machine.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Balance the shards by the run times recorded in RUN. Give every shard the same RUN. Scenarios that are not in RUN are divided
    /// as without this option.
    #[arg(long, value_name = "RUN", requires = "shard")]
    pub times: Option<PathBuf>,
    /// Files besides the cases.
    #[command(flatten)]
    pub files: FilesArguments,
    /// The Python that has torch. Default: $ALLRANKS_PYTHON, the active virtual environment, .venv, python3.
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// The driver: `python`; `libtorch`; `command:PROGRAM ARGUMENT...`, any program that speaks the rank protocol; or `program`, which
    /// runs only the cases that are programs of their own. Default: `python`, and such cases too. `command:` runs only on host
    /// platforms, whose files have no `count`: only `python` and `libtorch` can count devices.
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<DriverChoice>,
    /// The launcher, which starts ranks: `local` is the harness itself. The others start node agents on other hosts: with `attached`,
    /// people start them by the command that is printed; with `slurm`, `srun` does inside an allocation; with `mpi`, `mpirun`; with
    /// `torchrun` and `--nodes`, torchrun on each host; for `kubernetes`, manifests are written. Ranks of `program:` cases have no
    /// agents: `torchrun`, `slurm` and `mpi` start them directly, if a case names one of these. Default: what each case names.
    #[arg(long, value_name = "NAME")]
    pub launcher: Option<LauncherChoice>,
    /// Number of nodes of each world, with a launcher that starts node agents. Ranks are placed in blocks, as evenly as possible.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub nodes: Option<u32>,
    /// Options for `srun`, `mpirun` or `torchrun`, such as '--partition=test --mem=8G' or '--host a,b', separated by spaces; for
    /// `kubernetes`, image=NAME, namespace=NAME, shm=SIZE and devices=RESOURCE:COUNT.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub launcher_options: Option<String>,
    /// Seconds that importing torch and a platform's other modules may take, both when platforms are looked for and in a rank.
    #[arg(long, value_name = "SECONDS", default_value_t = probe::IMPORT_PATIENCE.as_secs(), value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub import_patience: u64,
    /// Seed of all inputs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// End with exit code 4 unless this platform, or platform/backend, was found and ran. With `nodes=N`: unless worlds ran on N nodes.
    /// May be given more than once.
    #[arg(long, value_name = "CAPABILITY")]
    pub require: Vec<String>,
}

/// Splits words for a launcher's command at spaces.
pub(super) fn launcher_words(options: Option<&str>) -> Vec<String> {
    let words = options.unwrap_or_default().split_whitespace();
    words.map(str::to_owned).collect()
}

impl SelectArguments {
    /// Returns how long importing torch, and what a platform imports besides, may take.
    #[must_use]
    pub const fn import_patience(&self) -> Duration {
        Duration::from_secs(self.import_patience)
    }

    /// Returns what starts node agents; `None` if there are none. Under `torchrun` there are some only where nodes are asked for:
    /// without them it starts the ranks of programs on this machine.
    #[must_use]
    pub const fn engine(&self) -> Option<Engine> {
        match (self.launcher, self.nodes) {
            (None, _) | (Some(LauncherChoice::Torchrun), None) => None,
            (Some(launcher), _) => launcher.engine(),
        }
    }

    /// Returns true if the launcher takes options.
    #[must_use]
    pub const fn takes_launcher_words(&self) -> bool {
        match self.launcher {
            None | Some(LauncherChoice::Local | LauncherChoice::Attached) => false,
            Some(
                LauncherChoice::Slurm
                | LauncherChoice::Mpi
                | LauncherChoice::Torchrun
                | LauncherChoice::Kubernetes,
            ) => true,
        }
    }

    /// Returns the options for the launcher's command.
    #[must_use]
    pub fn launcher_words(&self) -> Vec<String> {
        launcher_words(self.launcher_options.as_deref())
    }

    /// Returns what to load.
    #[must_use]
    pub fn request(&self) -> Request {
        self.files.request(&self.cases)
    }
}

/// A launcher, as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LauncherChoice {
    /// The harness itself.
    Local,
    /// PyTorch's own.
    Torchrun,
    /// Node agents that people start.
    Attached,
    /// Node agents that `srun` starts.
    Slurm,
    /// Node agents that `mpirun` starts.
    Mpi,
    /// Node agents in Pods.
    Kubernetes,
}

impl LauncherChoice {
    /// Returns what starts node agents; `None` if there are none.
    pub(super) const fn engine(self) -> Option<Engine> {
        match self {
            Self::Local => None,
            Self::Attached => Some(Engine::Attached),
            Self::Slurm => Some(Engine::Slurm),
            Self::Mpi => Some(Engine::Mpi),
            Self::Torchrun => Some(Engine::Torchrun),
            Self::Kubernetes => Some(Engine::Kubernetes),
        }
    }
}

impl From<LauncherChoice> for Launcher {
    fn from(choice: LauncherChoice) -> Self {
        match choice {
            // An agent starts ranks as the harness does.
            LauncherChoice::Local | LauncherChoice::Attached | LauncherChoice::Kubernetes => {
                Self::Local
            }
            LauncherChoice::Torchrun => Self::Torchrun,
            LauncherChoice::Slurm => Self::Slurm,
            LauncherChoice::Mpi => Self::Mpi,
        }
    }
}

/// The driver, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverChoice {
    /// The one the binary carries.
    Python,
    /// The one in Rust, built apart: see `ci/libtorch`.
    Libtorch,
    /// A program and its arguments.
    Command(Vec<String>),
    /// The user's own, of cases that are programs.
    Program,
}

impl std::str::FromStr for DriverChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "python" {
            return Ok(Self::Python);
        }
        if text == "libtorch" {
            return Ok(Self::Libtorch);
        }
        if text == "program" {
            return Ok(Self::Program);
        }
        let argv: Vec<String> = text
            .strip_prefix("command:")
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        if argv.is_empty() {
            return Err(
                "there are `python`, `libtorch`, `program`, and `command:PROGRAM ARGUMENT...`"
                    .to_owned(),
            );
        }
        Ok(Self::Command(argv))
    }
}
