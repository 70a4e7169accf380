//! Ranks in processes of their own, for drivers that are not the Python one and platforms where forking is unsafe.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::launcher::RankOrder;
use super::remains::{Remnant, TOKEN, kill_remains};
use super::supervise::SUPERVISED;
use super::{End, Event, Processes};
use allranks_model::names::Rank;

/// The processes of a world, one for each rank.
#[derive(Debug)]
pub struct FreshProcesses {
    pids: Vec<Option<Pid>>,
    token: String,
}

impl Processes for FreshProcesses {
    fn signal(&self, rank: Rank, signal: i32) {
        if let (Some(pid), Some(signal)) = (self.pids[rank.index()], Signal::from_named_raw(signal))
        {
            let _ = kill_process_group(pid, signal);
        }
    }

    fn sweep(&self) -> Vec<Remnant> {
        kill_remains(&self.token)
    }
}

/// Starts one process for each rank and reports how each ends.
///
/// `supervisor` is this program, run as `supervise` (see [`super::supervise`]) so that the rank dies with the harness
/// whatever its driver is made of; without one a rank notices by its closed connection only.
pub fn start(
    argv: &[String],
    supervisor: Option<&Path>,
    token: &str,
    ranks: &[RankOrder],
    events: &mpsc::Sender<Event>,
) -> FreshProcesses {
    let mut pids = Vec::new();
    for (index, order) in ranks.iter().enumerate() {
        let rank = Rank(index as u32);
        let events = events.clone();
        match spawn(argv, supervisor, &order.env, &order.log) {
            Ok(mut child) => {
                pids.push(child.id().and_then(|pid| Pid::from_raw(pid as i32)));
                tokio::spawn(async move {
                    // `wait` would close it, and the supervisor take that for our end.
                    let _lifeline = child.stdin.take();
                    let end = match child.wait().await {
                        Ok(status) => match (status.code(), status.signal()) {
                            (Some(code), _) => End::Exited {
                                code,
                                left_behind: 0,
                            },
                            (None, Some(signal)) => End::Signalled(signal),
                            (None, None) => End::Unknown(status.to_string()),
                        },
                        Err(error) => End::Unknown(error.to_string()),
                    };
                    let _ = events.send(Event::Ended(rank, end)).await;
                });
            }
            Err(error) => {
                pids.push(None);
                let end = End::NotStarted(format!("{}: {error}", argv[0]));
                tokio::spawn(async move {
                    let _ = events.send(Event::Ended(rank, end)).await;
                });
            }
        }
    }
    FreshProcesses {
        pids,
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

    /// Two supervisors of one world end what carries its token at the same time: neither may find the other.
    #[tokio::test]
    async fn a_supervisor_does_not_carry_the_token_that_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let env = BTreeMap::from([(TOKEN.to_owned(), "abc.0".to_owned())]);
        // In place of a supervisor: a program that prints its environment.
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
