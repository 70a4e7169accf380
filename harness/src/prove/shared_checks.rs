//! Chooses the shared checks (`--panel`), which every mutant meets besides its own, so that the matrix shows what else detects
//! it.
//!
//! The quick shared checks are derived from the suite: the fewest scenarios that cover every requirement, preferably in the
//! largest worlds, and in each of them the first and the last check of every pair of requirement and call. Scripts are left out:
//! their ranks wait for each other between calls, so every bug that blocks a call costs a deadline and shows nothing about the
//! requirement. `core` includes them.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use allranks_model::capability::Declared;
use allranks_model::names::RequirementId;
use allranks_suite::plan::{Check, Scenario};

/// World sizes of the shared checks.
pub const SIZES: &[u32] = &[1, 2, 3];
/// The profile that the shared checks are chosen from.
pub const PROFILE: &str = "core";

/// The shared checks that every mutant meets: the value of `--panel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SharedChecks {
    /// No shared checks.
    None,
    /// A few checks of every requirement.
    Quick,
    /// All of profile core, in worlds of 1 to 3.
    Core,
}

/// Returns the scenarios of profile core, reduced to the shared checks.
#[must_use]
pub fn choose(which: SharedChecks, core: Vec<Scenario>) -> Vec<Scenario> {
    match which {
        SharedChecks::None => Vec::new(),
        SharedChecks::Quick => quick(core),
        SharedChecks::Core => without_programs(core),
    }
}

/// What a check covers: a requirement, a call, and whether the call is refused.
type Point<'a> = (&'a RequirementId, &'a str, bool);

fn points(check: &Check) -> impl Iterator<Item = Point<'_>> {
    let call = check.params.iter().find(|(name, _)| name == "call");
    let call = call.map_or("", |(_, value)| value.as_str());
    let refused = check.declared != Declared::Supported;
    check.covers.iter().map(move |id| (id, call, refused))
}

/// Leaves out the scenarios that run a program: each takes seconds, and mutants that break requirements of programs name such
/// checks in their entries.
fn without_programs(mut core: Vec<Scenario>) -> Vec<Scenario> {
    core.retain(|scenario| scenario.case.program.is_none());
    core
}

fn quick(mut core: Vec<Scenario>) -> Vec<Scenario> {
    for scenario in &mut core {
        scenario.checks.retain(|check| check.op().is_some());
    }
    core.retain(|scenario| !scenario.checks.is_empty());
    let largest = SIZES[SIZES.len() - 1];
    let (large, small): (Vec<_>, Vec<_>) = core
        .into_iter()
        .partition(|scenario| scenario.world_size.0 == largest);
    let mut seen = BTreeSet::new();
    let mut chosen = cover(large, &mut seen);
    chosen.extend(cover(small, &mut seen));
    chosen.into_iter().map(thinned).collect()
}

fn owned((id, call, refused): &Point<'_>) -> (RequirementId, String, bool) {
    ((*id).clone(), (*call).to_owned(), *refused)
}

/// Chooses scenarios that together cover every requirement that is not in `seen`: repeatedly the one that adds most.
fn cover(mut scenarios: Vec<Scenario>, seen: &mut BTreeSet<RequirementId>) -> Vec<Scenario> {
    let mut chosen = Vec::new();
    loop {
        let adds = |scenario: &Scenario| {
            let all = scenario.checks.iter().flat_map(|check| check.covers.iter());
            let new: BTreeSet<_> = all.filter(|id| !seen.contains(*id)).collect();
            new.len()
        };
        // The first of several that add equally many, so that the choice is deterministic.
        let best = (0..scenarios.len())
            .max_by_key(|index| (adds(&scenarios[*index]), std::cmp::Reverse(*index)));
        let Some(best) = best.filter(|index| adds(&scenarios[*index]) > 0) else {
            return chosen;
        };
        let scenario = scenarios.remove(best);
        let covered = scenario.checks.iter().flat_map(|check| check.covers.iter());
        seen.extend(covered.cloned());
        chosen.push(scenario);
    }
}

/// Returns the scenario with only the first and the last check of each of its points.
fn thinned(mut scenario: Scenario) -> Scenario {
    let mut ends: BTreeMap<_, (usize, usize)> = BTreeMap::new();
    for (index, check) in scenario.checks.iter().enumerate() {
        for point in points(check) {
            ends.entry(owned(&point)).or_insert((index, index)).1 = index;
        }
    }
    let kept: BTreeSet<usize> = ends
        .into_values()
        .flat_map(|(one, two)| [one, two])
        .collect();
    let mut index = 0;
    scenario.checks.retain(|_| {
        index += 1;
        kept.contains(&(index - 1))
    });
    scenario
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Request, Suite};
    use allranks_suite::plan::{Selection, Target, plan};
    use std::path::Path;
    use std::sync::Arc;

    /// The suite's own scenarios on the CPU.
    fn core() -> Vec<Scenario> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let request = Request {
            cases: vec![root.join("cases")],
            ..Request::default()
        };
        let scratch = tempfile::tempdir().unwrap();
        let suite = Suite::load(&request, scratch.path()).unwrap();
        let platform = suite.platforms.iter().find(|one| one.name == "cpu");
        let target = Target {
            platform: Arc::clone(platform.unwrap()),
            backend: "gloo".to_owned(),
            devices: None,
        };
        let selection = Selection {
            profile: suite.profile(PROFILE).cloned(),
            world_sizes: SIZES.to_vec(),
            ..Selection::default()
        };
        plan(&suite.cases, &[target], &selection).scenarios
    }

    fn requirements(scenarios: &[Scenario]) -> BTreeSet<RequirementId> {
        let checks = scenarios.iter().flat_map(|scenario| &scenario.checks);
        checks
            .flat_map(|check| check.covers.iter().cloned())
            .collect()
    }

    #[test]
    fn the_quick_checks_are_few_and_touch_every_requirement_that_sweeps_touch() {
        let core = core();
        let quick = choose(SharedChecks::Quick, core.clone());
        let mut sweeps = core.clone();
        for scenario in &mut sweeps {
            scenario.checks.retain(|check| check.op().is_some());
        }
        assert_eq!(requirements(&quick), requirements(&sweeps));
        let count = |scenarios: &[Scenario]| -> usize {
            scenarios.iter().map(|scenario| scenario.checks.len()).sum()
        };
        assert!(count(&quick) * 3 < count(&core), "{}", count(&quick));
        assert!(quick.len() < core.len(), "{} worlds", quick.len());
        let sizes: BTreeSet<u32> = quick.iter().map(|one| one.world_size.0).collect();
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), SIZES);
        assert!(choose(SharedChecks::None, core).is_empty());
    }

    #[test]
    fn checks_keep_their_order() {
        for scenario in choose(SharedChecks::Quick, core()) {
            assert!(
                scenario.checks.is_sorted_by_key(|check| check.index),
                "{}",
                scenario.id
            );
            assert!(!scenario.checks.is_empty(), "{}", scenario.id);
        }
    }
}
