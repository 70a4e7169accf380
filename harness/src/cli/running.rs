//! `allranks run`: plans and runs checks, shows progress, writes results and reports, and decides the exit code.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressDrawTarget;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::args::RunArguments;
use super::command_line::without_secrets;
use super::earlier::{EarlierRun, ReusedRecords};
use super::files_of_run::FilesOfRun;
use super::fleet::FleetRequest;
use super::planning::{self, PlanRequest, Planned};
use super::rank_limits::{open_files, ranks_at_once, ranks_within};
use super::required::unmet;
use super::select_arguments::DriverChoice;
use super::signals::{incomplete_at_signal, listen_for_signals};
use super::until_closed::UntilClosed;
use super::{Failure, environment, origin, plan_text, run_folder};
use crate::conclusion::{Exit, RunIssue, end_record, exit};
use allranks_model::record::Record;
use allranks_report::check_set::CheckSet;
use allranks_report::console::{Console, Progress};
use allranks_report::jsonl::Writer;
use allranks_report::{PackedResults, Results};
use allranks_runner::probe::Interpreter;
use allranks_runner::run;
use allranks_runner::run::{Capacity, Interrupt, Settings};
use allranks_runner::world::node::NodesSettings;
use allranks_runner::world::{Driver, ForkedInterpreter, LocalLauncher};
use allranks_suite::expectation::{Expectations, Point};
use allranks_suite::plan::{Plan, Scenario};

/// The period at which the progress line is refreshed while nothing happens.
const REFRESH_PERIOD: Duration = Duration::from_millis(200);

/// Runs the plan that the arguments select, and writes results and reports.
pub fn run(
    arguments: &RunArguments,
    words: Vec<String>,
    out: &mut (impl Write + Send),
    err: &mut (impl Write + Send),
) -> Result<Exit, Failure> {
    let folder = run_folder::make_run_folder(arguments.out.as_deref())?;
    execute_in(&folder, arguments, words, None, out, err)
}

/// Runs a plan in a folder, and takes over the records of an earlier run.
pub(super) fn execute_in(
    folder: &Path,
    arguments: &RunArguments,
    words: Vec<String>,
    earlier: Option<EarlierRun>,
    out: &mut (impl Write + Send),
    err: &mut (impl Write + Send),
) -> Result<Exit, Failure> {
    let folder = folder.to_owned();
    // Dropped after the runtime, when the processes that use the files have ended.
    let mut files = FilesOfRun::made_in(&folder)?;
    let most_ranks = ranks_within(open_files())?;
    let plan_request = PlanRequest::new(&arguments.select, &folder)?;
    planning::write_origin(&plan_request.suite, err)?;
    let patience = arguments.select.import_patience();
    let driver = driver(
        arguments.select.driver.as_ref(),
        plan_request.python.as_ref(),
        &folder,
    )?;
    let supervisor = std::env::current_exe().ok();
    let runtime = run::runtime()?;
    let launcher = {
        let _inside = runtime.enter();
        let log = folder.join("logs").join(run::ZYGOTE_LOG);
        Arc::new(LocalLauncher::new(
            driver.clone(),
            supervisor.clone(),
            log,
            patience,
        )?)
    };
    let forked = matches!(driver, Driver::Python { .. })
        .then(|| ForkedInterpreter::new(Arc::clone(&launcher), runtime.handle().clone()));
    let preparing = incomplete_at_signal(&runtime);
    let machine =
        environment::start_collecting(plan_request.python.clone(), patience, forked.clone());
    let planned = (plan_request.with_forked_interpreter(forked)).probe_and_plan(err);
    // Joined here, so that its processes do not outlive a run that ends early.
    let facts = machine.join().map_err(|_| {
        Failure::Harness("collecting the facts of this machine panicked".to_owned())
    })?;
    if planned.plan.scenarios.is_empty() {
        return nothing_to_run(arguments, &planned, err);
    }
    planning::check_inputs(&planned.plan, arguments.select.seed)?;
    plan_text::write_absent(&planned, err)?;
    plan_text::write_too_large(&planned, err)?;
    let reused = match earlier {
        Some(earlier) => earlier.reused(&planned, arguments.repeat, &folder)?,
        None => ReusedRecords::default(),
    };
    environment::write(&folder, &planned, &facts)?;
    let origin = origin::complete(
        origin::of(&planned, &folder),
        &driver,
        &arguments.select.request(),
        &folder,
    )?;
    let nodes = nodes(arguments, &planned, &folder)?;
    let settings = Settings {
        driver,
        // With node agents no rank is started here, so the launcher that served the probes ends.
        launcher: nodes.is_none().then_some(launcher),
        seed: arguments.select.seed,
        ranks_at_once: arguments
            .ranks_at_once
            .map_or_else(ranks_at_once, |ranks| Capacity::of(ranks as usize))
            .within(most_ranks),
        worlds_per_device: arguments.worlds_per_device,
        repeat: arguments.repeat,
        supervisor,
        import_patience: patience,
        shrinking: run::SHRINKING,
        profile: planned.profile().map(str::to_owned),
        arguments: without_secrets(words),
        requirements: planned.sentences(),
        absent: planned.absences(),
        origin: Some(origin),
        recorded: Arc::new(reused.recorded.clone()),
        nodes,
        launcher_options: arguments.select.fleet.words(),
        notices: None,
        out: folder.clone(),
    };
    files.keep();
    preparing.abort();
    let (results, issues) = execute(&runtime, planned, settings, arguments, reused, err)?;
    finish(results, &issues, out)
}

