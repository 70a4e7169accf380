//! The ranks of one world on the agent's host: starts them, passes frames both ways, and ends them when the run closes the world.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::block_in_place;
use tokio::time::timeout;

use super::channel::Outbox;
use super::convert;
use crate::world::host_facts::{facts, memory_available};
use crate::world::{Event, LaunchSpec, LocalLauncher, LocalWorld, RankLaunchSpec, SIGKILL};
use allranks_model::names::Rank;
use allranks_protocol::{FromNode, NodeQuery, NodeWorld, ToRank};
use allranks_suite::platform::Start;

/// How long killed ranks may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that are sent of a rank's log: of its beginning, and of its end.
const LOG_HEAD: u64 = 1 << 20;
const LOG_TAIL: u64 = 3 << 20;

/// What the run wants of the ranks of a world.
#[derive(Debug)]
pub(super) enum WorldCommand {
    /// To pass a frame to a rank: header and payload.
    Send(Rank, ToRank, Vec<u8>),
    /// To send a signal to a rank.
    Signal(Rank, i32),
    /// To tell what the host sees; with the number of the question.
    Look(u64, NodeQuery),
    /// To kill what ranks left behind; with the number of the question.
    Sweep(u64),
}

/// What this host has for the ranks of a world.
pub(super) struct HostResources {
    pub(super) launcher: Arc<LocalLauncher>,
    /// What the environment of every rank has, unless the run says something else.
    pub(super) base: BTreeMap<String, String>,
    /// A folder for the logs of the ranks, which does not exist.
    pub(super) logs: PathBuf,
}

/// Starts the ranks of a world and serves them until the run closes it, which drops the sender of `commands`. `ask` is the
/// number of the question whether they start.
pub(super) async fn serve(
    here: HostResources,
    outbox: Outbox<FromNode>,
    ask: u64,
    launch: NodeWorld,
    mut commands: mpsc::UnboundedReceiver<WorldCommand>,
) {
    let HostResources {
        launcher,
        base,
        logs,
    } = here;
    let number = launch.world;
    let ranks: BTreeSet<Rank> = launch.ranks.iter().map(|rank| rank.rank).collect();
    let started = match std::fs::create_dir_all(&logs) {
        Ok(()) => launcher
            .launch(spec(launch, base, &logs))
            .await
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let error = started.as_ref().err().cloned();
    outbox.push(FromNode::Launched { ask, error }, Vec::new());
    if let Ok(world) = started {
        let mut here = AgentWorld {
            number,
            world,
            outbox: outbox.clone(),
            logs: logs.clone(),
            alive: ranks,
            pids: BTreeMap::new(),
        };
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => here.carry_out(command),
                    None => break,
                },
                event = here.world.next() => here.report(event).await,
            }
        }
        here.end().await;
    }
    let _ = std::fs::remove_dir_all(&logs);
    outbox.push(FromNode::Closed { world: number }, Vec::new());
}

/// Returns what the local launcher is to start: each rank has the environment `base`, and on top of it what the run says.
fn spec(launch: NodeWorld, mut base: BTreeMap<String, String>, logs: &Path) -> LaunchSpec {
    for (name, value) in launch.defaults {
        base.entry(name).or_insert(value);
    }
    LaunchSpec {
        start: match launch.fork {
            true => Start::Fork,
            false => Start::Fresh,
        },
        modules: match launch.layers {
            true => allranks_model::stack::MODULES,
            false => &[],
        },
        ranks: launch
            .ranks
            .into_iter()
            .map(|rank| {
                let mut env = base.clone();
                env.extend(rank.env);
                RankLaunchSpec {
                    rank: rank.rank,
                    env,
                    log: log(logs, rank.rank),
                }
            })
            .collect(),
    }
}

fn log(folder: &Path, rank: Rank) -> PathBuf {
    folder.join(format!("rank{rank}.log"))
}

struct AgentWorld {
    number: u64,
    world: LocalWorld,
    outbox: Outbox<FromNode>,
    logs: PathBuf,
    /// Ranks that have not ended.
    alive: BTreeSet<Rank>,
    /// The processes of ranks that have said hello.
    pids: BTreeMap<Rank, u32>,
}

impl AgentWorld {
    fn carry_out(&self, command: WorldCommand) {
        match command {
            WorldCommand::Send(rank, header, payload) => self.world.send(rank, header, payload),
            WorldCommand::Signal(rank, signal) => self.world.signal(rank, signal),
            WorldCommand::Look(ask, query) => {
                let ranks: Vec<Rank> = query.processes.iter().map(|(rank, _)| *rank).collect();
                let query = convert::query_from_frame(query, self.pids.values().copied().collect());
                let seen = block_in_place(|| facts(&query));
                let observation = convert::facts_to_frame(seen, &ranks, memory_available());
                self.outbox
                    .push(FromNode::Seen { ask, observation }, Vec::new());
            }
            WorldCommand::Sweep(ask) => {
                let found = block_in_place(|| self.world.reap_orphans());
                let left = found.iter().map(|one| {
                    let pid = one.pid.as_raw_nonzero().get();
                    (pid, one.rank)
                });
                let left = left.collect();
                self.outbox.push(FromNode::Swept { ask, left }, Vec::new());
            }
        }
    }

    /// Reports an event of a rank to the run.
    async fn report(&mut self, event: Event) {
        let world = self.number;
        let (header, payload) = match event {
            Event::Hello(rank, hello) => {
                self.pids.insert(rank, hello.pid);
                (FromNode::Hello { world, rank, hello }, Vec::new())
            }
            Event::Refused(rank, reason) => {
                let refused = FromNode::Refused {
                    world,
                    rank,
                    reason,
                };
                (refused, Vec::new())
            }
            Event::Frame(rank, frame) => {
                let message = frame.header;
                let passed = FromNode::Rank {
                    world,
                    rank,
                    message,
                };
                (passed, frame.payload)
            }
            Event::Broken(rank, error) => {
                let reason = error.to_string();
                let broken = FromNode::Broken {
                    world,
                    rank,
                    reason,
                };
                (broken, Vec::new())
            }
            Event::Ended(rank, end) => {
                self.alive.remove(&rank);
                let log = written(&log(&self.logs, rank));
                (
                    FromNode::Ended { world, rank, end },
                    log.unwrap_or_default(),
                )
            }
            // A local world has no nodes.
            Event::NodeLost(_) => return,
        };
        self.outbox.send(header, payload).await;
    }

    /// Kills the ranks that have not ended, and waits until they have, so that their logs reach the run.
    async fn end(mut self) {
        for rank in &self.alive {
            self.world.signal(*rank, SIGKILL);
        }
        let ending = async {
            while !self.alive.is_empty() {
                let event = self.world.next().await;
                self.report(event).await;
            }
        };
        let _ = timeout(KILL_TIMEOUT, ending).await;
        block_in_place(|| drop(self));
    }
}

/// Returns what a rank has written to its log, without the middle of a long one.
fn written(log: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    let mut text = Vec::new();
    if length <= LOG_HEAD + LOG_TAIL {
        file.read_to_end(&mut text)?;
        return Ok(text);
    }
    (&mut file).take(LOG_HEAD).read_to_end(&mut text)?;
    let cut = length - LOG_HEAD - LOG_TAIL;
    text.extend(format!("\n[allranks cut {cut} bytes out of here]\n").bytes());
    file.seek(SeekFrom::Start(length - LOG_TAIL))?;
    file.read_to_end(&mut text)?;
    Ok(text)
}
