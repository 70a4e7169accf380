//! The launchers that can start the ranks of a program.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A program that starts ranks.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Launcher {
    /// The harness itself, a process for each rank.
    #[default]
    Local,
    /// PyTorch's `torchrun`, of the run's Python.
    Torchrun,
    /// Slurm's `srun`, inside an allocation.
    Slurm,
    /// `mpirun` of Open MPI, or of MPICH and those derived from it.
    Mpi,
}

impl Launcher {
    /// Returns the name in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}