/// Ends a run whose plan is empty: incomplete if a required platform is missing.
fn nothing_to_run(
    arguments: &RunArguments,
    planned: &Planned,
    err: &mut impl Write,
) -> Result<Exit, Failure> {
    match unmet(&arguments.select.require, planned).first() {
        None => Err(planning::empty_plan(planned)),
        Some(missing) => {
            writeln!(err, "error: {missing}")?;
            Ok(Exit::Incomplete)
        }
    }
}

/// Returns the settings of the node agents; `None` if no scenario's ranks are started by agents.
fn nodes(
    arguments: &RunArguments,
    planned: &Planned,
    folder: &Path,
) -> Result<Option<NodesSettings>, Failure> {
    // The ranks of a case that is a program have no agents.
    let has_agents = |scenario: &Scenario| scenario.case.program.is_none();
    let request = FleetRequest::of(&arguments.select.fleet)?;
    let request = request.filter(|_| planned.plan.scenarios.iter().any(has_agents));
    let settings = request.map(|request| request.settings(&arguments.listening, folder));
    settings.transpose()
}

fn driver(
    choice: Option<&DriverChoice>,
    python: Option<&Interpreter>,
    folder: &Path,
) -> Result<Driver, Failure> {
    Ok(match (choice, python) {
        (Some(DriverChoice::Libtorch), _) => Driver::Libtorch(planning::libtorch()?),
        (Some(DriverChoice::Command(argv)), _) => Driver::Command(argv.clone()),
        (None | Some(DriverChoice::Python | DriverChoice::Program), Some(python)) => {
            Driver::python(&python.path, folder)?
        }
        (None | Some(DriverChoice::Python | DriverChoice::Program), None) => {
            unreachable!("the Python driver has its interpreter")
        }
    })
}

type Finished = (PackedResults, Vec<RunIssue>);

/// Keeps the records of a run: appends them to its file, and holds them in memory for the reports.
struct RunRecords {
    writer: Writer,
    /// The run's folder.
    folder: PathBuf,
    /// The results; `None` until the first record.
    results: Option<PackedResults>,
    /// The error of the last write. After an error nothing more is written.
    unwritable: Option<RunIssue>,
    interrupt: Interrupt,
}

impl RunRecords {
    /// Adds a record. If the file cannot be written, the run is interrupted.
    fn add(&mut self, record: Record) {
        if self.unwritable.is_none()
            && let Err(error) = self.writer.append(&record)
        {
            self.unwritable = Some(RunIssue::unwritable(&error));
            self.interrupt.set();
        }
        match (&mut self.results, record) {
            (None, Record::Run(run)) => {
                self.results = Some(PackedResults::begin(self.folder.clone(), run));
            }
            (Some(results), record) => results.push(record),
            (None, _) => {}
        }
    }
}

