//! Dialects: the environment variables by which a launcher tells each rank of a program its rank, world size and local rank.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use allranks_model::launcher::Launcher;

/// The variables of one launcher, or of one family of launchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Its name, for people.
    pub name: &'static str,
    /// The rank. Set for every rank.
    rank: &'static str,
    /// The number of ranks: the first of these that is set.
    sizes: &'static [&'static str],
    /// The rank's number on its host.
    local_rank: &'static str,
    /// The number of ranks on its host.
    local_size: LocalSize,
    /// The variables whose values together identify a run of the launcher. Empty if there are none.
    runs: &'static [&'static str],
}

/// Where a dialect has the number of ranks on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalSize {
    /// In this variable.
    Of(&'static str),
    /// In the first of these variables that is set, a list with an entry for each node, `2(x3),1`; the last variable is the
    /// index of the node in it.
    Listed([&'static str; 2], &'static str),
}

const TORCH: Dialect = Dialect {
    name: "torch",
    rank: "RANK",
    sizes: &["WORLD_SIZE"],
    local_rank: "LOCAL_RANK",
    local_size: LocalSize::Of("LOCAL_WORLD_SIZE"),
    runs: &[],
};
/// `SLURM_NODEID` is no rank: it is the node's.
const SLURM: Dialect = Dialect {
    name: "Slurm",
    rank: "SLURM_PROCID",
    sizes: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
    local_rank: "SLURM_LOCALID",
    local_size: LocalSize::Listed(
        ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"],
        "SLURM_NODEID",
    ),
    runs: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
};
/// `OMPI_COMM_WORLD_NODE_RANK` is no number of a node.
const OPEN_MPI: Dialect = Dialect {
    name: "Open MPI",
    rank: "OMPI_COMM_WORLD_RANK",
    sizes: &["OMPI_COMM_WORLD_SIZE"],
    local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    local_size: LocalSize::Of("OMPI_COMM_WORLD_LOCAL_SIZE"),
    runs: &["PMIX_NAMESPACE"],
};
const PALS: Dialect = Dialect {
    name: "PALS",
    rank: "PALS_RANKID",
    sizes: &["PALS_SIZE"],
    local_rank: "PALS_LOCAL_RANKID",
    local_size: LocalSize::Of("PALS_LOCAL_SIZE"),
    runs: &["PALS_APID"],
};
const PMI: Dialect = Dialect {
    name: "PMI",
    rank: "PMI_RANK",
    sizes: &["PMI_SIZE"],
    local_rank: "MPI_LOCALRANKID",
    local_size: LocalSize::Of("MPI_LOCALNRANKS"),
    runs: &["PMI_ID"],
};
const MVAPICH: Dialect = Dialect {
    name: "MVAPICH",
    rank: "MV2_COMM_WORLD_RANK",
    sizes: &["MV2_COMM_WORLD_SIZE"],
    local_rank: "MV2_COMM_WORLD_LOCAL_RANK",
    local_size: LocalSize::Of("MV2_COMM_WORLD_LOCAL_SIZE"),
    runs: &["PMI_ID"],
};

/// The dialects of launchers other than torch's, most specific first: mpirun inside an allocation of Slurm leaves Slurm's there.
pub const OF_OTHER_LAUNCHERS: &[Dialect] = &[OPEN_MPI, PALS, PMI, MVAPICH, SLURM];

impl Dialect {
    /// Returns the dialects that a launcher may speak, most specific first.
    #[must_use]
    pub const fn of(launcher: Launcher) -> &'static [Self] {
        match launcher {
            Launcher::Local | Launcher::Torchrun => &[TORCH],
            Launcher::Slurm => &[SLURM],
            Launcher::Mpi => &[OPEN_MPI, PALS, PMI, MVAPICH],
        }
    }

    /// Returns the name of the variable that has the rank.
    #[must_use]
    pub const fn rank(&self) -> &'static str {
        self.rank
    }

    /// Returns the names of the variables that have the number of ranks; the first that is set counts.
    #[must_use]
    pub const fn sizes(&self) -> &'static [&'static str] {
        self.sizes
    }

    /// Returns the rank and the number of ranks, each with its variable; `None` unless both are numbers.
    #[must_use]
    pub fn place(
        &self,
        environment: &BTreeMap<String, String>,
    ) -> Option<[(&'static str, u32); 2]> {
        let number = |name: &'static str| Some((name, number(environment, name)?));
        let size = self.sizes.iter().find_map(|name| number(name))?;
        Some([number(self.rank)?, size])
    }

    /// Returns true for the variables of a rank's place, of the number of ranks, and of the run of the launcher.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        name == self.rank || self.sizes.contains(&name) || self.runs.contains(&name)
    }

    /// Returns what identifies this run of the launcher, a word for each variable that is set; empty if none is.
    #[must_use]
    pub fn run(&self, environment: &BTreeMap<String, String>) -> String {
        let values = self.runs.iter().filter_map(|name| environment.get(*name));
        values.map(|value| format!("{value} ")).collect()
    }
}

/// Returns the number that a variable has; `None` if it is not set, or no number.
fn number(environment: &BTreeMap<String, String>, name: &str) -> Option<u32> {
    environment.get(name)?.trim().parse().ok()
}

