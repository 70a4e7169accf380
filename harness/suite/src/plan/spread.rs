//! The spread of a scenario: how many nodes its ranks are on, as its case or the command line says.

use super::selection::{Selection, Target};
use crate::case::Case;
use allranks_model::launcher::Launcher;
use allranks_model::names::WorldSize;
use allranks_model::placement::Placement;
use allranks_model::store::StoreMethod;

/// How ranks must be spread over nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// As the command line says: on this many nodes, or, without node agents, on this machine.
    AsAsked(Option<u32>),
    /// As the case says.
    Written(Placement),
}

impl Spread {
    /// Returns the spreads of a case's worlds of one size; each is a scenario. `asked` is the number of nodes that the command line
    /// asks for. Numbers of nodes that are more than the ranks are left out.
    pub(super) fn of_case(case: &Case, size: WorldSize, asked: Option<u32>) -> Vec<Self> {
        let world = &case.world;
        if let Some(ranks) = &world.placement {
            let placement = Placement::of(ranks.clone());
            return placement.into_iter().map(Self::Written).collect();
        }
        match &world.nodes {
            None => vec![Self::AsAsked(asked)],
            Some(nodes) => {
                let nodes = nodes.as_slice().iter();
                let even = nodes.filter_map(|nodes| Placement::even(size, *nodes));
                even.map(Self::Written).collect()
            }
        }
    }

    /// Returns what ids of scenarios have for it: nothing for one node.
    pub(super) fn in_id(&self, case: &Case) -> String {
        match self {
            Self::AsAsked(Some(nodes)) if *nodes > 1 => format!(".nodes-{nodes}"),
            Self::Written(placement) if case.world.placement.is_some() => {
                let ranks: Vec<String> = placement.ranks().iter().map(u32::to_string).collect();
                format!(".placement-{}", ranks.join("-"))
            }
            Self::Written(placement) if placement.nodes() > 1 => {
                format!(".nodes-{}", placement.nodes())
            }
            Self::AsAsked(_) | Self::Written(_) => String::new(),
        }
    }

    /// Places a world whose ranks node agents start, or, without them, the harness. `asked` is as for [`of_case`](Self::of_case).
    ///
    /// # Errors
    /// Says why it cannot be placed.
    pub(super) fn placed(
        self,
        target: &Target,
        size: WorldSize,
        method: StoreMethod,
        asked: Option<u32>,
    ) -> Result<Placement, String> {
        let placement = self.placement(size)?;
        let nodes = placement.nodes();
        let Some(there) = asked else {
            return match nodes {
                1 => Ok(placement),
                _ => Err(format!(
                    "needs {nodes} nodes; `--launcher attached --nodes {nodes}`, or an engine, provides them"
                )),
            };
        };
        if nodes > there as usize {
            return Err(format!("needs {nodes} nodes, and --nodes has {there}"));
        }
        if target.devices.is_some() {
            return Err("node agents lease no devices".to_owned());
        }
        if nodes > 1 && method == StoreMethod::File {
            return Err("ranks on several nodes have no file of their own to meet at".to_owned());
        }
        Ok(placement)
    }

    /// Places a world whose ranks run a program, which a launcher starts itself.
    ///
    /// # Errors
    /// Says why it cannot be placed, or why the launcher cannot start it here.
    pub(super) fn placed_program(
        self,
        size: WorldSize,
        launcher: Launcher,
        selection: &Selection,
    ) -> Result<Placement, String> {
        let placement = self.placement(size)?;
        let is_even = placement.ranks().windows(2).all(|two| two[0] == two[1]);
        match launcher {
            Launcher::Local if selection.nodes.is_some() => {
                return Err("node agents start no programs".to_owned());
            }
            Launcher::Slurm | Launcher::Mpi if !is_even => {
                let name = launcher.name();
                return Err(format!(
                    "{name} is asked for equal numbers of ranks on all nodes"
                ));
            }
            Launcher::Local | Launcher::Torchrun | Launcher::Slurm | Launcher::Mpi => {}
        }
        match selection.is_elsewhere {
            true => Ok(placement),
            false => match lacking(launcher, placement.nodes(), |name| std::env::var(name).ok()) {
                Some(lack) => Err(lack),
                None => Ok(placement),
            },
        }
    }

    fn placement(self, size: WorldSize) -> Result<Placement, String> {
        match self {
            Self::AsAsked(None) => Ok(Placement::one_node(size)),
            Self::AsAsked(Some(nodes)) => {
                let lack = || format!("needs {nodes} ranks or more, one for each node");
                Placement::even(size, nodes).ok_or_else(lack)
            }
            Self::Written(placement) => Ok(placement),
        }
    }
}

