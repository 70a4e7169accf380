//! The suite as `cargo test` shows it: one trial for each scenario of profile `core` (or of the profile that
//! `ALLRANKS_PROFILE` names) on every platform found here.
//!
//! Profile `simulated` runs besides on the suite's own simulated devices.
//!
//! What cannot run here, because there is no torch or no such device, is listed as ignored, with the reason on
//! standard error: one trial for each platform that is not here, one for each scenario that one here is too small for.
//! That is decided when trials are listed, never while they run: cargo-nextest counts a trial that ignores itself as
//! passed.
//!
//! `cargo test` runs all trials in one process, cargo-nextest each in a process of its own. Every process that runs
//! one leaves its results in a folder of its own below `target/allranks`, and `allranks merge` makes one report of
//! them.

use std::ffi::OsString;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use allranks::cli;
use allranks::cli::{Failure, PlanRequest, Planned, SelectArguments};
use allranks::conclusion;
use allranks_model::outcome::Verdict;
use allranks_model::record::{Counts, Record};
use allranks_report as report;
use allranks_report::Results;
use allranks_report::jsonl::Writer;
use allranks_runner::probe::IMPORT_PATIENCE;
use allranks_runner::run;
use allranks_runner::run::{Interrupt, Session, Settings};
use allranks_runner::world::Driver;
use allranks_suite::plan::Scenario;
use clap::Parser;
use libtest_mimic::{Arguments, Failed, Trial};

/// Where results go; the same place as those of `allranks run`.
const RESULTS: &str = "target/allranks";
/// What the folders of this program begin with.
const PREFIX: &str = "test-";
/// Platforms that are nowhere found, because they are made up: what is different on a device runs on them.
const SIMULATED: &str = "simxpu,simhpu,simnpu";
/// Runs whose folders are kept.
const KEPT: usize = 8;
/// Trials that are begun at once; all but a few of them wait until the session has room.
const TRIALS_AT_ONCE: usize = 256;
/// Checks that a failed trial describes; the others are in the results.
const STORIES: usize = 5;

/// The command line whose choices, all of them defaults except for the profile, decide what trials there are.
#[derive(Parser)]
struct Choice {
    #[command(flatten)]
    select: SelectArguments,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The session knows how many ranks may run at once; its trials mostly wait.
    arguments.test_threads.get_or_insert(TRIALS_AT_ONCE);
    match conformance(&arguments) {
        Ok(exit) => exit,
        Err(failure) => {
            let _ = failure.explain(&mut io::stderr());
            ExitCode::from(2)
        }
    }
}

fn conformance(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // The checkout's own cases, .venv and target; cargo starts tests in the package's folder.
    std::env::set_current_dir(checkout())?;
    let profile = std::env::var_os("ALLRANKS_PROFILE").unwrap_or_else(|| "core".into());
    let words = [OsString::from("conformance"), "--profile".into(), profile];
    let select = Choice::parse_from(words).select;
    let scratch = tempfile::tempdir()?;
    let mut planned = PlanRequest::new(&select, scratch.path())?.probe_and_plan(&mut io::stderr());
    let mut trials = ignored(&planned);
    // Nextest names the one trial it wants: importing torch for the others would take longer than the trial.
    let may_be_simulated = |name: &String| !arguments.exact || name.contains("@sim");
    if arguments.filter.iter().all(may_be_simulated) {
        let words = [
            "conformance",
            "--profile",
            "simulated",
            "--platform",
            SIMULATED,
        ];
        let simulated = Choice::parse_from(words).select;
        let simulated =
            PlanRequest::new(&simulated, scratch.path())?.probe_and_plan(&mut io::stderr());
        trials.extend(ignored(&simulated));
        planned.plan.scenarios.extend(simulated.plan.scenarios);
    }
    let is_wanted = |scenario: &Scenario| {
        // Under nextest, which starts one process for each trial, only that trial is made.
        let name = Trial::test(scenario.id.as_str(), || Ok(()));
        !arguments.is_filtered_out(&name)
    };
    planned.plan.scenarios.retain(is_wanted);
    if !arguments.list {
        cli::check_inputs(&planned.plan, select.seed)?;
    }
    let counts = Counts {
        scenarios: planned.plan.scenarios.len() as u64,
        checks: planned.plan.check_count() as u64,
    };
    let scenarios = run::in_starting_order(std::mem::take(&mut planned.plan.scenarios));
    let run = Arc::new(Run {
        planned,
        counts,
        seed: select.seed,
        folder: folder(),
        live: OnceLock::new(),
    });
    trials.extend(scenarios.into_iter().map(|scenario| {
        let run = Arc::clone(&run);
        let name = scenario.id.to_string();
        Trial::test(name, move || run.scenario(scenario))
    }));

    let conclusion = libtest_mimic::run(arguments, trials);
    let closed = run.close();
    if let Err(error) = &closed {
        tell(&format!("error: {error}"));
    }
    Ok(match closed {
        Ok(()) => conclusion.exit_code(),
        Err(_) => ExitCode::from(conclusion::Exit::HarnessFailed as u8),
    })
}

