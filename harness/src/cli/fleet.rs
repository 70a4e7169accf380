//! The node agents that a command line asks for: the engine that starts them, or instructions for starting them by hand.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Failure;
use super::args::ListenArguments;
use super::fleet_arguments::{FleetArguments, LauncherChoice};
use crate::kubernetes::{Manifests, PodOptions};
use allranks_report::command_line;
use allranks_runner::world::node::{self, ANYWHERE, Engine, EngineCommand, NodesSettings};

/// The fleet that a command line asks for.
pub struct FleetRequest {
    /// What starts the agents.
    pub engine: Engine,
    /// Number of nodes.
    pub count: u32,
    /// Options for the engine's command.
    pub words: Vec<String>,
}

impl FleetRequest {
    /// Returns the fleet that the arguments ask for; `None` if ranks are started on this machine.
    ///
    /// # Errors
    /// Options are given for a launcher that takes none.
    pub fn of(arguments: &FleetArguments) -> Result<Option<Self>, Failure> {
        let words = arguments.words();
        if !words.is_empty() && !arguments.takes_words() {
            return Err(Failure::Usage(
                "--launcher-options needs a launcher that takes options".to_owned(),
                "add --launcher slurm, mpi, torchrun or kubernetes".to_owned(),
            ));
        }
        Ok(arguments.engine().map(|engine| Self {
            engine,
            count: arguments.nodes.unwrap_or(1),
            words,
        }))
    }

    /// Returns the fleet that `doctor --fleet` asks for. Default: two hosts, whose agents people start.
    pub fn of_hosts(arguments: &FleetArguments) -> Self {
        let engine = arguments.launcher.and_then(LauncherChoice::engine);
        Self {
            engine: engine.unwrap_or(Engine::Attached),
            count: arguments.nodes.unwrap_or(2),
            words: arguments.words(),
        }
    }

    /// Returns the engine's command; `None` if people start the agents.
    ///
    /// # Errors
    /// The engine cannot be used here.
    pub fn command(&self) -> Result<Option<EngineCommand>, Failure> {
        let agent = std::env::current_exe()?;
        let command = node::command(self.engine, self.count as usize, &self.words, &agent);
        command.map_err(|why| match why.split_once("; hint: ") {
            Some((why, hint)) => Failure::Usage(why.to_owned(), hint.to_owned()),
            None => Failure::Usage(why, "`--launcher attached` needs no engine".to_owned()),
        })
    }

    /// Returns instructions for starting the agents by hand, to follow `waiting for 2 node(s); `. `folder` is the run's folder.
    ///
    /// # Errors
    /// An option for Pods is unknown.
    pub fn to_join(&self, credentials: &Path, folder: &Path) -> Result<String, Failure> {
        let credentials = std::path::absolute(credentials)?;
        let agent = format!(
            "allranks node --credentials {}",
            command_line(&[credentials.display().to_string()])
        );
        Ok(match self.engine {
            Engine::Attached | Engine::Slurm | Engine::Mpi => format!("on each host run: {agent}"),
            Engine::Torchrun => {
                let meets = match self.words.is_empty() {
                    true => "--rdzv-backend c10d --rdzv-endpoint FIRST_HOST:29400".to_owned(),
                    false => self.words.join(" "),
                };
                format!(
                    "on each host run: torchrun --nnodes {} --nproc-per-node 1 {meets} --no-python {agent}",
                    self.count
                )
            }
            Engine::Kubernetes => {
                let folder = std::path::absolute(folder)?.join(MANIFESTS);
                self.manifests(&folder)?.commands(&credentials, &folder)
            }
        })
    }

    /// Returns the settings for the nodes of a run. For Kubernetes, writes the manifests into the run's folder.
    ///
    /// # Errors
    /// The engine cannot be used here, an option is wrong, or manifests cannot be written.
    pub fn settings(
        &self,
        listening: &ListenArguments,
        folder: &Path,
    ) -> Result<NodesSettings, Failure> {
        let credentials = listening.credentials.clone();
        let credentials: PathBuf = credentials.unwrap_or_else(|| folder.join("credentials.json"));
        let to_join = self.to_join(&credentials, folder)?;
        if self.engine == Engine::Kubernetes {
            let folder = std::path::absolute(folder)?.join(MANIFESTS);
            self.manifests(&folder)?.write(&folder)?;
        }
        Ok(NodesSettings {
            engine: self.engine,
            command: self.command()?,
            to_join,
            engine_log: folder.join("engine.log"),
            count: self.count as usize,
            listen: listening.listen.unwrap_or(ANYWHERE),
            credentials,
            join_patience: Duration::from_secs(listening.join_patience),
            lost_after: Duration::from_secs(listening.lost_after),
        })
    }

    /// Returns the manifests of the Pods. `folder` is the run's folder for manifests.
    fn manifests(&self, folder: &Path) -> Result<Manifests, Failure> {
        let options = PodOptions::read(&self.words).map_err(|why| {
            Failure::Usage(
                why,
                "give them in --launcher-options, separated by spaces".to_owned(),
            )
        })?;
        let run = folder
            .parent()
            .and_then(Path::file_name)
            .unwrap_or_default();
        Ok(Manifests::new(&run.to_string_lossy(), self.count, options))
    }
}

/// The name of the folder for manifests in a run's folder.
const MANIFESTS: &str = "kubernetes";

#[cfg(test)]
mod tests {
    use super::*;

    fn to_join(engine: Engine, words: &[&str]) -> String {
        let request = FleetRequest {
            engine,
            count: 2,
            words: words.iter().map(|&word| word.to_owned()).collect(),
        };
        let (credentials, run) = (Path::new("/r/x y.json"), Path::new("/runs/Night_7"));
        request
            .to_join(credentials, run)
            .unwrap_or_else(|_| panic!("refused"))
    }

    #[test]
    fn each_engine_s_people_are_told_what_to_run() {
        assert_eq!(
            to_join(Engine::Attached, &[]),
            "on each host run: allranks node --credentials '/r/x y.json'"
        );
        let said = to_join(Engine::Torchrun, &["--rdzv-endpoint", "alpha:1"]);
        assert_eq!(
            said,
            "on each host run: torchrun --nnodes 2 --nproc-per-node 1 --rdzv-endpoint alpha:1 --no-python allranks node --credentials '/r/x y.json'"
        );
        let said = to_join(Engine::Kubernetes, &["namespace=lab"]);
        assert!(
            said.contains("kubectl create secret generic allranks-night-7 '--from-file=credentials.json=/r/x y.json' -n lab &&"),
            "{said}"
        );
        assert!(
            said.contains("kubectl apply -f /runs/Night_7/kubernetes/job.yaml -n lab"),
            "{said}"
        );
    }
}