/// Says what this machine lacks for a launcher to start ranks on so many nodes; `None` if it lacks nothing. `variable` gives
/// the value of an environment variable.
fn lacking(
    launcher: Launcher,
    nodes: usize,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    match launcher {
        Launcher::Local | Launcher::Torchrun => None,
        Launcher::Slurm => {
            if variable("SLURM_JOB_ID").is_none() {
                return Some("needs an allocation of Slurm (SLURM_JOB_ID is not set)".to_owned());
            }
            let there = variable("SLURM_JOB_NUM_NODES").or_else(|| variable("SLURM_NNODES"));
            let there = there.and_then(|there| there.parse::<usize>().ok())?;
            (there < nodes).then(|| format!("needs {nodes} nodes, and the allocation has {there}"))
        }
        Launcher::Mpi => {
            let path = variable("PATH").unwrap_or_default();
            let mut folders = std::env::split_paths(&path);
            let is_there = folders.any(|folder| folder.join("mpirun").is_file());
            (!is_there).then(|| "needs mpirun, which is not in PATH".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Scenario;
    use crate::plan::build::plan;
    use std::path::Path;
    use std::sync::Arc;

    /// What is planned of a case in the world `world`, on the host.
    fn planned(world: &str, what: &str, selection: &Selection) -> (Vec<Scenario>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("id: x\ntitle: t\ncovers: [COLL-001]\nworld: {world}\n{what}\n");
        let file = folder.path().join("x.yaml");
        std::fs::write(&file, text).unwrap();
        let cases = crate::case::load(&[file]).unwrap_or_else(|found| panic!("{}", found[0]));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/platforms");
        let platforms = crate::platform::load(&[folder]).unwrap();
        let platform = platforms.into_iter().find(|one| one.name == "cpu").unwrap();
        let target = Target {
            backend: "gloo".to_owned(),
            platform: Arc::new(platform),
            devices: None,
        };
        let plan = plan(&cases.cases, &[target], selection);
        let lacks = plan.too_large.into_iter();
        let lacks = lacks.map(|(id, lack)| format!("{id}: {lack}"));
        (plan.scenarios, lacks.collect())
    }

    const STEPS: &str = "steps: [{all_reduce: {}}]";

    fn on(nodes: u32) -> Selection {
        Selection {
            nodes: Some(nodes),
            ..Selection::default()
        }
    }

    fn ids(scenarios: &[Scenario]) -> Vec<(&str, &[u32])> {
        let each = scenarios.iter();
        each.map(|one| (one.id.as_str(), one.placement.ranks()))
            .collect()
    }

    #[test]
    fn each_number_of_nodes_is_a_scenario_and_worlds_that_are_too_small_are_left_out() {
        let world = "{size: [1, 5], nodes: [1, 2]}";
        let (scenarios, lacks) = planned(world, STEPS, &on(2));
        assert_eq!(lacks, [""; 0]);
        assert_eq!(
            ids(&scenarios),
            [
                ("x@cpu.gloo.ws1", &[1][..]),
                ("x@cpu.gloo.ws5", &[5]),
                ("x@cpu.gloo.ws5.nodes-2", &[3, 2])
            ]
        );
        let (scenarios, lacks) = planned(world, STEPS, &Selection::default());
        assert_eq!(scenarios.len(), 2);
        assert_eq!(
            lacks,
            [
                "x@cpu.gloo.ws5.nodes-2: needs 2 nodes; `--launcher attached --nodes 2`, or an engine, provides them"
            ]
        );
        let (_, lacks) = planned("{size: 4, nodes: 3}", STEPS, &on(2));
        assert_eq!(
            lacks,
            ["x@cpu.gloo.ws4.nodes-3: needs 3 nodes, and --nodes has 2"]
        );
    }

    #[test]
    fn a_placement_is_as_it_is_written() {
        let (scenarios, _) = planned("{size: 4, placement: [1, 3]}", STEPS, &on(2));
        assert_eq!(
            ids(&scenarios),
            [("x@cpu.gloo.ws4.placement-1-3", &[1, 3][..])]
        );
    }

    #[test]
    fn programs_are_placed_by_launchers_that_can() {
        let of = |launcher: &str, world: &str, selection: &Selection| {
            let program = format!("program: {{run: [x], lines: [a], launcher: {launcher}}}");
            let (scenarios, lacks) = planned(world, &program, selection);
            (scenarios.len(), lacks.join("\n"))
        };
        let elsewhere = Selection {
            is_elsewhere: true,
            ..Selection::default()
        };
        let uneven = "{size: 4, placement: [3, 1]}";
        assert_eq!(of("torchrun", uneven, &elsewhere), (1, String::new()));
        let (count, lacks) = of("[slurm, mpi]", uneven, &elsewhere);
        assert!(
            count == 0 && lacks.contains("mpi is asked for equal numbers"),
            "{lacks}"
        );
        assert_eq!(of("[slurm, mpi]", "{size: 4, nodes: 2}", &elsewhere).0, 2);
        let (count, lacks) = of("local", "{size: 2}", &on(2));
        assert!(
            count == 0 && lacks.contains("node agents start no programs"),
            "{lacks}"
        );
    }

    #[test]
    fn what_a_machine_lacks_for_an_engine_is_said() {
        let lack = |launcher, pairs: &[(&str, &str)]| {
            let value = |name: &str| {
                let found = pairs.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            lacking(launcher, 2, value).unwrap_or_default()
        };
        assert!(lack(Launcher::Slurm, &[]).contains("SLURM_JOB_ID is not set"));
        let small = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "1")];
        assert!(lack(Launcher::Slurm, &small).contains("the allocation has 1"));
        let enough = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "2")];
        assert_eq!(lack(Launcher::Slurm, &enough), "");
        assert!(lack(Launcher::Mpi, &[("PATH", "/nonexistent")]).contains("mpirun"));
    }
}
