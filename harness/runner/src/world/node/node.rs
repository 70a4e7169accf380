//! One admitted agent, seen from the run: questions and their answers, and the worlds that have ranks on it.

use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot, watch};

use super::channel::Outbox;
use crate::world::{Event, Frame, FrameError, LaunchError, RankExit};
use allranks_model::names::Rank;
use allranks_protocol::{FromNode, NodeFacts, ToNode};

/// An admitted node agent.
#[derive(Debug)]
pub(super) struct Node {
    /// Its name in reports.
    pub(super) name: String,
    /// What it said of its host.
    pub(super) facts: NodeFacts,
    outbox: Outbox<ToNode>,
    next_ask: AtomicU64,
    state: Mutex<State>,
    over: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// Why it is lost; none while it is not.
    lost: Option<String>,
    /// Questions without an answer.
    asks: HashMap<u64, oneshot::Sender<FromNode>>,
    worlds: HashMap<u64, Route>,
}

/// Where what comes from the ranks of a world goes.
#[derive(Debug)]
pub(super) struct Route {
    /// The world's events.
    pub(super) events: mpsc::UnboundedSender<Event>,
    /// The log of each rank on this node; what it wrote there is added when it has ended.
    pub(super) logs: BTreeMap<Rank, PathBuf>,
}

impl Node {
    pub(super) fn new(name: String, facts: NodeFacts, outbox: Outbox<ToNode>) -> Self {
        Self {
            name,
            facts,
            outbox,
            next_ask: AtomicU64::default(),
            state: Mutex::default(),
            over: watch::Sender::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why it is lost; none while it is not.
    pub(super) fn lost(&self) -> Option<String> {
        self.state().lost.clone()
    }

    /// Returns when its connection has ended.
    pub(super) async fn until_over(&self) {
        // The sender is here, so there is no other end than that.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Sends a frame.
    pub(super) fn push(&self, header: ToNode, payload: Vec<u8>) {
        self.outbox.push(header, payload);
    }

    /// Returns the error of a node that refuses what it was asked, with its reason.
    pub(super) fn refusal(&self, why: Option<String>) -> LaunchError {
        LaunchError::AtNode(format!("node {}: {}", self.name, why.unwrap_or_default()))
    }

    /// Returns the error of a node whose answer belongs to another question.
    pub(super) fn unexpected_answer(&self) -> LaunchError {
        LaunchError::AtNode(format!("node {} answers something else", self.name))
    }

    /// Asks, and returns the answer.
    ///
    /// # Errors
    /// Fails if the node is lost first.
    pub(super) async fn ask(
        &self,
        question: impl FnOnce(u64) -> ToNode,
    ) -> Result<FromNode, LaunchError> {
        let ask = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut state = self.state();
            if let Some(why) = &state.lost {
                return Err(LaunchError::NoNode(why.clone()));
            }
            state.asks.insert(ask, sender);
        }
        self.push(question(ask), Vec::new());
        let lost = |_| {
            let why = self.lost();
            let gone = || format!("node {} has forgotten a question", self.name);
            LaunchError::NoNode(why.unwrap_or_else(gone))
        };
        answer.await.map_err(lost)
    }

    /// Passes what comes from the ranks of a world to this route from now on.
    ///
    /// # Errors
    /// Fails if the node is lost.
    pub(super) fn expect(&self, world: u64, route: Route) -> Result<(), LaunchError> {
        let mut state = self.state();
        if let Some(why) = &state.lost {
            return Err(LaunchError::NoNode(why.clone()));
        }
        state.worlds.insert(world, route);
        Ok(())
    }

    /// Marks the node as lost: open questions fail, and its worlds are notified.
    pub(super) fn lose(&self, why: &str) {
        let (worlds, why) = {
            let mut state = self.state();
            let why = format!("node {} was lost: {why}", self.name);
            state.lost = Some(why.clone());
            state.asks.clear();
            (std::mem::take(&mut state.worlds), why)
        };
        for route in worlds.into_values() {
            // The world may have ended.
            let _ = route.events.send(Event::NodeLost(why.clone()));
            for rank in route.logs.into_keys() {
                let end = RankExit::Unknown(why.clone());
                let _ = route.events.send(Event::Ended(rank, end));
            }
        }
        self.over.send_replace(true);
    }

    /// Handles a frame of the agent.
    ///
    /// # Errors
    /// Says what is wrong with a frame that no agent sends.
    pub(super) fn handle_frame(&self, frame: Frame<FromNode>) -> Result<(), String> {
        let Frame { header, payload } = frame;
        let (world, event) = match header {
            FromNode::Beat => return Ok(()),
            FromNode::Join(_) => return Err("it joined twice".to_owned()),
            FromNode::Listening { ask, .. }
            | FromNode::Reached { ask, .. }
            | FromNode::Reserved { ask, .. }
            | FromNode::Launched { ask, .. }
            | FromNode::Alive { ask, .. }
            | FromNode::Seen { ask, .. }
            | FromNode::Swept { ask, .. } => {
                if let Some(answer) = self.state().asks.remove(&ask) {
                    // The future that asked may have been dropped.
                    let _ = answer.send(header);
                }
                return Ok(());
            }
            FromNode::Closed { world } => {
                self.state().worlds.remove(&world);
                return Ok(());
            }
            FromNode::Hello { world, rank, hello } => (world, Event::Hello(rank, hello)),
            FromNode::Refused {
                world,
                rank,
                reason,
            } => (world, Event::Refused(rank, reason)),
            FromNode::Rank {
                world,
                rank,
                message,
            } => {
                let frame = Frame {
                    header: message,
                    payload,
                };
                (world, Event::Frame(rank, frame))
            }
            FromNode::Broken {
                world,
                rank,
                reason,
            } => (world, Event::Broken(rank, FrameError::AtNode(reason))),
            FromNode::Ended { world, rank, end } => {
                self.keep_log(world, rank, &payload);
                (world, Event::Ended(rank, end))
            }
        };
        let state = self.state();
        // A world that was closed may still send what was on its way.
        let Some(route) = state.worlds.get(&world) else {
            return Ok(());
        };
        let (Event::Hello(rank, _)
        | Event::Refused(rank, _)
        | Event::Frame(rank, _)
        | Event::Broken(rank, _)
        | Event::Ended(rank, _)) = &event
        else {
            return Ok(());
        };
        // An agent speaks for the ranks on it only.
        if !route.logs.contains_key(rank) {
            return Err(format!("it speaks for rank {rank}, which is not on it"));
        }
        let _ = route.events.send(event);
        Ok(())
    }

    /// Adds what a rank has written to its log here.
    fn keep_log(&self, world: u64, rank: Rank, text: &[u8]) {
        let log = {
            let state = self.state();
            let route = state.worlds.get(&world);
            route.and_then(|route| route.logs.get(&rank).cloned())
        };
        if let Some(log) = log
            && let Ok(mut log) = OpenOptions::new().create(true).append(true).open(log)
        {
            // Errors are ignored: a full disk is reported when the results are written.
            let _ = log.write_all(text);
        }
    }
}

/// What a node keeps for a world: its ports and its folder. Dropping it gives them back.
#[derive(Debug)]
pub struct NodeHold {
    pub(super) node: Arc<Node>,
    pub(super) world: u64,
}

impl Drop for NodeHold {
    fn drop(&mut self) {
        let world = self.world;
        self.node.push(ToNode::Release { world }, Vec::new());
    }
}
