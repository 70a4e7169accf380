//! The agent: connects to its run, and starts ranks for it on this host until the connection ends.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::agent_world::{self, HostResources, WorldCommand};
use super::channel::{self, Heartbeat, Incoming, Outbox};
use super::credentials::{Credentials, proof};
use super::facts::facts;
use super::node_assignment::{NodeAssignment, is_of_engine};
use super::scratch::Scratch;
use super::{reach, tls};
use crate::world::frame::{read_frame_within, write_frame};
use crate::world::{Driver, LocalLauncher, PortLease, lease_port};
use allranks_protocol::{
    FromNode, Join, MAX_GREETING, NODE_VERSION, NodeDriver, NodeFacts, ToNode, Welcome,
};

/// How long one address of the run may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// What an agent has on its host.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The Python with torch.
    pub python: PathBuf,
    /// The libtorch driver; none if it is not built.
    pub libtorch: Option<PathBuf>,
    /// The allranks binary, which supervises spawned ranks.
    pub supervisor: Option<PathBuf>,
    /// The node that the engine assigned to this agent; none: nodes are numbered in the order in which they join.
    pub assignment: Option<NodeAssignment>,
}

/// Why an agent ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The run cannot be reached, or has another key.
    #[error("cannot reach the run: {0}")]
    Unreachable(String),
    /// The run does not admit this agent; the text says why.
    #[error("the run refuses this node: {0}")]
    Refused(String),
    /// The connection to the run has ended; the text says how. All ranks have been killed.
    #[error("the run is gone ({0}); its ranks on this node have been killed")]
    Gone(String),
    /// This host lacks what the run needs.
    #[error("{0}")]
    Lacking(String),
    /// The system refused something.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Serves a run until it has ended. `joined` is given what the run says of this node when it is admitted. Dropping the future
/// kills all ranks and ends the connection.
///
/// # Errors
/// See [`AgentError`].
pub async fn agent(
    credentials: Credentials,
    options: AgentOptions,
    joined: impl FnOnce(&Welcome),
) -> Result<(), AgentError> {
    let (stream, welcome) = join(&credentials, &options).await?;
    drop(credentials);
    joined(&welcome);
    let heartbeat = Heartbeat {
        period: Duration::from_millis(welcome.beat_ms.max(1)),
        timeout: Duration::from_millis(welcome.patience_ms.max(1)),
    };
    let scratch = Scratch::new(&std::env::temp_dir())?;
    let driver = driver(&welcome.driver, &options, scratch.path())?;
    let launcher = LocalLauncher::new(
        driver,
        options.supervisor.clone(),
        scratch.path().join("zygote.log"),
        Duration::from_secs(welcome.import_patience_s),
    )?;
    let (outbox, mut incoming) = channel::open(stream, || FromNode::Beat, heartbeat);
    let mut agent = Agent {
        launcher: Arc::new(launcher),
        outbox,
        scratch,
        base: base_environment(options.assignment.is_some()),
        worlds: HashMap::new(),
        leases: HashMap::new(),
        tasks: JoinSet::new(),
    };
    loop {
        let frame = match incoming.recv().await {
            Some(Incoming::Frame(frame)) => frame,
            Some(Incoming::Over(why)) => return Err(AgentError::Gone(why)),
            None => return Err(AgentError::Gone("the connection ended".to_owned())),
        };
        if frame.header == ToNode::Finish {
            return Ok(());
        }
        agent.handle_frame(frame.header, frame.payload)?;
    }
}

