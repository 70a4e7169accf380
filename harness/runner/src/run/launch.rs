//! Runs one world of a scenario: leases its ports and devices, starts its ranks, and runs it to its end.

use std::path::PathBuf;

use super::Shared;
use super::logs::absolute;
use super::setup::{Endpoint, OpeningSteps, SPARE_PORTS, device, environment, lease};
use super::world::{Decided, WorldPlan, WorldResult, WorldRunner};
use crate::world::{Device, LaunchError, LaunchSpec, RankLaunchSpec};
use allranks_model::evidence::Evidence;
use allranks_suite::case::Starts;
use allranks_suite::plan::Scenario;

/// Modules that torch imports when it makes the first tensor of a simulated device. The import takes a second.
const MODULES_OF_SIMULATED_DEVICES: &[&str] = &["torch.fx.experimental.symbolic_shapes"];

/// Returns the Python modules besides torch that the zygote of a scenario's ranks imports.
fn modules(scenario: &Scenario) -> &'static [&'static str] {
    if scenario.case.has_layers() || scenario.platform.imports_layers {
        allranks_model::stack::MODULES
    } else if scenario.platform.evidence == Evidence::Simulated {
        MODULES_OF_SIMULATED_DEVICES
    } else {
        &[]
    }
}

/// Starts one world and runs the checks `todo` in it, given by index. None if the run is interrupted before the world
/// is started. `logs`: one file for each rank, relative to the run's folder. `decided` receives the result of each check that
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
    let spare = match scenario.case.world.starts {
        Starts::Initialised => 0,
        Starts::Bare => SPARE_PORTS,
    };
    let reserved = {
        let reserving =
            shared
                .launcher
                .reserve(&scenario.placement, 1 + spare, &shared.settings.out);
        let Some(reserved) = shared.unless_interrupted(reserving).await.transpose()? else {
            return Ok(None);
        };
        reserved
    };
    let at = Endpoint::reserved(&reserved);
    if let Some(folder) = logs.first().and_then(|log| log.parent()) {
        std::fs::create_dir_all(shared.settings.out.join(folder))?;
    }
    let order = LaunchSpec {
        start: scenario.platform.start,
        modules: modules(scenario),
        ranks: size
            .ranks()
            .map(|rank| RankLaunchSpec {
                rank,
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
    let launched = shared
        .launcher
        .launch(order, &scenario.placement, &reserved);
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
    let mut result = runner.run(decided).await;
    result.ports = std::iter::once(at.port).chain(at.spare).collect();
    Ok(Some(result))
}