impl fmt::Display for Dialect {
    /// Writes `RANK, WORLD_SIZE, LOCAL_RANK`; several variables for the number of ranks as `A or B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.sizes.join(" or ");
        write!(f, "{}, {sizes}, {}", self.rank, self.local_rank)
    }
}

/// The rank, sizes and local rank that a launcher assigned to one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankAssignment {
    /// The name of the dialect.
    pub dialect: String,
    /// The variables that were read, for people.
    pub from: String,
    /// The rank.
    pub rank: u32,
    /// The number of ranks; `None` if the launcher did not set it.
    pub size: Option<u32>,
    /// The rank's number on its host; `None` if the launcher did not set it.
    pub local_rank: Option<u32>,
    /// The number of ranks on its host; `None` if the launcher did not set it.
    pub local_size: Option<u32>,
}

impl RankAssignment {
    /// Reads the assignment from the environment that this launcher gave a process. Variables of other launchers do not count:
    /// inside an allocation of Slurm, Slurm's variables are there under mpirun too.
    ///
    /// # Errors
    /// Says which variables were looked for, if the rank is in none.
    pub fn read(
        launcher: Launcher,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let number = |name: &str| number(environment, name);
        for dialect in Dialect::of(launcher) {
            if let Some(rank) = number(dialect.rank) {
                return Ok(Self {
                    dialect: dialect.name.to_owned(),
                    from: dialect.to_string(),
                    rank,
                    size: dialect.sizes.iter().find_map(|name| number(name)),
                    local_rank: number(dialect.local_rank),
                    local_size: match dialect.local_size {
                        LocalSize::Of(name) => number(name),
                        LocalSize::Listed(names, node) => {
                            let list = names.iter().find_map(|name| environment.get(*name));
                            list.zip(number(node))
                                .and_then(|(list, node)| entry(list, node as usize))
                        }
                    },
                });
            }
        }
        let known: Vec<&str> = Dialect::of(launcher).iter().map(Dialect::rank).collect();
        Err(format!(
            "{} did not say which rank this is; looked for {}",
            launcher.name(),
            known.join(", or ")
        ))
    }
}

/// Returns an entry of a list such as `2(x3),1`, counted from 0; `None` if there is none, or it is no number.
fn entry(list: &str, mut index: usize) -> Option<u32> {
    for part in list.split(',') {
        let (value, times) = match part.split_once("(x") {
            Some((value, times)) => (value, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        if index < times {
            return value.trim().parse().ok();
        }
        index -= times;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn read(
        launcher: Launcher,
        pairs: &[(&str, &str)],
    ) -> (u32, Option<u32>, Option<u32>, Option<u32>) {
        let slot = RankAssignment::read(launcher, &environment(pairs)).unwrap();
        (slot.rank, slot.size, slot.local_rank, slot.local_size)
    }

    #[test]
    fn each_launcher_speaks_its_own_dialect_only() {
        let slurm = [
            ("SLURM_PROCID", "3"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NODEID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "3,1"),
            ("SLURM_TASKS_PER_NODE", "2(x2)"),
        ];
        let all = (3, Some(4), Some(0), Some(1));
        assert_eq!(read(Launcher::Slurm, &slurm), all);
        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("PMI_RANK", "7"),
        ];
        let within: Vec<_> = slurm.into_iter().chain(mpi).collect();
        let all = (1, Some(2), Some(1), Some(2));
        assert_eq!(read(Launcher::Mpi, &within), all);
        assert_eq!(
            read(Launcher::Mpi, &[("PMI_RANK", "7")]),
            (7, None, None, None)
        );
        // A RANK that is left from somewhere else is none of these launchers'.
        let said = RankAssignment::read(Launcher::Mpi, &environment(&[("RANK", "0")])).unwrap_err();
        assert!(
            said.contains("OMPI_COMM_WORLD_RANK, or PALS_RANKID"),
            "{said}"
        );
        assert!(RankAssignment::read(Launcher::Local, &environment(&slurm)).is_err());
        let said = RankAssignment::read(Launcher::Slurm, &environment(&[("SLURM_NODEID", "1")]));
        assert!(said.is_err(), "a node is no rank");
    }

    #[test]
    fn steps_of_two_jobs_are_two_runs() {
        let run = |job| {
            SLURM.run(&environment(&[
                ("SLURM_JOB_ID", job),
                ("SLURM_STEP_ID", "0"),
            ]))
        };
        assert_ne!(run("1"), run("2"));
        assert_eq!(TORCH.run(&environment(&[("RANK", "0")])), "");
    }

    #[test]
    fn mpirun_counts_before_the_allocation_that_it_runs_in() {
        let both = environment(&[
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "4"),
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
        ]);
        let mut places = OF_OTHER_LAUNCHERS.iter().filter_map(|one| one.place(&both));
        let [(name, rank), _] = places.next().unwrap();
        assert_eq!((name, rank), ("OMPI_COMM_WORLD_RANK", 3));
    }

    #[test]
    fn lists_of_nodes_are_expanded() {
        let entries = |list| (0..5).map(|index| entry(list, index)).collect::<Vec<_>>();
        assert_eq!(
            entries("2(x3),1"),
            [Some(2), Some(2), Some(2), Some(1), None]
        );
        assert_eq!(entries("4")[..2], [Some(4), None]);
        assert_eq!(entries("2(x)")[0], None);
        assert_eq!(entries("")[0], None);
    }
}