/// The workspace. Nextest moves archives between machines and says where the package is then.
fn checkout() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.join("..")
}

/// Trials of what cannot run here, and one line for each reason.
fn ignored(planned: &Planned) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut ignore = |name: &str, reason: &str| {
        let reason = reason.to_owned();
        let trial = Trial::test(name, move || Err(Failed::from(reason)));
        trials.push(trial.with_kind("not run").with_ignored_flag(true));
    };
    for (absent, plan) in planned.absent.iter().zip(planned.not_run()) {
        if plan.scenarios.is_empty() {
            continue;
        }
        let what = format!("{}.{}", absent.platform.name, absent.backends.join("+"));
        ignore(&format!("platform@{what}"), &absent.reason);
        tell(&format!(
            "not run: {} scenarios of {what}: {}",
            plan.scenarios.len(),
            absent.reason,
        ));
    }
    for (id, reason) in &planned.plan.too_large {
        ignore(id.as_str(), reason);
        tell(&format!("not run: {id}: {reason}"));
    }
    trials
}

#[expect(
    clippy::print_stderr,
    reason = "this is a program; its output is the test runner's"
)]
fn tell(line: &str) {
    eprintln!("{line}");
}

/// What the trials of this process share: made by the first that runs, so that listing leaves nothing behind.
struct Run {
    planned: Planned,
    counts: Counts,
    seed: u64,
    folder: PathBuf,
    live: OnceLock<Result<Live, String>>,
}

/// A run that has begun.
struct Live {
    runtime: tokio::runtime::Runtime,
    session: Session,
    recorded: Mutex<Recorded>,
}

/// Everything recorded so far, in memory and on disk.
struct Recorded {
    results: Results,
    writer: Writer,
}

impl Run {
    fn begin(&self) -> io::Result<Live> {
        let folder = &self.folder;
        forget_old_runs(Path::new(RESULTS))?;
        std::fs::create_dir_all(folder)?;
        let python = self.planned.python.as_ref();
        let python = python.map_or(Path::new("python3"), |python| &python.path);
        let settings = Settings {
            out: folder.clone(),
            seed: self.seed,
            ranks_at_once: cli::ranks_at_once(),
            worlds_per_device: NonZeroU32::MIN,
            repeat: 1,
            driver: Driver::python(python, folder)?,
            launcher: None,
            supervisor: Some(env!("CARGO_BIN_EXE_allranks").into()),
            import_patience: IMPORT_PATIENCE,
            shrinking: run::SHRINKING,
            nodes: None,
            launcher_options: Vec::new(),
            notices: None,
            profile: self.planned.profile().map(str::to_owned),
            arguments: std::env::args().skip(1).collect(),
            requirements: self.planned.sentences(),
            absent: self.planned.absences(),
            origin: None,
            recorded: Arc::default(),
        };
        let expectations = Arc::clone(&self.planned.suite.expectations);
        let runtime = run::runtime()?;
        let session = {
            let _inside = runtime.enter();
            Session::start(settings, expectations, &Interrupt::default())?
        };
        let opening = session.opening(self.counts);
        let mut writer = Writer::create(folder)?;
        writer.append(&Record::Run(opening.clone()))?;
        let results = Results::new(folder.clone(), opening);
        Ok(Live {
            runtime,
            session,
            recorded: Mutex::new(Recorded { results, writer }),
        })
    }

