//! Running a plan: scenarios side by side within a budget, each one's worlds in turn, every finding judged and
//! written down.
//!
//! In: a [`Plan`] and [`Settings`]. Out: [`Record`]s, in the order in which they happen, through one channel; who
//! renders them has no say in the run.

mod play;
mod recording;
mod scenario;
mod setup;
mod steps;

pub use recording::point;
pub use setup::distinctive_environment;
pub use steps::steps;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Semaphore, mpsc, watch};

use crate::judge::Expectations;
use crate::plan::{Plan, Scenario};
use crate::report::{Counts, FORMAT, Record, RunRecord};
use crate::world::{Driver, LocalLauncher};

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The run's folder.
    pub out: PathBuf,
    /// Seed of all inputs.
    pub seed: u64,
    /// Ranks that may run at once; a larger world runs alone.
    pub ranks_at_once: usize,
    /// How often every scenario runs.
    pub repeat: u32,
    /// What ranks run.
    pub driver: Driver,
    /// The allranks binary, to supervise fresh ranks with.
    pub supervisor: Option<PathBuf>,
    /// How long importing torch may take.
    pub import_patience: Duration,
    /// Profile, for the record.
    pub profile: Option<String>,
    /// The command line, for the record.
    pub arguments: Vec<String>,
}

/// Flips to true when the run is to stop early: everything started is killed, everything else is not-run.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Sender<bool>);

impl Default for Interrupt {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Interrupt {
    /// Stops the run.
    pub fn set(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }
}

/// What scenarios of one run share.
struct Shared {
    settings: Settings,
    expectations: Arc<Expectations>,
    launcher: LocalLauncher,
    budget: Arc<Semaphore>,
    interrupt: watch::Receiver<bool>,
    started: Instant,
    base_environment: std::collections::BTreeMap<String, String>,
}

/// The runtime that runs need: two workers, and threads that are never retired, because the kernel ties the
/// parent-death signal of a process to the *thread* that started it.
///
/// # Errors
/// Fails if threads cannot be made.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_keep_alive(Duration::from_secs(1 << 30))
        .enable_all()
        .build()
}

/// Runs the plan. Records come out of the channel: one run record, then checks and scenarios; the caller knows how
/// it all ended and writes the end record.
///
/// # Errors
/// Fails if no socket can be bound or the run's folder cannot be written.
pub async fn run(
    plan: Arc<Plan>,
    settings: Settings,
    expectations: Arc<Expectations>,
    interrupt: Interrupt,
    records: mpsc::UnboundedSender<Record>,
) -> std::io::Result<()> {
    let logs = settings.out.join("logs");
    std::fs::create_dir_all(&logs)?;
    let launcher = LocalLauncher::new(
        settings.driver.clone(),
        settings.supervisor.clone(),
        logs.join("zygote.log"),
        settings.import_patience,
    )?;
    let repeats = u64::from(settings.repeat);
    let _ = records.send(Record::Run(RunRecord {
        format: FORMAT,
        allranks: env!("CARGO_PKG_VERSION").to_owned(),
        name: settings
            .out
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        started: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        seed: settings.seed,
        profile: settings.profile.clone(),
        arguments: settings.arguments.clone(),
        planned: Counts {
            scenarios: plan.scenarios.len() as u64 * repeats,
            checks: plan.check_count() as u64 * repeats,
        },
    }));
    let shared = Arc::new(Shared {
        budget: Arc::new(Semaphore::new(settings.ranks_at_once)),
        interrupt: interrupt.0.subscribe(),
        started: Instant::now(),
        base_environment: setup::base_environment(),
        settings,
        expectations,
        launcher,
    });
    let plan = plan
        .scenarios
        .iter()
        .cloned()
        .map(Arc::new)
        .collect::<Vec<_>>();
    let mut scenarios = tokio::task::JoinSet::new();
    for round in 0..shared.settings.repeat {
        for scenario in &plan {
            let permits = scenario
                .world_size
                .count()
                .min(shared.settings.ranks_at_once);
            let budget = Arc::clone(&shared.budget);
            let Ok(permit) = budget.acquire_many_owned(permits as u32).await else {
                unreachable!("the budget is never closed");
            };
            let (shared, scenario, records) =
                (Arc::clone(&shared), Arc::clone(scenario), records.clone());
            scenarios.spawn(async move {
                one(shared, scenario, round, &records).await;
                drop(permit);
            });
        }
    }
    while scenarios.join_next().await.is_some() {}
    Ok(())
}

async fn one(
    shared: Arc<Shared>,
    scenario: Arc<Scenario>,
    round: u32,
    records: &mpsc::UnboundedSender<Record>,
) {
    let task = {
        let (shared, scenario) = (Arc::clone(&shared), Arc::clone(&scenario));
        tokio::spawn(async move { scenario::run(&shared, &scenario, round).await })
    };
    // A mistake of the harness in one scenario is that scenario's result, and the others go on.
    let run = match task.await {
        Ok(run) => run,
        Err(error) => scenario::broken(&scenario, round, &error.to_string()),
    };
    for record in recording::records(&shared, &scenario, round, run) {
        let _ = records.send(record);
    }
}
