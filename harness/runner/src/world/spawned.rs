//! Runs ranks in processes of their own, for drivers without a zygote and for platforms on which forking is unsafe.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::future::poll_fn;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::exhaustion::is_exhaustion;
use super::launch_spec::RankLaunchSpec;
use super::local_world::Processes;
use super::orphans::{Orphan, TOKEN, kill_orphans};
use super::supervise::{SUPERVISED, SupervisorReport};
use super::{Event, RankExit};
use allranks_model::names::Rank;

/// The reason for a rank that could not be started because the system allows no more processes or open files.
const EXHAUSTED: &str = "no more processes or open files are available";

/// The processes of a world, one for each rank.
#[derive(Debug)]
pub struct SpawnedProcesses {
    running: BTreeMap<Rank, Running>,
    token: String,
}

/// A process of a world.
#[derive(Clone, Debug)]
struct Running {
    /// Its id until it has been waited for; none after that, because the id may then be another process's.
    pid: Arc<Mutex<Option<Pid>>>,
    /// The other end of its standard input if it is a supervisor; none if it is a rank.
    line: Option<Arc<UnixStream>>,
}

impl Running {
    fn new(pid: Option<Pid>, line: Option<UnixStream>) -> Self {
        Self {
            pid: Arc::new(Mutex::new(pid)),
            line: line.map(Arc::new),
        }
    }

    fn pid(&self) -> MutexGuard<'_, Option<Pid>> {
        self.pid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the rank and the other processes of its group a signal, unless it has ended.
    fn signal(&self, signal: Signal) {
        let pid = self.pid();
        match (&self.line, *pid) {
            // It fails if the supervisor is about to end.
            (Some(line), Some(_)) => {
                let _ = line.as_ref().write(&[signal.as_raw() as u8]);
            }
            (None, Some(pid)) => {
                let _ = kill_process_group(pid, signal);
            }
            (_, None) => {}
        }
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
        if let (Some(running), Some(signal)) =
            (self.running.get(&rank), Signal::from_named_raw(signal))
        {
            running.signal(signal);
        }
    }

    fn roots(&self) -> Vec<u32> {
        let pids = self.running.values().filter_map(|one| *one.pid());
        pids.map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
            .collect()
    }

    fn reap_orphans(&self) -> Vec<Orphan> {
        kill_orphans(&self.token)
    }
}

/// Starts one process for each rank, given with its command, and reports how each ends as an event.
///
/// `supervisor` is this program, run as `supervise` (see [`super::supervise`]), so that the rank is killed if the
/// harness ends, whatever its driver is. Without one a rank only notices that its connection is closed.
pub fn start<'a>(
    ranks: impl Iterator<Item = (&'a [String], &'a RankLaunchSpec)>,
    supervisor: Option<&Path>,
    token: &str,
    events: &mpsc::Sender<Event>,
) -> SpawnedProcesses {
    let mut running = BTreeMap::new();
    for (argv, order) in ranks {
        let rank = order.rank;
        let events = events.clone();
        match spawn(argv, supervisor, &order.env, &order.log) {
            Ok((mut child, line)) => {
                let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
                let this = Running::new(pid, line);
                let token = order.env.get(TOKEN).cloned();
                running.insert(rank, this.clone());
                tokio::spawn(async move {
                    let status = this.wait(&mut child).await;
                    let end = match (status, this.line.as_deref().map(SupervisorReport::read)) {
                        (Ok(status), None) => end_of(status, 0),
                        (Ok(status), Some(Some(SupervisorReport::LeftBehind(count)))) => {
                            end_of(status, count)
                        }
                        (Ok(_), Some(Some(SupervisorReport::Exhausted))) => {
                            RankExit::MachineFault(EXHAUSTED.to_owned())
                        }
                        (Ok(status), Some(None)) => {
                            // Its rank may live on.
                            let _ = token.map(|token| kill_orphans(&token));
                            end_of_supervisor(status)
                        }
                        (Err(error), _) => RankExit::Unknown(error.to_string()),
                    };
                    let _ = events.send(Event::Ended(rank, end)).await;
                });
            }
            Err(error) => {
                running.insert(rank, Running::new(None, None));
                let end = match is_exhaustion(&error) {
                    true => RankExit::MachineFault(EXHAUSTED.to_owned()),
                    false => RankExit::NotStarted(format!("{}: {error}", argv[0])),
                };
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

fn end_of(status: ExitStatus, left_behind: u32) -> RankExit {
    match (status.code(), status.signal()) {
        (Some(code), _) => RankExit::Exited { code, left_behind },
        (None, Some(signal)) => RankExit::Signalled(signal),
        (None, None) => RankExit::Unknown(status.to_string()),
    }
}

/// Returns the end of a rank whose supervisor ended without a report. A supervisor that exits has written the reason to the
/// rank's log.
fn end_of_supervisor(status: ExitStatus) -> RankExit {
    match status.signal() {
        Some(_) => RankExit::MachineFault(format!("something killed its supervisor ({status})")),
        None => end_of(status, 0),
    }
}

/// Starts a rank. Returns with its supervisor, if it has one, the other end of that one's standard input.
fn spawn(
    argv: &[String],
    supervisor: Option<&Path>,
    env: &BTreeMap<String, String>,
    log: &Path,
) -> io::Result<(Child, Option<UnixStream>)> {
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
    let (line, input) = match supervisor {
        Some(_) => {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            (Some(ours), OwnedFd::from(theirs).into())
        }
        None => (None, Stdio::null()),
    };
    let child = command.stdin(input).stdout(out).stderr(err).spawn()?;
    Ok((child, line))
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
        let processes = start(
            [(&sleeper[..], &order)].into_iter(),
            None,
            "nothing",
            &sender,
        );
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
        let (mut child, _line) = spawn(&argv, Some(&printer), &env, &log).unwrap();
        child.wait().await.unwrap();
        let log_matches = std::fs::read_to_string(&log).unwrap();
        let has = |line: &str| log_matches.lines().any(|other| other == line);
        assert!(has("ALLRANKS_SUPERVISED=abc.0"), "{log_matches}");
        assert!(!has("ALLRANKS_TOKEN=abc.0"), "{log_matches}");
    }
}
