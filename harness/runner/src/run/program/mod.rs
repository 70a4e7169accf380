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
//! | `judge` | turns what was seen into check results |
//! | `placement_faults` | compares what launchers told ranks with the plan |

mod command;
mod judge;
mod launcher_start;
mod lines;
mod own_delays;
mod placement_faults;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

pub use command::{command_lines, distinctive_environment, of_rank as program_of_rank};
use command::{environment_of, environment_under, of_rank, wrapped};
use judge::{ProgramEvidence, ProgramRanks, RankSeen, Stopped};
use launcher_start::LauncherStart;
use own_delays::OwnDelays;

use super::Shared;
use super::logs::{absolute, cut};
use super::open_checks::OpenChecks;
use super::rank_run::{Outside, RankRun};
use super::scenario_run::ScenarioRun;
use super::setup::{Endpoint, lease};
use crate::check_result::CheckResult;
use crate::watch;
use crate::watch::{Event, Monitor};
use crate::world::Mpirun;
use crate::world::node::interfaces;
use crate::world::{
    Commands, Device, Driver, ExitRecord, LOOPBACK, RankExit, RankLaunchSpec, TOKEN,
    base_environment, lease_port, unkilled,
};
use allranks_host::{TaggedProcess, describe};
use allranks_model::diagnosis::Diagnosis;
use allranks_model::launcher::Launcher;
use allranks_model::names::{Rank, WorldSize};
use allranks_model::outcome::Outcome;
use allranks_model::record::INTERRUPTED;
use allranks_suite::case::{ExitCode, ProgramSpec};
use allranks_suite::plan::Scenario;

/// How long processes that ranks started may outlive the ranks before they count as left behind.
const GRACE: Duration = Duration::from_secs(2);
/// Delays of the harness for which a program is given more time. Shorter ones do not count.
const LEAST_DELAY: Duration = Duration::from_millis(200);
/// The most time that a program is given for delays of the harness, as a multiple of what it may take.
const MOST_DELAYS: u32 = 9;
/// Interval between two looks at processes that are still there.
const RETRY_PERIOD: Duration = Duration::from_millis(20);

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

/// The folders that one world uses.
struct Folders {
    /// For the exit records of the rank wrappers.
    records: PathBuf,
    /// For the ranks' output.
    logs: PathBuf,
    /// For the call traces of Python processes.
    call_traces: PathBuf,
    /// For the Python modules that write call traces.
    modules: PathBuf,
    /// For files that the launcher writes.
    launcher: PathBuf,
}

impl Folders {
    fn make(scratch: &Path, logs: PathBuf) -> io::Result<Self> {
        let scratch = std::path::absolute(scratch)?;
        let folders = Self {
            records: scratch.join("records"),
            call_traces: scratch.join("diaries"),
            modules: scratch.join("python"),
            launcher: scratch.join("launcher"),
            logs,
        };
        for folder in [
            &folders.records,
            &folders.call_traces,
            &folders.launcher,
            &folders.logs,
        ] {
            std::fs::create_dir_all(folder)?;
        }
        watch::unpack_modules(&folders.modules)?;
        Ok(folders)
    }
}

/// Runs the program of a scenario in one world, and judges it. Returns false if the run was interrupted.
async fn run_program(
    shared: &Shared,
    scenario: &Scenario,
    program: &ProgramSpec,
    (run, open_checks): (&mut ScenarioRun, &mut OpenChecks),
) -> io::Result<bool> {
    let size = scenario.world_size;
    // Nodes have environments of their own, and programs are not started by their agents.
    let own;
    let base = match &shared.settings.nodes {
        None => &shared.base_environment,
        Some(_) => {
            own = base_environment();
            &own
        }
    };
    // Where a program cannot be told which devices are its, it gets all of them.
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
    let over = wait(shared, (program, size), &mut commands, &mut monitor).await;
    let Some(ProgramEnd { launcher, stopped }) = over else {
        run.trouble = unkilled(&commands.kill().await);
        return Ok(false);
    };
    let orphans = match stopped {
        None => orphans(&commands).await,
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
        ranks.push(rank_seen(
            (program, size),
            rank,
            exit_record,
            &folders,
            &log,
        )?);
    }
    run.issues.extend(cut(shared, &run.logs));
    let seen = ProgramRanks {
        ranks,
        launcher,
        stopped,
        orphans,
    };
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
        run.trouble = unkilled;
    }
    Ok(true)
}

