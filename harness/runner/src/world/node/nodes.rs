//! The run's end: listens for node agents, admits those that prove that they belong to the run, and starts worlds on them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::channel::{self, Heartbeat, Incoming};
use super::credentials::{Credentials, is_proof};
use super::engine::Engine;
use super::engine_command::{EngineCommand, RunningEngine};
use super::facts::interfaces;
use super::node::{Node, NodeHold, Route};
use super::nodes_world::NodesWorld;
use super::tls::Key;
use crate::world::control_server::{HELLO_PATIENCE, token};
use crate::world::frame::{read_frame_within, write_frame};
use crate::world::launcher::Held;
use crate::world::{Driver, LOOPBACK, LaunchError, LaunchSpec, Reservation};
use allranks_model::placement::Placement;
use allranks_protocol::{
    FromNode, Join, MAX_GREETING, NODE_VERSION, NodeDriver, NodeRank, NodeWorld, ToNode, Welcome,
};
use allranks_suite::platform::Start;

/// Number of connections that are not admitted yet, at a time.
const UNAUTHENTICATED: usize = 256;
/// Time without anything to send after which an end sends a heartbeat.
const BEAT: Duration = Duration::from_secs(1);
/// How long agents may take to end when the run has.
const AGENT_EXIT_LIMIT: Duration = Duration::from_secs(10);

/// How a run has its nodes.
#[derive(Clone, Debug)]
pub struct NodesSettings {
    /// What starts the agents.
    pub engine: Engine,
    /// The engine's command; none if people start the agents.
    pub command: Option<EngineCommand>,
    /// What people do who start the agents, in words that follow `waiting for 2 node(s); `.
    pub to_join: String,
    /// File for the output of engine and agents.
    pub engine_log: PathBuf,
    /// The number of nodes that the run waits for.
    pub count: usize,
    /// Where to listen; port 0 is any.
    pub listen: SocketAddr,
    /// File for the credentials. It must not exist, and is removed when the run ends.
    pub credentials: PathBuf,
    /// How long the run waits for its nodes.
    pub join_patience: Duration,
    /// Time without a byte from an agent, after which its node is lost.
    pub lost_after: Duration,
}

/// The nodes of a run. Dropping it ends all connections, and with them the agents and their ranks.
#[derive(Debug)]
pub struct Nodes {
    shared: Arc<Shared>,
    /// The file with the credentials, to be removed.
    credentials: PathBuf,
    next_world: AtomicU64,
    /// What is to be told to the engine's agents.
    told: Credentials,
    engine: tokio::sync::Mutex<Option<RunningEngine>>,
    /// Accepts connections; ended when this is dropped.
    _accepting: JoinSet<()>,
}

struct Shared {
    run: String,
    token: String,
    key: Key,
    settings: NodesSettings,
    driver: NodeDriver,
    import_patience: Duration,
    notices: Option<mpsc::UnboundedSender<String>>,
    slots: Mutex<Slots>,
    changed: watch::Sender<()>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Slots {
    /// One for each node; none until its agent is admitted.
    nodes: Vec<Option<Arc<Node>>>,
    /// The names of nodes by their places, from when an agent is admitted: it may not have been told yet.
    taken: BTreeMap<usize, String>,
    /// Where ranks meet that are on several nodes; none until all nodes are there.
    rendezvous: Option<RendezvousHost>,
    /// Why worlds cannot be started although all nodes are there, or why not all are; none if they can be, or nothing is known yet.
    fault: Option<String>,
}

/// Where ranks meet that are on several nodes: an address of the first node.
#[derive(Clone, Debug)]
struct RendezvousHost {
    address: String,
    /// For each node, the interface that leads there.
    interfaces: Vec<Option<String>>,
}

impl Nodes {
    /// Listens for agents whose ranks run this driver, and writes the credentials. What is waited for, and which agent is refused, is
    /// told as notices. Must be called inside a tokio runtime.
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
        let shared = Arc::new(Shared {
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
            slots: Mutex::new(Slots {
                nodes: vec![None; settings.count],
                taken: BTreeMap::new(),
                rendezvous: None,
                fault: None,
            }),
            changed: watch::Sender::new(()),
            settings,
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            shared,
            credentials: path,
            next_world: AtomicU64::default(),
            told: credentials,
            engine: tokio::sync::Mutex::default(),
            _accepting: accepting,
        })
    }

