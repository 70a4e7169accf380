//! Continues an earlier run: which of its records are taken over, and which checks run again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use super::planning::Planned;
use super::{Failure, origin};
use allranks_model::names::{CheckId, ScenarioId};
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{CheckRecord, Record};
use allranks_report::check_set::CheckSet;
use allranks_report::{PackedChecks, PackedResults};
use allranks_runner::run::in_round;
use allranks_suite::plan::{Plan, Scenario};

/// The name of the observation that holds the earlier outcome of a check that failed.
const BEFORE: &str = "before";

/// The results of an earlier run that is continued.
#[derive(Debug)]
pub struct EarlierRun {
    /// The results of the run, with paths relative to the new run's folder.
    pub results: PackedResults,
    /// True if checks that failed are run again.
    pub failed: bool,
}

/// The records of an earlier run that are taken over.
#[derive(Debug, Default)]
pub struct ReusedRecords {
    /// The records that are taken over.
    pub records: Vec<Record>,
    /// The checks among them.
    pub recorded: BTreeSet<CheckId>,
    /// The checks that failed and are run again, each with its earlier result: `regression: SUMMARY`.
    pub failed: BTreeMap<CheckId, String>,
    /// How long the earlier run took, in milliseconds.
    pub lasted_ms: u64,
}

impl EarlierRun {
    /// Returns the records that are taken over under the present plan.
    ///
    /// # Errors
    /// The plan differs from that of the earlier run.
    pub fn reused(
        self,
        planned: &Planned,
        rounds: u32,
        folder: &Path,
    ) -> Result<ReusedRecords, Failure> {
        let run = &self.results.run;
        let now = origin::of(planned, folder);
        let differs = run
            .origin
            .as_ref()
            .and_then(|then| origin::difference(then, &now));
        let checks = planned.plan.check_count() as u64 * u64::from(rounds);
        let differs = differs.or_else(|| {
            (checks != run.planned.checks).then(|| {
                format!(
                    "{checks} checks are planned now, and {} were then",
                    run.planned.checks
                )
            })
        });
        match differs {
            Some(why) => Err(Failure::Usage(
                format!("the run cannot be continued: {why}"),
                "continue it in the folder in which it was begun, with the files, the Python and the devices that it had; or begin \
                 anew with `allranks run`"
                    .to_owned(),
            )),
            None => Ok(self.select(&planned.plan, rounds)),
        }
    }

    /// Selects the records to take over, scenario by scenario.
    fn select(self, plan: &Plan, rounds: u32) -> ReusedRecords {
        let ends = self.results.scenarios.iter();
        let ends = ends.map(|scenario| scenario.start_ms.saturating_add(scenario.duration_ms));
        let mut reused = ReusedRecords {
            lasted_ms: ends.max().unwrap_or(0),
            ..ReusedRecords::default()
        };
        let checks = FirstById::of(&self.results.checks);
        let mut whole = BTreeSet::<ScenarioId>::new();
        for scenario in &plan.scenarios {
            let mut is_whole = true;
            for round in 0..rounds {
                let recorded = RecordedScenario::of(scenario, round, &checks);
                is_whole &= recorded.select(scenario, self.failed, &mut reused);
            }
            if is_whole {
                whole.insert(scenario.id.clone());
            }
        }
        // A scenario has one record for each round. If any round runs again, all of them are written again.
        let scenarios = self.results.scenarios.into_iter();
        let scenarios = scenarios.filter(|scenario| whole.contains(&scenario.id));
        let scenarios = scenarios.map(|scenario| Record::Scenario(Box::new(scenario)));
        reused.records.extend(scenarios);
        reused
    }
}

/// The first record of each check.
struct FirstById<'a> {
    checks: &'a PackedChecks,
    indices: HashMap<CheckId, usize>,
}

impl<'a> FirstById<'a> {
    fn of(checks: &'a PackedChecks) -> Self {
        let mut indices = HashMap::new();
        for (index, check) in checks.records().enumerate() {
            indices.entry(check.into_owned().id).or_insert(index);
        }
        Self { checks, indices }
    }

