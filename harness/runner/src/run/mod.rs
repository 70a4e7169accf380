//! Runs a plan: scenarios side by side within a budget, each one's worlds in turn; every check result is judged and
//! recorded.
//!
//! In: a [`Plan`] and [`Settings`]. Out: [`Record`]s through one channel, each as soon as it is final. Whatever renders them
//! does not influence the run.

mod budget;
mod failed_init;
mod group_test;
mod launch;
mod load;
mod logs;
mod open_checks;
mod pending;
mod program;
mod queue;
mod rank_environment;
mod rank_run;
mod record_writer;
mod scenario;
mod scenario_run;
mod setup;
mod shrink;
mod steps;
mod taken_port;
mod world;

pub use program::{command_lines, program_of_rank};
pub use rank_environment::distinctive_environment;
pub use steps::{StepsError, prepare, steps, steps_of};

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinError;

pub use budget::Capacity;
use budget::{Budget, Permit, Wanted};
use load::Load;
pub use queue::in_starting_order;
use queue::queues;
use record_writer::RecordWriter;
pub use record_writer::in_round;

use crate::world::node::{Nodes, NodesSettings};
use crate::world::{Driver, Launcher, LocalLauncher, base_environment};
use allranks_model::names::{CheckId, RequirementId};
use allranks_model::record::{Absent, Counts, FORMAT, Origin, Record, RunRecord};
use allranks_suite::expectation::Expectations;
use allranks_suite::plan::{Plan, Scenario};

/// Default of [`Settings::shrinking`] for interactive runs.
pub const SHRINKING: Duration = Duration::from_secs(90);

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The run's folder, for results and logs.
    pub out: PathBuf,
    /// Seed of all input data.
    pub seed: u64,
    /// Ranks that may run at once. A larger world waits until it is the only one of its kind.
    pub ranks_at_once: Capacity,
    /// Number of worlds that may use one device at the same time.
    pub worlds_per_device: NonZeroU32,
    /// How often every scenario runs; 1 is once.
    pub repeat: u32,
    /// The driver program that each rank runs.
    pub driver: Driver,
    /// A launcher of this driver that has been started already; none: the session starts one.
    pub launcher: Option<Arc<LocalLauncher>>,
    /// Path of the allranks binary, which supervises spawned ranks. None: ranks run without a supervisor.
    pub supervisor: Option<PathBuf>,
    /// How long importing torch, and what a platform imports besides, may take.
    pub import_patience: Duration,
    /// How long the worlds in which one random sequence is cut down may take together.
    pub shrinking: Duration,
    /// The profile's name, for the run's record only.
    pub profile: Option<String>,
    /// The command line, for the run's record only.
    pub arguments: Vec<String>,
    /// Sentences of the requirements by id, for the run's record only.
    pub requirements: BTreeMap<RequirementId, String>,
    /// Platforms that this machine does not have, for the run's record only.
    pub absent: Vec<Absent>,
    /// What the plan was made from, for the record; none: nothing is to continue this run.
    pub origin: Option<Origin>,
    /// Checks, those of init and teardown among them, that are recorded already and not made again.
    pub recorded: Arc<BTreeSet<CheckId>>,
    /// The nodes on which worlds are started; none: this machine.
    pub nodes: Option<NodesSettings>,
    /// Words for the commands of launchers that start programs.
    pub launcher_options: Vec<String>,
    /// Receives a line for each thing that the run waits for; `None`: nothing is sent.
    pub notices: Option<mpsc::UnboundedSender<String>>,
}

/// A flag that stops the run early once it is set: all processes started are killed, and checks without a result become
/// `not-run`.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Sender<bool>);

impl Default for Interrupt {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Interrupt {
    /// Asks the run to stop. Cannot be undone.
    pub fn set(&self) {
        self.0.send_replace(true);
    }

