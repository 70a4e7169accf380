//! Builds the plan: cases × targets × world sizes × init recipes, narrowed by what the command line selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use super::context::ScenarioContext;
use super::expand::expand;
use super::program::checks as program_checks;
use super::selection::{Selection, Target};
use super::spread::Spread;
use super::{Filter, Init, Scenario, groups};
use crate::case::{Case, Fail, InitSpec, OneOrMany, Recipe, StepSpec, When};
use allranks_model::group::Group;
use allranks_model::launcher::Launcher;
use allranks_model::names::{ScenarioId, WorldSize};
use allranks_model::placement::Placement;
use allranks_model::recipe::{CpuBackend, DeviceId, SetDevice};

/// What will run, what was left out, and the reasons.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The scenarios, in order of cases, targets, sizes, recipes.
    pub scenarios: Vec<Scenario>,
    /// Points of sweeps that are not checked, because they are not meaningful or were not asked for.
    pub left_out: Vec<Excluded>,
    /// Scenarios that this machine cannot run, each with the reason: too few devices, something that is missing. They
    /// count as not run, never as passed.
    pub too_large: Vec<(ScenarioId, String)>,
}

/// Points of one step's sweep that were left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// The scenario they would be in.
    pub scenario: ScenarioId,
    /// The number of the step in the case, from 0.
    pub step: usize,
    /// Why they were left out, in words for reports.
    pub reason: String,
    /// The number of points.
    pub points: usize,
}

impl Plan {
    /// Returns the number of checks, frame checks included.
    #[must_use]
    pub fn check_count(&self) -> usize {
        self.scenarios.iter().map(Scenario::check_count).sum()
    }
}

/// Computes the plan of all cases, in parallel; its order does not depend on that.
#[must_use]
pub fn plan(cases: &[Arc<Case>], targets: &[Target], selection: &Selection) -> Plan {
    let parts: Vec<Plan> = cases
        .par_iter()
        .filter(|case| {
            let profile = selection.profile.as_ref();
            let mut filters = selection.filters.iter();
            profile.is_none_or(|profile| profile.includes(case))
                && filters.all(|filter| filter.admits(&case.id))
        })
        .map(|case| plan_one(case, targets, selection))
        .collect();
    let mut plan = Plan::default();
    for part in parts {
        plan.scenarios.extend(part.scenarios);
        plan.left_out.extend(part.left_out);
        plan.too_large.extend(part.too_large);
    }
    plan
}

/// Computes the plan of one case.
fn plan_one(case: &Arc<Case>, targets: &[Target], selection: &Selection) -> Plan {
    let mut plan = Plan::default();
    for target in targets.iter().filter(|target| wants(case, target)) {
        for size in case.world.size.as_slice() {
            let asked = selection.world_sizes.is_empty() || selection.world_sizes.contains(size);
            let in_profile = selection
                .profile
                .as_ref()
                .is_none_or(|profile| profile.has_size(&case.id, *size));
            if !asked || !in_profile {
                continue;
            }
            let size = WorldSize(*size);
            for variant in world_variants(case, target, size, selection.nodes) {
                add(&mut plan, case, target, size, variant, selection);
            }
        }
    }
    plan
}

/// One variant of a case's worlds of one size: an init recipe, a launcher, and the spread over nodes.
pub(super) struct WorldVariant {
    pub init: Init,
    pub launcher: Launcher,
    pub spread: Spread,
}

/// Returns every combination of init recipe, launcher and spread over nodes that a case has in worlds of `size` ranks. `nodes`
/// is the value of `--nodes`; `None` without it.
pub(super) fn world_variants(
    case: &Case,
    target: &Target,
    size: WorldSize,
    nodes: Option<u32>,
) -> Vec<WorldVariant> {
    let inits = recipes(&case.world.init, target).into_iter();
    let launched = inits.flat_map(|init| launched(case, init));
    launched
        .flat_map(|(launcher, init)| {
            let spreads = Spread::of_case(case, size, nodes).into_iter();
            spreads.map(move |spread| WorldVariant {
                init: init.clone(),
                launcher,
                spread,
            })
        })
        .collect()
}

