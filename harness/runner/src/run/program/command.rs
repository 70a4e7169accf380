//! Builds the command lines and environments of a program's ranks; nothing is run for that.

use std::collections::BTreeMap;
use std::path::Path;

use super::launcher_start::LauncherStart;
use crate::run::setup::{Endpoint, environment};
use crate::watch;
use crate::world::{Device, Mpirun, prepend_path};
use allranks_model::launcher::Launcher;
use allranks_model::names::Rank;
use allranks_suite::case::{PYTHON, ProgramSpec};
use allranks_suite::plan::Scenario;

/// Variable that names the modules which `sitecustomize` makes Python import right after torch.
const IMPORT: &str = "ALLRANKS_IMPORT";
/// Variables that a launcher other than `local` sets for each rank itself.
const RANK_VARIABLES: &[&str] = &["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"];
/// Variables with the endpoint of the ranks. torchrun sets them, engines do not.
const MEETING_VARIABLES: &[&str] = &["MASTER_ADDR", "MASTER_PORT"];

/// Returns the command of one rank, with its placeholders filled in.
#[must_use]
pub fn of_rank(scenario: &Scenario, program: &ProgramSpec, python: &Path) -> Vec<String> {
    let python = python.to_string_lossy();
    let filled = |(place, word): (usize, &String)| match (place, word.as_str()) {
        (0, PYTHON) => python.clone().into_owned(),
        (_, word) => word
            .replace("{backend}", &scenario.init_backend())
            .replace("{device}", &scenario.platform.device_type)
            .replace("{world_size}", &scenario.world_size.to_string()),
    };
    program.run.iter().enumerate().map(filled).collect()
}

/// Returns the command that runs `command` under a rank wrapper (the hidden command `rank-wrapper`) that this launcher starts.
#[must_use]
pub fn wrapped(
    launcher: Launcher,
    binary: &Path,
    (records, logs): (&Path, &Path),
    command: &[String],
) -> Vec<String> {
    let paths = [records, logs].map(|path| path.to_string_lossy().into_owned());
    let mut words = vec![
        binary.to_string_lossy().into_owned(),
        "rank-wrapper".to_owned(),
    ];
    words.push(launcher.name().to_owned());
    words.extend(paths);
    words.push("--".to_owned());
    words.extend(command.iter().cloned());
    words
}

/// Returns the environment of a rank under the local launcher, without the token: that of any rank, and the variables
/// that load the platform's modules and write a call trace.
#[must_use]
pub fn environment_of(
    scenario: &Scenario,
    at: &Endpoint,
    base: &BTreeMap<String, String>,
    (rank, devices): (Rank, &[Device]),
    (modules, call_traces): (&Path, &Path),
) -> BTreeMap<String, String> {
    let mut env = environment(scenario, at, base, devices, rank);
    let platform = &scenario.platform;
    for folder in platform.python_path.iter().rev() {
        prepend_path(&mut env, &folder.to_string_lossy());
    }
    prepend_path(&mut env, &modules.to_string_lossy());
    let call_traces = call_traces.to_string_lossy().into_owned();
    env.insert(watch::FOLDER.to_owned(), call_traces);
    if !platform.import.is_empty() {
        env.insert(IMPORT.to_owned(), platform.import.join(","));
    }
    env
}

/// Returns the environment of the process that starts the ranks: under `local` that of each rank itself, otherwise
/// without the variables that the launcher sets.
#[must_use]
pub fn environment_under(
    launcher: Launcher,
    mut of_rank: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let is_own = |name: &str| match launcher {
        Launcher::Local => false,
        Launcher::Torchrun => RANK_VARIABLES.contains(&name) || MEETING_VARIABLES.contains(&name),
        Launcher::Slurm | Launcher::Mpi => RANK_VARIABLES.contains(&name),
    };
    of_rank.retain(|name, _| !is_own(name));
    of_rank
}

/// Returns what the harness adds to the environment of a rank, or of the launcher that starts it, as it is shown to
/// people.
#[must_use]
pub fn distinctive_environment(
    scenario: &Scenario,
    at: &Endpoint,
    rank: Rank,
) -> BTreeMap<String, String> {
    let folders = (
        Path::new("(scratch)/python"),
        Path::new("(scratch)/diaries"),
    );
    let env = environment_of(scenario, at, &BTreeMap::new(), (rank, &[]), folders);
    environment_under(scenario.launcher, env)
}

/// Returns the command lines that a person would type to run the scenario's program, each with a label; the rank
/// wrappers are left out. `options` are words for the launcher.
#[must_use]
pub fn command_lines(
    scenario: &Scenario,
    program: &ProgramSpec,
    python: &Path,
    options: &[String],
) -> Vec<(String, Vec<String>)> {
    let command = of_rank(scenario, program, python);
    let each = ("each rank".to_owned(), command.clone());
    let start = LauncherStart {
        scenario,
        python,
        options,
        port: "(leased)",
        logs: "(scratch)",
    };
    let name = scenario.launcher.name();
    match scenario.launcher {
        Launcher::Local => vec![each],
        Launcher::Torchrun => {
            let nodes = 0..scenario.placement.nodes();
            let label = |node: usize| match scenario.placement.nodes() {
                1 => name.to_owned(),
                _ => format!("{name} {node}"),
            };
            let whole = nodes.map(|node| (label(node), start.torchrun(node, &command)));
            whole.chain([each]).collect()
        }
        Launcher::Slurm => vec![(name.to_owned(), start.srun(&command)), each],
        Launcher::Mpi => {
            // Shown, not run, and the same on every machine.
            let whole = start.mpirun(Mpirun::OpenMpi, &[], &command);
            vec![(name.to_owned(), whole), each]
        }
    }
}
