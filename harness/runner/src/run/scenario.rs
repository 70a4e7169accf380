//! Runs one scenario: starts a world, and another one each time a world is lost, until every check has its result.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::Shared;
use super::failed_init;
use super::launch::world;
use super::logs::{cut, log_folder};
use super::open_checks::OpenChecks;
use super::program;
use super::rank_run::RankRun;
use super::record_writer::RecordWriter;
use super::scenario_run::ScenarioRun;
use super::shrink::shrink;
use super::taken_port::is_held;
use super::world::WorldResult;
use crate::check_result::CheckResult;
use crate::world::LaunchError;
use allranks_model::outcome::Outcome;
use allranks_model::record::INTERRUPTED;
use allranks_suite::expectation::NO_WORLD;
use allranks_suite::plan::Scenario;

/// Largest number of worlds of a scenario that are replaced because their port was taken.
const MAX_TAKEN_PORTS: u32 = 3;
/// Largest number of worlds of a scenario that are replaced because the machine did not let their ranks run in time.
const MAX_LATE_WORLDS: u32 = 3;

/// Runs the scenario of `writer`, and writes the results of its checks. Never fails: every problem becomes a check result.
pub async fn run(shared: &Shared, writer: &Arc<RecordWriter>) -> ScenarioRun {
    let (scenario, round) = (writer.scenario(), writer.round());
    let mut run = ScenarioRun::new(scenario, round);
    let mut open_checks = OpenChecks::new(Arc::clone(writer));
    if let Some(program) = &scenario.case.program {
        return program::run(shared, scenario, program, (run, open_checks)).await;
    }
    let mut initialised = false;
    let mut excused = ExcusedWorlds::default();
    loop {
        if *shared.interrupt.borrow() {
            open_checks.give_up(&mut run, INTERRUPTED);
            break;
        }
        if run.lost == shared.worlds {
            let why = format!("gave up after {} worlds were lost", run.lost);
            open_checks.give_up(&mut run, &why);
            break;
        }
        run.worlds += 1;
        let todo = open_checks.open();
        let mut decided =
            |ranks: &[RankRun], index, check_result| open_checks.record(ranks, index, check_result);
        let mut result = match world(shared, scenario, todo, &run.logs, &mut decided).await {
            Ok(Some(result)) => result,
            Ok(None) => continue,
            Err(LaunchError::NoNode(why)) => {
                open_checks.give_up(&mut run, &why);
                break;
            }
            Err(error) => {
                let check_result =
                    CheckResult::bare(Outcome::HarnessError, None, error.to_string());
                if initialised {
                    run.end = check_result;
                } else {
                    run.init = check_result;
                }
                open_checks.give_up(&mut run, &error.to_string());
                break;
            }
        };
        run.issues.extend(cut(shared, &run.logs));
        if excuse_init(shared, scenario, &run.logs, &mut result, &mut excused).await {
            continue;
        }
        let interrupted = *shared.interrupt.borrow();
        writer.learn(&result.ranks);
        let is_lost = result.lost.is_some() && !result.is_given_up;
        if is_lost && !is_known_loss(writer, &result) {
            run.lost += 1;
        }
        let lost = result.lost.clone();
        let is_starved = result.is_starved;
        absorb(&mut run, result, &mut initialised);
        if let Some(why) = lost.as_ref().filter(|_| is_starved) {
            open_checks.give_up(&mut run, why);
            break;
        }
        if run.init.outcome != Outcome::Pass {
            let why = match run.init.outcome {
                _ if interrupted => INTERRUPTED.to_owned(),
                // A node was lost before the ranks had initialised.
                Outcome::NotRun => lost.unwrap_or_else(|| run.init.summary.clone()),
                _ => NO_WORLD.to_owned(),
            };
            open_checks.give_up(&mut run, &why);
            break;
        }
        if open_checks.open().is_empty() && run.end.outcome != Outcome::NotRun {
            break;
        }
    }
    shrink_failures(shared, scenario, round, &mut open_checks).await;
    run.ended = Instant::now();
    run
}

