//! Counts the checks that cover each requirement without making them: the points of a sweep are the same in all groups of
//! one size, whatever the platform, so they are counted once for each size.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::axes::Axes;
use super::build::{created, lacking, placed, refused, scenario_id, wants, world_variants};
use super::context::ScenarioContext;
use super::expand::{drawn, refusal_would_deadlock, scripted};
use super::groups;
use super::op_point::{declared, unsupported_reason};
use super::program::checks as program_checks;
use super::selection::{Selection, Target};
use super::sweep::points;
use crate::case::{Case, OneOrMany, OpSpec, StackSpec, StepSpec, SweepSpec};
use allranks_model::capability::Declared;
use allranks_model::launcher::Launcher;
use allranks_model::names::{RequirementId, WorldSize};

/// Returns the number of checks of a case on these targets that cover each requirement: as many as
/// [`plan`](super::plan()) makes if everything is selected. The two frame checks of every scenario are not among them.
#[must_use]
pub fn coverage(case: &Arc<Case>, targets: &[Target]) -> BTreeMap<RequirementId, usize> {
    let mut counter = Counter {
        case,
        sweeps: BTreeMap::new(),
        layers: BTreeMap::new(),
        counts: BTreeMap::new(),
    };
    for target in targets.iter().filter(|target| wants(case, target)) {
        for size in case.world.size.as_slice() {
            let size = WorldSize(*size);
            if lacking(case, target, size, false).is_none() {
                counter.world(target, size);
            }
        }
    }
    counter.counts
}

/// Counts the checks of one case.
struct Counter<'a> {
    case: &'a Arc<Case>,
    sweeps: BTreeMap<SweepKey, Points>,
    /// The number of points of a step about a layer, by the step's number and the size of the world.
    layers: BTreeMap<(usize, u32), usize>,
    counts: BTreeMap<RequirementId, usize>,
}

/// What the meaning of a sweep's points depends on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SweepKey {
    /// The number of the step in its case, from 0.
    step: usize,
    group_size: usize,
    is_on_device: bool,
}

/// The points of a sweep that have a meaning.
struct Points {
    /// Number of points that are checked on every backend.
    everywhere: usize,
    /// Points that are checked only where the platform file declares them.
    if_declared: Vec<Vec<usize>>,
}

impl Counter<'_> {
    /// Counts the checks in all worlds of one size on one target.
    fn world(&mut self, target: &Target, size: WorldSize) {
        let case = Arc::clone(self.case);
        let selection = Selection::default();
        let all = groups(&case, &target.platform, &target.backend, size);
        for variant in world_variants(&case, target, size, selection.nodes) {
            if placed(&case, target, size, &variant, &selection).is_err() {
                continue;
            }
            let made = created(&all, refused(&case, target, size, &variant.init).as_ref());
            let place = ScenarioContext {
                case: &case,
                scenario: &scenario_id(&case, target, size, &variant),
                backend: &target.platform.backends[&target.backend],
                platform: &target.platform,
                groups: &made,
            };
            self.scenario(&place, variant.launcher);
        }
    }

    fn scenario(&mut self, place: &ScenarioContext<'_>, launcher: Launcher) {
        if let Some(program) = &place.case.program {
            for check in program_checks(place, program, launcher) {
                self.add(&check.covers, 1);
            }
        }
        for (number, step) in place.case.steps.iter().enumerate() {
            let count = match step {
                StepSpec::Sweep(step) => self.sweep(place, number, step),
                StepSpec::Stack { spec, .. } => self.layers(place, number, spec),
                StepSpec::Script { spec, line } => {
                    let is_made =
                        |it: Option<&OpSpec>| scripted(place, number, spec, *line, it, 0).is_ok();
                    match spec.over.as_slice() {
                        [] => usize::from(is_made(None)),
                        ops => ops.iter().filter(|op| is_made(Some(op))).count(),
                    }
                }
                // Whether a sequence can be drawn depends on the platform and the world, and not on which it is.
                StepSpec::Random { spec, line } => match drawn(place, number, spec, *line, 0, 0) {
                    Ok(_) => spec.count as usize,
                    Err(_) => 0,
                },
            };
            self.add(&place.covers(step.covers()), count);
        }
    }

    fn add(&mut self, covers: &[RequirementId], count: usize) {
        for id in covers {
            *self.counts.entry(id.clone()).or_default() += count;
        }
    }

    /// Returns the number of points of a sweep in all groups that it is for.
    fn sweep(&mut self, place: &ScenarioContext<'_>, number: usize, step: &SweepSpec) -> usize {
        let world = OneOrMany::One("world".to_owned());
        let names = step.params.group.as_ref().unwrap_or(&world).as_slice();
        let is_on_device = place.platform.is_on_device();
        let mut count = 0;
        for name in names {
            let meant = place.groups.iter().filter(|group| group.is_called(name));
            for group in meant.filter(|group| !group.ranks.is_empty()) {
                let axes = Axes::new(step, group, place.backend.promises);
                let key = SweepKey {
                    step: number,
                    group_size: group.size(),
                    is_on_device,
                };
                let points = self.sweeps.entry(key);
                let points = points.or_insert_with(|| with_meaning(step, &axes, is_on_device));
                let is_declared = |point: &&Vec<usize>| {
                    let declared = declared(place, &axes.check(point, 0));
                    matches!(declared, Declared::Supported)
                };
                count += points.everywhere + points.if_declared.iter().filter(is_declared).count();
            }
        }
        count
    }

    /// Returns the number of points of a step about a layer.
    fn layers(&mut self, place: &ScenarioContext<'_>, number: usize, spec: &StackSpec) -> usize {
        let size = place.groups[0].size() as u32;
        let count = || {
            let points = points(spec.sweep(), &spec.lengths());
            let layers = points.iter().map(|at| spec.point(at).layer);
            layers
                .filter(|layer| layer.unsupported_reason(size).is_none())
                .count()
        };
        match size {
            0 | 1 => 0,
            _ => *self.layers.entry((number, size)).or_insert_with(count),
        }
    }
}

