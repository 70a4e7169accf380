//! The result of a world.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::check_result::CheckResult;
use crate::run::rank_run::RankRun;
use allranks_model::outcome::Outcome;

/// The result of a world.
#[derive(Debug, Default)]
pub struct WorldResult {
    /// Results of the checks it got to that have not been handed on, by their place in the scenario.
    pub checks: BTreeMap<usize, CheckResult>,
    /// Of the check farthest in the scenario that it decided: its place, and what happened in it; none if it decided none that
    /// has been handed on.
    pub farthest: Option<(usize, Outcome)>,
    /// Of every rank's initialisation; none if the world failed before.
    pub init: Option<CheckResult>,
    /// If the initialisation failed, how long in it a rank was at most ready to run, and was not let; none if it did not fail.
    pub waited_in_init: Option<Duration>,
    /// Result of `teardown`; none if the world did not get there.
    pub end: Option<CheckResult>,
    /// Why the world was lost; none if it was not.
    pub lost: Option<String>,
    /// Whether it was lost because the machine hardly let its ranks run: another world would fare no better.
    pub is_starved: bool,
    /// Whether it was given up, without a wait, because a check that every rank answered may have left the group unusable.
    pub is_given_up: bool,
    /// The ports at which its ranks were to meet.
    pub ports: Vec<u16>,
    /// For each rank, what is known of it.
    pub ranks: Vec<RankRun>,
}

impl WorldResult {
    /// Remembers that a check result has been handed on.
    pub fn note_decided(&mut self, index: usize, check_result: &CheckResult) {
        if self.farthest.is_none_or(|(farthest, _)| farthest <= index) {
            self.farthest = Some((index, check_result.outcome));
        }
    }
}
