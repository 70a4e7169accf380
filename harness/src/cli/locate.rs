//! Finds the scenario or check with an id, without torch, on *every* platform that has a file, found or not.

use std::sync::Arc;

use super::Failure;
use crate::suite::Suite;
use allranks_suite::case::Case;
use allranks_suite::plan::{Plan, Scenario, Selection, Target, plan};

/// Plans every scenario of the suite on every platform that has a file. `torch` is the version of torch, if it is
/// known.
pub fn plan_all(suite: &Suite, torch: Option<&str>) -> Plan {
    plan_cases(suite, torch, &suite.cases, |_, _| true)
}

/// Plans only the case, platform and backend that an id names. Planning everything takes many times as long.
pub fn plan_id(suite: &Suite, torch: Option<&str>, id: &str) -> Plan {
    let (case, place) = id.split_once('@').unwrap_or((id, ""));
    let cases: Vec<_> = cases_where(suite, |known| known == case).cloned().collect();
    plan_cases(suite, torch, &cases, |platform, backend| {
        place.starts_with(&format!("{platform}.{backend}."))
    })
}

/// Plans the scenarios of these cases on those platforms and backends. `torch` is the version of torch, if it is
/// known.
pub fn plan_cases(
    suite: &Suite,
    torch: Option<&str>,
    cases: &[Arc<Case>],
    is_wanted: impl Fn(&str, &str) -> bool,
) -> Plan {
    let mut targets = Vec::new();
    for platform in &suite.platforms {
        let platform = Arc::new(platform.with_torch(torch));
        let backends = platform.backends.keys();
        let wanted = backends.filter(|backend| is_wanted(&platform.name, backend));
        targets.extend(wanted.map(|backend| Target {
            platform: Arc::clone(&platform),
            backend: backend.clone(),
            devices: None,
        }));
    }
    plan(cases, &targets, &Selection::default())
}

/// Returns the cases whose id passes a test.
fn cases_where(suite: &Suite, is_it: impl Fn(&str) -> bool) -> impl Iterator<Item = &Arc<Case>> {
    let cases = suite.cases.iter();
    cases.filter(move |case| is_it(case.id.as_str()))
}

/// Returns the scenario with this id, or the one that has a check with this id.
///
/// # Errors
/// There is no such scenario.
pub fn find_scenario<'a>(suite: &Suite, plan: &'a Plan, id: &str) -> Result<&'a Scenario, Failure> {
    let found = plan.scenarios.iter().find(|scenario| {
        let own = scenario.id.as_str();
        id == own
            || id
                .strip_prefix(own)
                .is_some_and(|rest| rest.starts_with('#'))
    });
    found.ok_or_else(|| unknown_id(suite, id))
}

/// Returns the failure for an unknown id, with a similar id as a hint.
pub fn unknown_id(suite: &Suite, id: &str) -> Failure {
    let part = id.split(['@', '#']).next().unwrap_or(id);
    let close = cases_where(suite, |known| known.contains(part)).find_map(|case| {
        let cases = [Arc::clone(case)];
        suite.platforms.iter().find_map(|platform| {
            let here = plan_cases(suite, None, &cases, |name, _| name == platform.name);
            here.scenarios.first().map(|scenario| scenario.id.clone())
        })
    });
    let hint = match close {
        Some(close) => format!("a similar id is {close}"),
        None => "`allranks plan` prints the ids of scenarios".to_owned(),
    };
    Failure::Usage(format!("there is no scenario or check `{id}`"), hint)
}