/// Connects to the run, at the first of its addresses at which it answers, and joins it.
async fn join(
    credentials: &Credentials,
    options: &AgentOptions,
) -> Result<(TlsStream<TcpStream>, Welcome), AgentError> {
    // Before connecting: the run does not wait long for a connection that says nothing.
    let facts = facts(&options.python, options.assignment.as_ref()).await;
    let mut failures = Vec::new();
    let mut connected = None;
    for address in &credentials.addresses {
        match timeout(CONNECT_TIMEOUT, connect(address, &credentials.fingerprint)).await {
            Ok(Ok(stream)) => {
                connected = Some(stream);
                break;
            }
            Ok(Err(error)) => failures.push(format!("{address}: {error}")),
            Err(_) => failures.push(format!("{address}: no answer")),
        }
    }
    let Some(mut stream) = connected else {
        return Err(AgentError::Unreachable(failures.join("; ")));
    };
    let gone = |error: String| AgentError::Gone(error);
    let own = stream.get_ref().0.local_addr()?.ip().to_canonical();
    let frame = read_frame_within::<ToNode>(&mut stream, MAX_GREETING, 0).await;
    let header = frame.map_err(|error| gone(error.to_string()))?.header;
    let ToNode::Challenge { version, nonce } = header else {
        return Err(gone("it says something else than a run does".to_owned()));
    };
    if version != NODE_VERSION {
        let own = env!("CARGO_PKG_VERSION");
        let why = format!("it is another version of allranks than {own}");
        return Err(AgentError::Refused(why));
    }
    let join = FromNode::Join(Box::new(Join {
        version: NODE_VERSION,
        run: credentials.run.clone(),
        proof: proof(&credentials.token, &nonce),
        facts: NodeFacts {
            address: own.to_string(),
            ..facts
        },
    }));
    write_frame(&mut stream, &join, &[]).await?;
    let frame = read_frame_within::<ToNode>(&mut stream, MAX_GREETING, 0).await;
    match frame.map_err(|error| gone(error.to_string()))?.header {
        ToNode::Welcome(welcome) => Ok((stream, welcome)),
        ToNode::Refused { reason } => Err(AgentError::Refused(reason)),
        _ => Err(gone("it says something else than a run does".to_owned())),
    }
}

async fn connect(address: &str, fingerprint: &str) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    tls::connect(stream, fingerprint).await
}

/// Returns the driver that the run wants, as it is on this host.
fn driver(
    wanted: &NodeDriver,
    options: &AgentOptions,
    folder: &Path,
) -> Result<Driver, AgentError> {
    Ok(match wanted {
        NodeDriver::Python => Driver::python(&options.python, folder)?,
        NodeDriver::Libtorch => {
            let lacks = || {
                AgentError::Lacking(
                    "this node has no libtorch driver; hint: ci/libtorch builds it".to_owned(),
                )
            };
            Driver::Libtorch(options.libtorch.clone().ok_or_else(lacks)?)
        }
        NodeDriver::Command(argv) => Driver::Command(argv.clone()),
    })
}

/// Returns the environment that ranks have besides what the run says: this process's, without what describes another world, such
/// as what an engine told this agent.
fn base_environment(has_engine: bool) -> BTreeMap<String, String> {
    let mut base = crate::world::base_environment();
    if has_engine {
        base.retain(|name, _| !is_of_engine(name));
    }
    base
}

/// Returns this host's time, in microseconds since 1970.
pub(super) fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64)
}

struct Agent {
    launcher: Arc<LocalLauncher>,
    outbox: Outbox<FromNode>,
    scratch: Scratch,
    /// What the environment of every rank has, unless the run says something else.
    base: BTreeMap<String, String>,
    /// What must be done in each world that has ranks here.
    worlds: HashMap<u64, mpsc::UnboundedSender<WorldCommand>>,
    /// What is leased for each world whose ranks meet here.
    leases: HashMap<u64, (Vec<PortLease>, TempDir)>,
    /// What is under way; ended when this is dropped.
    tasks: JoinSet<()>,
}

