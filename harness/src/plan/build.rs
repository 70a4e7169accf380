//! Building the plan: cases × targets × world sizes × init recipes, narrowed by what the command line selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::expand::{Place, expand};
use super::{Filter, Init, Scenario, Shard, groups};
use crate::case::{Case, Profile, StepSpec};
use crate::names::{ScenarioId, WorldSize};
use crate::platform::Platform;
use crate::protocol::StoreMethod;

/// A backend to be tested on a platform that was found.
#[derive(Clone, Debug)]
pub struct Target {
    /// The platform.
    pub platform: Arc<Platform>,
    /// A key of its `backends`.
    pub backend: String,
    /// Devices observed; none: worlds of any size fit (host).
    pub devices: Option<u32>,
}

/// What the command line selects.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The profile, if one is used.
    pub profile: Option<Profile>,
    /// `--world-size`; empty: all.
    pub world_sizes: Vec<u32>,
    /// `--filter`; every one must match.
    pub filters: Vec<Filter>,
    /// `--shard I/N`.
    pub shard: Option<Shard>,
}

/// What will run, what was left out, and why.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Scenarios, in order of cases, targets, sizes, recipes.
    pub scenarios: Vec<Scenario>,
    /// Points of sweeps that have no meaning.
    pub left_out: Vec<LeftOut>,
    /// Scenarios a target is too small for, with the reason; they are not-run, never passed.
    pub too_large: Vec<(ScenarioId, String)>,
}

/// Points of one step's sweep that were left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Where.
    pub scenario: ScenarioId,
    /// The step's number in the case.
    pub step: usize,
    /// Why.
    pub reason: String,
    /// How many points.
    pub points: usize,
}

impl Plan {
    /// Number of checks, frame checks included.
    #[must_use]
    pub fn check_count(&self) -> usize {
        self.scenarios.iter().map(Scenario::check_count).sum()
    }
}

/// Works out the plan.
#[must_use]
pub fn plan(cases: &[Arc<Case>], targets: &[Target], selection: &Selection) -> Plan {
    let mut plan = Plan::default();
    for case in cases {
        if let Some(profile) = &selection.profile
            && !profile.includes(case)
        {
            continue;
        }
        if !selection
            .filters
            .iter()
            .all(|filter| filter.admits(&case.id))
        {
            continue;
        }
        for target in targets.iter().filter(|target| wants(case, target)) {
            for size in case.world.size.as_slice() {
                let asked =
                    selection.world_sizes.is_empty() || selection.world_sizes.contains(size);
                let in_profile = selection
                    .profile
                    .as_ref()
                    .is_none_or(|profile| profile.has_size(*size));
                if !asked || !in_profile {
                    continue;
                }
                for method in case.world.init.method.as_slice() {
                    add(
                        &mut plan,
                        case,
                        target,
                        WorldSize(*size),
                        *method,
                        selection,
                    );
                }
            }
        }
    }
    plan
}

fn wants(case: &Case, target: &Target) -> bool {
    let platform = case.world.platform.as_ref();
    let backend = case.world.backend.as_ref();
    platform.is_none_or(|names| names.as_slice().contains(&target.platform.name))
        && backend.is_none_or(|names| names.as_slice().contains(&target.backend))
}

fn add(
    plan: &mut Plan,
    case: &Arc<Case>,
    target: &Target,
    world_size: WorldSize,
    method: StoreMethod,
    selection: &Selection,
) {
    let mut swept = BTreeMap::new();
    if case.world.init.method.as_slice().len() > 1 {
        swept.insert("method".to_owned(), method.name().to_owned());
    }
    let recipe: String = swept
        .iter()
        .map(|(axis, value)| format!(".{axis}-{value}"))
        .collect();
    let id = ScenarioId(format!(
        "{}@{}.{}.ws{world_size}{recipe}",
        case.id, target.platform.name, target.backend
    ));
    if selection.shard.is_some_and(|shard| !shard.owns(&id)) {
        return;
    }
    if let Some(devices) = target.devices
        && devices < world_size.0
    {
        plan.too_large
            .push((id, format!("needs {world_size} devices, found {devices}")));
        return;
    }
    let groups = groups(case, world_size);
    let place = Place {
        case,
        scenario: &id,
        backend: &target.platform.backends[&target.backend],
        device: &target.platform.device_type,
        groups: &groups,
    };
    let (mut checks, mut left_out) = (Vec::new(), Vec::new());
    let profile = selection.profile.as_ref();
    let takes = |step: &StepSpec| profile.is_none_or(|profile| profile.takes(step.profile()));
    if !case.steps.iter().any(takes) {
        return;
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
        init: Init { method, swept },
        groups,
        checks,
    };
    let Some(scenario) = narrow(scenario, &selection.filters) else {
        return;
    };
    plan.left_out.extend(left_out);
    plan.scenarios.push(scenario);
}

/// Keeps the checks that every filter matches; a scenario stays if it, or one of its checks, matches.
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
