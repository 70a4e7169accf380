//! From an id to what it names, without torch: the plan of *every* platform file is searched, found or not.

use std::sync::Arc;

use super::Failure;
use crate::plan::{Plan, Scenario, Selection, Target, plan};
use crate::suite::Suite;

/// Every scenario of the suite on every platform that has a file, with this version of torch, if it is known.
pub fn everything(suite: &Suite, torch: Option<&str>) -> Plan {
    let mut targets = Vec::new();
    for platform in &suite.platforms {
        let platform = Arc::new(platform.with_torch(torch));
        targets.extend(platform.backends.keys().map(|backend| Target {
            platform: Arc::clone(&platform),
            backend: backend.clone(),
            devices: None,
        }));
    }
    plan(&suite.cases, &targets, &Selection::default())
}

/// The scenario of that id, or of the check of that id.
///
/// # Errors
/// There is none.
pub fn scenario<'a>(plan: &'a Plan, id: &str) -> Result<&'a Scenario, Failure> {
    let found = plan.scenarios.iter().find(|scenario| {
        let own = scenario.id.as_str();
        id == own
            || id
                .strip_prefix(own)
                .is_some_and(|rest| rest.starts_with('#'))
    });
    found.ok_or_else(|| unknown(id, plan))
}

/// The failure to find an id.
pub fn unknown(id: &str, plan: &Plan) -> Failure {
    let ids = || {
        plan.scenarios.iter().flat_map(|scenario| {
            std::iter::once(scenario.id.as_str())
                .chain(scenario.checks.iter().map(|check| check.id.as_str()))
        })
    };
    let part = id.split(['@', '#']).next().unwrap_or(id);
    let hint = match ids().find(|known| known.contains(part)) {
        Some(close) => format!("an id that exists: {close}"),
        None => "`allranks plan` prints the ids of scenarios".to_owned(),
    };
    Failure::Usage(format!("there is no scenario or check `{id}`"), hint)
}
