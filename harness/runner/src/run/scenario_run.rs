//! What came of a scenario so far.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use super::logs::log_folder;
use super::story::RankStory;
use crate::check_result::CheckResult;
use allranks_model::outcome::Outcome;
use allranks_suite::plan::Scenario;

/// Everything that came of a scenario.
pub struct ScenarioRun {
    /// Result of the check `init`.
    pub init: CheckResult,
    /// Results of the checks, by index; none until a world has decided the check.
    pub checks: Vec<Option<CheckResult>>,
    /// Failures that come and go, each of which its check is tried again for, by place.
    pub(super) first_failures: BTreeMap<usize, CheckResult>,
    /// Result of the check `teardown`.
    pub end: CheckResult,
    /// Why the last lost world was lost, or why the scenario did not run; none if neither happened.
    pub trouble: Option<String>,
    /// Problems of the harness itself, whatever the check results say.
    pub issues: Vec<String>,
    /// What is known of the ranks of the last world.
    pub ranks: Vec<RankStory>,
    /// Logs of the ranks, relative to the run's folder.
    pub logs: Vec<PathBuf>,
    /// Number of worlds started.
    pub worlds: u32,
    /// Worlds lost, apart from those that a script gives up and those that a known failure takes with it.
    pub(super) lost: u32,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
}

impl ScenarioRun {
    /// A run in which nothing has been started.
    pub(super) fn new(scenario: &Scenario, round: u32) -> Self {
        let folder = log_folder(scenario, round);
        Self {
            init: not_run("it was not started"),
            checks: vec![None; scenario.checks.len()],
            first_failures: BTreeMap::new(),
            end: not_run("it was not started"),
            trouble: None,
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

/// Returns the run of a scenario in which the harness itself failed: `init` is a harness error, everything else not
/// run.
pub fn broken(scenario: &Scenario, round: u32, why: &str) -> ScenarioRun {
    let mut run = ScenarioRun::new(scenario, round);
    run.init = CheckResult::bare(Outcome::HarnessError, None, why);
    give_up(&mut run, why);
    run
}

/// Marks every check without a result as not run, with the reason `why`.
pub(super) fn give_up(run: &mut ScenarioRun, why: &str) {
    run.trouble.get_or_insert_with(|| why.to_owned());
    for (index, check) in run.checks.iter_mut().enumerate() {
        let first = run.first_failures.get(&index);
        check.get_or_insert_with(|| first.cloned().unwrap_or_else(|| not_run(why)));
    }
    for finding in [&mut run.init, &mut run.end] {
        if finding.outcome == Outcome::NotRun {
            *finding = not_run(why);
        }
    }
}

/// Places of the checks that have no finding yet.
pub(super) fn open_checks(run: &ScenarioRun) -> Vec<usize> {
    (0..run.checks.len())
        .filter(|index| run.checks[*index].is_none())
        .collect()
}

fn not_run(why: &str) -> CheckResult {
    CheckResult::bare(Outcome::NotRun, None, why)
}
