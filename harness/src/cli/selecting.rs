//! Evaluates the options that select cases, platforms and checks. Nothing is probed here.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use super::Failure;
use super::fleet_arguments::FleetArguments;
use super::read_run::read;
use super::select_arguments::{DriverChoice, SelectArguments};
use crate::suite::Suite;
use allranks_model::launcher::Launcher;
use allranks_model::names::ScenarioId;
use allranks_suite::case::Case;
use allranks_suite::plan::{Selection, Share, Target, plan};
use allranks_suite::platform::Platform;

/// The default profile of commands that use the whole suite.
const ALL: &str = "";

/// Returns the cases that the arguments select, without probing the machine: those that have a selected check on any backend with
/// a platform file, found or not.
///
/// # Errors
/// The arguments name something that does not exist, or select no case.
pub(super) fn selected_cases(
    arguments: &SelectArguments,
    suite: &Suite,
) -> Result<Vec<Arc<Case>>, Failure> {
    let selection = selection(arguments, suite, ALL)?;
    let targets: Vec<Target> = requested_platforms(arguments, suite)?
        .into_iter()
        .flat_map(|(platform, backends)| {
            let target = move |backend| Target {
                platform: Arc::clone(&platform),
                backend,
                devices: None,
            };
            backends.into_iter().map(target)
        })
        .collect();
    let is_narrow = !(arguments.platform.is_empty()
        && arguments.backend.is_empty()
        && arguments.world_size.is_empty()
        && arguments.filter.is_empty()
        && arguments.shard.is_none()
        && arguments.fleet.launcher.is_none()
        && arguments.driver.is_none());
    let is_selected = |case: &&Arc<Case>| {
        let profile = selection.profile.as_ref();
        let in_profile = profile.is_none_or(|profile| profile.includes(case));
        let case = std::slice::from_ref(*case);
        let mut targets = targets.iter().map(std::slice::from_ref);
        in_profile
            && (!is_narrow
                || targets.any(|target| !plan(case, target, &selection).scenarios.is_empty()))
    };
    let cases: Vec<Arc<Case>> = suite
        .cases
        .par_iter()
        .filter(is_selected)
        .cloned()
        .collect();
    match cases.is_empty() {
        true => Err(Failure::Nothing(
            "no case was selected".to_owned(),
            "`allranks list` with fewer options shows what there is".to_owned(),
        )),
        false => Ok(cases),
    }
}

/// Returns the selection that the arguments describe. `default` is the profile that is used if neither cases nor a profile are
/// named; [`ALL`] stands for none.
pub(super) fn selection(
    arguments: &SelectArguments,
    suite: &Suite,
    default: &'static str,
) -> Result<Selection, Failure> {
    let name = match &arguments.profile {
        Some(name) => Some(name.as_str()),
        None => (arguments.cases.is_empty() && default != ALL).then_some(default),
    };
    let profile = name
        .map(|name| {
            suite.profile(name).cloned().ok_or_else(|| {
                let known: Vec<_> = suite.profiles.iter().map(|p| p.name.as_str()).collect();
                Failure::Usage(
                    format!("there is no profile `{name}`"),
                    format!("profiles are {}", known.join(", ")),
                )
            })
        })
        .transpose()?;
    Ok(Selection {
        profile,
        world_sizes: arguments.world_size.clone(),
        filters: arguments.filter.clone(),
        shard: shard_of(arguments)?,
        launcher: arguments.fleet.launcher.map(Launcher::from),
        is_elsewhere: false,
        nodes: nodes(&arguments.fleet)?,
        programs: arguments.driver.as_ref().map(|driver| match driver {
            DriverChoice::Program => true,
            DriverChoice::Python | DriverChoice::Libtorch | DriverChoice::Command(_) => false,
        }),
    })
}

