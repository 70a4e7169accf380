//! The environment of a rank, as people are shown it.

use std::collections::BTreeMap;

use super::program;
use super::setup::{Endpoint, environment};
use allranks_model::names::Rank;
use allranks_suite::plan::Scenario;

/// Returns what the harness itself puts into a rank's environment, or into that of a launcher that adds the rest, as it
/// is shown to people. The port is shown as `(leased)`, because it is chosen when the world starts.
#[must_use]
pub fn distinctive_environment(scenario: &Scenario, rank: Rank) -> BTreeMap<String, String> {
    let at = Endpoint::nowhere();
    let mut env = match scenario.case.program {
        Some(_) => program::distinctive_environment(scenario, &at, rank),
        None => environment(scenario, &at, &BTreeMap::new(), &[], rank),
    };
    if let Some(port) = env.get_mut("MASTER_PORT") {
        "(leased)".clone_into(port);
    }
    env
}
