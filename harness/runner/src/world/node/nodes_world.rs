//! A world whose ranks are on nodes.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::convert;
use super::node::Node;
use crate::world::host_facts::{HostFacts, HostQuery};
use crate::world::{Event, Orphan};
use allranks_model::names::Rank;
use allranks_protocol::{FromNode, NodeQuery, ToNode, ToRank};

/// A world whose ranks are on several nodes. Dropping it kills its ranks.
#[derive(Debug)]
pub struct NodesWorld {
    world: u64,
    /// The node of each rank, as an index into `nodes`.
    ranks: HashMap<Rank, usize>,
    /// Its nodes; ranks meet on the first.
    nodes: Vec<Arc<Node>>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl NodesWorld {
    pub(super) fn new(
        world: u64,
        ranks: HashMap<Rank, usize>,
        nodes: Vec<Arc<Node>>,
        events: mpsc::UnboundedReceiver<Event>,
    ) -> Self {
        Self {
            world,
            ranks,
            nodes,
            events,
        }
    }

    fn node_of(&self, rank: Rank) -> Option<&Arc<Node>> {
        self.nodes.get(*self.ranks.get(&rank)?)
    }

    /// Returns the next event, in the order of arrival. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => event,
            // No node has this world any more, and each that was lost has said so.
            None => std::future::pending().await,
        }
    }

    /// Queues a frame for a rank.
    pub(crate) fn send(&self, rank: Rank, message: ToRank, payload: Vec<u8>) {
        if let Some(node) = self.node_of(rank) {
            let world = self.world;
            let header = ToNode::Rank {
                world,
                rank,
                message,
            };
            node.push(header, payload);
        }
    }

    /// Sends a signal to a rank and everything that it started.
    pub(crate) fn signal(&self, rank: Rank, signal: i32) {
        if let Some(node) = self.node_of(rank) {
            let world = self.world;
            let header = ToNode::Signal {
                world,
                rank,
                signal,
            };
            node.push(header, Vec::new());
        }
    }

    /// Kills what ranks left behind, when all of them have ended. Returns the processes found; none on a node that is lost.
    pub(crate) async fn reap_orphans(&self) -> Vec<Orphan> {
        let world = self.world;
        let mut found = Vec::new();
        for answer in self
            .ask_all(move |_, ask| ToNode::Sweep { ask, world })
            .await
        {
            if let (_, FromNode::Swept { left, .. }) = answer {
                found.extend(convert::remnants(left));
            }
        }
        found
    }

    /// Asks the host of each rank what it sees. Nothing is known of ranks on a node that is lost.
    pub(crate) async fn facts(&self, query: &HostQuery) -> HostFacts {
        let mut facts = HostFacts {
            processes: vec![None; query.processes.len()],
            ..HostFacts::default()
        };
        let asked = self.look(|place| {
            let is_here = |rank| self.ranks.get(&rank) == Some(&place);
            convert::query_to_frame(query, is_here, place == 0)
        });
        for (place, answer) in asked.await {
            if let FromNode::Seen { observation, .. } = answer {
                convert::add_observation(&mut facts, observation, &self.nodes[place].name);
            }
        }
        facts
    }

    /// Returns the bytes available to programs, on the host that has fewest; none if one does not tell.
    pub(crate) async fn memory(&self) -> Option<u64> {
        let answers = self.look(|_| NodeQuery::default()).await;
        let memory = answers.into_iter().map(|(_, answer)| match answer {
            FromNode::Seen { observation, .. } => observation.memory,
            _ => None,
        });
        let memory: Option<Vec<u64>> = memory.collect();
        memory?.into_iter().min()
    }

    /// Asks all its nodes whether they are alive, and waits until each has answered or is lost.
    ///
    /// # Errors
    /// Names a node that is lost, and says why.
    pub(crate) async fn confirm(&self) -> Result<(), String> {
        self.ask_all(|_, ask| ToNode::Confirm { ask }).await;
        match self.nodes.iter().find_map(|node| node.lost()) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    async fn look(&self, query: impl Fn(usize) -> NodeQuery) -> Vec<(usize, FromNode)> {
        let world = self.world;
        let queries: Arc<[NodeQuery]> = (0..self.nodes.len()).map(query).collect();
        self.ask_all(move |place, ask| ToNode::Look {
            ask,
            world,
            query: queries[place].clone(),
        })
        .await
    }

    /// Asks all nodes at once. Returns the answers of those that are not lost, each with the node's index.
    async fn ask_all(
        &self,
        question: impl Fn(usize, u64) -> ToNode + Clone + Send + Sync + 'static,
    ) -> Vec<(usize, FromNode)> {
        let mut asked = JoinSet::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let (node, question) = (Arc::clone(node), question.clone());
            asked.spawn(async move {
                let answer = node.ask(|ask| question(place, ask)).await;
                answer.ok().map(|answer| (place, answer))
            });
        }
        let answers = asked.join_all().await;
        answers.into_iter().flatten().collect()
    }
}

impl Drop for NodesWorld {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.push(ToNode::Close { world: self.world }, Vec::new());
        }
    }
}
