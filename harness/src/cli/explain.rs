//! `allranks explain`: prints a scenario or check as it would run, or the meaning of a name in a report.

use std::io::Write;
use std::path::PathBuf;

use super::args::ExplainArguments;
use super::explain_name::write_meaning;
use super::select_arguments::DriverChoice;
use super::{Exit, Failure, locate};
use crate::suite::Suite;
use allranks_diagnose as diagnose;
use allranks_model::capability::Declared;
use allranks_model::launcher::Launcher;
use allranks_model::names::{Rank, WorldSize};
use allranks_report::command_line;
use allranks_runner::probe;
use allranks_runner::run;
use allranks_runner::world::{Dialect, Driver};
use allranks_suite::case::{LineSpec, ProgramSpec};
use allranks_suite::expectation::Point;
use allranks_suite::plan::{Check, ProgramCheck, Scenario, hang};
use allranks_suite::platform::Start;

/// Prints what a check or scenario does, or what a kind of hang or a class of mismatch means. Needs neither torch nor the
/// platform of the id, only its file.
pub fn explain(arguments: &ExplainArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    if write_meaning(&arguments.id, out)? {
        return Ok(Exit::AsExpected);
    }
    let scratch = tempfile::tempdir()?;
    let suite = Suite::load(&arguments.select.suite.request(), scratch.path())?;
    let id = arguments.id.as_str();
    let plan = locate::plan_id(&suite, None, id);
    let scenario = locate::find_scenario(&suite, &plan, id)?;
    write_scenario(&suite, scenario, arguments.driver.as_ref(), out)?;
    if id == scenario.id.as_str() {
        writeln!(out, "\nchecks:")?;
        for check in scenario.frame_checks() {
            writeln!(out, "  {check}")?;
        }
        for check in &scenario.checks {
            writeln!(out, "  {}", check.id)?;
        }
    } else if let Some(check) = scenario.checks.iter().find(|check| check.id.as_str() == id) {
        write_check(&suite, scenario, check, arguments.select.seed, out)?;
    } else if scenario
        .frame_checks()
        .iter()
        .any(|check| check.as_str() == id)
    {
        writeln!(
            out,
            "\nEvery scenario has this check: {}",
            if scenario.case.program.is_some() {
                match id.ends_with("#init") {
                    true => "every rank of the program is started.",
                    false => {
                        "the program ends by itself, unless the case expects a hang, and leaves no process."
                    }
                }
            } else if id.ends_with("#init") {
                "every rank initialises and agrees on its rank, the world size and its groups."
            } else {
                "every rank tears down, gives its token, exits with code 0 and leaves no process."
            }
        )?;
    } else {
        return Err(locate::unknown_id(&suite, id));
    }
    Ok(Exit::AsExpected)
}

fn write_scenario(
    suite: &Suite,
    scenario: &Scenario,
    driver: Option<&DriverChoice>,
    out: &mut impl Write,
) -> std::io::Result<()> {
    let case = &scenario.case;
    writeln!(out, "scenario   {}", scenario.id)?;
    writeln!(out, "case       {} ({})", case.title, case.source.display())?;
    writeln!(
        out,
        "platform   {} / {} (evidence: {})",
        scenario.platform.name,
        scenario.backend,
        serde_json::to_value(scenario.platform.evidence)
            .unwrap_or_default()
            .as_str()
            .unwrap_or_default()
    )?;
    match case.program {
        Some(_) => writeln!(out, "world      {} ranks of a program", scenario.world_size)?,
        None => writeln!(
            out,
            "world      {} ranks, init by {}",
            scenario.world_size,
            scenario.init.method.name()
        )?,
    }
    for group in &scenario.groups[1..] {
        let ranks: Vec<String> = group.ranks.iter().map(Rank::to_string).collect();
        writeln!(out, "group      {}: ranks {}", group.name, ranks.join(", "))?;
    }
    let profiles: Vec<&str> = suite
        .profiles
        .iter()
        .filter(|profile| {
            profile.includes(case) && profile.has_size(&case.id, scenario.world_size.0)
        })
        .map(|profile| profile.name.as_str())
        .collect();
    writeln!(out, "selected   by profiles: {}", profiles.join(", "))?;
    let python = probe::python(None).path;
    if let Some(program) = &case.program {
        writeln!(out, "driver     program")?;
        writeln!(out, "launcher   {}", scenario.launcher.name())?;
        for (owner, argv) in run::command_lines(scenario, program, &python, &[]) {
            writeln!(out, "argv       {owner}: {}", command_line(&argv))?;
        }
        if scenario.launcher != Launcher::Local {
            for (name, value) in run::distinctive_environment(scenario, Rank(0)) {
                writeln!(out, "env        {name}={value}")?;
            }
            let name = scenario.launcher.name();
            return match scenario.launcher {
                Launcher::Local | Launcher::Torchrun => writeln!(
                    out,
                    "env        {name} sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and its own variables for each rank"
                ),
                Launcher::Slurm | Launcher::Mpi => {
                    let dialects = Dialect::of(scenario.launcher).iter();
                    let dialects: Vec<String> = dialects.map(Dialect::to_string).collect();
                    writeln!(
                        out,
                        "env        {name} sets its own variables for each rank; allranks reads the rank from {}",
                        dialects.join(", or ")
                    )
                }
            };
        }
    } else {
        let driver = self::driver(driver, python);
        let how = match scenario.platform.start {
            Start::Fork if driver.zygote(&[]).is_some() => {
                ", forked from a process that has loaded torch"
            }
            Start::Fork | Start::Fresh => "",
        };
        writeln!(out, "argv       {}{how}", command_line(&driver.rank().0))?;
    }
    for (rank, (name, value)) in scenario.world_size.ranks().flat_map(|rank| {
        run::distinctive_environment(scenario, rank)
            .into_iter()
            .map(move |v| (rank, v))
    }) {
        writeln!(out, "env rank {rank} {name}={value}")?;
    }
    Ok(())
}

