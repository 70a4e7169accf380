//! The run of a scenario so far, without the results of its checks.

use std::path::PathBuf;
use std::time::Instant;

use super::logs::log_folder;
use super::rank_run::RankRun;
use crate::check_result::CheckResult;
use allranks_suite::plan::Scenario;

/// The run of a scenario so far, without the results of its checks, which are written as they are decided.
pub struct ScenarioRun {
    /// Result of the check `init`.
    pub init: CheckResult,
    /// Result of the check `teardown`.
    pub end: CheckResult,
    /// Why the last lost world was lost, or why the scenario did not run; none if neither happened.
    pub failure: Option<String>,
    /// Problems of the harness itself, whatever the check results say.
    pub issues: Vec<String>,
    /// What is known of the ranks of the last world.
    pub ranks: Vec<RankRun>,
    /// Logs of the ranks, relative to the run's folder.
    pub logs: Vec<PathBuf>,
    /// Number of worlds started.
    pub worlds: u32,
    /// Number of worlds lost, apart from those that a script gives up, those that a known failure takes with it, and those that
    /// are given up without a wait because every rank raised in a check: a combination declared by mistake, whatever the number
    /// of its checks, costs no other check its result.
    pub(super) lost: u32,
    /// The time at which the scenario began.
    pub began: Instant,
    /// The time at which the scenario ended.
    pub ended: Instant,
}

impl ScenarioRun {
    /// Returns a run in which nothing has been started.
    pub(super) fn new(scenario: &Scenario, round: u32) -> Self {
        let folder = log_folder(scenario, round);
        Self {
            init: CheckResult::not_run("it was not started"),
            end: CheckResult::not_run("it was not started"),
            failure: None,
            issues: Vec::new(),
            ranks: Vec::new(),
            logs: scenario
                .world_size
                .ranks()
                .map(|rank| folder.join(format!("rank{rank}.log")))
                .collect(),
            worlds: 0,
            lost: 0,
            began: Instant::now(),
            ended: Instant::now(),
        }
    }
}
