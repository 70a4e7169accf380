//! The run's end: listens for node agents, and starts worlds on the nodes of those that were admitted.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::admission::accept;
use super::credentials::Credentials;
use super::engine_command::RunningEngine;
use super::facts::interfaces;
use super::node::{Node, NodeHold, Route};
use super::nodes_settings::NodesSettings;
use super::nodes_world::NodesWorld;
use super::rendezvous_host::RendezvousHost;
use super::roster::{NodeTable, Roster};
use super::tls::Key;
use crate::world::control_server::token;
use crate::world::launcher::Held;
use crate::world::{Driver, LOOPBACK, LaunchError, LaunchSpec, Reservation};
use allranks_model::placement::Placement;
use allranks_protocol::{FromNode, NodeDriver, NodeRank, NodeWorld, ToNode};
use allranks_suite::platform::Start;

/// How long agents may take to end when the run has.
const AGENT_EXIT_LIMIT: Duration = Duration::from_secs(10);

/// The nodes of a run. Dropping it ends all connections, and with them the agents and their ranks.
#[derive(Debug)]
pub struct Nodes {
    roster: Arc<Roster>,
    /// The file with the credentials, to be removed.
    credentials: PathBuf,
    next_world: AtomicU64,
    /// What the engine's agents must be told.
    told: Credentials,
    engine: tokio::sync::Mutex<Option<RunningEngine>>,
    /// Accepts connections; ended when this is dropped.
    _accepting: JoinSet<()>,
}

