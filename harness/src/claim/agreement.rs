//! Compares the two runs of a package: made from the same things, at two times, with the same results.

use std::collections::BTreeMap;
use std::path::Path;

use super::reason::{Reason, Rejections};
use super::replan::Replan;
use super::run_review::Run;
use crate::suite::Suite;
use allranks_model::names::CheckId;
use allranks_model::record::CheckRecord;
use allranks_suite::expectation::Point;

/// The fewest checks whose times tell one run from a copy.
const ENOUGH: usize = 5;

/// Reviews whether these are two runs of the same. Returns whether they are.
pub fn check_pair(folder: &Path, runs: &[Run; 2], rejections: &mut Rejections) -> bool {
    let [one, two] = runs;
    let bytes = |number: usize| {
        let path = folder.join(format!("runs/{number}/results.jsonl"));
        std::fs::read(path).unwrap_or_default()
    };
    if bytes(1) == bytes(2) || has_same_times(one, two) {
        let text = "both runs are one: every check took the same time, to the microsecond";
        rejections.add(Reason::RunReused, text);
        return false;
    }
    let parts = [
        ("suite", one.identity.cases == two.identity.cases),
        (
            "driver",
            one.driver() == two.driver() && one.identity.driver == two.identity.driver,
        ),
        ("torch", one.torch() == two.torch()),
        (
            "platform, expectation or waiver files",
            one.origin.inputs == two.origin.inputs,
        ),
        ("devices", one.origin.devices == two.origin.devices),
        (
            "profile",
            one.results.run.profile == two.results.run.profile,
        ),
    ];
    if one.torch().len() > 1 {
        let text = "the records of a run name several versions of torch";
        rejections.add(Reason::RunsDiffer, text);
        return false;
    }
    let differing = parts.into_iter().find(|(_, is_same)| !is_same);
    if let Some((what, _)) = differing {
        let text = format!("the runs were not made with the same {what}");
        rejections.add(Reason::RunsDiffer, text);
    }
    differing.is_none()
}

fn has_same_times(one: &Run, two: &Run) -> bool {
    let theirs = by_id(two);
    let timed = one
        .results
        .checks
        .iter()
        .filter(|check| check.duration_us > 0);
    let mut count = 0;
    for check in timed {
        count += 1;
        let other = theirs.get(&check.id);
        if other.is_none_or(|other| other.duration_us != check.duration_us) {
            return false;
        }
    }
    count >= ENOUGH
}

fn by_id(run: &Run) -> BTreeMap<&CheckId, &CheckRecord> {
    let checks = run.results.checks.iter();
    checks.map(|check| (&check.id, check)).collect()
}

/// Reviews whether every check came to the same in both runs. Only an expectation that says that a failure comes and goes
/// allows a difference.
pub fn check_results(runs: &[Run; 2], plan: &Replan, suite: &Suite, rejections: &mut Rejections) {
    let theirs = by_id(&runs[1]);
    let planned = plan.checks();
    for check in &runs[0].results.checks {
        let Some(other) = theirs.get(&check.id) else {
            continue;
        };
        let came_to = |check: &CheckRecord| (check.outcome, check.verdict, check.class.clone());
        if came_to(check) == came_to(other) {
            continue;
        }
        let comes_and_goes = planned.get(&check.id).is_some_and(|planned| {
            let point = Point::of(planned.scenario, &check.column.torch, planned.check);
            let entry = suite.expectations.find(&point);
            let is_fine = |check: &CheckRecord| !check.status().is_failing();
            is_fine(check)
                && is_fine(other)
                && entry.is_some_and(|entry| entry.intermittent || entry.also_passes.is_some())
        });
        if !comes_and_goes {
            let text = format!(
                "{}: {} ({}) in run 1, {} ({}) in run 2",
                check.id, check.outcome, check.verdict, other.outcome, other.verdict
            );
            rejections.add(Reason::RunsDisagree, text);
        }
    }
}
