//! Engines: the launchers of node agents, one agent on each host of a run. An engine provides hosts, places and an end; how a
//! rank ended is never taken from it.

use serde::{Deserialize, Serialize};

/// A launcher of node agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// People, with the command that the run prints.
    Attached,
    /// Slurm's `srun`, inside an allocation.
    Slurm,
    /// `mpirun` of Open MPI, or of MPICH and those derived from it.
    Mpi,
    /// PyTorch's `torchrun`, which people or another program start on each host.
    Torchrun,
    /// Kubernetes, with the manifests that the run writes.
    Kubernetes,
}

impl Engine {
    /// Returns the name on the command line and in columns.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attached => "attached",
            Self::Slurm => "slurm",
            Self::Mpi => "mpi",
            Self::Torchrun => "torchrun",
            Self::Kubernetes => "kubernetes",
        }
    }
}
