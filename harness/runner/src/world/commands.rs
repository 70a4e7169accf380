//! Starts commands that are no drivers: the ranks of a program, or the launcher that starts them. They are supervised
//! as spawned ranks are (see [`super::supervise`]): nothing of them outlives this process.

use std::path::Path;

use tokio::sync::mpsc;

use super::launch_spec::RankLaunchSpec;
use super::local_world::Processes;
use super::orphans::{Orphan, end_remains};
use super::spawned::{self, SpawnedProcesses};
use super::{EVENTS, Event, RankExit, SIGKILL, TOKEN};
use allranks_host as host;
use allranks_host::TaggedProcess;
use allranks_model::names::Rank;

/// Running commands. Dropping it kills them and everything that they started.
#[derive(Debug)]
pub struct Commands {
    token: String,
    processes: SpawnedProcesses,
    events: mpsc::Receiver<Event>,
    /// Number of commands that have not ended.
    running: usize,
    count: usize,
}

impl Commands {
    /// Starts each command, with the environment and the log of the launch spec at the same place. `supervisor` is the allranks
    /// binary; `token` must be unique on this host.
    #[must_use]
    pub fn start(
        argvs: Vec<Vec<String>>,
        supervisor: &Path,
        token: &str,
        mut orders: Vec<RankLaunchSpec>,
    ) -> Self {
        for order in &mut orders {
            order.env.insert(TOKEN.to_owned(), token.to_owned());
        }
        let (sender, events) = mpsc::channel(EVENTS);
        let each = argvs.iter().map(Vec::as_slice).zip(&orders);
        let processes = spawned::start(each, Some(supervisor), token, &sender);
        Self {
            token: token.to_owned(),
            processes,
            events,
            running: orders.len(),
            count: orders.len(),
        }
    }

    /// Returns the index of the next command that ends, and how it ended; none after the last. Cancel-safe.
    pub async fn next(&mut self) -> Option<(usize, RankExit)> {
        while self.running > 0 {
            match self.events.recv().await? {
                Event::Ended(which, end) => {
                    self.running -= 1;
                    return Some((which.index(), end));
                }
                // Commands have no connection.
                Event::Hello(..)
                | Event::Refused(..)
                | Event::Frame(..)
                | Event::Broken(..)
                | Event::NodeLost(..) => {}
            }
        }
        None
    }

    /// Returns the living processes of the commands: they themselves, and everything that they have started.
    #[must_use]
    pub fn living(&self) -> Vec<TaggedProcess> {
        host::members(TOKEN, &self.token)
    }

    /// Kills everything. Returns what could not be killed (see [`end_remains`]).
    pub async fn kill(&self) -> Vec<Orphan> {
        self.signal_all();
        let token = self.token.clone();
        let killing = tokio::task::spawn_blocking(move || end_remains(&token));
        // The closure is not run if the runtime shuts down; dropping this value kills too.
        killing.await.unwrap_or_default()
    }

    fn signal_all(&self) {
        for place in 0..self.count {
            self.processes.signal(Rank(place as u32), SIGKILL);
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.signal_all();
        let _ = end_remains(&self.token);
    }
}
