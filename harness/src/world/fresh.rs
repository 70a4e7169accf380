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
use super::remains::kill_remains;
use super::{End, Event, Processes};
use crate::names::Rank;

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

    fn sweep(&self) -> u32 {
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
    command
        .env_clear()
        .envs(env)
        .stdin(if supervisor.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(out)
        .stderr(err)
        .spawn()
}
