//! Runs ranks in processes of their own, for drivers without a zygote and for platforms on which forking is unsafe.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::future::poll_fn;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::launch_spec::RankLaunchSpec;
use super::local_world::Processes;
use super::orphans::{Remnant, TOKEN, kill_remains};
use super::supervise::SUPERVISED;
use super::{Event, RankExit};
use allranks_model::names::Rank;

/// The processes of a world, one for each rank.
#[derive(Debug)]
pub struct SpawnedProcesses {
    running: BTreeMap<Rank, Running>,
    token: String,
}

/// The id of a process until it has been waited for; none after that, because the id may then be another process's.
#[derive(Clone, Debug)]
struct Running(Arc<Mutex<Option<Pid>>>);

impl Running {
    fn new(pid: Option<Pid>) -> Self {
        Self(Arc::new(Mutex::new(pid)))
    }

    fn pid(&self) -> MutexGuard<'_, Option<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the process's end. It is reaped while the id is locked, so that nothing is signalled in between.
    async fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let mut ended = pin!(child.wait());
        poll_fn(|context| {
            let mut pid = self.pid();
            let status = ended.as_mut().poll(context);
            if status.is_ready() {
                *pid = None;
            }
            status
        })
        .await
    }
}

impl Processes for SpawnedProcesses {
    fn signal(&self, rank: Rank, signal: i32) {
        let Some(running) = self.running.get(&rank) else {
            return;
        };
        let pid = running.pid();
        if let (Some(pid), Some(signal)) = (*pid, Signal::from_named_raw(signal)) {
            let _ = kill_process_group(pid, signal);
        }
    }

    fn sweep(&self) -> Vec<Remnant> {
        kill_remains(&self.token)
    }
}

/// Starts one process for each rank, and reports how each ends as an event.
///
/// `supervisor` is this program, run as `supervise` (see [`super::supervise`]), so that the rank is killed if the
/// harness ends, whatever its driver is. Without one a rank only notices that its connection is closed.
pub fn start(
    argv: &[String],
    supervisor: Option<&Path>,
    token: &str,
    ranks: &[RankLaunchSpec],
    events: &mpsc::Sender<Event>,
) -> SpawnedProcesses {
    let mut running = BTreeMap::new();
    for order in ranks {
        let rank = order.rank;
        let events = events.clone();
        match spawn(argv, supervisor, &order.env, &order.log) {
            Ok(mut child) => {
                let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
                let this = Running::new(pid);
                running.insert(rank, this.clone());
                tokio::spawn(async move {
                    // `wait` would close this pipe, and the supervisor would take that for the end of the harness.
                    let _lifeline = child.stdin.take();
                    let end = match this.wait(&mut child).await {
                        Ok(status) => match (status.code(), status.signal()) {
                            (Some(code), _) => RankExit::Exited {
                                code,
                                left_behind: 0,
                            },
                            (None, Some(signal)) => RankExit::Signalled(signal),
                            (None, None) => RankExit::Unknown(status.to_string()),
                        },
                        Err(error) => RankExit::Unknown(error.to_string()),
                    };
                    let _ = events.send(Event::Ended(rank, end)).await;
                });
            }
            Err(error) => {
                running.insert(rank, Running::new(None));
                let end = RankExit::NotStarted(format!("{}: {error}", argv[0]));
                tokio::spawn(async move {
                    let _ = events.send(Event::Ended(rank, end)).await;
                });
            }
        }
    }
    SpawnedProcesses {
        running,
        token: token.to_owned(),
    }
}

fn spawn(
    argv: &[String],
    supervisor: Option<&Path>,
    env: &BTreeMap<String, String>,
    log: &Path,
) -> io::Result<Child> {
    let out = OpenOptions::new().create(true).append(true).open(log)?;
    let err = out.try_clone()?;
    let mut command = match supervisor {
        Some(supervisor) => {
            let mut command = Command::new(supervisor);
            command.arg("supervise").arg("--").args(argv);
            command
        }
        None => {
            let mut command = Command::new(&argv[0]);
            command.args(&argv[1..]).process_group(0);
            command
        }
    };
    command.env_clear().envs(env);
    if let (Some(_), Some(token)) = (supervisor, env.get(TOKEN)) {
        command.env_remove(TOKEN).env(SUPERVISED, token);
    }
    command
        .stdin(if supervisor.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(out)
        .stderr(err)
        .spawn()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The id of a process that was waited for may be the process group of another world.
    #[tokio::test]
    async fn a_process_that_was_waited_for_is_not_signalled() {
        let folder = tempfile::tempdir().unwrap();
        let order = RankLaunchSpec {
            rank: Rank(0),
            env: BTreeMap::new(),
            log: folder.path().join("log"),
        };
        let (sender, mut events) = mpsc::channel(1);
        let sleeper = ["/bin/sleep".to_owned(), "60".to_owned()];
        let processes = start(&sleeper, None, "nothing", &[order], &sender);
        assert!(processes.running[&Rank(0)].pid().is_some());
        processes.signal(Rank(0), 9);
        let ended = events.recv().await.unwrap();
        assert!(
            matches!(ended, Event::Ended(Rank(0), RankExit::Signalled(9))),
            "{ended:?}"
        );
        assert_eq!(*processes.running[&Rank(0)].pid(), None);
    }

    /// Two supervisors of one world kill what carries its token at the same time: neither may find the other.
    #[tokio::test]
    async fn a_supervisor_does_not_carry_the_token_that_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let env = BTreeMap::from([(TOKEN.to_owned(), "abc.0".to_owned())]);
        // Stands for a supervisor: a program that prints its environment.
        let printer = folder.path().join("printer");
        std::fs::write(&printer, "#!/bin/sh\nexec /usr/bin/env\n").unwrap();
        std::fs::set_permissions(&printer, std::fs::Permissions::from_mode(0o700)).unwrap();
        let argv = ["no-such-program".to_owned()];
        let mut child = spawn(&argv, Some(&printer), &env, &log).unwrap();
        child.wait().await.unwrap();
        let printed = std::fs::read_to_string(&log).unwrap();
        let has = |line: &str| printed.lines().any(|other| other == line);
        assert!(has("ALLRANKS_SUPERVISED=abc.0"), "{printed}");
        assert!(!has("ALLRANKS_TOKEN=abc.0"), "{printed}");
    }
}
