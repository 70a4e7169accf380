//! The place that an engine gave a node agent.

use std::collections::BTreeMap;
use std::fmt;

use super::engine::Engine;

/// The place that an engine gave an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSlot {
    /// Number of the agent, from 0; one agent is on each node.
    pub place: usize,
    /// Number of agents that the engine started.
    pub count: usize,
    /// The variables that say so.
    pub from: [&'static str; 2],
}

impl fmt::Display for EngineSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [place, count] = self.from;
        write!(f, "{place}={}, {count}={}", self.place, self.count)
    }
}

/// Where engines tell a process its number among those that were started together, and how many these are, most specific first.
/// `SLURM_NODEID` is no such number: it is the host's. A Job of Kubernetes does not say how many Pods it has; the manifests of
/// allranks do, in `ALLRANKS_NODES`.
const DIALECTS: [(Engine, [&str; 2]); 7] = [
    (Engine::Slurm, ["SLURM_PROCID", "SLURM_NTASKS"]),
    (
        Engine::Mpi,
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ),
    (Engine::Mpi, ["PALS_RANKID", "PALS_SIZE"]),
    (Engine::Mpi, ["PMI_RANK", "PMI_SIZE"]),
    (Engine::Torchrun, ["RANK", "WORLD_SIZE"]),
    (Engine::Kubernetes, ["PET_NODE_RANK", "PET_NNODES"]),
    (
        Engine::Kubernetes,
        ["JOB_COMPLETION_INDEX", "ALLRANKS_NODES"],
    ),
];

/// Returns the place that the engine gave this process; none of one that people started.
///
/// # Errors
/// Says what the engine should have told and has not.
pub fn slot(
    engine: Engine,
    environment: &BTreeMap<String, String>,
) -> Result<Option<EngineSlot>, String> {
    if engine == Engine::Attached {
        return Ok(None);
    }
    let number = |name: &str| environment.get(name)?.parse::<usize>().ok();
    let dialects = DIALECTS.iter().filter(|(of, _)| *of == engine);
    for (_, from) in dialects.clone() {
        if let (Some(place), Some(count)) = (number(from[0]), number(from[1])) {
            let from = *from;
            return Ok(Some(EngineSlot { place, count, from }));
        }
    }
    let known: Vec<String> = dialects.map(|(_, from)| from.join(" and ")).collect();
    Err(format!(
        "{} did not say which of its processes this is; looked for {}",
        engine.name(),
        known.join(", or ")
    ))
}

/// Returns true if a variable is the engine's word to the agent, and would tell a rank of another world: some libraries take their
/// rank and size from them.
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
        let found = slot(Engine::Mpi, &both).unwrap().unwrap();
        assert_eq!((found.place, found.count), (1, 2));
        assert_eq!(
            found.to_string(),
            "OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2"
        );
        let found = slot(Engine::Slurm, &both).unwrap().unwrap();
        assert_eq!((found.place, found.count), (0, 1));
        assert_eq!(slot(Engine::Attached, &both), Ok(None));
        // Plain prterun gives no size; SLURM_NODEID is no place.
        let said = slot(Engine::Mpi, &all(&[("PMIX_RANK", "1")])).unwrap_err();
        assert!(
            said.contains("OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"),
            "{said}"
        );
        assert!(slot(Engine::Slurm, &all(&[("SLURM_NODEID", "1")])).is_err());
    }

    #[test]
    fn pods_and_agents_of_torchrun_have_places_too() {
        let found = |engine, pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let environment = pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let slot = slot(engine, &environment.collect()).ok()??;
            Some((slot.place, slot.count))
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