/// Returns the shard of the scenarios; `None` without `--shard`.
///
/// # Errors
/// The run that `--times` names cannot be read.
fn shard_of(arguments: &SelectArguments) -> Result<Option<Share>, Failure> {
    let Some(shard) = arguments.shard else {
        return Ok(None);
    };
    let Some(run) = &arguments.times else {
        return Ok(Some(Share::by_id(shard)));
    };
    let mut times = BTreeMap::<ScenarioId, u64>::new();
    // Rounds of a repeated run, and merged columns of one scenario, have one id.
    for scenario in read(run)?.scenarios {
        *times.entry(scenario.id).or_default() += scenario.duration_ms;
    }
    Ok(Some(Share::by_time(shard, &times)))
}

/// Returns the number of nodes of each world; `None` without node agents.
///
/// # Errors
/// `--nodes` is given without a launcher that has node agents.
fn nodes(arguments: &FleetArguments) -> Result<Option<u32>, Failure> {
    match (arguments.engine().is_some(), arguments.nodes) {
        (true, nodes) => Ok(Some(nodes.unwrap_or(1))),
        (false, None) => Ok(None),
        (false, Some(_)) => Err(Failure::Usage(
            "--nodes needs a launcher with node agents".to_owned(),
            "add --launcher attached, slurm, mpi, torchrun or kubernetes".to_owned(),
        )),
    }
}

/// A platform to probe, and its backends to test.
pub(super) type RequestedPlatform = (Arc<Platform>, Vec<String>);

/// Checks that the suite has the platforms that the command line names.
///
/// # Errors
/// There is no platform file of one of these names.
pub(super) fn refuse_unknown(names: &[String], suite: &Suite) -> Result<(), Failure> {
    let known: Vec<&str> = suite
        .platforms
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(Failure::Usage(
            format!("there is no platform `{unknown}`"),
            format!(
                "platforms are {}; add your own with --platforms FILE",
                known.join(", ")
            ),
        )),
    }
}

/// Returns the platforms to probe, each with the backends to test.
pub(super) fn requested_platforms(
    arguments: &SelectArguments,
    suite: &Suite,
) -> Result<Vec<RequestedPlatform>, Failure> {
    refuse_unknown(&arguments.platform, suite)?;
    let requested: Vec<_> = suite
        .platforms
        .iter()
        .filter(|one| match arguments.platform.is_empty() {
            true => !suite.on_request.contains(&one.name),
            false => arguments.platform.contains(&one.name),
        })
        .map(|platform| {
            let backends = platform
                .backends
                .keys()
                .filter(|name| arguments.backend.is_empty() || arguments.backend.contains(name))
                .cloned()
                .collect::<Vec<_>>();
            (Arc::clone(platform), backends)
        })
        .filter(|(_, backends)| !backends.is_empty())
        .collect();
    if requested.is_empty() {
        return Err(Failure::Nothing(
            format!(
                "no platform has the backend {}",
                arguments.backend.join(", ")
            ),
            "`allranks list` shows platforms and their backends".to_owned(),
        ));
    }
    Ok(requested)
}

/// Checks that a `command:` driver has a host platform to run on: only the drivers that come with allranks can count devices.
pub(super) fn check_has_host(
    requested: &[RequestedPlatform],
    suite: &Suite,
) -> Result<(), Failure> {
    let is_host = |platform: &Platform| platform.count.is_none();
    if requested.iter().any(|(platform, _)| is_host(platform)) {
        return Ok(());
    }
    let names = |platforms: &mut dyn Iterator<Item = &Arc<Platform>>| -> String {
        let names: Vec<&str> = platforms.map(|one| one.name.as_str()).collect();
        names.join(", ")
    };
    let devices = names(&mut requested.iter().map(|(platform, _)| platform));
    let hosts = names(&mut suite.platforms.iter().filter(|one| is_host(one)));
    Err(Failure::Nothing(
        format!(
            "a driver `command:PROGRAM` runs on host platforms only, and these have devices of their own: {devices}"
        ),
        format!("name one of {hosts} with --platform, or use `--driver python`"),
    ))
}
