//! Runs a scenario whose ranks run a user's program: started under its launcher, watched from outside, and judged by
//! what each rank leaves behind.
//!
//! In: a scenario with a program. Out: a [`ScenarioRun`], as of any other scenario. A rank wrapper (see
//! [`run_wrapped`](crate::world::run_wrapped)) stands between the launcher and each rank; the hang detector of `allranks watch`
//! looks at the ranks, and a verdict ends the program.
//!
//! | module | holds |
//! |---|---|
//! | `command` | command lines of ranks, and environments |
//! | `launcher_start` | command lines of launchers |
//! | `lines` | searches each rank's log |
//! | `own_delays` | delays of the harness itself, which are not charged to the program |
//! | `folders` | the folders that a world uses |
//! | `start` | starts the ranks, or their launchers |
//! | `end` | waits for the end, a verdict or the time limit |
//! | `orphans` | finds processes that are left behind |
//! | `seen` | what was seen of the processes |
//! | `judge` | turns what was seen into check results |
//! | `placement_faults` | compares what launchers told ranks with the plan |

mod command;
mod end;
mod folders;
mod judge;
mod launcher_start;
mod lines;
mod orphans;
mod own_delays;
mod placement_faults;
mod seen;
mod start;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use command::environment_of;
pub use command::{command_lines, distinctive_environment, of_rank as program_of_rank};
use end::{ProgramEnd, wait};
use folders::Folders;
use judge::ProgramEvidence;
use orphans::orphans;
use seen::{ProgramRanks, RankSeen};
use start::{ProgramStart, devices_on_node, meeting_host};

use super::Shared;
use super::logs::{absolute, cut};
use super::open_checks::OpenChecks;
use super::rank_run::{Outside, RankRun};
use super::scenario_run::ScenarioRun;
use super::setup::{Endpoint, lease};
use crate::check_result::CheckResult;
use crate::watch::Monitor;
use crate::world::{
    Commands, Device, ExitRecord, RankExit, base_environment, lease_port, unkilled,
};
use allranks_model::launcher::Launcher;
use allranks_model::names::{Rank, WorldSize};
use allranks_model::outcome::Outcome;
use allranks_model::record::INTERRUPTED;
use allranks_suite::case::ProgramSpec;
use allranks_suite::plan::Scenario;

/// Runs the scenario. Never fails: every problem becomes a check result or an issue.
pub async fn run(
    shared: &Shared,
    scenario: &Scenario,
    program: &ProgramSpec,
    (mut run, mut open_checks): (ScenarioRun, OpenChecks),
) -> ScenarioRun {
    if *shared.interrupt.borrow() {
        open_checks.give_up(&mut run, INTERRUPTED);
        return run;
    }
    run.worlds = 1;
    match run_program(shared, scenario, program, (&mut run, &mut open_checks)).await {
        Ok(true) => {}
        Ok(false) => open_checks.give_up(&mut run, INTERRUPTED),
        Err(error) => {
            run.init = CheckResult::bare(Outcome::HarnessError, None, error.to_string());
            open_checks.give_up(&mut run, &error.to_string());
        }
    }
    run.ended = std::time::Instant::now();
    run
}

/// Runs the program of a scenario in one world, and judges it. Returns false if the run was interrupted.
async fn run_program(
    shared: &Shared,
    scenario: &Scenario,
    program: &ProgramSpec,
    (run, open_checks): (&mut ScenarioRun, &mut OpenChecks),
) -> io::Result<bool> {
    let size = scenario.world_size;
    // Programs are not started by node agents, which have environments of their own.
    let own;
    let base = match &shared.settings.nodes {
        None => &shared.base_environment,
        Some(_) => {
            own = base_environment();
            &own
        }
    };
    // A program that cannot be told which devices to use gets all of them.
    let wanted = |present: &[Device]| match &scenario.platform.visible_devices {
        Some(_) => scenario.platform.devices_for(size),
        None => present.len() as u32,
    };
    let Some(devices) = lease(shared, scenario, wanted).await? else {
        return Ok(false);
    };
    let port = lease_port()?;
    let scratch = tempfile::Builder::new()
        .prefix("allranks-")
        .tempdir_in(&shared.settings.out)?;
    let logs = run.logs.first().and_then(|log| log.parent());
    let folders = Folders::make(
        scratch.path(),
        absolute(shared, logs.unwrap_or(Path::new("logs"))),
    )?;
    let at = Endpoint {
        host: meeting_host(scenario),
        port: port.port,
        file: String::new(),
        spare: Vec::new(),
    };
    let environment = |base: &BTreeMap<String, String>, rank: Rank| {
        let devices = devices_on_node(scenario, devices.devices(), rank);
        let folders = (folders.modules.as_path(), folders.call_traces.as_path());
        environment_of(scenario, &at, base, (rank, devices), folders)
    };
    let distinctive = environment(&BTreeMap::new(), Rank(0));
    let environment = |rank: Rank| environment(base, rank);
    let token = token(scratch.path());
    let mut commands = ProgramStart {
        shared,
        scenario,
        program,
        folders: &folders,
        at: &at,
        token: &token,
        distinctive,
    }
    .start(environment)?;
    let patience = Duration::from_secs_f64(scenario.case.world.deadline_s);
    let mut monitor = Monitor::new(&token, &folders.call_traces, patience);
    let Some(end) = wait(shared, (program, size), &mut commands, &mut monitor).await else {
        run.failure = unkilled(&commands.kill().await);
        return Ok(false);
    };
    let (seen, unkilled) = collect(
        shared,
        (program, size),
        end,
        (&mut commands, &mut monitor),
        &folders,
        run,
    )
    .await?;
    if let Some(how) = place_notice(scenario, &seen) {
        shared.notify(how);
    }
    let evidence = ProgramEvidence {
        program,
        size,
        placement: &scenario.placement,
        seen: &seen,
    };
    judge(scenario, &evidence, run, open_checks);
    if unkilled.is_some() {
        run.failure = unkilled;
    }
    Ok(true)
}