/// Returns the points of a sweep that have a meaning in groups of one size.
fn with_meaning(step: &SweepSpec, axes: &Axes, is_on_device: bool) -> Points {
    let mut found = Points {
        everywhere: 0,
        if_declared: Vec::new(),
    };
    for point in points(step.params.sweep, &axes.lengths()) {
        let check = axes.check(&point, 0);
        if unsupported_reason(&check, is_on_device).is_some() {
            continue;
        }
        match refusal_would_deadlock(&check) {
            true => found.if_declared.push(point),
            false => found.everywhere += 1,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::plan;
    use super::*;

    #[test]
    fn it_counts_what_the_plan_has() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folders = ["fixtures/platforms", "fixtures/sim/platforms"].map(|path| root.join(path));
        let platforms =
            crate::platform::load(&folders).unwrap_or_else(|found| panic!("{}", found[0]));
        let targets: Vec<Target> = platforms
            .into_iter()
            .filter(|platform| ["cpu", "simnpu", "simhpu"].contains(&platform.name.as_str()))
            .map(|platform| Target {
                backend: platform.backends.keys().next().unwrap().clone(),
                platform: Arc::new(platform),
                devices: None,
            })
            .collect();
        assert_eq!(targets.len(), 3);
        // Every kind of step, points that are checked only where they are declared, groups that may not be created, programs.
        let parts = [
            "edges",
            "groups",
            "hangs",
            "ordering",
            "p2p",
            "platforms",
            "programs",
            "stack",
        ];
        let parts = parts.map(|part| root.join("cases").join(part));
        let parts: Vec<_> = parts.into_iter().filter(|part| part.exists()).collect();
        let cases = crate::case::load(&parts).unwrap_or_else(|found| panic!("{}", found[0]));
        let mut all = 0;
        for case in &cases.cases {
            let plan = plan(std::slice::from_ref(case), &targets, &Selection::default());
            let mut expected: BTreeMap<RequirementId, usize> = BTreeMap::new();
            let checks = plan.scenarios.iter().flat_map(|scenario| &scenario.checks);
            for id in checks.flat_map(|check| check.covers.iter()) {
                *expected.entry(id.clone()).or_default() += 1;
            }
            let counted = coverage(case, &targets);
            let counted: BTreeMap<_, _> = counted.into_iter().filter(|(_, n)| *n > 0).collect();
            all += counted.values().sum::<usize>();
            assert_eq!(counted, expected, "{}", case.id);
        }
        assert!(all > 1000, "{all} checks");
    }
}
