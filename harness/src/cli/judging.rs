//! `allranks judge`: judges the outcomes of a recorded run again, by the present expectations and platform files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use super::args::JudgeArguments;
use super::read_run::read;
use super::{Failure, locate, results, run_folder};
use crate::conclusion::{Exit, RunIssue, end_record, exit};
use crate::suite::Suite;
use allranks_model::record::{CheckRecord, Record};
use allranks_report::{Results, merge};
use allranks_suite::expectation::Point;
use allranks_suite::plan::{Check, Plan, Scenario};

/// A recorded check, and its point of the plan; `None` if it is no longer planned.
pub(super) type Located<'a> = (&'a mut CheckRecord, Option<Point<'a>>);

/// Judges the results of a run again, writes them, and prints the reports. Checks that keep their verdicts are only
/// counted.
pub fn judge(arguments: &JudgeArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let run = read(&arguments.run)?;
    let folder = run_folder::make_run_folder(Some(&arguments.out))?;
    let scratch = tempfile::tempdir()?;
    let suite = Suite::load(&arguments.suite.request(), scratch.path())?;
    let mut judged = merge::merge(vec![run], &folder)
        .map_err(|error| Failure::Harness(format!("the results are inconsistent: {error}")))?;
    let kept = judge_all(&mut judged, &suite);
    let recorded = judged.end.iter().flat_map(|end| &end.issues);
    let mut issues: Vec<RunIssue> = recorded.cloned().map(RunIssue::Recorded).collect();
    issues.extend(RunIssue::expired(&suite.expectations));
    if kept > 0 {
        issues.push(RunIssue::Kept(kept));
    }
    // A run that was cut off has no end record, and gets none here.
    if judged.end.is_some() {
        judged.push(Record::End(end_record(&judged, &issues)));
    }
    results::write(&judged, out)?;
    Ok(exit(&judged, &issues))
}

/// Judges every check again. Returns the number of checks that could not be judged again and keep their verdicts.
fn judge_all(results: &mut Results, suite: &Suite) -> usize {
    let mut kept = 0;
    for_each_plan(results, suite, |_, _, checks| {
        for (record, point) in checks {
            let is_done = point.is_some_and(|point| suite.expectations.judge_again(record, &point));
            kept += usize::from(!is_done);
        }
    });
    kept
}

/// Plans the suite on the backends of the results, once for each version of torch in them. Calls a function with the version
/// (empty if it is not known), the plan, and the checks of that version.
pub(super) fn for_each_plan(
    results: &mut Results,
    suite: &Suite,
    mut each: impl FnMut(&str, &Plan, Vec<Located<'_>>),
) {
    let mut by_torch = BTreeMap::<String, Vec<&mut CheckRecord>>::new();
    for check in &mut results.checks {
        let torch = check.column.torch.clone();
        by_torch.entry(torch).or_default().push(check);
    }
    for (torch, checks) in by_torch {
        let known = Some(torch.as_str()).filter(|torch| !torch.is_empty());
        let columns = checks.iter().map(|check| &check.column);
        let seen: BTreeSet<(&str, &str)> = columns
            .map(|column| (column.platform.as_str(), column.backend.as_str()))
            .collect();
        let plan = locate::plan_cases(suite, known, &suite.cases, |platform, backend| {
            seen.contains(&(platform, backend))
        });
        let planned: BTreeMap<&str, &Scenario> = plan
            .scenarios
            .iter()
            .map(|scenario| (scenario.id.as_str(), scenario))
            .collect();
        let mut found = Vec::with_capacity(checks.len());
        for record in checks {
            let scenario = planned.get(record.scenario.as_str()).copied();
            let point = scenario.and_then(|scenario| point(scenario, &torch, record));
            found.push((record, point));
        }
        each(&torch, &plan, found);
    }
}

/// Returns the plan's point for a recorded check; `None` if the check is no longer planned.
fn point<'a>(scenario: &'a Scenario, torch: &'a str, record: &CheckRecord) -> Option<Point<'a>> {
    let id = without_round(record)?;
    let is_own = scenario.frame_checks().iter().any(|own| own.as_str() == id);
    let check: Option<&Check> = scenario.checks.iter().find(|check| check.id.as_str() == id);
    (is_own || check.is_some()).then(|| Point::of(scenario, torch, check))
}

/// Returns the id of a check without the round of a repeated run; `None` if it does not end with its round.
pub(super) fn without_round(record: &CheckRecord) -> Option<&str> {
    let id = record.id.as_str();
    match record.params.get("round") {
        Some(round) => id.strip_suffix(&format!(".round{round}")),
        None => Some(id),
    }
}
