//! What came of a scenario so far.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::findings::Findings;
use super::logs::log_folder;
use super::rank_run::RankRun;
use super::recording::Recorder;
use crate::check_result::CheckResult;
use allranks_model::outcome::Outcome;
use allranks_suite::plan::Scenario;

/// Everything that came of a scenario besides the findings of its checks, which are written as they are decided.
pub struct ScenarioRun {
    /// Result of the check `init`.
    pub init: CheckResult,
    /// Result of the check `teardown`.
    pub end: CheckResult,
    /// Why the last lost world was lost, or why the scenario did not run; none if neither happened.
    pub trouble: Option<String>,
    /// Problems of the harness itself, whatever the check results say.
    pub issues: Vec<String>,
    /// What is known of the ranks of the last world.
    pub ranks: Vec<RankRun>,
    /// Logs of the ranks, relative to the run's folder.
    pub logs: Vec<PathBuf>,
    /// Number of worlds started.
    pub worlds: u32,
    /// Number of worlds lost, apart from those that a script gives up and those that a known failure takes with it.
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
            init: CheckResult::not_run("it was not started"),
            end: CheckResult::not_run("it was not started"),
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

/// Returns the run of a scenario in which the harness itself failed: `init` is a harness error, and checks that are not
/// recorded yet are not run.
pub fn broken(recorder: &Arc<Recorder>, why: &str) -> ScenarioRun {
    let mut run = ScenarioRun::new(recorder.scenario(), recorder.round());
    run.init = CheckResult::bare(Outcome::HarnessError, None, why);
    give_up(&mut run, &mut Findings::new(Arc::clone(recorder)), why);
    run
}

/// Marks everything without a result as not run, with the reason `why`.
pub(super) fn give_up(run: &mut ScenarioRun, findings: &mut Findings, why: &str) {
    run.trouble.get_or_insert_with(|| why.to_owned());
    findings.give_up(why);
    for finding in [&mut run.init, &mut run.end] {
        if finding.outcome == Outcome::NotRun {
            *finding = CheckResult::not_run(why);
        }
    }
}
