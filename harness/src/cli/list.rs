//! `allranks list`: lists cases, or requirements with the cases that cover them.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use rayon::prelude::*;

use super::args::ListArguments;
use super::{Exit, Failure, planning, selecting};
use crate::suite::Suite;
use allranks_model::names::{CaseId, RequirementId};
use allranks_suite::case::{Case, Level};
use allranks_suite::plan::{ProgramCheck, Target, coverage};
use allranks_suite::platform::Platform;

/// Lists cases, or requirements with the cases that cover them.
pub fn list(
    arguments: &ListArguments,
    out: &mut impl Write,
    err: &mut impl Write,
) -> Result<Exit, Failure> {
    let scratch = tempfile::tempdir()?;
    let mut suite = Suite::load(&arguments.select.request(), scratch.path())?;
    planning::write_origin(&suite, err)?;
    let all = suite.cases.len();
    suite.cases = selecting::selected_cases(&arguments.select, &suite)?;
    if arguments.requirements {
        list_requirements(&suite, suite.cases.len() == all, out)?;
    } else {
        list_cases(&suite, suite.cases.len() == all, out)?;
    }
    Ok(Exit::AsExpected)
}

/// Lists cases and, if all cases are listed, profiles and platforms.
fn list_cases(suite: &Suite, are_all: bool, out: &mut impl Write) -> std::io::Result<()> {
    let width = suite
        .cases
        .iter()
        .map(|case| case.id.as_str().len())
        .max()
        .unwrap_or(0);
    for case in &suite.cases {
        let sizes: Vec<String> = case
            .world
            .size
            .as_slice()
            .iter()
            .map(u32::to_string)
            .collect();
        let id = case.id.as_str();
        writeln!(
            out,
            "{id:width$}  {} (worlds of {}{})",
            case.title,
            sizes.join(", "),
            launchers(case)
        )?;
    }
    if !are_all {
        return Ok(());
    }
    writeln!(out)?;
    for profile in &suite.profiles {
        let count = suite
            .cases
            .iter()
            .filter(|case| profile.includes(case))
            .count();
        writeln!(
            out,
            "profile {}: {count} cases: {}",
            profile.name, profile.description
        )?;
    }
    for platform in &suite.platforms {
        let backends: Vec<_> = platform.backends.keys().map(String::as_str).collect();
        writeln!(
            out,
            "platform {}: backends {}",
            platform.name,
            backends.join(", ")
        )?;
    }
    Ok(())
}

/// Returns the launchers of a program case, `; a program under local, torchrun`; empty for other cases.
fn launchers(case: &Case) -> String {
    let Some(program) = &case.program else {
        return String::new();
    };
    let launchers = program.launcher.as_slice().iter();
    let names: Vec<&str> = launchers.map(|launcher| launcher.name()).collect();
    format!("; a program under {}", names.join(", "))
}

/// Lists requirements with the cases that cover them and the number of their checks, in every world on every backend that has a
/// platform file, found or not. A MUST that no case covers is marked. If not all cases are listed, uncovered requirements are
/// left out.
fn list_requirements(suite: &Suite, are_all: bool, out: &mut impl Write) -> std::io::Result<()> {
    let targets: Vec<Target> = suite
        .platforms
        .iter()
        .filter(|platform| !suite.on_request.contains(&platform.name))
        .flat_map(targets)
        .collect();
    let checks: BTreeMap<&CaseId, BTreeMap<RequirementId, usize>> = suite
        .cases
        .par_iter()
        .map(|case| (&case.id, coverage(case, &targets)))
        .collect();
    let (mut listed, mut uncovered) = (0, 0);
    for requirement in suite.requirements.iter() {
        let id = &requirement.id;
        let cases: Vec<&CaseId> = suite
            .cases
            .iter()
            .filter(|case| {
                let steps = || case.steps.iter().any(|step| step.covers().contains(id));
                let of_program = || {
                    ProgramCheck::of_case(case).any(|program_check| program_check.covers() == *id)
                };
                case.covers.contains(id) || steps() || of_program()
            })
            .map(|case| &case.id)
            .collect();
        if cases.is_empty() && !are_all {
            continue;
        }
        listed += 1;
        let count = |case: &CaseId| checks[case].get(id).copied().unwrap_or(0);
        let total: usize = cases.iter().map(|case| count(case)).sum();
        let level = match requirement.level {
            Level::Must => "MUST",
            Level::Should => "SHOULD",
        };
        writeln!(
            out,
            "{id}  {level:6}  {} cases, {total} checks",
            cases.len()
        )?;
        writeln!(out, "    {}", requirement.text)?;
        for case in &cases {
            writeln!(out, "    {case}: {} checks", count(case))?;
        }
        for (backend, reason) in &requirement.not_on {
            writeln!(out, "    not on {backend}: {reason}")?;
        }
        if INIT_AND_END.contains(&id.as_str()) {
            writeln!(out, "    the checks `init` and `end` of every scenario")?;
        } else if cases.is_empty() {
            uncovered += usize::from(requirement.level == Level::Must);
            writeln!(out, "    UNCOVERED")?;
        }
    }
    writeln!(out)?;
    match are_all {
        true => writeln!(
            out,
            "{listed} requirements; {uncovered} that say MUST are uncovered"
        ),
        false => writeln!(out, "{listed} requirements that the listed cases cover"),
    }
}

/// The requirements that the checks `init` and `end` of every scenario cover.
const INIT_AND_END: &[&str] = &["INIT-002", "DOWN-001"];

fn targets(platform: &Arc<Platform>) -> impl Iterator<Item = Target> {
    let backends = platform.backends.keys().cloned();
    backends.map(move |backend| Target {
        platform: Arc::clone(platform),
        backend,
        devices: None,
    })
}
