//! The work of one world.

use std::time::Duration;

use crate::run::rank_run::RankRun;
use crate::run::record_writer::is_expected;
use crate::run::setup::OpeningSteps;
use crate::script::Endpoints;
use allranks_model::names::WorldSize;
use allranks_model::outcome::Outcome;
use allranks_suite::expectation::{Expectations, Point};
use allranks_suite::plan::Scenario;

/// The work of one world, and the settings of the run that apply to it.
pub struct WorldPlan<'a> {
    /// The scenario that the world belongs to.
    pub scenario: &'a Scenario,
    /// The checks to make, by index, in order.
    pub checks: Vec<usize>,
    /// For each rank, the steps that it begins with.
    pub opening_steps: Vec<OpeningSteps>,
    /// The endpoints that scripts may use.
    pub points: Endpoints,
    /// The failures that are known.
    pub expectations: &'a Expectations,
    /// Seed of all input data.
    pub seed: u64,
    /// How long nothing may move before every rank has finished its imports.
    pub import_patience: Duration,
}

impl WorldPlan<'_> {
    /// Returns the number of ranks.
    pub fn size(&self) -> WorldSize {
        self.scenario.world_size
    }

    /// Returns how long nothing may move.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs_f64(self.scenario.case.world.deadline_s)
    }

    /// Returns true if an expectation allows this outcome for the check at this index; without an index, for the world
    /// as a whole.
    pub fn is_expected(&self, ranks: &[RankRun], index: Option<usize>, outcome: Outcome) -> bool {
        let check = index.map(|index| &self.scenario.checks[index]);
        let point = Point::of(self.scenario, self.torch(ranks), check);
        is_expected(self.expectations, &point, outcome)
    }

    /// Returns the version of torch that a rank reported first, or that was found before; empty if neither is known.
    fn torch<'a>(&'a self, ranks: &'a [RankRun]) -> &'a str {
        let reported = ranks.iter().find_map(RankRun::torch);
        let found = self.scenario.platform.torch.as_deref();
        reported.or(found).unwrap_or_default()
    }
}
