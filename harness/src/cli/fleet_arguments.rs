//! The arguments that say what starts the ranks or the node agents, and on how many nodes.

use clap::{Args, ValueEnum};

use allranks_model::launcher::Launcher;
use allranks_model::names::WorldSize;
use allranks_runner::world::node::Engine;

/// The launcher and its nodes.
#[derive(Debug, Args)]
pub struct FleetArguments {
    /// The launcher, which starts ranks: `local` is the harness itself. The others start node agents on other hosts: with
    /// `attached`, people start them by the command that is printed; with `slurm`, `srun` does inside an allocation; with `mpi`,
    /// `mpirun`; with `torchrun` and `--nodes`, torchrun on each host; for `kubernetes`, manifests are written. Ranks of
    /// `program:` cases have no agents: `torchrun`, `slurm` and `mpi` start them directly, if a case names one of these. Default:
    /// what each case names.
    #[arg(long, value_name = "NAME")]
    pub launcher: Option<LauncherChoice>,
    /// Number of nodes of each world, with a launcher that starts node agents. Ranks are placed in blocks, as evenly as possible.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(WorldSize::MAX)))]
    pub nodes: Option<u32>,
    /// Options for `srun`, `mpirun` or `torchrun`, such as '--partition=test --mem=8G' or '--host a,b', separated by spaces; for
    /// `kubernetes`, image=NAME, namespace=NAME, shm=SIZE and devices=RESOURCE:COUNT.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub launcher_options: Option<String>,
}

impl FleetArguments {
    /// Returns what starts node agents; `None` if there are none. `torchrun` starts agents only with `--nodes`; otherwise it
    /// starts the ranks of programs on this machine.
    #[must_use]
    pub const fn engine(&self) -> Option<Engine> {
        match (self.launcher, self.nodes) {
            (None, _) | (Some(LauncherChoice::Torchrun), None) => None,
            (Some(launcher), _) => launcher.engine(),
        }
    }

    /// Returns true if the launcher takes options.
    #[must_use]
    pub const fn takes_words(&self) -> bool {
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
    pub fn words(&self) -> Vec<String> {
        let words = self.launcher_options.as_deref().unwrap_or_default();
        words.split_whitespace().map(str::to_owned).collect()
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
