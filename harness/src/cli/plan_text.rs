//! `allranks plan`: prints the scenarios of a plan, and what it leaves out with the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use super::args::PlanArguments;
use super::fleet::FleetRequest;
use super::planning::{PlanRequest, Planned, check_inputs, empty_plan, write_origin};
use super::select_arguments::SelectArguments;
use super::{Exit, Failure};
use allranks_model::capability::Declared;
use allranks_model::placement::Placement;
use allranks_runner::run;
use allranks_suite::case::PYTHON;
use allranks_suite::plan::Plan;

/// Runs `allranks plan`.
pub fn print(
    arguments: &PlanArguments,
    out: &mut impl Write,
    err: &mut (impl Write + Send),
) -> Result<Exit, Failure> {
    let scratch = tempfile::tempdir()?;
    let plan_request = PlanRequest::new(&arguments.select, scratch.path())?;
    write_origin(&plan_request.suite, err)?;
    let planned = plan_request.probe_and_plan(err);
    if planned.plan.scenarios.is_empty() {
        return Err(empty_plan(&planned));
    }
    check_inputs(&planned.plan, arguments.select.seed)?;
    if arguments.steps {
        return print_steps(&planned.plan, arguments.select.seed, out);
    }
    for scenario in &planned.plan.scenarios {
        let refused = scenario
            .checks
            .iter()
            .filter(|check| check.declared != Declared::Supported)
            .count();
        write!(out, "{}  {} checks", scenario.id, scenario.check_count())?;
        if refused > 0 {
            write!(out, " ({refused} must be refused)")?;
        }
        if arguments.select.fleet.nodes.is_some() || scenario.placement.nodes() > 1 {
            write!(out, " on {}", on_nodes(&scenario.placement))?;
        }
        writeln!(out)?;
    }
    writeln!(out)?;
    write_agents(&arguments.select, out)?;
    for (reason, points) in left_out(&planned.plan) {
        writeln!(out, "left out: {points} points, because {reason}")?;
    }
    for (id, reason) in &planned.plan.too_large {
        writeln!(out, "not run: {id}: {reason}")?;
    }
    write_absent(&planned, out)?;
    writeln!(
        out,
        "{} scenarios, {} checks, of {} cases, from {}",
        planned.plan.scenarios.len(),
        planned.plan.check_count(),
        case_count(&planned.plan),
        planned.suite.origin
    )?;
    Ok(Exit::AsExpected)
}

/// Writes how node agents would be started, if there are any.
fn write_agents(arguments: &SelectArguments, out: &mut impl Write) -> Result<(), Failure> {
    let Some(request) = FleetRequest::of(&arguments.fleet)? else {
        return Ok(());
    };
    match request.command() {
        Ok(Some(command)) => {
            let words = command.argv.join(" ");
            writeln!(out, "node agents: {words}; {}", command.why)?;
        }
        Ok(None) => {
            let folder = Path::new("target/allranks/RUN");
            let how = request.to_join(&folder.join("credentials.json"), folder)?;
            writeln!(out, "node agents: {how}")?;
        }
        // The engine may exist only on the machine of the run.
        Err(failure) => writeln!(out, "node agents: {failure}")?,
    }
    Ok(())
}

/// Returns `2 node(s) (2+2 ranks)`.
fn on_nodes(placement: &Placement) -> String {
    let nodes = placement.nodes();
    let ranks: Vec<String> = (0..nodes)
        .map(|node| placement.ranks_on(node).to_string())
        .collect();
    format!("{nodes} node(s) ({} ranks)", ranks.join("+"))
}

/// Writes one line of JSON for each scenario: `{"scenario", "env", "ranks"}`, the latter two with an entry for each rank. The
/// steps of a rank are those of `harness/doc/reference/protocol.md`. A program has `argv`, the command of each rank, instead.
fn print_steps(plan: &Plan, seed: u64, out: &mut impl Write) -> Result<Exit, Failure> {
    for scenario in &plan.scenarios {
        let size = scenario.world_size;
        let environment: Vec<_> = size
            .ranks()
            .map(|rank| run::distinctive_environment(scenario, rank))
            .collect();
        let line = match &scenario.case.program {
            Some(program) => serde_json::json!({
                "scenario": scenario.id,
                "env": environment,
                "argv": run::program_of_rank(scenario, program, Path::new(PYTHON)),
            }),
            None => serde_json::json!({
                "scenario": scenario.id,
                "env": environment,
                "ranks": run::steps(scenario, seed)
                    .map_err(|error| Failure::Harness(error.to_string()))?,
            }),
        };
        serde_json::to_writer(&mut *out, &line).map_err(io::Error::from)?;
        writeln!(out)?;
    }
    Ok(Exit::AsExpected)
}

/// Writes one line for each reason why scenarios cannot be run here.
pub fn write_too_large(planned: &Planned, out: &mut impl Write) -> io::Result<()> {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, reason) in &planned.plan.too_large {
        *reasons.entry(reason).or_default() += 1;
    }
    for (reason, count) in reasons {
        writeln!(out, "not run: {count} scenario(s): {reason}")?;
    }
    Ok(())
}

/// Writes one line for each platform that was not found.
pub fn write_absent(planned: &Planned, out: &mut impl Write) -> io::Result<()> {
    for absent in &planned.absent {
        writeln!(
            out,
            "not found: platform {}: {}",
            absent.platform.name, absent.reason
        )?;
    }
    Ok(())
}

fn left_out(plan: &Plan) -> BTreeMap<&str, usize> {
    let mut reasons = BTreeMap::new();
    for left_out in &plan.left_out {
        *reasons.entry(left_out.reason.as_str()).or_default() += left_out.points;
    }
    reasons
}

fn case_count(plan: &Plan) -> usize {
    let cases: BTreeSet<_> = plan
        .scenarios
        .iter()
        .map(|scenario| &scenario.case.id)
        .collect();
    cases.len()
}