/// Returns a recipe once for each launcher of the case. If there are several, the launcher is among the recipe's swept
/// axes, and so in ids and columns.
fn launched(case: &Case, init: Init) -> Vec<(Launcher, Init)> {
    let local = [Launcher::Local];
    let launchers = case.program.as_ref();
    let launchers = launchers.map_or(&local[..], |program| program.launcher.as_slice());
    let named = |launcher: &Launcher| {
        let mut init = init.clone();
        if launchers.len() > 1 {
            let name = launcher.name().to_owned();
            init.swept.insert("launcher".to_owned(), name);
        }
        (*launcher, init)
    };
    launchers.iter().map(named).collect()
}

/// Returns why a scenario is not among those that the command line asks for; `None` if it is.
fn why_not_selected(
    case: &Case,
    launcher: Launcher,
    selection: &Selection,
) -> Option<&'static str> {
    let is_program = case.program.is_some();
    match (selection.programs, selection.launcher) {
        (Some(true), _) if !is_program => Some("only `program:` cases have the driver `program`"),
        (Some(false), _) if is_program => Some("a `program:` case has a driver of its own"),
        (_, Some(Launcher::Torchrun)) if !is_program && selection.nodes.is_none() => Some(
            "`--launcher torchrun` starts other ranks than those of programs with `--nodes` only",
        ),
        (_, Some(asked)) if is_program && asked != launcher => {
            Some("`--launcher` names another launcher")
        }
        _ => None,
    }
}

/// Returns whether the case is for this target.
pub(super) fn wants(case: &Case, target: &Target) -> bool {
    let platform = case.world.platform.as_ref();
    let backend = case.world.backend.as_ref();
    let has_device = target.platform.is_on_device() || !case.world.on_device;
    has_device
        && platform.is_none_or(|names| names.as_slice().contains(&target.platform.name))
        && backend.is_none_or(|names| names.as_slice().contains(&target.backend))
}

/// Returns the points of an init matrix that exist on a target.
fn recipes(spec: &InitSpec, target: &Target) -> Vec<Init> {
    let platform = &target.platform;
    // torch refuses to bind a world to a CPU, and a world on the host has a backend for the host's tensors anyway. If the
    // platform file has an `init` for the backend, that says what the world has for them.
    let on_device = platform.is_on_device();
    let is_plain = platform.backends[&target.backend].init.is_none();
    let usual = Recipe {
        cpu_backend: match is_plain {
            true => platform.recipe.cpu_backend,
            false => CpuBackend::Absent,
        },
        set_device: match &platform.set_device {
            Some(_) => platform.recipe.set_device,
            None => SetDevice::Before,
        },
        device_id: platform.recipe.device_id,
    };
    let device_ids = named(&spec.device_id, &usual.device_id);
    let set_devices = named(&spec.set_device, &usual.set_device);
    let cpu_backends = named(&spec.cpu_backend, &usual.cpu_backend);
    let mut recipes = Vec::new();
    for method in spec.method.as_slice() {
        for cpu_backend in cpu_backends {
            for device_id in device_ids {
                for set_device in set_devices {
                    let there = (*device_id == DeviceId::Absent || on_device)
                        && (*cpu_backend == CpuBackend::Absent || on_device && is_plain)
                        && (*set_device == SetDevice::Before || platform.set_device.is_some());
                    if there {
                        recipes.push(Init {
                            method: *method,
                            device_id: *device_id,
                            set_device: *set_device,
                            cpu_backend: *cpu_backend,
                            swept: BTreeMap::new(),
                        });
                    }
                }
            }
        }
    }
    let swept = [
        ("method", spec.method.as_slice().len()),
        ("cpu_backend", cpu_backends.len()),
        ("device_id", device_ids.len()),
        ("set_device", set_devices.len()),
    ];
    for init in &mut recipes {
        for (axis, _) in swept.iter().filter(|(_, values)| *values > 1) {
            let value = match *axis {
                "method" => init.method.name(),
                "cpu_backend" => init.cpu_backend.name(),
                "device_id" => init.device_id.name(),
                _ => init.set_device.name(),
            };
            init.swept.insert((*axis).to_owned(), value.to_owned());
        }
    }
    recipes
}

/// Returns the values that a case lists, or the usual one if it lists none.
fn named<'a, T>(list: &'a Option<OneOrMany<T>>, usual: &'a T) -> &'a [T] {
    list.as_ref()
        .map_or(std::slice::from_ref(usual), OneOrMany::as_slice)
}

