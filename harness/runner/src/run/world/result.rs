//! What came of a world.

use std::collections::BTreeMap;

use crate::check_result::CheckResult;
use crate::run::story::RankStory;

/// What came of a world.
#[derive(Debug, Default)]
pub struct WorldResult {
    /// Findings of the checks it got to, by their place in the scenario.
    pub checks: BTreeMap<usize, CheckResult>,
    /// Of every rank's initialisation; none if the world failed before.
    pub init: Option<CheckResult>,
    /// Of its teardown; none if it did not get there.
    pub end: Option<CheckResult>,
    /// Why it failed.
    pub lost: Option<String>,
    /// What is known of each rank.
    pub ranks: Vec<RankStory>,
}
