//! Launchers, which start the ranks of a world. The local launcher starts them on this machine, forked from a zygote where that
//! is safe.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};

use super::control_server::{ControlServer, HELLO_TIMEOUT};
use super::launch_spec::{LaunchSpec, prepend_path};
use super::local_world::{LocalWorld, Processes};
use super::node::{NodeHold, Nodes};
use super::port::{PortLease, lease_port};
use super::zygote::{Zygote, ZygoteError};
use super::{Driver, EVENTS, TOKEN, World, spawned};
use allranks_model::placement::Placement;
use allranks_suite::platform::Start;

/// The limit for finding out whether nodes reach each other.
const REACH_LIMIT: Duration = Duration::from_secs(30);

/// Why a world could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The system refused something.
    #[error("cannot start ranks: {0}")]
    Io(#[from] io::Error),
    /// The zygote does not work.
    #[error(transparent)]
    Zygote(#[from] ZygoteError),
    /// A node refuses or cannot start ranks; the text names it and says why.
    #[error("{0}")]
    AtNode(String),
    /// A node that the world needs has not joined, or is lost; the text names it and says why.
    #[error("{0}")]
    NoNode(String),
}

/// A launcher of worlds: on this machine, or on nodes.
#[derive(Debug)]
pub enum Launcher {
    /// On this machine.
    Local(Arc<LocalLauncher>),
    /// On the hosts of node agents.
    Nodes(Box<Nodes>),
}

/// The host, ports and folder that a world has for its rendezvous. Dropping it releases them.
#[derive(Debug)]
pub struct Reservation {
    /// The host at which its ranks meet, which all of them reach: that of its first node.
    pub host: String,
    /// The ports that were asked for, leased on that host.
    pub ports: Vec<u16>,
    /// An empty folder of that host.
    pub folder: PathBuf,
    pub(super) held: Held,
}

/// What holds a reservation.
#[derive(Debug)]
pub(super) enum Held {
    /// Those of this process.
    Here {
        _leases: Vec<PortLease>,
        _folder: tempfile::TempDir,
    },
    /// Those of a node agent.
    AtNode(NodeHold),
}

/// The host at which ranks meet that are all on one host.
pub const LOOPBACK: &str = "127.0.0.1";

impl Launcher {
    /// Reserves what a world with this placement needs: `ports` ports, and a folder. On this machine the folder is in `out`.
    ///
    /// # Errors
    /// Fails if no ports are free, the folder cannot be made, or a node that the world needs has not joined.
    pub async fn reserve(
        &self,
        placement: &Placement,
        ports: usize,
        out: &Path,
    ) -> Result<Reservation, LaunchError> {
        match self {
            Self::Local(_) => {
                let folder = tempfile::Builder::new()
                    .prefix("allranks-")
                    .tempdir_in(out)?;
                let leases: Vec<PortLease> = (0..ports)
                    .map(|_| lease_port())
                    .collect::<io::Result<_>>()?;
                Ok(Reservation {
                    host: LOOPBACK.to_owned(),
                    ports: leases.iter().map(|lease| lease.port).collect(),
                    folder: folder.path().to_owned(),
                    held: Held::Here {
                        _leases: leases,
                        _folder: folder,
                    },
                })
            }
            Self::Nodes(nodes) => nodes.reserve(placement, ports).await,
        }
    }

    /// Returns why the first `count` nodes cannot make a world, if some do not reach each other. `None` if all do, if that is
    /// not known within half a minute, and on one machine.
    pub async fn unreached(&self, count: usize) -> Option<String> {
        match self {
            Self::Nodes(nodes) if count > 1 => nodes.unreached(count, REACH_LIMIT).await,
            Self::Nodes(_) | Self::Local(_) => None,
        }
    }

    /// Starts the ranks of a world with this placement and reservation; they connect afterwards.
    ///
    /// # Errors
    /// Fails if the system or a node refuses something. No rank is left then.
    pub async fn launch(
        &self,
        order: LaunchSpec,
        placement: &Placement,
        at: &Reservation,
    ) -> Result<World, LaunchError> {
        match (self, &at.held) {
            (Self::Nodes(nodes), Held::AtNode(hold)) => {
                let world = nodes.launch(order, placement, hold).await?;
                Ok(World::Nodes(world))
            }
            (Self::Local(local), _) => Ok(World::Local(local.launch(order).await?)),
            (Self::Nodes(_), Held::Here { .. }) => {
                unreachable!("a reservation is used with the launcher that made it")
            }
        }
    }
}

/// Starts worlds on this machine.
#[derive(Debug)]
pub struct LocalLauncher {
    control_server: ControlServer,
    driver: Driver,
    supervisor: Option<PathBuf>,
    zygote_log: PathBuf,
    zygote_patience: Duration,
    /// Zygotes by the modules that worlds asked for.
    zygotes: Mutex<BTreeMap<&'static [&'static str], Arc<LazyZygote>>>,
}

