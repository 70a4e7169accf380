//! Runs one scenario: a first world, and another one each time a world is lost, until every check has its result.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::Shared;
use super::program;
use super::recording::{is_expected, torch_of};
use super::setup::{Beginning, Endpoint, SPARE, device, environment, lease};
use super::shrink::shrink;
use super::story::RankStory;
use super::world::{WorldPlan, WorldResult, WorldRunner};
use crate::check_result::CheckResult;
use crate::world::{Device, LaunchError, LaunchSpec, RankLaunchSpec, lease_port};
use allranks_model::outcome::Outcome;
use allranks_suite::case::Starts;
use allranks_suite::expectation::{FAILED_TWICE, NO_WORLD, Point};
use allranks_suite::plan::Scenario;

/// Bytes that are kept of a rank's log: of its beginning, and of its end.
const LOG_HEAD: u64 = 1 << 20;
const LOG_TAIL: u64 = 3 << 20;

/// Everything that came of a scenario.
pub struct ScenarioRun {
    /// Result of the check `init`.
    pub init: CheckResult,
    /// Results of the checks, by index; none until a world has decided the check.
    pub checks: Vec<Option<CheckResult>>,
    /// First failures of checks that are known to fail only sometimes, by index. Each such check is tried once more.
    first_failures: BTreeMap<usize, CheckResult>,
    /// Result of the check `teardown`.
    pub end: CheckResult,
    /// Why the last lost world was lost, or why the scenario did not run; none if neither happened.
    pub trouble: Option<String>,
    /// Problems of the harness itself, whatever the check results say.
    pub issues: Vec<String>,
    /// What is known of the ranks of the last world.
    pub ranks: Vec<RankStory>,
    /// Logs of the ranks, relative to the run's folder.
    pub logs: Vec<PathBuf>,
    /// Number of worlds started.
    pub worlds: u32,
    /// Number of worlds lost, without those that a script gives up and those that a known failure ends.
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
            init: not_run("it was not started"),
            checks: vec![None; scenario.checks.len()],
            first_failures: BTreeMap::new(),
            end: not_run("it was not started"),
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

/// Returns the run of a scenario in which the harness itself failed: `init` is a harness error, everything else not
/// run.
pub fn broken(scenario: &Scenario, round: u32, why: &str) -> ScenarioRun {
    let mut run = ScenarioRun::new(scenario, round);
    run.init = CheckResult::bare(Outcome::HarnessError, None, why);
    give_up(&mut run, why);
    run
}

/// Runs the scenario. Never fails: every problem becomes a check result or an issue.
pub async fn run(shared: &Shared, scenario: &Scenario, round: u32) -> ScenarioRun {
    let mut run = ScenarioRun::new(scenario, round);
    if let Some(program) = &scenario.case.program {
        return program::run(shared, scenario, program, run).await;
    }
    let mut initialised = false;
    loop {
        if *shared.interrupt.borrow() {
            give_up(&mut run, "the run was interrupted");
            break;
        }
        if run.lost == shared.worlds {
            let why = format!("gave up after {} worlds were lost", run.lost);
            give_up(&mut run, &why);
            break;
        }
        run.worlds += 1;
        let result = match world(shared, scenario, open_checks(&run), &run.logs).await {
            Ok(Some(result)) => result,
            Ok(None) => continue,
            Err(error) => {
                let finding = CheckResult::bare(Outcome::HarnessError, None, error.to_string());
                if initialised {
                    run.end = finding;
                } else {
                    run.init = finding;
                }
                give_up(&mut run, &error.to_string());
                break;
            }
        };
        run.issues.extend(cut(shared, &run.logs));
        let interrupted = *shared.interrupt.borrow();
        if result.lost.is_some() && !is_known_loss(shared, scenario, &result) {
            run.lost += 1;
        }
        let decided: Vec<usize> = result.checks.keys().copied().collect();
        absorb(&mut run, result, &mut initialised);
        let torch = torch_of(scenario, &run.ranks).to_owned();
        try_again(&mut run, &decided, |index, finding| {
            let point = Point::of(scenario, &torch, Some(&scenario.checks[index]));
            let class = finding.class.as_deref();
            (shared.expectations.find(&point)).is_some_and(|entry| {
                entry.wants_another_try(finding.outcome, class, &finding.summary)
            })
        });
        if run.init.outcome != Outcome::Pass {
            let why = match run.init.outcome {
                _ if interrupted => "the run was interrupted".to_owned(),
                Outcome::NotRun => run.init.summary.clone(),
                _ => NO_WORLD.to_owned(),
            };
            give_up(&mut run, &why);
            break;
        }
        if run.checks.iter().all(Option::is_some) && run.end.outcome != Outcome::NotRun {
            break;
        }
    }
    shrink_failures(shared, scenario, round, &mut run).await;
    run.ended = Instant::now();
    run
}

/// Handles the checks that the last world decided. A failure that an expectation describes as intermittent is put
/// aside, and its check is left to the next world. The second try decides: a failure that comes twice is not
/// intermittent.
fn try_again(
    run: &mut ScenarioRun,
    decided: &[usize],
    comes_and_goes: impl Fn(usize, &CheckResult) -> bool,
) {
    for &index in decided {
        let Some(finding) = run.checks[index].take() else {
            continue;
        };
        let first = run.first_failures.get(&index);
        run.checks[index] = match (first, comes_and_goes(index, &finding)) {
            (None, true) => {
                run.first_failures.insert(index, finding);
                None
            }
            (None, false) => Some(finding),
            (Some(first), _) => Some(second_try(first, finding)),
        };
    }
}

/// Returns the result of a check from its first failure and its second try.
fn second_try(first: &CheckResult, second: CheckResult) -> CheckResult {
    match second.outcome {
        Outcome::Pass => CheckResult {
            summary: format!("{}; the second time it passed", first.summary),
            ..first.clone()
        },
        // The second try has no result.
        Outcome::NotRun => first.clone(),
        Outcome::Mismatch
        | Outcome::Error
        | Outcome::Hang
        | Outcome::Crash
        | Outcome::InitFailed
        | Outcome::Unsupported
        | Outcome::HarnessError => CheckResult {
            summary: format!(
                "failed in two worlds, one after the other: {}",
                second.summary
            ),
            class: Some(FAILED_TWICE.to_owned()),
            ..second
        },
    }
}

/// Shrinks every random sequence that failed and that no expectation covers.
async fn shrink_failures(shared: &Shared, scenario: &Scenario, round: u32, run: &mut ScenarioRun) {
    let torch = torch_of(scenario, &run.ranks).to_owned();
    let logs = log_folder(scenario, round).join("shrinking");
    for (index, check) in scenario.checks.iter().enumerate() {
        let known = shared
            .expectations
            .find(&Point::of(scenario, &torch, Some(check)));
        if let Some(finding) = run.checks[index].take_if(|_| known.is_none()) {
            run.checks[index] = Some(shrink(shared, scenario, index, finding, &logs).await);
        }
    }
}

/// Returns true if the world was lost by a check whose failure an expectation covers.
fn is_known_loss(shared: &Shared, scenario: &Scenario, result: &WorldResult) -> bool {
    let last = result.checks.last_key_value();
    last.is_some_and(|(index, finding)| {
        is_expected(
            &shared.expectations,
            scenario,
            &result.ranks,
            Some(*index),
            finding.outcome,
        )
    })
}

/// Adds the results of one world. The first world decides `init`; a later one only if it fails to initialise, because
/// the remaining checks then have no world.
fn absorb(run: &mut ScenarioRun, result: WorldResult, initialised: &mut bool) {
    if let Some(init) = result.init
        && (!*initialised || init.outcome != Outcome::Pass)
    {
        *initialised = init.outcome == Outcome::Pass;
        run.init = init;
    }
    for (index, finding) in result.checks {
        run.checks[index] = Some(finding);
    }
    // A failed teardown of one world is kept, whatever the next world's result.
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

/// Marks every check without a result as not run, with the reason `why`.
pub(super) fn give_up(run: &mut ScenarioRun, why: &str) {
    run.trouble.get_or_insert_with(|| why.to_owned());
    for (index, check) in run.checks.iter_mut().enumerate() {
        let first = run.first_failures.get(&index);
        check.get_or_insert_with(|| first.cloned().unwrap_or_else(|| not_run(why)));
    }
    for finding in [&mut run.init, &mut run.end] {
        if finding.outcome == Outcome::NotRun {
            *finding = not_run(why);
        }
    }
}

/// Returns the indices of the checks that have no result yet.
fn open_checks(run: &ScenarioRun) -> Vec<usize> {
    (0..run.checks.len())
        .filter(|index| run.checks[*index].is_none())
        .collect()
}

fn not_run(why: &str) -> CheckResult {
    CheckResult::bare(Outcome::NotRun, None, why)
}

/// Starts one world and runs the checks `todo` in it, given by index. None if the run is interrupted before the world
/// is started. `logs`: one file for each rank, relative to the run's folder.
pub(super) async fn world(
    shared: &Shared,
    scenario: &Scenario,
    todo: Vec<usize>,
    logs: &[PathBuf],
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
    Ok(Some(runner.run().await))
}

/// Shortens the logs of a world's ranks (paths relative to the run's folder). Returns one line for each log that cannot
/// be shortened.
pub(super) fn cut(shared: &Shared, logs: &[PathBuf]) -> Vec<String> {
    let cannot = |log: &PathBuf| {
        let error = cap(&shared.settings.out.join(log)).err()?;
        Some(format!("cannot cut {}: {error}", log.display()))
    };
    logs.iter().filter_map(cannot).collect()
}

/// Removes the middle of a log that is longer than `LOG_HEAD` and `LOG_TAIL` together.
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

/// Returns `logs/SCENARIO`, with each slash of the id replaced; rounds after the first get a suffix.
fn log_folder(scenario: &Scenario, round: u32) -> PathBuf {
    let mut name = scenario.id.as_str().replace('/', "_");
    if round > 0 {
        name.push_str(&format!(".round{}", round + 1));
    }
    PathBuf::from("logs").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::world::fixture::planned;

    #[test]
    fn a_failure_that_comes_twice_is_none_that_comes_and_goes() {
        let first = CheckResult::bare(Outcome::Crash, Some("crash"), "SIGABRT");
        let second = |outcome| second_try(&first, CheckResult::bare(outcome, Some("c"), "again"));
        let passed = second(Outcome::Pass);
        assert_eq!(passed.outcome, Outcome::Crash);
        assert_eq!(passed.class.as_deref(), Some("crash"));
        assert_eq!(passed.summary, "SIGABRT; the second time it passed");
        for outcome in [Outcome::Crash, Outcome::Mismatch, Outcome::Hang] {
            let failed = second(outcome);
            assert_eq!(failed.outcome, outcome);
            assert_eq!(failed.class.as_deref(), Some(FAILED_TWICE));
            assert!(failed.summary.ends_with("again"), "{}", failed.summary);
        }
        assert_eq!(second(Outcome::NotRun), first);
    }

    #[test]
    fn what_a_second_try_came_to_stands_whatever_later_worlds_decide() {
        let scenario = planned(
            "{size: 2, deadline_s: 20}",
            "  - all_reduce: {numel: 3}\n  - barrier: {}\n",
        );
        let mut run = ScenarioRun::new(&scenario, 0);
        let crash = CheckResult::bare(Outcome::Crash, None, "SIGABRT");
        let mut world = |decided: &[(usize, &CheckResult)]| {
            for (index, finding) in decided {
                run.checks[*index] = Some((*finding).clone());
            }
            let decided: Vec<usize> = decided.iter().map(|(index, _)| *index).collect();
            try_again(&mut run, &decided, |index, finding| {
                index == 0 && finding.outcome == Outcome::Crash
            });
            run.checks[0]
                .as_ref()
                .map(|finding| finding.summary.clone())
        };
        let passed = CheckResult::passed(Vec::new());
        assert_eq!(world(&[(0, &crash)]), None);
        let settled = Some("SIGABRT; the second time it passed".to_owned());
        assert_eq!(world(&[(0, &passed)]), settled);
        assert_eq!(world(&[(1, &passed)]), settled);
    }
}