/// Returns the failure that a case expects at a point of its matrix, if any.
pub(super) fn refused(case: &Case, target: &Target, size: WorldSize, init: &Init) -> Option<Fail> {
    fn has<T: PartialEq>(list: &Option<OneOrMany<T>>, value: &T) -> bool {
        list.as_ref()
            .is_none_or(|list| list.as_slice().contains(value))
    }
    let fits = |when: &When| {
        has(&when.platform, &target.platform.name)
            && has(&when.backend, &target.backend)
            && has(&when.size, &size.0)
            && has(&when.device_id, &init.device_id)
            && has(&when.set_device, &init.set_device)
            && has(&when.cpu_backend, &init.cpu_backend)
    };
    let expected = case.expect.iter().find(|entry| fits(&entry.when))?;
    expected.fail.clone()
}

/// Returns the id of a scenario.
pub(super) fn scenario_id(
    case: &Case,
    target: &Target,
    world_size: WorldSize,
    variant: &WorldVariant,
) -> ScenarioId {
    let swept = variant.init.swept.iter();
    let recipe: String = swept
        .map(|(axis, value)| format!(".{axis}-{value}"))
        .collect();
    let nodes = variant.spread.in_id(case);
    ScenarioId(format!(
        "{}@{}.{}.ws{world_size}{nodes}{recipe}",
        case.id, target.platform.name, target.backend
    ))
}

/// Returns the number of ranks on each node of a scenario.
///
/// # Errors
/// The reason why the ranks cannot be placed: too few nodes, or a launcher that cannot place them so.
pub(super) fn placed(
    case: &Case,
    target: &Target,
    world_size: WorldSize,
    variant: &WorldVariant,
    selection: &Selection,
) -> Result<Placement, String> {
    let spread = variant.spread.clone();
    match &case.program {
        Some(_) => spread.placed_program(world_size, variant.launcher, selection),
        None => spread.placed(target, world_size, variant.init.method, selection.nodes),
    }
}

/// Returns what a scenario needs and does not find; `None` if it lacks nothing. `is_elsewhere`: the machine that it will run on
/// has what cases need.
pub(super) fn lacking(
    case: &Case,
    target: &Target,
    world_size: WorldSize,
    is_elsewhere: bool,
) -> Option<String> {
    let needed = target.platform.devices_for(world_size);
    if let Some(devices) = target.devices
        && devices < needed
    {
        return Some(format!("needs {needed} devices, found {devices}"));
    }
    if case.program.is_some() && target.platform.ranks_per_device.get() > 1 {
        let lack = "a program takes its local rank for its device's index, and ranks share devices";
        return Some(lack.to_owned());
    }
    match is_elsewhere {
        true => None,
        false => case.world.needs.iter().find_map(|need| need.lacking()),
    }
}

/// Returns the groups that are created; one that is not has no checks.
pub(super) fn created(groups: &[Arc<Group>], refused: Option<&Fail>) -> Vec<Arc<Group>> {
    let is_created = |group: &&Arc<Group>| !refused.is_some_and(|fail| fail.is_at(group));
    groups.iter().filter(is_created).cloned().collect()
}