/// Returns the driver that a run would start. Nothing is unpacked, and a libtorch driver that is not built has its name as path.
fn driver(choice: Option<&DriverChoice>, python: PathBuf) -> Driver {
    match choice {
        Some(DriverChoice::Libtorch) => {
            Driver::Libtorch(probe::libtorch().unwrap_or_else(|_| "allranks-libtorch".into()))
        }
        Some(DriverChoice::Command(argv)) => Driver::Command(argv.clone()),
        None | Some(DriverChoice::Python | DriverChoice::Program) => Driver::Python {
            python,
            package: PathBuf::new(),
        },
    }
}

/// Writes what a program check requires of each rank.
fn write_program_check(
    scenario: &Scenario,
    program: &ProgramSpec,
    program_check: ProgramCheck,
    out: &mut impl Write,
) -> std::io::Result<()> {
    let size = scenario.world_size;
    for rank in size.ranks() {
        let line_expectation = match program_check {
            ProgramCheck::Exit => program.exit_of(rank, size).map(|code| code.to_string()),
            ProgramCheck::LauncherExit | ProgramCheck::Verdict => None,
            ProgramCheck::Line(index) => {
                line_expectation(&program.lines[index], rank, size, "prints")
            }
            ProgramCheck::Never(index) => {
                line_expectation(&program.never[index], rank, size, "never prints")
            }
        };
        if let Some(line_expectation) = line_expectation {
            writeln!(out, "rank {rank}     {line_expectation}")?;
        }
    }
    match (
        program_check,
        program.launcher_succeeds(size),
        &program.hang,
    ) {
        (ProgramCheck::LauncherExit, Some(true), _) => writeln!(out, "torchrun   exit 0"),
        (ProgramCheck::LauncherExit, _, _) => writeln!(out, "torchrun   any failure"),
        (ProgramCheck::Verdict, _, Some(spec)) => {
            let hang = hang(spec, size);
            let within = hang.within.as_secs_f64();
            let culprits = diagnose::list(&hang.culprits);
            writeln!(
                out,
                "verdict    {} of rank {culprits}, within {within:.1} s",
                hang.kind
            )
        }
        _ => Ok(()),
    }
}

/// Returns what a rank must or must not print, as text; `None` if the line is for other ranks.
fn line_expectation(line: &LineSpec, rank: Rank, size: WorldSize, does: &str) -> Option<String> {
    let pattern = line.is_for(rank, size).then(|| line.pattern(rank, size));
    // A case whose expressions are invalid is not loaded.
    Some(format!("{does} {}", pattern?.ok()?))
}

fn write_check(
    suite: &Suite,
    scenario: &Scenario,
    check: &Check,
    seed: u64,
    out: &mut impl Write,
) -> Result<(), Failure> {
    writeln!(out, "\ncheck      {}", check.id)?;
    writeln!(out, "written    {}", check.at)?;
    for (axis, value) in &check.params {
        writeln!(out, "  {axis:9}{value}")?;
    }
    for id in check.covers.iter() {
        let text = suite
            .requirements
            .get(id)
            .map_or("", |requirement| requirement.text.as_str());
        writeln!(out, "covers     {id}: {text}")?;
    }
    if let (Some(program_check), Some(program)) = (check.program_check(), &scenario.case.program) {
        return Ok(write_program_check(scenario, program, program_check, out)?);
    }
    match &check.declared {
        Declared::Supported => {
            writeln!(out, "declared   supported: it must be right on every rank")?
        }
        Declared::Unsupported(what) if check.script().is_some() => writeln!(
            out,
            "declared   not supported ({what}): the script sees that it is refused"
        )?,
        Declared::Unsupported(what) => writeln!(
            out,
            "declared   not supported ({what}): every rank must raise, and the group must stay usable"
        )?,
    }
    if let Some(entry) = suite
        .expectations
        .find(&Point::of(scenario, "", Some(check)))
    {
        writeln!(out, "known      {} ({})", entry.reason, entry.at)?;
    }
    let steps = run::steps_of(scenario, check, seed)
        .map_err(|error| Failure::Harness(error.to_string()))?;
    for (rank, step) in steps.iter().enumerate() {
        writeln!(out, "rank {rank}")?;
        for tensor in &step.tensors {
            writeln!(
                out,
                "  tensor {} {:?}, strides {:?}, offset {}, in storage {} of {} bytes",
                tensor.dtype,
                tensor.shape,
                tensor.strides,
                tensor.offset,
                tensor.storage,
                step.storages[tensor.storage]
            )?;
        }
        for call in &step.calls {
            let call = serde_json::to_string(call).map_err(std::io::Error::from)?;
            writeln!(out, "  call {call}")?;
        }
    }
    Ok(())
}