    /// Waits until all nodes are there, and reach the first one. If that is not so in time, worlds cannot be started, and say why.
    pub async fn gather(&self) {
        let shared = &self.shared;
        if let Some(fault) = self.assemble().await {
            shared.slots().fault = Some(fault);
            return;
        }
        let met = self.rendezvous_host().await;
        let mut slots = shared.slots();
        match met {
            Ok(rendezvous) => slots.rendezvous = Some(rendezvous),
            Err(fault) => slots.fault = Some(fault),
        }
    }

    /// Starts the engine, or says how agents are started, and waits until all nodes are there. Returns why they are not; none if
    /// they are.
    pub(super) async fn assemble(&self) -> Option<String> {
        let shared = &self.shared;
        let count = shared.settings.count;
        let fault = match &shared.settings.command {
            None => {
                let how = &shared.settings.to_join;
                shared.notify(format!("waiting for {count} node(s); {how}"));
                self.arrivals(std::future::pending()).await
            }
            Some(command) => {
                let words = command.argv.join(" ");
                shared.notify(format!("{}; starting: {words}", command.why));
                let log = &shared.settings.engine_log;
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
            shared.notify(fault.clone());
        }
        fault
    }

    /// Returns the nodes that are there, in the order of their places.
    pub(super) fn present(&self) -> Vec<Arc<Node>> {
        self.shared
            .slots()
            .nodes
            .iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Waits until all nodes are there. Returns why they are not; none if they are. `engine` gives how the engine ended.
    async fn arrivals(&self, engine: impl Future<Output = String>) -> Option<String> {
        let shared = &self.shared;
        let count = shared.settings.count;
        let limit = shared.settings.join_patience;
        let end = tokio::select! {
            biased;
            () = shared.until_all() => return None,
            end = engine => format!(": {end}"),
            () = tokio::time::sleep(limit) => format!(" within {} s", limit.as_secs()),
        };
        Some(format!(
            "{} of {count} nodes did not come{end}",
            shared.missing()
        ))
    }

    /// Finds an address of the first node that all others reach.
    async fn rendezvous_host(&self) -> Result<RendezvousHost, String> {
        let nodes = self.nodes(self.shared.settings.count)?;
        let Some((first, others)) = nodes.split_first() else {
            return Err("the run has no nodes".to_owned());
        };
        if others.is_empty() {
            return Ok(RendezvousHost {
                address: LOOPBACK.to_owned(),
                interfaces: vec![None],
            });
        }
        let word = token().map_err(|error| error.to_string())?;
        let said = word.clone();
        let answer = first.ask(|ask| ToNode::Listen { ask, word: said }).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let FromNode::Listening { ports, .. } = answer else {
            return Err(format!("node {} cannot listen", first.name));
        };
        let mut candidates = candidates(first);
        let mut interfaces = vec![None; nodes.len()];
        // The second time all are asked of the one address that the last of them has found.
        for last in [false, true] {
            if last {
                candidates.truncate(1);
            }
            for (place, node) in others.iter().enumerate() {
                let answer = node.ask(|ask| ToNode::Reach {
                    ask,
                    addresses: candidates.clone(),
                    ports: ports.clone(),
                    word: word.clone(),
                });
                let (address, interface, failures) =
                    match answer.await.map_err(|error| error.to_string())? {
                        FromNode::Reached {
                            address,
                            interface,
                            failures,
                            ..
                        } => (address, interface, failures),
                        _ => return Err(node.unexpected_answer().to_string()),
                    };
                let found = |address| candidates.iter().position(|one| *one == address);
                let Some(at) = address.and_then(found) else {
                    let failures = failures.join("; ");
                    return Err(format!(
                        "node {} does not reach node {} at an address at which the others do: {failures}",
                        node.name, first.name
                    ));
                };
                candidates.drain(..at);
                interfaces[place + 1] = interface;
            }
        }
        let address = candidates.swap_remove(0);
        let mut own = first.facts.interfaces.iter();
        interfaces[0] = own
            .find(|(_, one)| *one == address)
            .map(|(name, _)| name.clone());
        Ok(RendezvousHost {
            address,
            interfaces,
        })
    }

    /// Returns the first `count` nodes.
    ///
    /// # Errors
    /// Says which is not there, or not any more.
    fn nodes(&self, count: usize) -> Result<Vec<Arc<Node>>, String> {
        let slots = self.shared.slots();
        if let Some(fault) = &slots.fault {
            return Err(fault.clone());
        }
        let present = slots.nodes.iter().take(count).enumerate();
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
            _ => match &self.shared.slots().rendezvous {
                Some(rendezvous) => rendezvous.address.clone(),
                None => return Err(LaunchError::NoNode("the nodes have not met".to_owned())),
            },
        };
        let world = self.next_world.fetch_add(1, Ordering::Relaxed);
        // Before the answer: if nothing waits for it any more, what is leased is given back.
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
        // From here on, dropping it closes the world on every node.
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
        let slots = self.shared.slots();
        let rendezvous = slots.rendezvous.as_ref();
        let name =
            rendezvous.and_then(|rendezvous| rendezvous.interfaces.get(place).cloned().flatten());
        let variables = ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"];
        name.iter()
            .flat_map(|name| variables.map(|variable| (variable.to_owned(), name.clone())))
            .collect()
    }

    /// Tells all agents that the run has ended, and waits until they have, for some seconds at most.
    pub async fn finish(&self) {
        let nodes: Vec<_> = self
            .shared
            .slots()
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

/// Returns the addresses of a node at which others may reach it, most suitable first: the one of its connection, unless that is
/// loopback, then the others, loopback last.
pub(super) fn candidates(node: &Node) -> Vec<String> {
    let facts = &node.facts;
    let is_loopback = |address: &String| {
        address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
    };
    let mut all = vec![facts.address.clone()];
    all.extend(facts.interfaces.iter().map(|(_, address)| address.clone()));
    let mut seen = std::collections::HashSet::new();
    all.retain(|address| seen.insert(address.clone()));
    all.sort_by_key(is_loopback);
    all
}

/// The addresses at which agents may find a run that listens at `ip`.
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

/// The address that means all addresses of this machine, with any port.
pub const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// Accepts connections for ever.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let unauthenticated = Arc::new(Semaphore::new(UNAUTHENTICATED));
    // Connections end with this task.
    let mut connections = JoinSet::new();
    while let Ok(place) = Arc::clone(&unauthenticated).acquire_owned().await {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, peer)) => {
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let admitted = timeout(HELLO_PATIENCE, admit(&shared, stream, peer)).await;
                    drop(place);
                    let why = match admitted {
                        Ok(Ok((node, incoming))) => {
                            serve(&shared, &node, incoming).await;
                            return;
                        }
                        Ok(Err(why)) => why,
                        Err(_) => "it did not name itself in time".to_owned(),
                    };
                    shared.notify(format!("refused a connection from {peer}: {why}"));
                });
            }
            // For instance no file descriptors are left: other connections will close some.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