/// Returns what was seen of a rank: its exit records and the lines of its log. A rank that never started gets an empty log.
fn rank_seen(
    (program, size): (&ProgramSpec, WorldSize),
    rank: Rank,
    exit_record: Option<ExitRecord>,
    folders: &Folders,
    log: &Path,
) -> io::Result<RankSeen> {
    let log_matches = lines::look_through(log, program, rank, size)?;
    let earlier = 0..program.restarts;
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)?;
    Ok(RankSeen {
        earlier: earlier
            .map(|start| ExitRecord::read(&folders.records, rank, start))
            .collect(),
        exit_record,
        log_matches,
    })
}

/// Returns the token that marks this world's processes: the scratch folder's name, which is unique on the host, and the
/// pid of this process.
fn token(scratch: &Path) -> String {
    let name = scratch.file_name().unwrap_or_default();
    format!("{}.{}", name.to_string_lossy(), std::process::id())
}

/// What is needed to start a program's ranks.
struct ProgramStart<'a> {
    shared: &'a Shared,
    scenario: &'a Scenario,
    program: &'a ProgramSpec,
    folders: &'a Folders,
    /// Where the ranks meet.
    at: &'a Endpoint,
    /// The token by which its processes are known.
    token: &'a str,
    /// The variables of rank 0 that the harness sets, by which a launcher is told what to pass on.
    distinctive: BTreeMap<String, String>,
}

impl ProgramStart<'_> {
    /// Starts the ranks, or the launcher that starts them. `environment` returns the environment of a rank.
    fn start(self, environment: impl Fn(Rank) -> BTreeMap<String, String>) -> io::Result<Commands> {
        let Self {
            shared,
            scenario,
            program,
            folders,
            at,
            token,
            distinctive,
        } = self;
        let Some(binary) = &shared.settings.supervisor else {
            return Err(io::Error::other(
                "programs need the allranks binary beside them",
            ));
        };
        let python = match &shared.settings.driver {
            Driver::Python { python, .. } => python.clone(),
            Driver::Libtorch(_) | Driver::Command(_) => PathBuf::from("python3"),
        };
        let launcher = scenario.launcher;
        let rank = of_rank(scenario, program, &python);
        let rank = wrapped(launcher, binary, (&folders.records, &folders.logs), &rank);
        let (port, logs) = (at.port.to_string(), folders.launcher.to_string_lossy());
        let start = LauncherStart {
            scenario,
            python: &python,
            options: &shared.settings.launcher_options,
            port: &port,
            logs: &logs,
        };
        // One for each process to be started: its command, the first rank that it starts, and its log.
        let placement = &scenario.placement;
        let ranks = scenario.world_size.ranks();
        let whole: Vec<(Vec<String>, Rank, String)> = match launcher {
            Launcher::Local => ranks
                // For output that comes before the rank wrapper has opened its own log.
                .map(|number| (rank.clone(), number, format!("rank{number}.log")))
                .collect(),
            Launcher::Torchrun => (0..placement.nodes())
                .map(|node| {
                    let log = match node {
                        0 => "torchrun.log".to_owned(),
                        _ => format!("torchrun{node}.log"),
                    };
                    let first = placement.ranks()[..node].iter().sum();
                    (start.torchrun(node, &rank), Rank(first), log)
                })
                .collect(),
            Launcher::Slurm => vec![(start.srun(&rank), Rank(0), "srun.log".to_owned())],
            Launcher::Mpi => {
                let exported = environment_under(launcher, distinctive);
                let exported: Vec<String> =
                    exported.into_keys().chain([TOKEN.to_owned()]).collect();
                let (family, _) = Mpirun::installed()?;
                let words = start.mpirun(family, &exported, &rank);
                vec![(words, Rank(0), "mpirun.log".to_owned())]
            }
        };
        let (commands, orders) = whole
            .into_iter()
            .zip(0..)
            .map(|((argv, first, log), number)| {
                let order = RankLaunchSpec {
                    rank: Rank(number),
                    env: environment_under(launcher, environment(first)),
                    log: folders.logs.join(log),
                };
                (argv, order)
            })
            .unzip();
        Ok(Commands::start(commands, binary, token, orders))
    }
}