/// Adds one scenario to the plan, or the reason why it is not there.
fn add(
    plan: &mut Plan,
    case: &Arc<Case>,
    target: &Target,
    world_size: WorldSize,
    variant: WorldVariant,
    selection: &Selection,
) {
    let id = scenario_id(case, target, world_size, &variant);
    if selection
        .shard
        .as_ref()
        .is_some_and(|share| !share.owns(&id))
    {
        return;
    }
    if let Some(lack) = lacking(case, target, world_size, selection.is_elsewhere) {
        plan.too_large.push((id, lack));
        return;
    }
    let placement = match placed(case, target, world_size, &variant, selection) {
        Ok(placement) => placement,
        Err(lack) => {
            plan.too_large.push((id, lack));
            return;
        }
    };
    let WorldVariant { init, launcher, .. } = variant;
    let groups = groups(case, &target.platform, &target.backend, world_size);
    let refused = refused(case, target, world_size, &init);
    let made = created(&groups, refused.as_ref());
    let place = ScenarioContext {
        case,
        scenario: &id,
        backend: &target.platform.backends[&target.backend],
        platform: &target.platform,
        groups: &made,
    };
    let (mut checks, mut left_out) = (Vec::new(), Vec::new());
    let profile = selection.profile.as_ref();
    let takes = |step: &StepSpec| profile.is_none_or(|profile| profile.takes(step.profile()));
    if case.program.is_none() && !case.steps.iter().any(takes) {
        return;
    }
    if let Some(program) = &case.program {
        checks = program_checks(&place, program, launcher);
    }
    for (number, step) in case.steps.iter().enumerate() {
        if takes(step) {
            expand(&place, number, step, &mut checks, &mut left_out);
        }
    }
    let scenario = Scenario {
        id,
        case: Arc::clone(case),
        platform: Arc::clone(&target.platform),
        backend: target.backend.clone(),
        devices: target.devices,
        world_size,
        placement,
        init,
        launcher,
        groups,
        checks,
        refused,
    };
    let Some(scenario) = narrow(scenario, &selection.filters) else {
        return;
    };
    if let Some(reason) = why_not_selected(case, launcher, selection) {
        plan.left_out.push(Excluded {
            scenario: scenario.id.clone(),
            step: 0,
            reason: reason.to_owned(),
            points: scenario.check_count(),
        });
        return;
    }
    plan.left_out.extend(left_out);
    plan.scenarios.push(scenario);
}

