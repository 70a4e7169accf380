//! Reads which node an engine assigned to a node agent.

use std::collections::BTreeMap;
use std::fmt;

use super::engine::Engine;
use crate::world::dialect::Dialect;
use allranks_model::launcher::Launcher;

/// The node that an engine assigned to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAssignment {
    /// Number of the node, from 0. There is one agent on each.
    pub place: usize,
    /// Number of agents that the engine started.
    pub count: usize,
    /// The variables from which place and count were read.
    pub from: [&'static str; 2],
}

impl fmt::Display for NodeAssignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [place, count] = self.from;
        write!(f, "{place}={}, {count}={}", self.place, self.count)
    }
}

/// Returns the launcher whose dialect an engine speaks to an agent: an agent is started as one rank for each node. `None` if it
/// has a dialect of its own.
fn launcher(engine: Engine) -> Option<Launcher> {
    match engine {
        Engine::Slurm => Some(Launcher::Slurm),
        Engine::Mpi => Some(Launcher::Mpi),
        Engine::Torchrun => Some(Launcher::Torchrun),
        Engine::Kubernetes | Engine::Attached => None,
    }
}

/// The number of an agent and the number of agents under Kubernetes. A Job does not say how many Pods it has; the manifests of
/// allranks do, in `ALLRANKS_NODES`.
const KUBERNETES: [[&str; 2]; 2] = [
    ["PET_NODE_RANK", "PET_NNODES"],
    ["JOB_COMPLETION_INDEX", "ALLRANKS_NODES"],
];

/// Returns the node that the engine assigned to this process; none if people started it.
///
/// # Errors
/// Says what the engine should have told and has not.
pub fn node_assignment(
    engine: Engine,
    environment: &BTreeMap<String, String>,
) -> Result<Option<NodeAssignment>, String> {
    if engine == Engine::Attached {
        return Ok(None);
    }
    let number = |name: &str| environment.get(name)?.parse::<usize>().ok();
    let (found, known): (Option<NodeAssignment>, Vec<String>) =
        if let Some(launcher) = launcher(engine) {
            let dialects = Dialect::of(launcher).iter();
            let found = dialects.clone().find_map(|dialect| {
                let [place, count] = dialect.place(environment)?;
                Some(NodeAssignment {
                    place: place.1 as usize,
                    count: count.1 as usize,
                    from: [place.0, count.0],
                })
            });
            let names = |one: &Dialect| format!("{} and {}", one.rank(), one.sizes().join(" or "));
            (found, dialects.map(names).collect())
        } else {
            let found = KUBERNETES.into_iter().find_map(|from| {
                Some(NodeAssignment {
                    place: number(from[0])?,
                    count: number(from[1])?,
                    from,
                })
            });
            (
                found,
                KUBERNETES.iter().map(|from| from.join(" and ")).collect(),
            )
        };
    if found.is_some() {
        return Ok(found);
    }
    Err(format!(
        "{} did not say which of its processes this is; looked for {}",
        engine.name(),
        known.join(", or ")
    ))
}

/// Returns true if a variable is the engine's word to the agent, and would tell a rank of another world: some libraries take
/// their rank and size from them.
pub(super) fn is_of_engine(name: &str) -> bool {
    let prefixes = [
        "OMPI_",
        "PMIX_",
        "PMI_",
        "PALS_",
        "HYDRA_",
        "MPI_LOCAL",
        "SLURM_STEP",
        "TORCHELASTIC_",
        "PET_",
        "GROUP_",
        "ROLE_",
    ];
    let names = [
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE",
        "JOB_COMPLETION_INDEX",
    ];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || names.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_takes_its_place_from_its_engine_and_no_other() {
        let all = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let both = all(&[
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1"),
            ("SLURM_NODEID", "5"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
        ]);
        // mpirun inside an allocation.
        let found = node_assignment(Engine::Mpi, &both).unwrap().unwrap();
        assert_eq!((found.place, found.count), (1, 2));
        assert_eq!(
            found.to_string(),
            "OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2"
        );
        let found = node_assignment(Engine::Slurm, &both).unwrap().unwrap();
        assert_eq!((found.place, found.count), (0, 1));
        assert_eq!(node_assignment(Engine::Attached, &both), Ok(None));
        // Plain prterun gives no size; SLURM_NODEID is no place.
        let said = node_assignment(Engine::Mpi, &all(&[("PMIX_RANK", "1")])).unwrap_err();
        assert!(
            said.contains("OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"),
            "{said}"
        );
        assert!(node_assignment(Engine::Slurm, &all(&[("SLURM_NODEID", "1")])).is_err());
    }

    #[test]
    fn pods_and_agents_of_torchrun_have_places_too() {
        let found = |engine, pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let environment = pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let assignment = node_assignment(engine, &environment.collect()).ok()??;
            Some((assignment.place, assignment.count))
        };
        let pod = [("JOB_COMPLETION_INDEX", "1"), ("ALLRANKS_NODES", "2")];
        assert_eq!(found(Engine::Kubernetes, &pod), Some((1, 2)));
        let kubeflow = [
            ("JOB_COMPLETION_INDEX", "1"),
            ("PET_NNODES", "3"),
            ("PET_NODE_RANK", "1"),
        ];
        assert_eq!(found(Engine::Kubernetes, &kubeflow), Some((1, 3)));
        // A Job alone does not say how many Pods it has.
        assert_eq!(
            found(Engine::Kubernetes, &[("JOB_COMPLETION_INDEX", "1")]),
            None
        );
        let agent = [("RANK", "1"), ("WORLD_SIZE", "2"), ("GROUP_RANK", "1")];
        assert_eq!(found(Engine::Torchrun, &agent), Some((1, 2)));
        for name in ["PET_NNODES", "GROUP_RANK", "TORCHELASTIC_RUN_ID"] {
            assert!(is_of_engine(name), "ranks would see {name}");
        }
        assert!(!is_of_engine("PATH") && !is_of_engine("NCCL_DEBUG"));
    }
}
