//! `allranks explain ID`: everything known of one scenario or check before it runs.

use std::io::Write;
use std::sync::Arc;

use super::args::ExplainArguments;
use super::{Exit, Failure};
use crate::names::Rank;
use crate::plan::{Check, Declared, Plan, Scenario, Selection, Target, plan};
use crate::platform::{self, Start};
use crate::run;
use crate::suite::{Request, Suite};

/// Explains. Needs no torch: the plan of *every* platform file is searched, found or not.
pub fn explain(arguments: &ExplainArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let scratch = tempfile::tempdir()?;
    let suite = Suite::load(
        &Request {
            cases: arguments.select.cases.clone(),
            platforms: arguments.select.platforms.clone(),
            expectations: arguments.select.expectations.clone(),
        },
        scratch.path(),
    )?;
    let targets: Vec<Target> = suite
        .platforms
        .iter()
        .flat_map(|platform| {
            platform.backends.keys().map(|backend| Target {
                platform: Arc::clone(platform),
                backend: backend.clone(),
                devices: None,
            })
        })
        .collect();
    let plan = plan(&suite.cases, &targets, &Selection::default());
    let id = arguments.id.as_str();
    let Some(scenario) = plan.scenarios.iter().find(|scenario| {
        let own = scenario.id.as_str();
        id == own
            || id
                .strip_prefix(own)
                .is_some_and(|rest| rest.starts_with('#'))
    }) else {
        return Err(unknown(id, &plan));
    };
    write_scenario(&suite, scenario, out)?;
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
            if id.ends_with("#init") {
                "every rank initialises and agrees on its rank, the world size and its groups."
            } else {
                "every rank tears down, gives its token, exits with code 0 and leaves no process."
            }
        )?;
    } else {
        return Err(unknown(id, &plan));
    }
    Ok(Exit::AsExpected)
}

fn unknown(id: &str, plan: &Plan) -> Failure {
    let ids = || {
        plan.scenarios.iter().flat_map(|scenario| {
            std::iter::once(scenario.id.as_str())
                .chain(scenario.checks.iter().map(|check| check.id.as_str()))
        })
    };
    let part = id.split(['@', '#']).next().unwrap_or(id);
    let hint = match ids().find(|known| known.contains(part)) {
        Some(close) => format!("an id that exists: {close}"),
        None => "`allranks plan` prints the ids of scenarios".to_owned(),
    };
    Failure::Usage(format!("there is no scenario or check `{id}`"), hint)
}

fn write_scenario(suite: &Suite, scenario: &Scenario, out: &mut impl Write) -> std::io::Result<()> {
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
    writeln!(
        out,
        "world      {} ranks, init by {}",
        scenario.world_size,
        scenario.init.method.name()
    )?;
    for group in &scenario.groups[1..] {
        let ranks: Vec<String> = group.ranks.iter().map(Rank::to_string).collect();
        writeln!(out, "group      {}: ranks {}", group.name, ranks.join(", "))?;
    }
    let profiles: Vec<&str> = suite
        .profiles
        .iter()
        .filter(|profile| profile.includes(case) && profile.has_size(scenario.world_size.0))
        .map(|profile| profile.name.as_str())
        .collect();
    writeln!(out, "selected   by profiles: {}", profiles.join(", "))?;
    writeln!(
        out,
        "argv       {} -m allranks_rank{}",
        platform::python(None).path.display(),
        match scenario.platform.start {
            Start::Fork => ", forked from a process that has imported torch",
            Start::Fresh => "",
        }
    )?;
    for (rank, (name, value)) in scenario.world_size.ranks().flat_map(|rank| {
        run::distinctive_environment(scenario, rank)
            .into_iter()
            .map(move |v| (rank, v))
    }) {
        writeln!(out, "env rank {rank} {name}={value}")?;
    }
    Ok(())
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
    for id in &check.covers {
        let text = suite
            .requirements
            .get(id)
            .map_or("", |requirement| requirement.text.as_str());
        writeln!(out, "covers     {id}: {text}")?;
    }
    match &check.declared {
        Declared::Supported => {
            writeln!(out, "declared   supported: it must be right on every rank")?
        }
        Declared::Unsupported(what) => writeln!(
            out,
            "declared   not supported ({what}): every rank must raise, and the group must stay usable"
        )?,
    }
    if let Some(entry) = suite.expectations.find(&run::point(scenario, "", check)) {
        writeln!(out, "known      {} ({})", entry.reason, entry.at)?;
    }
    let steps = run::steps_of(scenario, check, seed)
        .map_err(|error| Failure::Trouble(error.to_string()))?;
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