    /// Returns true once [`Self::set`] was called.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when the flag is set; never before.
    pub async fn wait(&self) {
        // Cannot fail: the sender is in `self`.
        let _ = self.0.subscribe().wait_for(|set| *set).await;
    }
}

/// Name of the file for the output of the processes that ranks are forked from, in the folder of logs.
pub const ZYGOTE_LOG: &str = "zygote.log";

/// Default limit of worlds that one scenario may lose before its other checks are given up.
pub const WORLDS: u32 = 24;

/// What all scenarios of one run share.
struct Shared {
    settings: Settings,
    expectations: Arc<Expectations>,
    launcher: Arc<Launcher>,
    worlds: u32,
    budget: Arc<Budget>,
    interrupt: watch::Receiver<bool>,
    started: Instant,
    base_environment: BTreeMap<String, String>,
    /// The version of torch that the first rank on each platform reported, by the platform's name.
    torch: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Shared {
    /// Records the version of torch that a rank on a platform reported, if none is known yet.
    fn learn_torch(&self, platform: &str, torch: &str) {
        let mut known = self.torch.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(platform.to_owned());
        known.or_insert_with(|| torch.to_owned());
    }

    /// Returns the version of torch that ranks on a platform have reported; none if none has yet.
    fn torch_on(&self, platform: &str) -> Option<String> {
        let known = self.torch.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(platform).cloned()
    }

    /// Sends a notice about what the run waits for.
    fn notify(&self, notice: String) {
        if let Some(notices) = &self.settings.notices {
            // Without a reader the notice is dropped.
            let _ = notices.send(notice);
        }
    }

    /// Runs `work` to its end. None if the run is interrupted first; `work` is then dropped.
    async fn unless_interrupted<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut interrupted = self.interrupt.clone();
        tokio::select! {
            done = work => Some(done),
            () = interruption(&mut interrupted) => None,
        }
    }
}

/// Returns when the run is interrupted; never, if it is not.
async fn interruption(flag: &mut watch::Receiver<bool>) {
    if flag.wait_for(|set| *set).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Builds the tokio runtime that runs need. Two worker threads carry hundreds of ranks.
///
/// # Errors
/// Fails if threads cannot be made.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// What scenarios run in: one launcher, one budget, one set of expectations. It must be started inside [`runtime`]; its
/// zygote ends when the last clone is dropped.
#[derive(Clone)]
pub struct Session(Arc<Shared>);

impl Session {
    /// Makes the run's folder and the socket that ranks dial.
    ///
    /// # Errors
    /// Fails if no socket can be bound or the run's folder cannot be written.
    pub fn start(
        settings: Settings,
        expectations: Arc<Expectations>,
        interrupt: &Interrupt,
    ) -> std::io::Result<Self> {
        let logs = settings.out.join("logs");
        std::fs::create_dir_all(&logs)?;
        let launcher = match (&settings.nodes, &settings.launcher) {
            (Some(nodes), _) => Launcher::Nodes(Box::new(Nodes::listen(
                nodes.clone(),
                &settings.driver,
                settings.import_patience,
                settings.notices.clone(),
            )?)),
            (None, Some(launcher)) => Launcher::Local(Arc::clone(launcher)),
            (None, None) => Launcher::Local(Arc::new(LocalLauncher::new(
                settings.driver.clone(),
                settings.supervisor.clone(),
                logs.join(ZYGOTE_LOG),
                settings.import_patience,
            )?)),
        };
        // Each agent adds these variables to its own environment.
        let base_environment = match &launcher {
            Launcher::Local(_) => base_environment(),
            Launcher::Nodes(_) => BTreeMap::new(),
        };
        Ok(Self(Arc::new(Shared {
            budget: Arc::new(Budget::new(settings.ranks_at_once)),
            interrupt: interrupt.0.subscribe(),
            started: Instant::now(),
            base_environment,
            torch: Arc::default(),
            settings,
            expectations,
            launcher: Arc::new(launcher),
            worlds: WORLDS,
        })))
    }

    /// Makes a session that shares launcher and budget with this one, but has its own folder, interrupt, and limit of
    /// worlds for each scenario.
    ///
    /// # Errors
    /// Fails if the folder cannot be made.
    pub fn sibling(
        &self,
        out: PathBuf,
        worlds: u32,
        interrupt: &Interrupt,
    ) -> std::io::Result<Self> {
        std::fs::create_dir_all(out.join("logs"))?;
        let shared = &self.0;
        Ok(Self(Arc::new(Shared {
            settings: Settings {
                out,
                ..shared.settings.clone()
            },
            expectations: Arc::clone(&shared.expectations),
            launcher: Arc::clone(&shared.launcher),
            worlds,
            budget: Arc::clone(&shared.budget),
            interrupt: interrupt.0.subscribe(),
            started: Instant::now(),
            base_environment: shared.base_environment.clone(),
            torch: Arc::clone(&shared.torch),
        })))
    }

    /// Returns the first record of a run with the planned numbers of scenarios and checks.
    #[must_use]
    pub fn opening(&self, planned: Counts) -> RunRecord {
        let settings = &self.0.settings;
        RunRecord {
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
            planned,
            requirements: settings.requirements.clone(),
            absent: settings.absent.clone(),
            origin: settings.origin.clone().map(Box::new),
        }
    }

    /// Runs a scenario as soon as the budget allows. Returns one record for each check, in the order in which they were decided,
    /// then those of init, of teardown and of the scenario.
    pub async fn scenario(&self, scenario: Arc<Scenario>, round: u32) -> Vec<Record> {
        let permit = self.admit(&scenario).await;
        let (sender, mut receiver) = mpsc::unbounded_channel();
        // The scenario's record has the first of its issues, if there is no other failure.
        self.run_scenario(permit, scenario, round, sender).await;
        let mut records = Vec::new();
        while let Ok(record) = receiver.try_recv() {
            records.push(record);
        }
        records
    }

    /// Returns true if all checks of the scenario are recorded already, so that nothing is left to run.
    fn is_recorded(&self, scenario: &Scenario, round: u32) -> bool {
        let recorded = &self.0.settings.recorded;
        let ids = scenario.checks.iter().map(|check| &check.id);
        let is_recorded = |id: &CheckId| recorded.contains(&in_round(id, round));
        !recorded.is_empty()
            && scenario.frame_checks().iter().all(is_recorded)
            && ids.into_iter().all(is_recorded)
    }

    async fn admit(&self, scenario: &Scenario) -> Permit {
        let platform = &scenario.platform;
        let worlds = self.0.settings.worlds_per_device.get();
        let devices = scenario.devices.map(|present| Wanted {
            kind: &platform.device_type,
            present: present.saturating_mul(worlds),
            count: platform.devices_for(scenario.world_size),
        });
        self.0.budget.admit(Load::of(scenario), devices).await
    }

    /// Runs a scenario, and sends each of its records as soon as it is final. Returns the failures of the harness itself, one
    /// line each with the scenario's id.
    async fn run_scenario(
        &self,
        _permit: Permit,
        scenario: Arc<Scenario>,
        round: u32,
        records: mpsc::UnboundedSender<Record>,
    ) -> Vec<String> {
        let writer = RecordWriter::new(Arc::clone(&self.0), Arc::clone(&scenario), round, records);
        let writer = Arc::new(writer);
        let task = {
            let (shared, writer) = (Arc::clone(&self.0), Arc::clone(&writer));
            // On a thread of the runtime: the caller's may end before the run does.
            tokio::spawn(async move { scenario::run(&shared, &writer).await })
        };
        // A panic of the harness in one scenario becomes the result of that scenario; the others go on.
        let mut run = match task.await {
            Ok(run) => run,
            Err(error) => scenario::broken(&writer, &error.to_string()),
        };
        let issues: Vec<String> = std::mem::take(&mut run.issues);
        run.failure = run.failure.or_else(|| issues.first().cloned());
        writer.end(run);
        let issues = issues
            .iter()
            .map(|issue| format!("{}: {issue}", scenario.id));
        issues.collect()
    }
}

/// Runs the plan. Sends one run record, then the records of checks and scenarios; the caller writes the end record.
/// Returns the problems of the harness itself, one line each: with any, the results that were sent may be incomplete or
/// unreliable.
///
/// # Errors
/// Fails if no socket can be bound or the run's folder cannot be written.
pub async fn run(
    plan: Arc<Plan>,
    settings: Settings,
    expectations: Arc<Expectations>,
    interrupt: Interrupt,
    records: mpsc::UnboundedSender<Record>,
) -> std::io::Result<Vec<String>> {
    let rounds = settings.repeat;
    let session = Session::start(settings, expectations, &interrupt)?;
    let planned = Counts {
        scenarios: plan.scenarios.len() as u64 * u64::from(rounds),
        checks: plan.check_count() as u64 * u64::from(rounds),
    };
    // The receiver may be gone; the run goes on to its end all the same.
    let _ = records.send(Record::Run(session.opening(planned)));
    if let Launcher::Nodes(nodes) = &*session.0.launcher {
        // If not all come, every scenario says so.
        let _ = session.0.unless_interrupted(nodes.gather()).await;
    }
    let mut running = tokio::task::JoinSet::new();
    for queue in queues(&plan) {
        running.spawn(run_queue(session.clone(), queue, rounds, records.clone()));
    }
    let mut issues = Vec::new();
    while let Some(ended) = running.join_next().await {
        issues.extend(issues_of(ended));
    }
    if let Launcher::Nodes(nodes) = &*session.0.launcher {
        nodes.finish().await;
    }
    Ok(issues)
}

/// Returns the issues that a task reported, or one issue that says how the task panicked.
fn issues_of(ended: Result<Vec<String>, JoinError>) -> Vec<String> {
    ended.unwrap_or_else(|error| vec![format!("a part of the run broke off: {error}")])
}

async fn run_queue(
    session: Session,
    queue: Vec<Arc<Scenario>>,
    rounds: u32,
    records: mpsc::UnboundedSender<Record>,
) -> Vec<String> {
    let mut running = tokio::task::JoinSet::new();
    for round in 0..rounds {
        for scenario in &queue {
            if session.is_recorded(scenario, round) {
                continue;
            }
            // Before the task, so that scenarios start in the queue's order.
            let permit = session.admit(scenario).await;
            let (session, scenario, records) =
                (session.clone(), Arc::clone(scenario), records.clone());
            running
                .spawn(async move { session.run_scenario(permit, scenario, round, records).await });
        }
    }
    let mut issues = Vec::new();
    while let Some(ended) = running.join_next().await {
        issues.extend(issues_of(ended));
    }
    issues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_an_issue_with_its_message() {
        let ended = tokio::spawn(async { panic!("there is no rank {}", 7) }).await;
        let issues = issues_of(ended);
        assert_eq!(issues.len(), 1);
        assert!(issues[0].contains("there is no rank 7"), "{issues:?}");
        let issues = vec!["told".to_owned()];
        assert_eq!(issues_of(Ok(issues.clone())), issues);
    }
}
