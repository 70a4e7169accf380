//! One scenario: its first world, and a fresh one each time a world is lost, until every check has its finding.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::Shared;
use super::findings::Findings;
use super::program;
use super::recording::Recorder;
use super::setup::{Beginning, Endpoint, SPARE, device, environment, lease};
use super::shrink::shrink;
use super::story::RankStory;
use super::world::{Decided, WorldPlan, WorldResult, WorldRunner};
use crate::check_result::CheckResult;
use crate::world::{Device, LaunchError, LaunchSpec, RankLaunchSpec, lease_port};
use allranks_model::outcome::Outcome;
use allranks_model::record::INTERRUPTED;
use allranks_suite::case::Starts;
use allranks_suite::expectation::NO_WORLD;
use allranks_suite::plan::Scenario;

/// Bytes kept of the beginning of a rank's log, and of its end.
const LOG_HEAD: u64 = 1 << 20;
const LOG_TAIL: u64 = 3 << 20;

/// Everything that came of a scenario besides the findings of its checks, which are written as they are decided.
pub struct ScenarioRun {
    /// Of every rank's initialisation.
    pub init: CheckResult,
    /// Of the teardown.
    pub end: CheckResult,
    /// Why worlds were lost, or why it did not run.
    pub trouble: Option<String>,
    /// What the harness failed at, whatever the findings say.
    pub issues: Vec<String>,
    /// The ranks of the last world.
    pub ranks: Vec<RankStory>,
    /// Logs of the ranks, relative to the run's folder.
    pub logs: Vec<PathBuf>,
    /// Worlds started.
    pub worlds: u32,
    /// Worlds lost, apart from those that a script gives up and those that a known failure takes with it.
    lost: u32,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
}

impl ScenarioRun {
    fn new(scenario: &Scenario, round: u32) -> Self {
        let folder = log_folder(scenario, round);
        Self {
            init: CheckResult::not_run("it was not started"),
            end: CheckResult::not_run("it was not started"),
            trouble: None,
            issues: Vec::new(),
            ranks: Vec::new(),
            logs: scenario
                .world_size
                .ranks()
                .map(|rank| folder.join(format!("rank{rank}.log")))
                .collect(),
            worlds: 0,
            lost: 0,
            began: Instant::now(),
            ended: Instant::now(),
        }
    }
}

/// The run of a scenario in which the harness itself broke. Its checks that are not written are not run.
pub fn broken(recorder: &Arc<Recorder>, why: &str) -> ScenarioRun {
    let mut run = ScenarioRun::new(recorder.scenario(), recorder.round());
    run.init = CheckResult::bare(Outcome::HarnessError, None, why);
    give_up(&mut run, &mut Findings::new(Arc::clone(recorder)), why);
    run
}

/// Runs it, and writes the findings of its checks. Never fails: what goes wrong is a finding.
pub async fn run(shared: &Shared, recorder: &Arc<Recorder>) -> ScenarioRun {
    let (scenario, round) = (recorder.scenario(), recorder.round());
    let mut run = ScenarioRun::new(scenario, round);
    let mut findings = Findings::new(Arc::clone(recorder));
    if let Some(program) = &scenario.case.program {
        return program::run(shared, scenario, program, (run, findings)).await;
    }
    let mut initialised = false;
    loop {
        if *shared.interrupt.borrow() {
            give_up(&mut run, &mut findings, INTERRUPTED);
            break;
        }
        if run.lost == shared.worlds {
            let why = format!("gave up after {} worlds were lost", run.lost);
            give_up(&mut run, &mut findings, &why);
            break;
        }
        run.worlds += 1;
        let todo = findings.open();
        let mut decided =
            |ranks: &[RankStory], index, finding| findings.take(ranks, index, finding);
        let result = match world(shared, scenario, todo, &run.logs, &mut decided).await {
            Ok(Some(result)) => result,
            Ok(None) => continue,
            Err(error) => {
                let finding = CheckResult::bare(Outcome::HarnessError, None, error.to_string());
                if initialised {
                    run.end = finding;
                } else {
                    run.init = finding;
                }
                give_up(&mut run, &mut findings, &error.to_string());
                break;
            }
        };
        run.issues.extend(cut(shared, &run.logs));
        let interrupted = *shared.interrupt.borrow();
        recorder.learn(&result.ranks);
        if result.lost.is_some() && !is_known_loss(recorder, &result) {
            run.lost += 1;
        }
        absorb(&mut run, result, &mut initialised);
        if run.init.outcome != Outcome::Pass {
            let why = match run.init.outcome {
                _ if interrupted => INTERRUPTED.to_owned(),
                Outcome::NotRun => run.init.summary.clone(),
                _ => NO_WORLD.to_owned(),
            };
            give_up(&mut run, &mut findings, &why);
            break;
        }
        if findings.open().is_empty() && run.end.outcome != Outcome::NotRun {
            break;
        }
    }
    shrink_failures(shared, scenario, round, &mut findings).await;
    run.ended = Instant::now();
    run
}

/// Random sequences that failed, and are not known to, are cut down.
async fn shrink_failures(
    shared: &Shared,
    scenario: &Scenario,
    round: u32,
    findings: &mut Findings,
) {
    let logs = log_folder(scenario, round).join("shrinking");
    for (index, finding) in findings.take_to_shrink() {
        let finding = shrink(shared, scenario, index, finding, &logs).await;
        findings.settle(index, finding);
    }
}

/// Whether a known failure took the world with it.
fn is_known_loss(recorder: &Recorder, result: &WorldResult) -> bool {
    let last = result.farthest;
    last.is_some_and(|(index, outcome)| recorder.is_expected(index, outcome))
}

