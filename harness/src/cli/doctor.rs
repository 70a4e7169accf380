//! `allranks doctor`: what this machine has, what is wrong with it, and the fix for each.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::args::DoctorArguments;
use super::selecting::refuse_unknown;
use super::{Exit, Failure};
use crate::doctor;
use crate::doctor::{Depth, Facts, FactsQuery, Severity, text};
use crate::suite::{Request, Suite};
use allranks_runner::probe;
use allranks_suite::platform::Platform;

/// Version of the JSON.
const FORMAT: u32 = 1;

/// Collects facts, applies the rules, and prints both.
pub fn doctor(arguments: &DoctorArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let scratch = tempfile::tempdir()?;
    let request = Request {
        platforms: arguments.platforms.clone(),
        ..Request::default()
    };
    let wanted = requested_platforms(arguments, &Suite::load(&request, scratch.path())?)?;
    let python = probe::python(arguments.python.as_deref());
    let patience = Duration::from_secs(arguments.patience);
    let query = FactsQuery::here(Some(python), Depth::Everything, patience);
    let mut facts = doctor::collect(&query);
    facts.platforms = doctor::platforms(&wanted, &facts, &query);
    let findings = doctor::findings(&facts);
    if arguments.json {
        let mut whole =
            json!({"format": FORMAT, "allranks": env!("CARGO_PKG_VERSION"), "findings": findings});
        merge_facts(&mut whole, &facts)?;
        serde_json::to_writer_pretty(&mut *out, &whole).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        writeln!(out, "this machine")?;
        let lines = text::facts(&facts).into_iter();
        let gap = (!findings.is_empty()).then(String::new);
        for line in lines.chain(gap).chain(text::findings(&findings)) {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "\n{}", text::summary(&findings))?;
    }
    let is_faulty = findings.iter().any(|finding| match finding.severity {
        Severity::Fault => true,
        Severity::Warning | Severity::Note => false,
    });
    Ok(if is_faulty {
        Exit::Unexpected
    } else {
        Exit::AsExpected
    })
}

/// Adds the facts to a JSON object, each under its own name.
///
/// # Errors
/// The facts cannot be converted to JSON.
pub fn merge_facts(whole: &mut serde_json::Value, facts: &Facts) -> io::Result<()> {
    if let (Some(whole), serde_json::Value::Object(facts)) =
        (whole.as_object_mut(), serde_json::to_value(facts)?)
    {
        whole.extend(facts);
    }
    Ok(())
}

/// Returns the platforms to probe, each with true if it was named on the command line.
fn requested_platforms(
    arguments: &DoctorArguments,
    suite: &Suite,
) -> Result<Vec<(Arc<Platform>, bool)>, Failure> {
    refuse_unknown(&arguments.platform, suite)?;
    let found = suite.platforms.iter().filter_map(|platform| {
        let is_wanted = arguments.platform.contains(&platform.name);
        let is_looked_for = match arguments.platform.is_empty() {
            true => !suite.on_request.contains(&platform.name),
            false => is_wanted,
        };
        is_looked_for.then(|| (Arc::clone(platform), is_wanted))
    });
    Ok(found.collect())
}