/// Returns the address at which a program's ranks meet: loopback, or, where an engine has them on several nodes, an address of this
/// machine that others may reach.
fn meeting_host(scenario: &Scenario) -> String {
    let is_spread = scenario.placement.nodes() > 1
        && matches!(scenario.launcher, Launcher::Slurm | Launcher::Mpi);
    let own = is_spread.then(|| interfaces().into_iter().next()).flatten();
    own.map_or_else(|| LOOPBACK.to_owned(), |(_, address)| address.to_string())
}

/// Returns those of a world's devices that the ranks on the node of this rank have. All of them where there is one node, or where a
/// program cannot be told which are its.
fn devices_on_node<'a>(scenario: &Scenario, devices: &'a [Device], rank: Rank) -> &'a [Device] {
    let placement = &scenario.placement;
    let Some((node, local)) = placement.place_of(rank) else {
        return devices;
    };
    if placement.nodes() == 1 || devices.len() != scenario.world_size.count() {
        return devices;
    }
    let first = rank.index() - local as usize;
    &devices[first..first + placement.ranks_on(node) as usize]
}

/// Says in which variables an engine told the ranks their places; none under launchers that set torch's own.
fn place_notice(scenario: &Scenario, seen: &ProgramRanks) -> Option<String> {
    let name = match scenario.launcher {
        Launcher::Local | Launcher::Torchrun => return None,
        Launcher::Slurm | Launcher::Mpi => scenario.launcher.name(),
    };
    let mut slots = seen.ranks.iter().filter_map(RankSeen::slot);
    let slot = slots.next()?;
    Some(format!(
        "ranks of programs under {name} have the places that {} told them ({}), the first of its variables that was set",
        slot.dialect, slot.from
    ))
}

/// How a program ended, or why it must be killed now.
struct ProgramEnd {
    /// How the launcher's process ended; none if there is no launcher, or it has not ended.
    launcher: Option<RankExit>,
    stopped: Option<Stopped>,
}

