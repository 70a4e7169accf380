//! One world of a scenario: what it needs is leased, its ranks are started, and it is run to its end.

use std::path::PathBuf;

use super::Shared;
use super::logs::absolute;
use super::setup::{Endpoint, OpeningSteps, SPARE_PORTS, device, environment, lease};
use super::world::{Decided, WorldPlan, WorldResult, WorldRunner};
use crate::world::{Device, LaunchError, LaunchSpec, RankLaunchSpec, lease_port};
use allranks_suite::case::Starts;
use allranks_suite::plan::Scenario;

/// Starts one world and runs the checks `todo` in it, given by index. None if the run is interrupted before the world
/// is started. `logs`: one file for each rank, relative to the run's folder. `decided` receives the finding of each check that
/// the world gets to.
pub(super) async fn world(
    shared: &Shared,
    scenario: &Scenario,
    todo: Vec<usize>,
    logs: &[PathBuf],
    decided: &mut Decided<'_>,
) -> Result<Option<WorldResult>, LaunchError> {
    let size = scenario.world_size;
    let wanted = |_: &[Device]| scenario.platform.devices_for(size);
    let Some(devices) = lease(shared, scenario, wanted).await? else {
        return Ok(None);
    };
    let port = lease_port()?;
    let scratch = tempfile::Builder::new()
        .prefix("allranks-")
        .tempdir_in(&shared.settings.out)?;
    let spare = match scenario.case.world.starts {
        Starts::Initialised => Vec::new(),
        Starts::Bare => (0..SPARE_PORTS)
            .map(|_| lease_port())
            .collect::<Result<Vec<_>, _>>()?,
    };
    let at = Endpoint {
        port: port.port,
        file: scratch.path().join("store").to_string_lossy().into_owned(),
        spare: spare.iter().map(|lease| lease.port).collect(),
    };
    if let Some(folder) = logs.first().and_then(|log| log.parent()) {
        std::fs::create_dir_all(shared.settings.out.join(folder))?;
    }
    let order = LaunchSpec {
        start: scenario.platform.start,
        modules: match scenario.checks.iter().any(|check| check.stack().is_some()) {
            true => allranks_model::stack::MODULES,
            false => &[],
        },
        ranks: size
            .ranks()
            .map(|rank| RankLaunchSpec {
                env: environment(
                    scenario,
                    &at,
                    &shared.base_environment,
                    devices.devices(),
                    rank,
                ),
                log: absolute(shared, &logs[rank.index()]),
            })
            .collect(),
    };
    let opening_steps = size
        .ranks()
        .map(|rank| {
            let device = device(scenario, devices.devices(), rank);
            OpeningSteps::new(scenario, &at, &device, rank)
        })
        .collect();
    let launched = shared.launcher.launch(order);
    let Some(world) = shared.unless_interrupted(launched).await.transpose()? else {
        return Ok(None);
    };
    let plan = WorldPlan {
        scenario,
        checks: todo,
        opening_steps,
        points: at.points(),
        expectations: &shared.expectations,
        seed: shared.settings.seed,
        import_patience: shared.settings.import_patience,
    };
    let runner = WorldRunner::new(plan, world, shared.interrupt.clone());
    Ok(Some(runner.run(decided).await))
}