type Admitted = (Arc<Node>, mpsc::UnboundedReceiver<Incoming<FromNode>>);

/// Admits an agent.
///
/// # Errors
/// Says why it is not admitted.
async fn admit(
    shared: &Arc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
) -> Result<Admitted, String> {
    let _ = stream.set_nodelay(true);
    let mut stream = shared
        .key
        .accept(stream)
        .await
        .map_err(|error| format!("no TLS with this run's key ({error})"))?;
    let nonce = token().map_err(|error| error.to_string())?;
    let challenge = ToNode::Challenge {
        version: NODE_VERSION,
        nonce: nonce.clone(),
    };
    let broken = |error: io::Error| error.to_string();
    write_frame(&mut stream, &challenge, &[])
        .await
        .map_err(broken)?;
    let frame = read_frame_within::<FromNode>(&mut stream, MAX_GREETING, 0).await;
    let header = frame.map_err(|error| error.to_string())?.header;
    let FromNode::Join(join) = header else {
        return Err("it does not join".to_owned());
    };
    let entered = shared.enter(&join, &nonce);
    let (place, name) = match entered {
        Ok(entered) => entered,
        Err(reason) => {
            let refused = ToNode::Refused {
                reason: reason.clone(),
            };
            let _ = write_frame(&mut stream, &refused, &[]).await;
            let host: String = join
                .facts
                .host
                .chars()
                .filter(|c| !c.is_control())
                .collect();
            return Err(format!("{reason} (it calls itself {host})"));
        }
    };
    let heartbeat = Heartbeat {
        beat: BEAT.min(shared.settings.lost_after / 4),
        patience: shared.settings.lost_after,
    };
    let welcome = ToNode::Welcome(Welcome {
        name: name.clone(),
        nodes: shared.settings.count,
        driver: shared.driver.clone(),
        import_patience_s: shared.import_patience.as_secs(),
        beat_ms: heartbeat.beat.as_millis() as u64,
        patience_ms: heartbeat.patience.as_millis() as u64,
    });
    if let Err(error) = write_frame(&mut stream, &welcome, &[]).await {
        shared.leave(place);
        return Err(error.to_string());
    }
    let (outbox, incoming) = channel::open(stream, || ToNode::Beat, heartbeat);
    let node = Arc::new(Node::new(name, join.facts, outbox));
    shared.fill(place, &node, peer);
    Ok((node, incoming))
}