/// Kills what is left of a program, and returns what was seen of its processes, and which of them cannot be killed.
async fn collect(
    shared: &Shared,
    (program, size): (&ProgramSpec, WorldSize),
    ProgramEnd { launcher, stopped }: ProgramEnd,
    (commands, monitor): (&mut Commands, &mut Monitor),
    folders: &Folders,
    run: &mut ScenarioRun,
) -> io::Result<(ProgramRanks, Option<String>)> {
    let orphans = match stopped {
        None => orphans(commands).await,
        Some(_) => Vec::new(),
    };
    // Exit records are read before anything is killed: the kill is not part of how the ranks ended.
    let exit_records: Vec<Option<ExitRecord>> = size
        .ranks()
        .map(|rank| ExitRecord::read(&folders.records, rank, program.restarts))
        .collect();
    let unkilled = unkilled(&commands.kill().await);
    let torch = tokio::task::block_in_place(|| monitor.torch());
    run.ranks = rank_runs(&exit_records, torch);
    let mut ranks = Vec::new();
    for (rank, exit_record) in size.ranks().zip(exit_records) {
        let log = shared.settings.out.join(&run.logs[rank.index()]);
        let seen = RankSeen::read((program, size), rank, exit_record, folders, &log)?;
        ranks.push(seen);
    }
    run.issues.extend(cut(shared, &run.logs));
    let seen = ProgramRanks {
        ranks,
        launcher,
        stopped,
        orphans,
    };
    Ok((seen, unkilled))
}

/// Returns the token that marks this world's processes: the scratch folder's name, which is unique on the host, and the
/// pid of this process.
fn token(scratch: &Path) -> String {
    let name = scratch.file_name().unwrap_or_default();
    format!("{}.{}", name.to_string_lossy(), std::process::id())
}

/// Returns a notice that names the variables from which the ranks' places were read; none under launchers that set torch's own.
fn place_notice(scenario: &Scenario, seen: &ProgramRanks) -> Option<String> {
    let name = match scenario.launcher {
        Launcher::Local | Launcher::Torchrun => return None,
        Launcher::Slurm | Launcher::Mpi => scenario.launcher.name(),
    };
    let mut assignments = seen.ranks.iter().filter_map(RankSeen::assignment);
    let assignment = assignments.next()?;
    Some(format!(
        "under {name}, ranks of programs take their rank and sizes from the variables of {} ({}); the first that is set counts",
        assignment.dialect, assignment.from
    ))
}

fn rank_runs(exit_records: &[Option<ExitRecord>], torch: Option<String>) -> Vec<RankRun> {
    exit_records
        .iter()
        .map(|exit_record| {
            let end = exit_record.as_ref().and_then(ExitRecord::end);
            let pid = exit_record.as_ref().and_then(|exit_record| exit_record.pid);
            RankRun {
                killed: end.is_none() && pid.is_some(),
                end: end.or_else(|| {
                    let why = "nothing was written of it".to_owned();
                    pid.is_none().then_some(RankExit::NotStarted(why))
                }),
                outside: Some(Outside {
                    pid: pid.unwrap_or(0),
                    torch: torch.clone(),
                }),
                ..RankRun::default()
            }
        })
        .collect()
}

fn judge(
    scenario: &Scenario,
    evidence: &ProgramEvidence<'_>,
    run: &mut ScenarioRun,
    open_checks: &mut OpenChecks,
) {
    let took = run.began.elapsed();
    run.init = evidence.init();
    run.end = evidence.end();
    let failed = |check_result: &CheckResult| {
        (check_result.outcome != Outcome::Pass).then(|| check_result.summary.clone())
    };
    let mut failure = failed(&run.init);
    for (index, check) in scenario.checks.iter().enumerate() {
        let Some(program_check) = check.program_check() else {
            continue;
        };
        let check_result = CheckResult {
            duration_us: took.as_micros() as u64,
            ..evidence.judge(program_check)
        };
        failure = failure.or_else(|| failed(&check_result));
        open_checks.record(&run.ranks, index, check_result);
    }
    run.failure = failure.or_else(|| failed(&run.end));
}