    /// Runs one scenario. Passes if every check has the verdict it should have.
    fn scenario(&self, scenario: Scenario) -> Result<(), Failed> {
        let live = self
            .live
            .get_or_init(|| self.begin().map_err(|error| error.to_string()))
            .as_ref()?;
        let records = live
            .runtime
            .block_on(live.session.scenario(Arc::new(scenario), 0));
        let story = failures(live, &records);
        let mut recorded = live.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        for record in records {
            recorded.writer.append(&record)?;
            recorded.results.push(record);
        }
        if story.is_empty() {
            Ok(())
        } else {
            Err(Failed::from(story))
        }
    }

    /// Writes the last record and, if this process had several trials, the reports; of nextest's many processes,
    /// `allranks merge` makes one.
    fn close(&self) -> io::Result<()> {
        let Some(Ok(live)) = self.live.get() else {
            return Ok(());
        };
        let mut recorded = live.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Record::End(conclusion::end_record(&recorded.results, &[]));
        recorded.writer.append(&end)?;
        recorded.results.push(end);
        let folder = &self.folder;
        std::fs::remove_dir_all(folder.join("driver"))?;
        recorded.results.arrange();
        if nextest_run().is_none() {
            let paths = report::write_all(folder, &recorded.results)?;
            tell(&format!("report: {}", paths[0].display()));
        }
        Ok(())
    }
}

/// The stories of the checks that must not be as they are, as the console tells them; empty if there are none.
fn failures(live: &Live, records: &[Record]) -> String {
    let recorded = live.recorded.lock().unwrap_or_else(PoisonError::into_inner);
    let scenario = records.iter().find_map(|record| match record {
        Record::Scenario(scenario) => Some(&**scenario),
        _ => None,
    });
    let bad: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::Check(check) if !is_fine(check.verdict) => Some(check),
            _ => None,
        })
        .collect();
    let mut text = String::new();
    for check in bad.iter().take(STORIES) {
        text.push_str(&format!("{}\n", check.id));
        for line in report::details(&recorded.results.run, scenario, check) {
            text.push_str(&format!("  {:>8}  {}\n", line.label, line.text));
        }
    }
    if bad.len() > STORIES {
        let more = bad.len() - STORIES;
        let folder = recorded.results.folder.display();
        text.push_str(&format!("and {more} more checks, in {folder}\n"));
    }
    text
}

fn is_fine(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Expected | Verdict::KnownFailure | Verdict::Waived => true,
        Verdict::Regression | Verdict::UnexpectedPass | Verdict::NotRun => false,
    }
}

/// The id that all processes of one nextest run share.
fn nextest_run() -> Option<String> {
    std::env::var("NEXTEST_RUN_ID").ok()
}

/// The folder that `ALLRANKS_CONFORMANCE` names; without it `target/allranks/test-TIME-PID`, and
/// `target/allranks/test-RUN/TIME-PID` under nextest.
fn folder() -> PathBuf {
    if let Some(named) = std::env::var_os("ALLRANKS_CONFORMANCE") {
        return named.into();
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let process = format!("{now}-{}", std::process::id());
    let name = match nextest_run() {
        Some(run) => format!("{PREFIX}{run}/{process}"),
        None => format!("{PREFIX}{process}"),
    };
    Path::new(RESULTS).join(name)
}

/// Removes the oldest folders of this program, so that at most [`KEPT`] runs take up space.
fn forget_old_runs(folder: &Path) -> io::Result<()> {
    let mut runs: Vec<(SystemTime, PathBuf)> = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            // One that vanishes meanwhile was another process's to forget.
            runs.extend(
                entry
                    .metadata()
                    .and_then(|data| data.modified())
                    .map(|time| (time, entry.path())),
            );
        }
    }
    runs.sort();
    let surplus = runs.len().saturating_sub(KEPT - 1);
    for (_, run) in runs.into_iter().take(surplus) {
        match std::fs::remove_dir_all(run) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