/// How many worlds of a scenario have failed to initialise for a reason that is not the backend's.
#[derive(Default)]
struct ExcusedWorlds {
    /// Those whose port was taken.
    taken: u32,
    /// Those whose ranks the machine did not let run.
    late: u32,
}

/// Changes the result of a failed initialisation if the backend is not at fault. Returns true if another world must be tried
/// instead.
async fn excuse_init(
    shared: &Shared,
    scenario: &Scenario,
    logs: &[PathBuf],
    result: &mut WorldResult,
    excused: &mut ExcusedWorlds,
) -> bool {
    let Some(init) = &mut result.init else {
        return false;
    };
    failed_init::excuse_exhaustion(shared, logs, init);
    if let Some(why) = failed_init::excuse_network(shared, scenario, init).await {
        result.lost = Some(why);
    }
    let timeout_s = scenario.case.world.timeout_s;
    if let Some(why) = failed_init::late_machine(init, timeout_s, result.waited_in_init) {
        excused.late += 1;
        if excused.late < MAX_LATE_WORLDS && !*shared.interrupt.borrow() {
            shared.notify(format!("{}: {why}; another world is tried", scenario.id));
            return true;
        }
        failed_init::mark_not_run(init, &why);
        result.lost = Some(why);
    }
    if let Some(port) = failed_init::lost_port(shared, logs, init, &result.ports) {
        excused.taken += 1;
        if excused.taken < MAX_TAKEN_PORTS && !*shared.interrupt.borrow() {
            shared.notify(format!("port {port} was taken before a world could use it"));
            return true;
        }
        // If that happens with several ports, and no other process listens there, the backend itself listens twice.
        if is_held(port) {
            failed_init::blame_machine(init, "another process took the port");
        }
    }
    false
}

/// Cuts down the random sequences that failed unexpectedly.
async fn shrink_failures(
    shared: &Shared,
    scenario: &Scenario,
    round: u32,
    open_checks: &mut OpenChecks,
) {
    let logs = log_folder(scenario, round).join("shrinking");
    for (index, check_result) in open_checks.take_to_shrink() {
        let check_result = shrink(shared, scenario, index, check_result, &logs).await;
        open_checks.settle(index, check_result);
    }
}

/// Returns true if the world was lost by a failure that an expectation describes.
fn is_known_loss(writer: &RecordWriter, result: &WorldResult) -> bool {
    let last = result.farthest;
    last.is_some_and(|(index, outcome)| writer.is_expected(index, outcome))
}

/// Adds the result of a world to the run. `init` is that of the first world, or of a later one that fails to initialise,
/// because the remaining checks then cannot be made.
fn absorb(run: &mut ScenarioRun, result: WorldResult, initialised: &mut bool) {
    if let Some(init) = result.init
        && (!*initialised || init.outcome != Outcome::Pass)
    {
        *initialised = init.outcome == Outcome::Pass;
        run.init = init;
    }
    // A failed teardown stays failed, whatever the next world does.
    if let Some(end) = result.end
        && matches!(run.end.outcome, Outcome::NotRun | Outcome::Pass)
    {
        run.end = end;
    }
    if let Some(lost) = result.lost {
        run.failure = Some(lost);
    }
    run.ranks = result.ranks;
}

/// Returns the run of a scenario in which the harness itself failed: `init` is a harness error, and checks that are not
/// recorded yet are not run.
pub fn broken(writer: &Arc<RecordWriter>, why: &str) -> ScenarioRun {
    let mut run = ScenarioRun::new(writer.scenario(), writer.round());
    run.init = CheckResult::bare(Outcome::HarnessError, None, why);
    OpenChecks::new(Arc::clone(writer)).give_up(&mut run, why);
    run
}