impl Nodes {
    /// Listens for agents whose ranks run this driver, and writes the credentials. Notices say what the run waits for, and
    /// which agents are refused. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Fails if the address cannot be listened at, or the file cannot be written.
    pub fn listen(
        settings: NodesSettings,
        driver: &Driver,
        import_patience: Duration,
        notices: Option<mpsc::UnboundedSender<String>>,
    ) -> io::Result<Self> {
        let listener = bind(settings.listen)?;
        let port = listener.local_addr()?.port();
        let key = Key::new()?;
        let credentials = Credentials {
            run: token()?,
            engine: settings.engine,
            addresses: addresses(settings.listen.ip(), port),
            fingerprint: key.fingerprint.clone(),
            token: token()?,
        };
        credentials.write(&settings.credentials).map_err(|error| {
            let path = settings.credentials.display();
            io::Error::new(error.kind(), format!("cannot write {path}: {error}"))
        })?;
        let path = settings.credentials.clone();
        let roster = Arc::new(Roster {
            run: credentials.run.clone(),
            token: credentials.token.clone(),
            key,
            driver: match driver {
                Driver::Python { .. } => NodeDriver::Python,
                Driver::Libtorch(_) => NodeDriver::Libtorch,
                Driver::Command(argv) => NodeDriver::Command(argv.clone()),
            },
            import_patience,
            notices,
            table: Mutex::new(NodeTable::of(settings.count)),
            changed: watch::Sender::new(()),
            settings,
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&roster)));
        Ok(Self {
            roster,
            credentials: path,
            next_world: AtomicU64::default(),
            told: credentials,
            engine: tokio::sync::Mutex::default(),
            _accepting: accepting,
        })
    }

    /// Waits until all nodes have joined and reach the first one. If they do not in time, no world can be started, and the
    /// error of each says why.
    pub async fn gather(&self) {
        let roster = &self.roster;
        if let Some(fault) = self.assemble().await {
            roster.table().fault = Some(fault);
            return;
        }
        let met = match self.nodes(roster.settings.count) {
            Ok(nodes) => RendezvousHost::find(&nodes).await,
            Err(fault) => Err(fault),
        };
        let mut table = roster.table();
        match met {
            Ok(rendezvous) => table.rendezvous = Some(rendezvous),
            Err(fault) => table.fault = Some(fault),
        }
    }

    /// Starts the engine, or tells people how to start the agents, and waits until all nodes have joined. Returns why some have
    /// not; none if all have.
    pub(super) async fn assemble(&self) -> Option<String> {
        let roster = &self.roster;
        let count = roster.settings.count;
        let fault = match &roster.settings.command {
            None => {
                let how = &roster.settings.to_join;
                roster.notify(format!("waiting for {count} node(s); {how}"));
                self.arrivals(std::future::pending()).await
            }
            Some(command) => {
                let words = command.argv.join(" ");
                roster.notify(format!("{}; starting: {words}", command.why));
                let log = &roster.settings.engine_log;
                match RunningEngine::start(command, &self.told, log) {
                    Ok(mut engine) => {
                        let fault = self.arrivals(engine.ended()).await;
                        *self.engine.lock().await = Some(engine);
                        fault
                    }
                    Err(error) => Some(error.to_string()),
                }
            }
        };
        if let Some(fault) = &fault {
            roster.notify(fault.clone());
        }
        fault
    }

    /// Returns the nodes that have joined, in the order of their numbers.
    pub(super) fn present(&self) -> Vec<Arc<Node>> {
        self.roster
            .table()
            .nodes
            .iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Waits until all nodes have joined. Returns why some have not; none if all have. `engine` returns how the engine ended.
    async fn arrivals(&self, engine: impl Future<Output = String>) -> Option<String> {
        let roster = &self.roster;
        let count = roster.settings.count;
        let limit = roster.settings.join_patience;
        let end = tokio::select! {
            biased;
            () = roster.until_all() => return None,
            end = engine => format!(": {end}"),
            () = tokio::time::sleep(limit) => format!(" within {} s", limit.as_secs()),
        };
        Some(format!(
            "{} of {count} nodes did not come{end}",
            roster.missing()
        ))
    }

    /// Returns the first `count` nodes.
    ///
    /// # Errors
    /// Names a node that has not joined, or is lost.
    fn nodes(&self, count: usize) -> Result<Vec<Arc<Node>>, String> {
        let table = self.roster.table();
        if let Some(fault) = &table.fault {
            return Err(fault.clone());
        }
        let present = table.nodes.iter().take(count).enumerate();
        let nodes = present.map(|(place, node)| {
            let node = node.as_ref();
            let node = node.ok_or_else(|| format!("node {} has not come", place + 1))?;
            match node.lost() {
                Some(why) => Err(why),
                None => Ok(Arc::clone(node)),
            }
        });
        nodes.collect()
    }

    pub(crate) async fn reserve(
        &self,
        placement: &Placement,
        ports: usize,
    ) -> Result<Reservation, LaunchError> {
        let nodes = self.nodes(placement.nodes()).map_err(LaunchError::NoNode)?;
        let first = nodes.first().map(Arc::clone);
        let first = first.ok_or_else(|| LaunchError::NoNode("there are no nodes".to_owned()))?;
        let host = match placement.nodes() {
            1 => LOOPBACK.to_owned(),
            _ => match &self.roster.table().rendezvous {
                Some(rendezvous) => rendezvous.address.clone(),
                None => return Err(LaunchError::NoNode("the nodes have not met".to_owned())),
            },
        };
        let world = self.next_world.fetch_add(1, Ordering::Relaxed);
        // Made before the answer comes, so that the lease is released if this future is dropped.
        let hold = NodeHold {
            node: Arc::clone(&first),
            world,
        };
        let answer = first
            .ask(|ask| ToNode::Reserve { ask, world, ports })
            .await?;
        match answer {
            FromNode::Reserved {
                ports,
                folder,
                error: None,
                ..
            } => Ok(Reservation {
                host,
                ports,
                folder,
                held: Held::AtNode(hold),
            }),
            FromNode::Reserved { error, .. } => Err(first.refusal(error)),
            _ => Err(first.unexpected_answer()),
        }
    }

    pub(crate) async fn launch(
        &self,
        order: LaunchSpec,
        placement: &Placement,
        hold: &NodeHold,
    ) -> Result<NodesWorld, LaunchError> {
        let nodes = self.nodes(placement.nodes()).map_err(LaunchError::NoNode)?;
        let world = hold.world;
        let mut parts: Vec<(Vec<NodeRank>, BTreeMap<_, _>)> = vec![Default::default(); nodes.len()];
        let mut places = HashMap::new();
        for rank in order.ranks {
            let Some((place, _)) = placement.place_of(rank.rank) else {
                continue;
            };
            places.insert(rank.rank, place);
            let (ranks, logs) = &mut parts[place];
            logs.insert(rank.rank, rank.log);
            ranks.push(NodeRank {
                rank: rank.rank,
                env: rank.env,
            });
        }
        let (events, receiver) = mpsc::unbounded_channel();
        // From here on, dropping the world closes it on every node.
        let made = NodesWorld::new(world, places, nodes.clone(), receiver);
        let mut starting = JoinSet::new();
        for (place, (node, (ranks, logs))) in nodes.into_iter().zip(parts).enumerate() {
            let events = events.clone();
            node.expect(world, Route { events, logs })?;
            let launch = NodeWorld {
                world,
                fork: order.start == Start::Fork,
                layers: !order.modules.is_empty(),
                defaults: self.defaults(placement, place),
                ranks,
            };
            starting.spawn(async move {
                match node.ask(|ask| ToNode::Launch { ask, launch }).await? {
                    FromNode::Launched { error: None, .. } => Ok(()),
                    FromNode::Launched { error, .. } => Err(node.refusal(error)),
                    _ => Err(node.unexpected_answer()),
                }
            });
        }
        while let Some(started) = starting.join_next().await {
            started.map_err(io::Error::other)??;
        }
        Ok(made)
    }

    /// Returns the variables that tell libraries which interface leads to the other nodes; none of a world on one node.
    fn defaults(&self, placement: &Placement, place: usize) -> BTreeMap<String, String> {
        if placement.nodes() == 1 {
            return BTreeMap::new();
        }
        let table = self.roster.table();
        let rendezvous = table.rendezvous.as_ref();
        let name =
            rendezvous.and_then(|rendezvous| rendezvous.interfaces.get(place).cloned().flatten());
        let variables = ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"];
        name.iter()
            .flat_map(|name| variables.map(|variable| (variable.to_owned(), name.clone())))
            .collect()
    }

    /// Tells all agents that the run has ended, and waits until they have ended, for some seconds at most.
    pub async fn finish(&self) {
        let nodes: Vec<_> = self
            .roster
            .table()
            .nodes
            .iter()
            .flatten()
            .cloned()
            .collect();
        for node in &nodes {
            node.push(ToNode::Finish, Vec::new());
        }
        let all = async {
            for node in &nodes {
                node.until_over().await;
            }
        };
        let _ = timeout(AGENT_EXIT_LIMIT, all).await;
        if let Some(mut engine) = self.engine.lock().await.take() {
            // It ends with its agents; dropping it kills it.
            let _ = timeout(AGENT_EXIT_LIMIT, engine.ended()).await;
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.credentials);
    }
}

/// Returns the addresses at which agents may find a run that listens at `ip`.
fn addresses(ip: IpAddr, port: u16) -> Vec<String> {
    let all = match ip.is_unspecified() {
        true => interfaces()
            .into_iter()
            .map(|(_, address)| address)
            .collect(),
        false => vec![ip],
    };
    all.into_iter()
        .map(|address| SocketAddr::new(address, port).to_string())
        .collect()
}

fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let bound = std::net::TcpListener::bind(at).or_else(|error| match at.ip().is_unspecified() {
        // This machine may have no IPv6.
        true => std::net::TcpListener::bind(("0.0.0.0", at.port())),
        false => Err(error),
    });
    let listener = bound
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen at {at}: {error}")))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