/// A zygote, which is started when a world first needs it, and again after it has ended.
type LazyZygote = Mutex<Option<Arc<Zygote>>>;

impl LocalLauncher {
    /// Makes a launcher for one driver. `supervisor` is the allranks binary (see [`super::supervise`]); `zygote_log` is
    /// the file for the zygote's own output; `zygote_patience` is how long it may take to import torch.
    ///
    /// # Errors
    /// Fails if no socket can be bound. Must be called inside a tokio runtime.
    pub fn new(
        driver: Driver,
        supervisor: Option<PathBuf>,
        zygote_log: PathBuf,
        zygote_patience: Duration,
    ) -> io::Result<Self> {
        Ok(Self {
            control_server: ControlServer::bind(zygote_patience.max(HELLO_TIMEOUT))?,
            driver,
            supervisor,
            zygote_log,
            zygote_patience,
            zygotes: Mutex::default(),
        })
    }

    /// Returns the driver that its ranks run.
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Starts the ranks; they connect afterwards.
    ///
    /// # Errors
    /// Fails if the system refuses something, before any rank has been started.
    pub async fn launch(&self, mut order: LaunchSpec) -> Result<LocalWorld, LaunchError> {
        let (place, arrivals) = self.control_server.expect_world()?;
        let (sender, events) = mpsc::channel(EVENTS);
        for rank in &mut order.ranks {
            let token = place.rank_token(rank.rank);
            let control = self.control_server.address().to_owned();
            rank.env.insert("ALLRANKS_CONTROL".into(), control);
            rank.env.insert(TOKEN.into(), token);
        }
        let started: Vec<_> = order.ranks.iter().map(|rank| rank.rank).collect();
        let zygote = match order.start {
            Start::Fork => self.driver.zygote(order.modules),
            Start::Fresh => None,
        };
        let processes: Box<dyn Processes> = if let Some((argv, path)) = zygote {
            let zygote = self.zygote(order.modules, &argv, path).await?;
            Box::new(Zygote::fork(&zygote, order.ranks, &sender))
        } else {
            let (argv, path) = self.driver.rank();
            if let Some(folder) = path {
                for rank in &mut order.ranks {
                    prepend_path(&mut rank.env, &folder.to_string_lossy());
                }
            }
            let supervisor = self.supervisor.as_deref();
            let ranks = order.ranks.iter().map(|rank| (argv.as_slice(), rank));
            Box::new(spawned::start(ranks, supervisor, &place.token, &sender))
        };
        Ok(LocalWorld::new(
            started,
            arrivals,
            (sender, events),
            processes,
            place,
        ))
    }

    /// Returns the zygote of ranks that need no modules besides torch; starts it if it does not run.
    ///
    /// # Errors
    /// The driver has no zygote, or it cannot be started.
    pub(super) async fn default_zygote(&self) -> Result<Arc<Zygote>, LaunchError> {
        let (argv, path) = self
            .driver
            .zygote(&[])
            .ok_or_else(|| io::Error::other("the driver has no zygote"))?;
        self.zygote(&[], &argv, path).await
    }

    /// Returns the zygote with these modules; starts one if none is alive.
    async fn zygote(
        &self,
        modules: &'static [&'static str],
        argv: &[String],
        path: Option<&Path>,
    ) -> Result<Arc<Zygote>, LaunchError> {
        // While a zygote is being started, worlds that need another one do not wait.
        let slot = Arc::clone(self.zygotes.lock().await.entry(modules).or_default());
        let mut zygote = slot.lock().await;
        if let Some(zygote) = zygote.as_ref().filter(|zygote| zygote.is_alive()) {
            return Ok(Arc::clone(zygote));
        }
        let started = Arc::new(
            Zygote::start(
                argv,
                path,
                &self.control_server,
                &self.zygote_log,
                self.zygote_patience,
            )
            .await?,
        );
        *zygote = Some(Arc::clone(&started));
        Ok(started)
    }
}
