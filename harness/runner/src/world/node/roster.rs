//! The nodes that have joined a run, and what an agent must know to join it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::credentials::is_proof;
use super::node::Node;
use super::nodes_settings::NodesSettings;
use super::rendezvous_host::RendezvousHost;
use super::tls::Key;
use allranks_protocol::{Join, NODE_VERSION, NodeDriver};

/// The nodes of a run, shared by all that start worlds on them and by the tasks that admit their agents.
pub struct Roster {
    /// The id of the run.
    pub run: String,
    /// What an agent must know to join.
    pub token: String,
    pub key: Key,
    pub settings: NodesSettings,
    /// The driver of the ranks on all nodes.
    pub driver: NodeDriver,
    /// How long an import of torch may take on a node.
    pub import_patience: Duration,
    /// Receives messages for people about the nodes; `None` if nobody reads them.
    pub notices: Option<mpsc::UnboundedSender<String>>,
    pub table: Mutex<NodeTable>,
    /// Changes whenever a node joins or is lost.
    pub changed: watch::Sender<()>,
}

impl std::fmt::Debug for Roster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Roster")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

/// The nodes of a run, by their numbers.
#[derive(Debug)]
pub struct NodeTable {
    /// One for each node; none until its agent is admitted.
    pub nodes: Vec<Option<Arc<Node>>>,
    /// The names of nodes by their numbers, from when an agent is admitted, which may be before it is told so.
    taken: BTreeMap<usize, String>,
    /// Where ranks meet that are on several nodes; none until all nodes are there.
    pub rendezvous: Option<RendezvousHost>,
    /// Why worlds cannot be started although all nodes are there, or why not all are; none if they can be, or nothing is known
    /// yet.
    pub fault: Option<String>,
}

impl NodeTable {
    /// Makes a table for this many nodes, none of which has joined.
    pub fn of(count: usize) -> Self {
        Self {
            nodes: vec![None; count],
            taken: BTreeMap::new(),
            rendezvous: None,
            fault: None,
        }
    }
}

impl Roster {
    /// Locks the table of the nodes.
    pub fn table(&self) -> MutexGuard<'_, NodeTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends people a notice about the nodes.
    pub fn notify(&self, notice: String) {
        if let Some(notices) = &self.notices {
            // What reads them may be gone; the run goes on.
            let _ = notices.send(notice);
        }
    }

    /// Returns the number of nodes that have not joined.
    pub fn missing(&self) -> usize {
        let table = self.table();
        table.nodes.iter().filter(|node| node.is_none()).count()
    }

    /// Returns when all nodes have joined.
    pub async fn until_all(&self) {
        let mut changed = self.changed.subscribe();
        while self.missing() > 0 {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Checks the frame `join` of an agent, and returns the number and the name of its node.
    ///
    /// # Errors
    /// The reason why the agent is refused.
    pub fn enter(&self, join: &Join, nonce: &str) -> Result<(usize, String), String> {
        if join.version != NODE_VERSION || join.facts.allranks != env!("CARGO_PKG_VERSION") {
            return Err(format!(
                "it is allranks {}, and the run is {}",
                join.facts.allranks,
                env!("CARGO_PKG_VERSION")
            ));
        }
        if join.run != self.run {
            return Err("it wants to join another run".to_owned());
        }
        if !is_proof(&join.proof, &self.token, nonce) {
            return Err(
                "it does not have the run's token, or repeats what another connection said"
                    .to_owned(),
            );
        }
        let mut table = self.table();
        let count = table.nodes.len();
        // What engines get wrong most: as many worlds as agents, or one agent for each rank.
        if let Some(started) = join.facts.count.filter(|started| *started != count) {
            return Err(format!(
                "the engine started {started} agent(s), and the run has {count} node(s)"
            ));
        }
        let free = |place: &usize| *place < count && !table.taken.contains_key(place);
        let place = match join.facts.place {
            Some(place) => Some(place).filter(free),
            None => (0..count).find(free),
        };
        let Some(place) = place else {
            return Err(match join.facts.place {
                Some(place) => format!("node {} is here already, or there is none", place + 1),
                None => format!("all {count} nodes of the run have come"),
            });
        };
        let host = printable(&join.facts.host);
        let same = |name: &String| table.taken.values().any(|one| one == name);
        let others = (2..).map(|number| format!("{host}#{number}"));
        let mut names = std::iter::once(host.clone()).chain(others);
        let name = names.find(|name| !same(name)).unwrap_or(host);
        table.taken.insert(place, name.clone());
        Ok((place, name))
    }

    /// Frees the number that [`Self::enter`] returned.
    pub fn leave(&self, place: usize) {
        self.table().taken.remove(&place);
    }

    /// Enters a node in the table, and notifies people of it.
    pub fn fill(&self, place: usize, node: &Arc<Node>, peer: SocketAddr) {
        let (present, count, differences) = {
            let mut table = self.table();
            let differences = differences(&table.nodes, node);
            table.nodes[place] = Some(Arc::clone(node));
            let present = table.nodes.iter().flatten().count();
            (present, table.nodes.len(), differences)
        };
        let facts = &node.facts;
        let torch = facts.torch.as_ref();
        let torch = torch.map_or_else(|| "no torch".to_owned(), |torch| format!("torch {torch}"));
        self.notify(format!(
            "node {} of {count} is here: {} at {}, {}, {} cores, {torch} ({present} have come)",
            place + 1,
            node.name,
            peer.ip().to_canonical(),
            facts.system,
            facts.cores,
        ));
        for difference in differences {
            self.notify(difference);
        }
        self.changed.send_replace(());
    }
}

/// Describes what differs between a node and those before it.
fn differences(before: &[Option<Arc<Node>>], node: &Node) -> Vec<String> {
    let Some(first) = before.iter().flatten().next() else {
        return Vec::new();
    };
    let none = "none".to_owned();
    let torch = |node: &Node| node.facts.torch.clone().unwrap_or_else(|| none.clone());
    let compared = [
        ("torch", torch(first), torch(node)),
        (
            "system",
            first.facts.system.clone(),
            node.facts.system.clone(),
        ),
    ];
    compared
        .into_iter()
        .filter(|(_, one, other)| one != other)
        .map(|(what, one, other)| {
            format!(
                "nodes differ in their {what}: {} has {one}, {} has {other}",
                first.name, node.name
            )
        })
        .collect()
}

/// Returns what an agent calls its host, without control characters.
pub fn printable(host: &str) -> String {
    host.chars().filter(|c| !c.is_control()).collect()
}
