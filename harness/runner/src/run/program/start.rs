//! Starts the ranks of a program, or the launchers that start them.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::command::{environment_under, of_rank, wrapped};
use super::folders::Folders;
use super::launcher_start::LauncherStart;
use crate::run::Shared;
use crate::run::setup::Endpoint;
use crate::world::node::interfaces;
use crate::world::{Commands, Device, Driver, LOOPBACK, Mpirun, RankLaunchSpec, TOKEN};
use allranks_model::launcher::Launcher;
use allranks_model::names::Rank;
use allranks_suite::case::ProgramSpec;
use allranks_suite::plan::Scenario;

/// What is needed to start a program's ranks.
pub struct ProgramStart<'a> {
    /// What all scenarios of the run share.
    pub shared: &'a Shared,
    /// The scenario whose world it is.
    pub scenario: &'a Scenario,
    /// What the case says of the program.
    pub program: &'a ProgramSpec,
    /// The folders of the world.
    pub folders: &'a Folders,
    /// Where the ranks meet.
    pub at: &'a Endpoint,
    /// The token by which its processes are known.
    pub token: &'a str,
    /// The variables of rank 0 that the harness sets, by which a launcher is told what to pass on.
    pub distinctive: BTreeMap<String, String>,
}

impl ProgramStart<'_> {
    /// Starts the ranks, or the launcher that starts them. `environment` returns the environment of a rank.
    pub fn start(
        self,
        environment: impl Fn(Rank) -> BTreeMap<String, String>,
    ) -> io::Result<Commands> {
        let Self {
            shared,
            scenario,
            program,
            folders,
            at,
            token,
            distinctive,
        } = self;
        let Some(binary) = &shared.settings.supervisor else {
            return Err(io::Error::other(
                "programs need the allranks binary beside them",
            ));
        };
        let python = match &shared.settings.driver {
            Driver::Python { python, .. } => python.clone(),
            Driver::Libtorch(_) | Driver::Command(_) => PathBuf::from("python3"),
        };
        let launcher = scenario.launcher;
        let rank = of_rank(scenario, program, &python);
        let rank = wrapped(launcher, binary, (&folders.records, &folders.logs), &rank);
        let (port, logs) = (at.port.to_string(), folders.launcher.to_string_lossy());
        let start = LauncherStart {
            scenario,
            python: &python,
            options: &shared.settings.launcher_options,
            port: &port,
            logs: &logs,
        };
        // One for each process to be started: its command, the first rank that it starts, and its log.
        let placement = &scenario.placement;
        let ranks = scenario.world_size.ranks();
        let whole: Vec<(Vec<String>, Rank, String)> = match launcher {
            Launcher::Local => ranks
                // For output that comes before the rank wrapper has opened its own log.
                .map(|number| (rank.clone(), number, format!("rank{number}.log")))
                .collect(),
            Launcher::Torchrun => (0..placement.nodes())
                .map(|node| {
                    let log = match node {
                        0 => "torchrun.log".to_owned(),
                        _ => format!("torchrun{node}.log"),
                    };
                    let first = placement.ranks()[..node].iter().sum();
                    (start.torchrun(node, &rank), Rank(first), log)
                })
                .collect(),
            Launcher::Slurm => vec![(start.srun(&rank), Rank(0), "srun.log".to_owned())],
            Launcher::Mpi => {
                let exported = environment_under(launcher, distinctive);
                let exported: Vec<String> =
                    exported.into_keys().chain([TOKEN.to_owned()]).collect();
                let (family, _) = Mpirun::installed()?;
                let words = start.mpirun(family, &exported, &rank);
                vec![(words, Rank(0), "mpirun.log".to_owned())]
            }
        };
        let (commands, orders) = whole
            .into_iter()
            .zip(0..)
            .map(|((argv, first, log), number)| {
                let order = RankLaunchSpec {
                    rank: Rank(number),
                    env: environment_under(launcher, environment(first)),
                    log: folders.logs.join(log),
                };
                (argv, order)
            })
            .unzip();
        Ok(Commands::start(commands, binary, token, orders))
    }
}

/// Returns the address at which a program's ranks meet: loopback, or, where an engine has them on several nodes, an address of
/// this machine that others may reach.
pub fn meeting_host(scenario: &Scenario) -> String {
    let is_spread = scenario.placement.nodes() > 1
        && matches!(scenario.launcher, Launcher::Slurm | Launcher::Mpi);
    let own = is_spread.then(|| interfaces().into_iter().next()).flatten();
    own.map_or_else(|| LOOPBACK.to_owned(), |(_, address)| address.to_string())
}

/// Returns those of a world's devices that the ranks on the node of this rank have. All of them where there is one node, or
/// where a program cannot be told which are its.
pub fn devices_on_node<'a>(scenario: &Scenario, devices: &'a [Device], rank: Rank) -> &'a [Device] {
    let placement = &scenario.placement;
    let Some((node, local)) = placement.place_of(rank) else {
        return devices;
    };
    if placement.nodes() == 1 || devices.len() != scenario.world_size.count() {
        return devices;
    }
    let first = rank.index() - local as usize;
    &devices[first..first + placement.ranks_on(node) as usize]
}
