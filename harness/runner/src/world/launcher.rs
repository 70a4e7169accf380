//! The local launcher: starts the ranks of a world on this machine, forked from a zygote where that is safe.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};

use super::control_server::{ControlServer, HELLO_PATIENCE};
use super::launch_spec::{LaunchSpec, prepend_path};
use super::zygote::{Zygote, ZygoteError};
use super::{Driver, EVENTS, Processes, TOKEN, World, spawned};
use allranks_model::names::Rank;
use allranks_suite::platform::Start;

/// Why a world could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The system refused something.
    #[error("cannot start ranks: {0}")]
    Io(#[from] io::Error),
    /// The zygote does not work.
    #[error(transparent)]
    Zygote(#[from] ZygoteError),
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
    zygotes: Mutex<BTreeMap<&'static [&'static str], Arc<Slot>>>,
}

/// The place for a zygote, which is started when a world first needs it, and again after it has died.
type Slot = Mutex<Option<Arc<Zygote>>>;

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
            control_server: ControlServer::bind(zygote_patience.max(HELLO_PATIENCE))?,
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
    pub async fn launch(&self, mut order: LaunchSpec) -> Result<World, LaunchError> {
        let (place, arrivals) = self.control_server.expect_world()?;
        let (sender, events) = mpsc::channel(EVENTS);
        for (index, rank) in order.ranks.iter_mut().enumerate() {
            let token = place.rank_token(Rank(index as u32));
            let control = self.control_server.address().to_owned();
            rank.env.insert("ALLRANKS_CONTROL".into(), control);
            rank.env.insert(TOKEN.into(), token);
        }
        let size = order.ranks.len();
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
            let ranks = &order.ranks;
            Box::new(spawned::start(
                &argv,
                supervisor,
                &place.token,
                ranks,
                &sender,
            ))
        };
        Ok(World {
            events,
            writers: vec![None; size],
            arrivals,
            sender,
            processes,
            place,
            is_deaf: false,
        })
    }

    /// Starts the zygote of ranks that ask for no other modules, if the driver has one: the worlds that come then find torch
    /// imported.
    ///
    /// # Errors
    /// There is none, or it does not work.
    pub(super) async fn warm(&self) -> Result<Arc<Zygote>, LaunchError> {
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
        if let Some(zygote) = zygote.as_ref().filter(|zygote| zygote.lives()) {
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
