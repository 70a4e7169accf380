//! What came of a world.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::run::story::RankStory;

/// What came of a world.
#[derive(Debug, Default)]
pub struct WorldResult {
    /// Findings of the checks it got to, by their place in the scenario.
    pub checks: BTreeMap<usize, Finding>,
    /// Of every rank's initialisation; none if the world failed before.
    pub init: Option<Finding>,
    /// Of its teardown; none if it did not get there.
    pub end: Option<Finding>,
    /// Why it failed.
    pub lost: Option<String>,
    /// What is known of each rank.
    pub ranks: Vec<RankStory>,
}