/// Adds what a world showed. The first world speaks for init; a later one only if it fails to initialise, for then
/// the checks that are left have no world.
fn absorb(run: &mut ScenarioRun, result: WorldResult, initialised: &mut bool) {
    if let Some(init) = result.init
        && (!*initialised || init.outcome != Outcome::Pass)
    {
        *initialised = init.outcome == Outcome::Pass;
        run.init = init;
    }
    // A bad end of one world is not made good by the next.
    if let Some(end) = result.end
        && matches!(run.end.outcome, Outcome::NotRun | Outcome::Pass)
    {
        run.end = end;
    }
    if let Some(lost) = result.lost {
        run.trouble = Some(lost);
    }
    run.ranks = result.ranks;
}

/// Everything without a finding is not run.
pub(super) fn give_up(run: &mut ScenarioRun, findings: &mut Findings, why: &str) {
    run.trouble.get_or_insert_with(|| why.to_owned());
    findings.give_up(why);
    for finding in [&mut run.init, &mut run.end] {
        if finding.outcome == Outcome::NotRun {
            *finding = CheckResult::not_run(why);
        }
    }
}

/// Starts one world and makes the checks at these places; none if the run is interrupted before there is a world. `logs`: of
/// each rank, relative to the run's folder. `decided` is given the finding of each check that the world gets to.
pub(super) async fn world(
    shared: &Shared,
    scenario: &Scenario,
    todo: Vec<usize>,
    logs: &[PathBuf],
    decided: &mut Decided<'_>,
) -> Result<Option<WorldResult>, LaunchError> {
    let size = scenario.world_size;
    let wanted = |_: &[Device]| scenario.platform.devices_for(size);
    let Some(devices) = lease(shared, scenario, wanted).await? else {
        return Ok(None);
    };
    let port = lease_port()?;
    let scratch = tempfile::Builder::new()
        .prefix("allranks-")
        .tempdir_in(&shared.settings.out)?;
    let spare = match scenario.case.world.starts {
        Starts::Initialised => Vec::new(),
        Starts::Bare => (0..SPARE)
            .map(|_| lease_port())
            .collect::<Result<Vec<_>, _>>()?,
    };
    let at = Endpoint {
        port: port.port,
        file: scratch.path().join("store").to_string_lossy().into_owned(),
        spare: spare.iter().map(|lease| lease.port).collect(),
    };
    if let Some(folder) = logs.first().and_then(|log| log.parent()) {
        std::fs::create_dir_all(shared.settings.out.join(folder))?;
    }
    let order = LaunchSpec {
        start: scenario.platform.start,
        modules: match scenario.checks.iter().any(|check| check.stack().is_some()) {
            true => allranks_model::stack::MODULES,
            false => &[],
        },
        ranks: size
            .ranks()
            .map(|rank| RankLaunchSpec {
                env: environment(
                    scenario,
                    &at,
                    &shared.base_environment,
                    devices.devices(),
                    rank,
                ),
                log: absolute(shared, &logs[rank.index()]),
            })
            .collect(),
    };
    let beginnings = size
        .ranks()
        .map(|rank| {
            let device = device(scenario, devices.devices(), rank);
            Beginning::new(scenario, &at, &device, rank)
        })
        .collect();
    let launched = shared.launcher.launch(order);
    let Some(world) = shared.unless_interrupted(launched).await.transpose()? else {
        return Ok(None);
    };
    let plan = WorldPlan {
        scenario,
        checks: todo,
        beginnings,
        points: at.points(),
        expectations: &shared.expectations,
        seed: shared.settings.seed,
        import_patience: shared.settings.import_patience,
    };
    let runner = WorldRunner::new(plan, world, shared.interrupt.clone());
    Ok(Some(runner.run(decided).await))
}

/// Cuts the logs of a world's ranks, relative to the run's folder; a line for each that cannot be cut.
pub(super) fn cut(shared: &Shared, logs: &[PathBuf]) -> Vec<String> {
    let cannot = |log: &PathBuf| {
        let error = cap(&shared.settings.out.join(log)).err()?;
        Some(format!("cannot cut {}: {error}", log.display()))
    };
    logs.iter().filter_map(cannot).collect()
}

/// Cuts what is too much out of the middle of a log that a rank has flooded.
fn cap(log: &Path) -> io::Result<()> {
    let Ok(mut file) = File::options().read(true).write(true).open(log) else {
        // A rank that never started has none.
        return Ok(());
    };
    let length = file.metadata()?.len();
    if length <= LOG_HEAD + LOG_TAIL {
        return Ok(());
    }
    let mut tail = Vec::new();
    file.seek(SeekFrom::End(-(LOG_TAIL as i64)))?;
    file.read_to_end(&mut tail)?;
    let cut = length - LOG_HEAD - LOG_TAIL;
    file.set_len(LOG_HEAD)?;
    file.seek(SeekFrom::End(0))?;
    write!(file, "\n[allranks cut {cut} bytes out of here]\n")?;
    file.write_all(&tail)
}

pub(super) fn absolute(shared: &Shared, log: &Path) -> PathBuf {
    let path = shared.settings.out.join(log);
    std::path::absolute(&path).unwrap_or(path)
}

/// `logs/SCENARIO`, with the id's slashes made harmless.
fn log_folder(scenario: &Scenario, round: u32) -> PathBuf {
    let mut name = scenario.id.as_str().replace('/', "_");
    if round > 0 {
        name.push_str(&format!(".round{}", round + 1));
    }
    PathBuf::from("logs").join(name)
}
