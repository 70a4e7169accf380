//! The command with which an engine starts node agents, and its process.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

use super::credentials::{CREDENTIALS, Credentials};
use super::engine::Engine;
use crate::world::Mpirun;

/// A command that starts agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineCommand {
    /// The program and its arguments; the agent's command comes last.
    pub argv: Vec<String>,
    /// What was found, and what that means, for people.
    pub why: String,
}

/// Returns the command with which an engine starts `count` agents, one on each host; none if people start them. `options` are
/// words for the engine, `agent` is the allranks binary.
///
/// # Errors
/// Says what the engine lacks here, with a hint.
pub fn command(
    engine: Engine,
    count: usize,
    options: &[String],
    agent: &Path,
) -> Result<Option<EngineCommand>, String> {
    let var = |name: &str| std::env::var(name).ok();
    match engine {
        Engine::Attached | Engine::Torchrun | Engine::Kubernetes => Ok(None),
        Engine::Slurm => slurm(count, options, agent, var).map(Some),
        Engine::Mpi => {
            let (family, version) = Mpirun::installed().map_err(|error| error.to_string())?;
            Ok(Some(mpi(count, options, agent, family, &version)))
        }
    }
}

fn slurm(
    count: usize,
    options: &[String],
    agent: &Path,
    var: impl Fn(&str) -> Option<String>,
) -> Result<EngineCommand, String> {
    let hint = format!(
        "salloc --nodes={count} allranks run ..., or a script for sbatch, as in the guide `Several hosts`"
    );
    let Some(job) = var("SLURM_JOB_ID") else {
        return Err(format!(
            "--launcher slurm runs inside an allocation, and SLURM_JOB_ID is not set; hint: {hint}"
        ));
    };
    let nodes = var("SLURM_JOB_NUM_NODES").or_else(|| var("SLURM_NNODES"));
    let nodes: Option<usize> = nodes.and_then(|nodes| nodes.parse().ok());
    // Slurm would wait for ever, or place two tasks on a host.
    if let Some(nodes) = nodes.filter(|nodes| *nodes < count) {
        return Err(format!(
            "the allocation has {nodes} node(s), and --nodes asks for {count}; hint: {hint}"
        ));
    }
    let mut argv = vec![
        "srun".to_owned(),
        format!("--nodes={count}"),
        format!("--ntasks={count}"),
        "--ntasks-per-node=1".to_owned(),
        // The agents of other hosts go on: the run decides what a lost node means.
        "--kill-on-bad-exit=0".to_owned(),
        // An agent has all that the job has on its host, for all its ranks.
        "--cpu-bind=none".to_owned(),
        "--export=ALL".to_owned(),
        "--input=none".to_owned(),
    ];
    argv.extend(options.iter().cloned());
    argv.extend([agent.display().to_string(), "node".to_owned()]);
    Ok(EngineCommand {
        argv,
        why: format!("SLURM_JOB_ID={job}: one task for each of {count} node(s)"),
    })
}

fn mpi(
    count: usize,
    options: &[String],
    agent: &Path,
    family: Mpirun,
    version: &str,
) -> EngineCommand {
    let mut argv: Vec<String> = ["mpirun", "-n", &count.to_string()]
        .map(str::to_owned)
        .to_vec();
    let words: &[&str] = match family {
        // It would bind an agent, and so all its ranks, to one core.
        Mpirun::OpenMpi => &["-x", CREDENTIALS, "--bind-to", "none"],
        Mpirun::Hydra => &["-ppn", "1"],
    };
    argv.extend(words.iter().map(|&word| word.to_owned()));
    // Options about hosts say where processes go; without any, one goes to each node.
    if family == Mpirun::OpenMpi && options.is_empty() {
        argv.extend(["--map-by", "ppr:1:node"].map(str::to_owned));
    }
    argv.extend(options.iter().cloned());
    argv.extend([agent.display().to_string(), "node".to_owned()]);
    EngineCommand {
        argv,
        why: format!("`mpirun --version` says `{version}`"),
    }
}

/// A running engine. Dropping it kills it.
#[derive(Debug)]
pub(super) struct RunningEngine {
    program: String,
    child: Child,
    log: std::path::PathBuf,
}

impl RunningEngine {
    /// Starts it; its output, and that of the agents, goes to `log`.
    ///
    /// # Errors
    /// Fails if the program cannot be run, or the log cannot be written.
    pub(super) fn start(
        command: &EngineCommand,
        credentials: &Credentials,
        log: &Path,
    ) -> io::Result<Self> {
        let program = command.argv[0].clone();
        let out = File::create(log)?;
        let child = Command::new(&program)
            .args(&command.argv[1..])
            .env(CREDENTIALS, serde_json::to_string(credentials)?)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            // Ctrl-C is for the run, which ends the agents in good order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| {
                io::Error::new(error.kind(), format!("cannot run {program}: {error}"))
            })?;
        Ok(Self {
            program,
            child,
            log: log.to_owned(),
        })
    }

    /// Waits until it has ended. Returns how it ended, with the last line of its log, in words. Cancel-safe.
    pub(super) async fn ended(&mut self) -> String {
        let status = match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        format!(
            "{} ended ({status}); the last line of its log: {}",
            self.program,
            last.unwrap_or("none")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = "/opt/allranks";

    #[test]
    fn slurm_needs_an_allocation_that_is_large_enough() {
        let within = |nodes: Option<&str>| {
            let var = |name: &str| match name {
                "SLURM_JOB_ID" => nodes.map(|_| "7".to_owned()),
                "SLURM_JOB_NUM_NODES" => nodes.map(str::to_owned),
                _ => None,
            };
            slurm(2, &["--mem=1G".to_owned()], Path::new(AGENT), var)
        };
        let said = within(None).unwrap_err();
        assert!(said.contains("SLURM_JOB_ID is not set"), "{said}");
        let said = within(Some("1")).unwrap_err();
        assert!(
            said.contains("has 1 node(s), and --nodes asks for 2"),
            "{said}"
        );
        let argv = within(Some("4")).unwrap().argv;
        assert_eq!(
            argv[..4],
            ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
        );
        assert_eq!(argv[argv.len() - 3..], ["--mem=1G", AGENT, "node"]);
    }

    #[test]
    fn each_mpirun_is_told_in_its_own_words() {
        let argv = |family| mpi(2, &[], Path::new(AGENT), family, "").argv.join(" ");
        assert_eq!(
            argv(Mpirun::OpenMpi),
            "mpirun -n 2 -x ALLRANKS_CREDENTIALS --bind-to none --map-by ppr:1:node /opt/allranks node"
        );
        assert_eq!(argv(Mpirun::Hydra), "mpirun -n 2 -ppn 1 /opt/allranks node");
    }
}
