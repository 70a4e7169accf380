//! The commands of launchers that start a program's ranks: torchrun, srun and mpirun.

use std::path::Path;

use crate::world::{LOOPBACK, Mpirun};
use allranks_suite::plan::Scenario;

/// What a launcher is to start.
pub struct LauncherStart<'a> {
    /// The scenario: how many ranks, and on how many nodes.
    pub scenario: &'a Scenario,
    /// The Python that has torch.
    pub python: &'a Path,
    /// Words for the launcher's command.
    pub options: &'a [String],
    /// The port at which the ranks meet.
    pub port: &'a str,
    /// The folder for the launcher's own files.
    pub logs: &'a str,
}

impl LauncherStart<'_> {
    /// Returns the command that starts `command` as every rank of one node with torchrun, as a module of the run's Python. All
    /// nodes are on this machine.
    pub fn torchrun(&self, node: usize, command: &[String]) -> Vec<String> {
        let placement = &self.scenario.placement;
        let (nodes, node_rank) = (placement.nodes().to_string(), node.to_string());
        let ranks = placement.ranks_on(node).to_string();
        let program = self.scenario.case.program.as_ref();
        let restarts = program.map_or(0, |program| program.restarts).to_string();
        let mut words = words(&[
            &self.python.to_string_lossy(),
            "-m",
            "torch.distributed.run",
            "--nnodes",
            &nodes,
        ]);
        if placement.nodes() > 1 {
            words.extend(self::words(&["--node-rank", &node_rank]));
        }
        words.extend(self::words(&[
            "--nproc-per-node",
            &ranks,
            "--master-addr",
            LOOPBACK,
            "--master-port",
            self.port,
            "--local-addr",
            LOOPBACK,
            "--max-restarts",
            &restarts,
            "--log-dir",
            self.logs,
        ]));
        words.extend(self.options.iter().cloned());
        words.push("--no-python".to_owned());
        words.extend(command.iter().cloned());
        words
    }

    /// Returns the command that starts `command` as every rank with srun, inside an allocation.
    pub fn srun(&self, command: &[String]) -> Vec<String> {
        let placement = &self.scenario.placement;
        let mut words = vec![
            "srun".to_owned(),
            format!("--nodes={}", placement.nodes()),
            format!("--ntasks={}", self.scenario.world_size),
            // Without it Slurm may place three and one.
            format!("--ntasks-per-node={}", placement.ranks_on(0)),
            // It would wait for ever for what the allocation lacks.
            "--immediate=60".to_owned(),
            // The harness decides what a failed rank means.
            "--kill-on-bad-exit=0".to_owned(),
            "--overcommit".to_owned(),
            "--cpu-bind=none".to_owned(),
            "--export=ALL".to_owned(),
            "--input=none".to_owned(),
        ];
        words.extend(self.options.iter().cloned());
        words.extend(command.iter().cloned());
        words
    }

    /// Returns the command that starts `command` as every rank with mpirun. `exported` are the variables that ranks on other
    /// hosts are to have.
    pub fn mpirun(&self, family: Mpirun, exported: &[String], command: &[String]) -> Vec<String> {
        let placement = &self.scenario.placement;
        let mut words = words(&["mpirun", "-n", &self.scenario.world_size.to_string()]);
        let each = placement.ranks_on(0);
        match family {
            Mpirun::Hydra if placement.nodes() > 1 => {
                words.extend(self::words(&["-ppn", &each.to_string()]));
            }
            Mpirun::Hydra => {}
            Mpirun::OpenMpi => {
                // A rank may use every core, and there may be fewer cores than ranks.
                words.extend(self::words(&["--oversubscribe", "--bind-to", "none"]));
                if placement.nodes() > 1 {
                    words.extend(self::words(&["--map-by", &format!("ppr:{each}:node")]));
                }
                for name in exported {
                    words.extend(self::words(&["-x", name]));
                }
            }
        }
        words.extend(self.options.iter().cloned());
        words.extend(command.iter().cloned());
        words
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
