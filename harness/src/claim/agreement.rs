//! Compares the two runs of a package: they must have the same inputs, be two runs, and have the same results.

use std::collections::BTreeMap;
use std::path::Path;

use super::reason::{Reason, Rejections};
use super::replan::Replan;
use super::run::Run;
use crate::suite::Suite;
use allranks_model::names::CheckId;
use allranks_model::outcome::Verdict;
use allranks_model::record::CheckRecord;
use allranks_suite::expectation::Point;

/// The fewest measured times that can show that one run is a copy of the other.
const MIN_COMPARISONS: usize = 5;
/// One second, in milliseconds.
const SECOND_MS: u64 = 1000;

/// Reviews whether the runs have the same inputs and are not the same run. Returns true if so.
pub fn check_pair(folder: &Path, runs: &[Run; 2], rejections: &mut Rejections) -> bool {
    let [one, two] = runs;
    let bytes = |number: usize| {
        let path = folder.join(format!("runs/{number}/results.jsonl"));
        std::fs::read(path).unwrap_or_default()
    };
    if bytes(1) == bytes(2) || has_same_times(one, two) || has_same_spans(one, two) {
        let text = "both folders hold the same run: most of their measured times are equal to the microsecond";
        rejections.add(Reason::RunReused, text);
        return false;
    }
    if overlap(one.period_ms(), two.period_ms()) {
        let text = "the runs overlap: make one after the other";
        rejections.add(Reason::RunsOverlap, text);
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

/// Returns true if two periods overlap. Their beginnings are known to the second.
fn overlap(one: (u64, u64), two: (u64, u64)) -> bool {
    let (first, second) = if one.0 <= two.0 {
        (one, two)
    } else {
        (two, one)
    };
    second.0.saturating_add(SECOND_MS) <= first.1
}

/// Returns true if most checks took the same time in both runs, among those with a measured time.
fn has_same_times(one: &Run, two: &Run) -> bool {
    let theirs = by_id(two);
    let checks = one.results.checks.iter();
    let timed = checks.filter(|check| check.duration_us > 0);
    are_most_equal(timed.filter_map(|check| {
        let other = theirs.get(&check.id)?;
        (other.duration_us > 0).then_some(other.duration_us == check.duration_us)
    }))
}

/// Returns true if most ranks have the same spans in both runs.
fn has_same_spans(one: &Run, two: &Run) -> bool {
    let scenarios = two.results.scenarios.iter();
    let theirs: BTreeMap<_, _> = scenarios.map(|one| (&one.id, &one.ranks)).collect();
    let ranks = one.results.scenarios.iter().filter_map(|scenario| {
        let others = theirs.get(&scenario.id)?;
        Some(scenario.ranks.iter().zip(others.iter()))
    });
    let timed = ranks.flatten().filter(|(rank, _)| rank.spans.len() > 1);
    are_most_equal(timed.map(|(rank, other)| rank.spans == other.spans))
}

/// Returns true if there are enough comparisons to decide, and more than half of them are equal.
fn are_most_equal(comparisons: impl Iterator<Item = bool>) -> bool {
    let (mut all, mut equal) = (0, 0);
    for is_equal in comparisons {
        all += 1;
        equal += usize::from(is_equal);
    }
    all >= MIN_COMPARISONS && 2 * equal > all
}

fn by_id(run: &Run) -> BTreeMap<&CheckId, &CheckRecord> {
    let checks = run.results.checks.iter();
    checks.map(|check| (&check.id, check)).collect()
}

/// Reviews whether every check has the same outcome in both runs. Outcomes may differ only if an expectation says that the
/// failure is intermittent, or names both ways to fail.
pub fn check_results(runs: &[Run; 2], plan: &Replan, suite: &Suite, rejections: &mut Rejections) {
    let theirs = by_id(&runs[1]);
    let planned = plan.checks();
    for check in &runs[0].results.checks {
        let Some(other) = theirs.get(&check.id) else {
            continue;
        };
        let result = |check: &CheckRecord| (check.outcome, check.verdict, check.class.clone());
        if result(check) == result(other) {
            continue;
        }
        // At most one entry matches a check, so that entry names both outcomes.
        let is_excused = matches!(check.verdict, Verdict::KnownFailure | Verdict::Waived)
            && check.verdict == other.verdict;
        let comes_and_goes = planned.get(&check.id).is_some_and(|planned| {
            let point = Point::of(planned.scenario, &check.column.torch, planned.check);
            let entry = suite.expectations.find(&point);
            let is_fine = |check: &CheckRecord| !check.status().is_failing();
            is_fine(check)
                && is_fine(other)
                && entry.is_some_and(|entry| entry.intermittent || entry.also_passes.is_some())
        });
        if !is_excused && !comes_and_goes {
            let text = format!(
                "{}: {} ({}) in run 1, {} ({}) in run 2",
                check.id, check.outcome, check.verdict, other.outcome, other.verdict
            );
            rejections.add(Reason::RunsDisagree, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_overlap_by_more_than_their_beginnings_are_known() {
        assert!(!overlap((0, 10_500), (10_000, 20_000)));
        assert!(!overlap((10_000, 20_000), (0, 10_500)));
        assert!(overlap((0, 11_000), (10_000, 20_000)));
        assert!(overlap((10_000, 20_000), (0, 90_000)));
    }

    #[test]
    fn a_copy_is_told_by_most_of_its_times() {
        let equal = |count: usize, of: usize| are_most_equal((0..of).map(|index| index < count));
        assert!(equal(5, 5) && equal(51, 100));
        assert!(!equal(4, 4) && !equal(50, 100));
    }
}