/// Takes what an admitted agent sends, until its connection ends.
async fn serve(
    shared: &Shared,
    node: &Node,
    mut incoming: mpsc::UnboundedReceiver<Incoming<FromNode>>,
) {
    let why = loop {
        match incoming.recv().await {
            Some(Incoming::Frame(frame)) => {
                if let Err(why) = node.take(frame) {
                    break why;
                }
            }
            Some(Incoming::Over(why)) => break why,
            None => break "its connection ended".to_owned(),
        }
    };
    node.lose(&why);
    shared.changed.send_replace(());
}

impl Shared {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, notice: String) {
        if let Some(notices) = &self.notices {
            // What reads them may be gone; the run goes on.
            let _ = notices.send(notice);
        }
    }

    /// Number of nodes that have not come.
    fn missing(&self) -> usize {
        let slots = self.slots();
        slots.nodes.iter().filter(|node| node.is_none()).count()
    }

    /// Returns when all nodes have come.
    async fn until_all(&self) {
        let mut changed = self.changed.subscribe();
        while self.missing() > 0 {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Checks what an agent says, and returns the place and the name of its node.
    ///
    /// # Errors
    /// Says why it is refused.
    fn enter(&self, join: &Join, nonce: &str) -> Result<(usize, String), String> {
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
        let mut slots = self.slots();
        let count = slots.nodes.len();
        // What engines get wrong most: as many worlds as agents, or one agent for each rank.
        if let Some(started) = join.facts.count.filter(|started| *started != count) {
            return Err(format!(
                "the engine started {started} agent(s), and the run has {count} node(s)"
            ));
        }
        let free = |place: &usize| *place < count && !slots.taken.contains_key(place);
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
        let host: String = join
            .facts
            .host
            .chars()
            .filter(|c| !c.is_control())
            .collect();
        let same = |name: &String| slots.taken.values().any(|one| one == name);
        let others = (2..).map(|number| format!("{host}#{number}"));
        let mut names = std::iter::once(host.clone()).chain(others);
        let name = names.find(|name| !same(name)).unwrap_or(host);
        slots.taken.insert(place, name.clone());
        Ok((place, name))
    }

    /// Gives the place back that [`Self::enter`] returned.
    fn leave(&self, place: usize) {
        self.slots().taken.remove(&place);
    }

    /// Puts a node in its place, and says so.
    fn fill(&self, place: usize, node: &Arc<Node>, peer: SocketAddr) {
        let (present, count, differences) = {
            let mut slots = self.slots();
            let differences = differences(&slots.nodes, node);
            slots.nodes[place] = Some(Arc::clone(node));
            let present = slots.nodes.iter().flatten().count();
            (present, slots.nodes.len(), differences)
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