impl Agent {
    /// Carries out a frame of the run.
    ///
    /// # Errors
    /// Fails if it is a frame that no run sends at this point.
    fn handle_frame(&mut self, header: ToNode, payload: Vec<u8>) -> Result<(), AgentError> {
        while self.tasks.try_join_next().is_some() {}
        let outbox = self.outbox.clone();
        match header {
            ToNode::Beat | ToNode::Finish => {}
            ToNode::Confirm { ask } => {
                let clock_us = now_us();
                outbox.push(FromNode::Alive { ask, clock_us }, Vec::new());
            }
            ToNode::Challenge { .. } | ToNode::Welcome(_) | ToNode::Refused { .. } => {
                let why = "it greets twice".to_owned();
                return Err(AgentError::Gone(why));
            }
            ToNode::Listen { ask, word } => {
                self.tasks.spawn(async move {
                    // A node without ports is reached by none, and the run says so.
                    let mut ports = Vec::new();
                    ports.extend(reach::listen(word.clone()).await);
                    ports.extend(reach::listen_as_rendezvous(word).await);
                    outbox.push(FromNode::Listening { ask, ports }, Vec::new());
                });
            }
            ToNode::Reach {
                ask,
                addresses,
                ports,
                word,
            } => {
                self.tasks.spawn(async move {
                    let found = reach::reach(addresses, &ports, &word).await;
                    let answer = FromNode::Reached {
                        ask,
                        address: found.address,
                        interface: found.interface,
                        failures: found.failures,
                        // Never 0, which would say that it was not measured.
                        took_us: (found.took.as_micros() as u64).max(1),
                    };
                    outbox.push(answer, Vec::new());
                });
            }
            ToNode::Reserve { ask, world, ports } => {
                let answer = match self.reserve(world, ports) {
                    Ok((ports, folder)) => FromNode::Reserved {
                        ask,
                        ports,
                        folder,
                        error: None,
                    },
                    Err(error) => FromNode::Reserved {
                        ask,
                        ports: Vec::new(),
                        folder: PathBuf::new(),
                        error: Some(error.to_string()),
                    },
                };
                outbox.push(answer, Vec::new());
            }
            ToNode::Release { world } => drop(self.leases.remove(&world)),
            ToNode::Launch { ask, launch } => {
                let world = launch.world;
                let logs = self.scratch.path().join(format!("world{world}"));
                let (commands, receiver) = mpsc::unbounded_channel();
                self.worlds.insert(world, commands);
                let here = HostResources {
                    launcher: Arc::clone(&self.launcher),
                    base: self.base.clone(),
                    logs,
                };
                let serving = agent_world::serve(here, outbox, ask, launch, receiver);
                self.tasks.spawn(serving);
            }
            ToNode::Rank {
                world,
                rank,
                message,
            } => self.command(world, WorldCommand::Send(rank, message, payload)),
            ToNode::Signal {
                world,
                rank,
                signal,
            } => self.command(world, WorldCommand::Signal(rank, signal)),
            ToNode::Look { ask, world, query } => {
                self.command(world, WorldCommand::Look(ask, query))
            }
            ToNode::Sweep { ask, world } => self.command(world, WorldCommand::Sweep(ask)),
            ToNode::Close { world } => {
                self.worlds.remove(&world);
            }
        }
        Ok(())
    }

    /// Passes a command to a world. One that is closed, or was never started here, takes none.
    fn command(&self, world: u64, command: WorldCommand) {
        if let Some(commands) = self.worlds.get(&world) {
            let _ = commands.send(command);
        }
    }

    fn reserve(&mut self, world: u64, ports: usize) -> io::Result<(Vec<u16>, PathBuf)> {
        let leases: Vec<PortLease> = (0..ports)
            .map(|_| lease_port())
            .collect::<io::Result<_>>()?;
        let numbers = leases.iter().map(|lease| lease.port).collect();
        let folder = tempfile::Builder::new()
            .prefix("rendezvous-")
            .tempdir_in(self.scratch.path())?;
        let path = folder.path().to_owned();
        self.leases.insert(world, (leases, folder));
        Ok((numbers, path))
    }
}
