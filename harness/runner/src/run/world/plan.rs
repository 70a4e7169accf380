//! What one world is to do.

use std::time::Duration;

use crate::run::recording::is_expected;
use crate::run::setup::Beginning;
use crate::run::story::RankStory;
use crate::script::Points;
use allranks_model::names::WorldSize;
use allranks_model::outcome::Outcome;
use allranks_suite::expectation::Expectations;
use allranks_suite::plan::Scenario;

/// What one world is to do, and what the run says about it.
pub struct WorldPlan<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Checks to be made, by their place in the scenario, in order.
    pub checks: Vec<usize>,
    /// What each rank begins with.
    pub beginnings: Vec<Beginning>,
    /// Where the ranks of scripts may meet.
    pub points: Points,
    /// Failures that are known.
    pub expectations: &'a Expectations,
    /// Seed of all inputs.
    pub seed: u64,
    /// How long nothing may move before every rank has imported what it needs.
    pub import_patience: Duration,
}

impl WorldPlan<'_> {
    /// Number of ranks.
    pub fn size(&self) -> WorldSize {
        self.scenario.world_size
    }

    /// How long nothing may move.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs_f64(self.scenario.case.world.deadline_s)
    }

    /// Whether an expectation says that the check at this place, or the world's own if it is none, may end so.
    pub fn is_expected(&self, ranks: &[RankStory], index: Option<usize>, outcome: Outcome) -> bool {
        is_expected(self.expectations, self.scenario, ranks, index, outcome)
    }
}