/// Keeps the checks that every filter matches. Returns `None` if neither a check nor the scenario itself matches.
fn narrow(mut scenario: Scenario, filters: &[Filter]) -> Option<Scenario> {
    if filters.is_empty() {
        return Some(scenario);
    }
    let checks = std::mem::take(&mut scenario.checks);
    let kept: Vec<_> = checks
        .into_iter()
        .filter(|check| {
            filters
                .iter()
                .all(|filter| filter.matches(&scenario, Some(check)))
        })
        .collect();
    let stays = !kept.is_empty() || filters.iter().all(|filter| filter.matches(&scenario, None));
    scenario.checks = kept;
    stays.then_some(scenario)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::plan::Check;
    use allranks_model::capability::Declared;

    fn checkout(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path)
    }

    /// The scenarios of a case of the repository on one of its platforms.
    fn scenarios(case: &str, platform: &str) -> Vec<Scenario> {
        let cases =
            crate::case::load(&[checkout(case)]).unwrap_or_else(|found| panic!("{}", found[0]));
        let folders = ["fixtures/platforms", "fixtures/sim/platforms"].map(checkout);
        let platforms =
            crate::platform::load(&folders).unwrap_or_else(|found| panic!("{}", found[0]));
        let platform = platforms
            .into_iter()
            .find(|one| one.name == platform)
            .unwrap();
        let target = Target {
            backend: platform.backends.keys().next().unwrap().clone(),
            platform: Arc::new(platform),
            devices: Some(8),
        };
        plan(&cases.cases, &[target], &Selection::default()).scenarios
    }

    #[test]
    fn every_way_to_initialise_is_a_scenario_on_a_device_and_none_on_a_host() {
        let ways = scenarios("cases/platforms/recipes.yaml", "simxpu");
        assert_eq!(ways.len(), 18);
        let last = ways.last().unwrap();
        assert_eq!(
            last.id.as_str(),
            "platforms/recipes@simxpu.simxccl.ws4.cpu_backend-gloo.device_id-device.set_device-never"
        );
        assert_eq!(last.init_backend(), "cpu:gloo,simxpu:simxccl");
        assert_eq!(ways[0].init_backend(), "simxccl");
        assert!(scenarios("cases/platforms/recipes.yaml", "cpu").is_empty());
    }

    #[test]
    fn scripts_that_receive_without_a_source_are_for_platforms_that_declare_it() {
        let scripts = |case: &str, platform: &str| -> Vec<(String, Declared)> {
            let found = scenarios(case, platform);
            let checks = found.iter().flat_map(|scenario| &scenario.checks);
            let mut scripts: Vec<_> = checks
                .map(|check| (check.params[1].1.clone(), check.declared.clone()))
                .collect();
            scripts.dedup();
            scripts
        };
        let supported = |name: &str| (name.to_owned(), Declared::Supported);
        let used = ["one-sender", "all-at-once", "all-to-all"].map(supported);
        assert_eq!(scripts("cases/p2p/any_source.yaml", "cpu")[..3], used);
        assert_eq!(scripts("cases/p2p/any_source.yaml", "simhpu"), []);
        assert_eq!(scripts("cases/p2p/named_source.yaml", "cpu"), []);
        let what = "simhccl does not declare send_recv without a source";
        let refused = ("refused".to_owned(), Declared::Unsupported(what.to_owned()));
        assert_eq!(scripts("cases/p2p/named_source.yaml", "simhpu"), [refused]);
    }

    #[test]
    fn a_world_that_does_not_say_how_is_initialised_as_the_platform_recommends() {
        let file = checkout("fixtures/sim/platforms/simxpu.yaml");
        let mut text = std::fs::read_to_string(&file).unwrap();
        text.push_str("recipe: {device_id: device, set_device: after, cpu_backend: gloo}\n");
        let text = text.replace("made_of: {platform: cpu, backend: gloo, except: [monitored_barrier, all_reduce_sparse]}", "supports: [{ops: barrier}]");
        let source = allranks_yaml::Source::new("simxpu.yaml", &text);
        let platform = crate::platform::parse(source, Path::new("")).unwrap();
        let target = Target {
            backend: "simxccl".to_owned(),
            platform: Arc::new(platform),
            devices: Some(8),
        };
        let planned = |init: &InitSpec, target: &Target| -> Vec<_> {
            let ways = recipes(init, target).into_iter();
            ways.map(|way| {
                (
                    way.device_id,
                    way.set_device,
                    way.cpu_backend,
                    way.swept.len(),
                )
            })
            .collect()
        };
        let recommended = (DeviceId::Device, SetDevice::After, CpuBackend::Gloo, 0);
        assert_eq!(planned(&InitSpec::default(), &target), [recommended]);
        // What the case names, it has.
        let plain = InitSpec {
            device_id: Some(OneOrMany::One(DeviceId::Absent)),
            ..InitSpec::default()
        };
        let absent = (DeviceId::Absent, SetDevice::After, CpuBackend::Gloo, 0);
        assert_eq!(planned(&plain, &target), [absent]);
        // A backend's own string for init says what the host's tensors have.
        let mut platform = crate::platform::Platform::clone(&target.platform);
        platform.backends.get_mut("simxccl").unwrap().init = Some("simxpu:simxccl".to_owned());
        let whole = Target {
            platform: Arc::new(platform),
            ..target
        };
        let said = (DeviceId::Device, SetDevice::After, CpuBackend::Absent, 0);
        assert_eq!(planned(&InitSpec::default(), &whole), [said]);
    }

    #[test]
    fn what_must_fail_has_no_checks_and_everything_else_has() {
        let of_group = |scenario: &Scenario, name: &str| {
            let named = |check: &&Check| check.group.name == name;
            scenario.checks.iter().filter(named).count()
        };
        for scenario in scenarios("cases/platforms/pair.yaml", "simnpu") {
            let bound = scenario.init.device_id == DeviceId::Device;
            assert_eq!(scenario.refused.is_some(), bound);
            for (group, refused) in [
                ("gloo", bound),
                ("cpu", bound),
                ("both", false),
                ("device", false),
            ] {
                let expected = if refused { 0 } else { 2 };
                assert_eq!(of_group(&scenario, group), expected, "{group}");
                let named = scenario
                    .groups
                    .iter()
                    .find(|one| one.name == group)
                    .unwrap();
                assert_eq!(scenario.refuses(named), refused, "{group}");
            }
        }
    }

    #[test]
    fn tensors_lie_where_their_group_s_backend_is_for() {
        let scenario = &scenarios("cases/platforms/pair.yaml", "simhpu")[0];
        let on_host: Vec<_> = scenario
            .groups
            .iter()
            .map(|group| (group.name.as_str(), group.on_host))
            .collect();
        let expected = [
            ("world", false),
            ("gloo", true),
            ("cpu", true),
            ("both", true),
            ("device", false),
        ];
        assert_eq!(on_host, expected);
        assert_eq!(
            scenario.groups[3].backend.as_deref(),
            Some("cpu:gloo,simhpu:simhccl")
        );
        // On the host there is no other place.
        let host = scenarios("cases/groups/side_backend.yaml", "cpu");
        assert!(host[0].groups.iter().all(|group| !group.on_host));
    }
}