/// Waits for the program's end, a verdict, or the case's time limit. None if the run was interrupted.
async fn wait(
    shared: &Shared,
    (program, size): (&ProgramSpec, WorldSize),
    commands: &mut Commands,
    monitor: &mut Monitor,
) -> Option<ProgramEnd> {
    let began = Instant::now();
    let mut delays = OwnDelays::new(watch::PERIOD, began);
    let mut granted = Duration::ZERO;
    let mut ticks = tokio::time::interval(watch::PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupt = shared.interrupt.clone();
    let mut launcher = None;
    let over = |launcher, stopped| Some(ProgramEnd { launcher, stopped });
    loop {
        tokio::select! {
            biased;
            ended = commands.next() => match ended {
                // With several commands each is a rank, with a single one it may be the launcher; the caller knows
                // which.
                Some((_, end)) => launcher = Some(worse(launcher, end)),
                None => return over(launcher, None),
            },
            () = asked(&mut interrupt) => return None,
            () = tokio::time::sleep_until(began + program.within.0 + granted) => {
                // What the harness itself was late by, the program has more: once it is seen what has happened meanwhile.
                let now = Instant::now();
                delays.begin(now);
                let more = delays.within(now - began, now).min(program.within.0 * MOST_DELAYS);
                if more > granted + LEAST_DELAY {
                    granted = more;
                    continue;
                }
                let diagnosis = tokio::task::block_in_place(|| monitor.diagnosis());
                return over(launcher, Some(Stopped::Overdue(diagnosis)));
            }
            _ = ticks.tick() => {
                let looks = Instant::now();
                delays.begin(looks);
                let events = tokio::task::block_in_place(|| monitor.look());
                let now = Instant::now();
                delays.end(looks, now);
                for event in events {
                    match event {
                        Event::Verdict(diagnosis) if !is_as_it_is_to(program, size, &diagnosis) => {
                            let took = Duration::try_from_secs_f64(diagnosis.after_s);
                            let delay = delays.within(took.unwrap_or_default(), now);
                            return over(launcher, Some(Stopped::Verdict(diagnosis, delay)));
                        }
                        Event::Verdict(_)
                        | Event::Still(..)
                        | Event::Moves
                        | Event::NotHung(_)
                        | Event::Note(_)
                        | Event::StillStopped
                        | Event::Unkilled(_) => {}
                    }
                }
            }
        }
    }
}

/// Returns the first of two ends of launchers that is a failure; the later one if neither is.
fn worse(earlier: Option<RankExit>, end: RankExit) -> RankExit {
    match earlier {
        Some(RankExit::Exited { code: 0, .. }) | None => end,
        Some(failed) => failed,
    }
}

/// Returns true if each culprit of the verdict is a rank that the case says must fail, and no hang is expected: the
/// other ranks are then left the time to notice by themselves.
fn is_as_it_is_to(program: &ProgramSpec, size: WorldSize, diagnosis: &Diagnosis) -> bool {
    let is_to_fail = |rank: &Rank| {
        let exit = program.exit_of(*rank, size);
        exit.is_some_and(ExitCode::is_failure) || program.exit_before(*rank, size).is_failure()
    };
    program.hang.is_none()
        && !diagnosis.culprits.is_empty()
        && diagnosis.culprits.iter().all(is_to_fail)
}

/// Returns when the run is interrupted; never, if it cannot be any more.
async fn asked(interrupt: &mut tokio::sync::watch::Receiver<bool>) {
    if interrupt.wait_for(|set| *set).await.is_err() {
        // The sender is gone, so the run cannot be interrupted any more.
        std::future::pending::<()>().await;
    }
}

/// Returns the processes that still run when [`GRACE`] is over: the rank that each belongs to, if known, and its
/// command.
async fn orphans(commands: &Commands) -> Vec<(Option<Rank>, String)> {
    let limit = Instant::now() + GRACE;
    loop {
        let living = tokio::task::block_in_place(|| commands.living());
        if living.is_empty() || Instant::now() >= limit {
            return living.iter().map(remaining).collect();
        }
        tokio::time::sleep(RETRY_PERIOD).await;
    }
}

fn remaining(member: &TaggedProcess) -> (Option<Rank>, String) {
    let rank = member.environment.get("RANK");
    let rank = rank.and_then(|rank| rank.parse().ok()).map(Rank);
    (rank, describe(member.pid))
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
    let mut trouble = failed(&run.init);
    for (index, check) in scenario.checks.iter().enumerate() {
        let Some(program_check) = check.program_check() else {
            continue;
        };
        let check_result = CheckResult {
            duration_us: took.as_micros() as u64,
            ..evidence.judge(program_check)
        };
        trouble = trouble.or_else(|| failed(&check_result));
        open_checks.take(&run.ranks, index, check_result);
    }
    run.trouble = trouble.or_else(|| failed(&run.end));
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_diagnose::{HangEvidence, diagnose};

    #[test]
    fn a_verdict_on_ranks_that_are_to_fail_is_no_news() {
        let program = |yaml: &str| -> ProgramSpec {
            serde_yaml::from_str(&format!("run: [x]\n{yaml}")).unwrap()
        };
        let on = |culprits: &[u32]| Diagnosis {
            culprits: culprits.iter().copied().map(Rank).collect(),
            ..diagnose(&HangEvidence::default())
        };
        let is_news = |yaml: &str, diagnosis: &Diagnosis| {
            !is_as_it_is_to(&program(yaml), WorldSize(3), diagnosis)
        };
        assert!(is_news("lines: [a]", &on(&[2])));
        let fails = "exit: [{on: last, is: 42}]";
        assert!(!is_news(fails, &on(&[2])));
        assert!(is_news(fails, &on(&[1, 2])) && is_news(fails, &on(&[])));
        let any = "exit: [{on: last, is: any}]";
        assert!(is_news(any, &on(&[2])));
        let hangs = format!("{fails}\nhang: {{kind: peer-dead, culprit: last}}");
        assert!(is_news(&hangs, &on(&[2])));
    }
}
