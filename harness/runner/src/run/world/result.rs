//! The result of a world.

use std::collections::BTreeMap;

use crate::check_result::CheckResult;
use crate::run::story::RankStory;

/// The result of a world.
#[derive(Debug, Default)]
pub struct WorldResult {
    /// Results of the checks that were decided, by index.
    pub checks: BTreeMap<usize, CheckResult>,
    /// Result of `init`; none if the world failed before it was decided.
    pub init: Option<CheckResult>,
    /// Result of `teardown`; none if the world did not get there.
    pub end: Option<CheckResult>,
    /// Why the world was lost; none if it was not.
    pub lost: Option<String>,
    /// For each rank, what is known of it.
    pub ranks: Vec<RankStory>,
}