/// Runs the plan, shows its progress and keeps its records.
fn execute(
    runtime: &Runtime,
    planned: Planned,
    mut settings: Settings,
    arguments: &RunArguments,
    reused: ReusedRecords,
    err: &mut (impl Write + Send),
) -> Result<Finished, Failure> {
    let mut issues: Vec<RunIssue> = unmet(&arguments.select.require, &planned)
        .into_iter()
        .map(RunIssue::Missing)
        .collect();
    let whole = arguments.select.has_every_check(planned.profile());
    let expectations = Arc::clone(&planned.suite.expectations);
    let plan = Arc::new(planned.plan);
    let progress = if io::stderr().is_terminal() {
        Progress::Bar(ProgressDrawTarget::stderr())
    } else {
        Progress::Lines(Box::new(UntilClosed::new(anstream::stderr())))
    };
    let titles = planned
        .suite
        .cases
        .iter()
        .map(|case| (case.id.clone(), case.title.clone()));
    let mut console = Console::new(&mut *err, progress).titles(titles);
    let interrupt = Interrupt::default();
    let mut run_records = RunRecords {
        writer: Writer::create(&settings.out)?,
        folder: settings.out.clone(),
        results: None,
        unwritable: None,
        interrupt: interrupt.clone(),
    };
    runtime.spawn(listen_for_signals(interrupt.clone()));
    let (sender, mut records) = mpsc::unbounded_channel();
    let (notices, mut noticed) = mpsc::unbounded_channel();
    settings.notices = Some(notices);
    if !reused.recorded.is_empty() {
        let kept = reused.recorded.len();
        console.note(&format!(
            "{kept} checks keep the results of the earlier run"
        ))?;
    }
    let running = runtime.spawn(run::run(
        Arc::clone(&plan),
        settings,
        Arc::clone(&expectations),
        interrupt.clone(),
        sender,
    ));
    runtime.block_on(follow(
        &mut records,
        &mut noticed,
        reused,
        &mut console,
        &mut run_records,
    ))?;
    issues.extend(run_records.unwritable.take());
    let ended = runtime.block_on(running);
    console.finish();
    drop(console);
    match ended {
        Ok(Ok(failures)) => issues.extend(failures.into_iter().map(RunIssue::Harness)),
        Ok(Err(error)) => return Err(error.into()),
        Err(error) => return Err(Failure::Harness(format!("the run panicked: {error}"))),
    }
    conclude(
        run_records,
        issues,
        &plan,
        &expectations,
        whole,
        interrupt.is_set(),
    )
}

/// Adds the last issues and the end record of a run that has ended. `is_whole`: the run had every check of the suite.
fn conclude(
    mut run_records: RunRecords,
    mut issues: Vec<RunIssue>,
    plan: &Plan,
    expectations: &Expectations,
    is_whole: bool,
    is_interrupted: bool,
) -> Result<Finished, Failure> {
    let Some(mut results) = run_records.results else {
        return Err(Failure::Harness(
            "the run ended without a record".to_owned(),
        ));
    };
    results.arrange();
    let failed_to_write = issues
        .iter()
        .any(|issue| matches!(issue, RunIssue::Unwritable(_)));
    if is_interrupted && !failed_to_write {
        issues.push(RunIssue::Interrupted);
    }
    issues.extend(RunIssue::expired(expectations));
    if is_whole {
        issues.extend(stale(expectations, plan, &results));
    }
    let end = end_record(&results, &issues);
    if !failed_to_write && let Err(error) = run_records.writer.append(&Record::End(end.clone())) {
        issues.push(RunIssue::unwritable(&error));
    }
    results.push(Record::End(end));
    Ok((results, issues))
}

/// Shows the records and notices of a run and keeps the records, until the run ends.
async fn follow<W: Write>(
    records: &mut mpsc::UnboundedReceiver<Record>,
    notices: &mut mpsc::UnboundedReceiver<String>,
    mut reused: ReusedRecords,
    console: &mut Console<'_, W>,
    run_records: &mut RunRecords,
) -> io::Result<()> {
    let mut shown = BTreeSet::new();
    loop {
        while let Ok(notice) = notices.try_recv() {
            // Many worlds may give the same notice.
            if shown.insert(notice.clone()) {
                console.note(&notice)?;
            }
        }
        match tokio::time::timeout(REFRESH_PERIOD, records.recv()).await {
            Err(_) => console.tick()?,
            Ok(None) => return Ok(()),
            Ok(Some(mut record)) => {
                reused.amend(&mut record);
                console.record(&record)?;
                let kept = match &record {
                    Record::Run(_) => std::mem::take(&mut reused.records),
                    Record::Scenario(_) | Record::Check(_) | Record::End(_) => Vec::new(),
                };
                for record in std::iter::once(record).chain(kept) {
                    run_records.add(record);
                }
            }
        }
    }
}

/// Returns an issue for each expectation that matches no check of a whole run.
fn stale<C: CheckSet>(
    expectations: &Expectations,
    plan: &Plan,
    results: &Results<C>,
) -> Vec<RunIssue> {
    let torch = results
        .columns()
        .first()
        .map_or(String::new(), |column| column.torch.clone());
    let scenarios = plan.scenarios.iter();
    let points = scenarios.flat_map(|scenario| Point::all_of(scenario, &torch));
    expectations
        .stale(points)
        .into_iter()
        .map(|entry| RunIssue::Stale(entry.at.clone()))
        .collect()
}

/// Writes the reports and the summary.
fn finish<C: CheckSet>(
    results: Results<C>,
    issues: &[RunIssue],
    out: &mut impl Write,
) -> Result<Exit, Failure> {
    let folder: PathBuf = results.folder.clone();
    let exit = exit(&results, issues);
    super::results::render(&folder, &results, out)?;
    Ok(exit)
}
