//! `allranks list`: cases, or requirements and what covers them.

use std::io::Write;

use super::args::ListArguments;
use super::{Exit, Failure};
use crate::suite::{Request, Suite};

/// Lists.
pub fn list(arguments: &ListArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let scratch = tempfile::tempdir()?;
    let select = &arguments.select;
    let suite = Suite::load(
        &Request {
            cases: select.cases.clone(),
            platforms: select.platforms.clone(),
            expectations: select.expectations.clone(),
        },
        scratch.path(),
    )?;
    if arguments.requirements {
        requirements(&suite, out)?;
    } else {
        cases(&suite, out)?;
    }
    Ok(Exit::AsExpected)
}

fn cases(suite: &Suite, out: &mut impl Write) -> std::io::Result<()> {
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
            "{id:width$}  {} (worlds of {})",
            case.title,
            sizes.join(", ")
        )?;
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

fn requirements(suite: &Suite, out: &mut impl Write) -> std::io::Result<()> {
    for requirement in suite.requirements.iter() {
        writeln!(out, "{}  {}", requirement.id, requirement.text)?;
        let covers = |ids: &[crate::names::RequirementId]| ids.contains(&requirement.id);
        let mut covered = false;
        for case in &suite.cases {
            if covers(&case.covers) || case.steps.iter().any(|step| covers(step.covers())) {
                covered = true;
                writeln!(out, "    {}", case.id)?;
            }
        }
        if !covered {
            writeln!(out, "    no case covers it")?;
        }
    }
    Ok(())
}