    /// Returns the record of a check; `None` if it has none.
    fn get(&self, id: &CheckId) -> Option<CheckRecord> {
        let index = self.indices.get(id)?;
        Some(self.checks.record(*index).into_owned())
    }
}

/// The records of one scenario in one round.
struct RecordedScenario {
    init_and_end: Vec<CheckRecord>,
    checks: Vec<CheckRecord>,
    planned: usize,
}

impl RecordedScenario {
    fn of(scenario: &Scenario, round: u32, checks: &FirstById<'_>) -> Self {
        let take = |id: &CheckId| checks.get(&in_round(id, round));
        Self {
            init_and_end: scenario.frame_checks().iter().filter_map(take).collect(),
            checks: scenario
                .checks
                .iter()
                .filter_map(|check| take(&check.id))
                .collect(),
            planned: scenario.check_count(),
        }
    }

    /// Moves the records that are kept to `reused`. Returns true if nothing of the scenario has to run again.
    fn select(self, scenario: &Scenario, failed: bool, reused: &mut ReusedRecords) -> bool {
        let is_recorded = self.init_and_end.len() + self.checks.len() == self.planned;
        let init = scenario.frame_checks()[0].to_string();
        let is_init = |check: &CheckRecord| check.id.as_str().starts_with(&init);
        // If init failed, the other checks were not run. They run again only if init does.
        let has_failed = self.init_and_end.iter().any(|check| {
            is_init(check) && !matches!(check.outcome, Outcome::Pass | Outcome::NotRun)
        });
        if is_recorded && has_failed && !(failed && self.init_and_end.iter().any(is_failing)) {
            self.keep_all(reused);
            return true;
        }
        let stands = |check: &CheckRecord| {
            check.verdict != Verdict::NotRun && !(failed && is_failing(check))
        };
        let all = self.init_and_end.iter().chain(&self.checks);
        if is_recorded && all.clone().all(stands) {
            self.keep_all(reused);
            return true;
        }
        let is_program = scenario.case.program.is_some();
        for check in self
            .init_and_end
            .iter()
            .chain(&self.checks)
            .filter(|check| is_failing(check))
        {
            if is_program || failed {
                let earlier = format!("{}: {}", check.verdict, check.summary);
                reused.failed.insert(check.id.clone(), earlier);
            }
        }
        // The checks of a program are judged together, so all of it runs again.
        if !is_program {
            // The new world gives new records of init and teardown; earlier failures of them are kept.
            let is_bad = |check: &CheckRecord| check.outcome != Outcome::Pass && stands(check);
            let init_and_end = self.init_and_end.into_iter().filter(is_bad);
            let kept = init_and_end.chain(self.checks.into_iter().filter(stands));
            kept.for_each(|check| reused.keep(check));
        }
        false
    }

    fn keep_all(self, reused: &mut ReusedRecords) {
        let all = self.init_and_end.into_iter().chain(self.checks);
        all.for_each(|check| reused.keep(check));
    }
}

impl ReusedRecords {
    /// Adapts a record of the new run: its times continue from the end of the earlier run, and a check that failed before has its
    /// earlier outcome as an observation.
    pub fn amend(&self, record: &mut Record) {
        match record {
            Record::Scenario(scenario) => {
                scenario.start_ms = scenario.start_ms.saturating_add(self.lasted_ms);
            }
            Record::Check(check) => {
                if let Some(earlier) = self.failed.get(&check.id) {
                    let earlier = earlier.clone();
                    check.observations.insert(BEFORE.to_owned(), earlier);
                }
            }
            Record::Run(_) | Record::End(_) => {}
        }
    }

    fn keep(&mut self, check: CheckRecord) {
        self.recorded.insert(check.id.clone());
        self.records.push(Record::Check(Box::new(check)));
    }
}

fn is_failing(check: &CheckRecord) -> bool {
    check.status().is_failing()
}
