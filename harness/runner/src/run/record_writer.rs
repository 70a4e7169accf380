//! Turns the check results of a scenario into records, with their verdicts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::mpsc;

use super::Shared;
use super::rank_run::RankRun;
use super::scenario_run::ScenarioRun;
use super::shrink::failed_sequence;
use crate::check_result::CheckResult;
use allranks_model::excerpt::excerpt;
use allranks_model::names::{CheckId, RequirementId};
use allranks_model::outcome::Outcome;
use allranks_model::record::REFUSED;
use allranks_model::record::{
    CheckRecord, Column, FORMAT, RankLine, RankRecord, Record, ScenarioRecord, Span,
};
use allranks_suite::expectation::{Entry, Expectations, Point};
use allranks_suite::plan::{Check, Scenario};

/// The driver's name in records of scenarios with a user's program.
const PROGRAM: &str = "program";

/// Writes the records of one scenario: each check's when its result is final, init's, teardown's and the scenario's at its end.
pub struct RecordWriter {
    shared: Arc<Shared>,
    scenario: Arc<Scenario>,
    round: u32,
    /// The version of torch that a rank reported first.
    torch: OnceLock<String>,
    /// Which checks are written, by place.
    written: Mutex<Vec<bool>>,
    records: mpsc::UnboundedSender<Record>,
}

impl RecordWriter {
    /// Returns a writer of a scenario that has not begun.
    pub fn new(
        shared: Arc<Shared>,
        scenario: Arc<Scenario>,
        round: u32,
        records: mpsc::UnboundedSender<Record>,
    ) -> Self {
        let recorded = &shared.settings.recorded;
        let checks = scenario.checks.iter();
        let written = checks.map(|check| recorded.contains(&in_round(&check.id, round)));
        Self {
            written: Mutex::new(written.collect()),
            shared,
            scenario,
            round,
            torch: OnceLock::new(),
            records,
        }
    }

    /// Returns the scenario whose checks are recorded.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Returns how often the scenario has run before in this run.
    pub const fn round(&self) -> u32 {
        self.round
    }

    /// Returns which checks are written, by place.
    pub fn written(&self) -> Vec<bool> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<bool>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes from the ranks which version of torch they have, if it is not known yet.
    pub fn learn(&self, ranks: &[RankRun]) {
        if self.torch.get().is_none()
            && let Some(torch) = ranks.iter().find_map(RankRun::torch)
        {
            self.torch.get_or_init(|| torch.to_owned());
            // A program may bring another torch along.
            if self.scenario.case.program.is_none() {
                self.shared.learn_torch(&self.scenario.platform.name, torch);
            }
        }
    }

    /// Returns the version of torch that the ranks reported, or others on the platform, or that was found before; empty if none
    /// is known. A scenario that was never started shares its column with those that were.
    fn torch(&self) -> String {
        let platform = &self.scenario.platform;
        let own = self.torch.get().cloned();
        let of_others = || self.shared.torch_on(&platform.name);
        let found = || platform.torch.clone();
        own.or_else(of_others).or_else(found).unwrap_or_default()
    }

    fn known(&self, check: Option<&Check>) -> Option<&Entry> {
        let torch = self.torch();
        let point = Point::of(&self.scenario, &torch, check);
        self.shared.expectations.find(&point)
    }

    /// Returns true if an expectation says that this failure is intermittent.
    pub fn is_intermittent(&self, index: usize, check_result: &CheckResult) -> bool {
        let class = check_result.class.as_deref();
        self.known(Some(&self.scenario.checks[index]))
            .is_some_and(|entry| {
                entry.wants_another_try(check_result.outcome, class, &check_result.summary)
            })
    }

    /// Returns true if a failure is of a sequence that can be cut down, and no expectation is about it.
    pub fn can_be_shrunk(&self, index: usize, check_result: &CheckResult) -> bool {
        let check = &self.scenario.checks[index];
        failed_sequence(check, check_result).is_some() && self.known(Some(check)).is_none()
    }

    /// Returns true if an expectation allows this outcome for the check at this index.
    pub fn is_expected(&self, index: usize, outcome: Outcome) -> bool {
        let check = &self.scenario.checks[index];
        is_expected(
            &self.shared.expectations,
            &Point::of(&self.scenario, &self.torch(), Some(check)),
            outcome,
        )
    }

    /// Writes the record of the check at that place, whose result is final.
    pub fn check(&self, index: usize, check_result: CheckResult) {
        let check = &self.scenario.checks[index];
        let identity = Identity {
            id: check.id.clone(),
            covers: check.covers.to_vec(),
            params: check.params.iter().cloned().collect(),
            at: check.at.to_string(),
            check: Some(check),
        };
        self.lock()[index] = true;
        self.write(identity, check_result);
    }

    /// Writes the records of init, of teardown and of the scenario, which has ended.
    pub fn end(&self, run: ScenarioRun) {
        let scenario = &self.scenario;
        self.learn(&run.ranks);
        let [init, end] = scenario.frame_checks();
        let [opening, closing] = scenario.frame_covers();
        self.frame(init, "init", opening, run.init);
        self.frame(end, "teardown", closing, run.end);
        self.send(Record::Scenario(Box::new(ScenarioRecord {
            format: FORMAT,
            id: scenario.id.clone(),
            case: scenario.case.id.clone(),
            title: scenario.case.title.clone(),
            column: self.column(),
            failure: run.failure,
            start_ms: (run.began - self.shared.started).as_millis() as u64,
            duration_ms: (run.ended - run.began).as_millis() as u64,
            worlds: run.worlds,
            ranks: rank_records(scenario, run.ranks, &run.logs),
        })));
    }

    fn frame(
        &self,
        id: CheckId,
        call: &str,
        covers: Vec<RequirementId>,
        check_result: CheckResult,
    ) {
        // A failure that an earlier run recorded stands, whatever comes now.
        if self
            .shared
            .settings
            .recorded
            .contains(&in_round(&id, self.round))
        {
            return;
        }
        let mut params = BTreeMap::from([("call".to_owned(), call.to_owned())]);
        if let Some(fail) = &self.scenario.refused {
            params.insert(REFUSED.to_owned(), fail.at.as_slice().join(", "));
        }
        let identity = Identity {
            id,
            covers,
            params,
            at: format!("{}:1", self.scenario.case.source.display()),
            check: None,
        };
        self.write(identity, check_result);
    }

    fn write(&self, identity: Identity<'_>, check_result: CheckResult) {
        let Identity {
            id,
            covers,
            mut params,
            at,
            check,
        } = identity;
        params.extend(self.scenario.init.swept.clone());
        if self.round > 0 {
            let round = self.round + 1;
            params.insert("round".to_owned(), round.to_string());
        }
        let id = in_round(&id, self.round);
        let column = self.column();
        let point = Point::of(&self.scenario, &column.torch, check);
        let class = check_result.class.as_deref();
        let expectations = &self.shared.expectations;
        let summary = excerpt(check_result.summary);
        let judged = expectations.judge(&point, check_result.outcome, class, summary);
        let ranks = check_result.ranks.into_iter().map(RankLine::cut).collect();
        self.send(Record::Check(Box::new(CheckRecord {
            format: FORMAT,
            id,
            scenario: self.scenario.id.clone(),
            case: self.scenario.case.id.clone(),
            covers,
            params,
            at,
            outcome: check_result.outcome,
            verdict: judged.verdict,
            summary: judged.summary,
            remark: judged.remark,
            class: check_result.class,
            difference: check_result.difference,
            ranks,
            diagnosis: check_result.diagnosis,
            expectation: judged.expectation,
            observations: check_result.observations,
            checked: check_result.checked,
            duration_us: check_result.duration_us,
            column,
        })));
    }

    /// Returns the matrix column of the scenario.
    fn column(&self) -> Column {
        let scenario = &self.scenario;
        let driver = match scenario.case.program {
            Some(_) => PROGRAM,
            None => self.shared.settings.driver.name(),
        };
        Column {
            platform: scenario.platform.name.clone(),
            backend: scenario.backend.clone(),
            world_size: scenario.world_size,
            nodes: scenario.placement.nodes() as u32,
            driver: driver.to_owned(),
            launcher: match (&self.shared.settings.nodes, &scenario.case.program) {
                (Some(nodes), None) => nodes.engine.name().to_owned(),
                // Node agents start no programs.
                (Some(_), Some(_)) | (None, _) => scenario.launcher.name().to_owned(),
            },
            evidence: scenario.platform.evidence,
            torch: self.torch(),
            label: String::new(),
        }
    }

    fn send(&self, record: Record) {
        // Whoever takes the records may be gone; the run goes on to its end all the same.
        let _ = self.records.send(record);
    }
}

/// Returns the id of a check in a round of its run, from 0: as planned in the first, with `.roundN` in the others.
#[must_use]
pub fn in_round(id: &CheckId, round: u32) -> CheckId {
    match round {
        0 => id.clone(),
        _ => CheckId(format!("{id}.round{}", round + 1)),
    }
}

/// What identifies a check in the records, whether a step's or one of the two every scenario has.
struct Identity<'a> {
    id: CheckId,
    covers: Vec<RequirementId>,
    params: BTreeMap<String, String>,
    at: String,
    check: Option<&'a Check>,
}

/// Returns true if an expectation that has not expired allows this outcome at this point.
pub fn is_expected(expectations: &Expectations, point: &Point<'_>, outcome: Outcome) -> bool {
    let entry = expectations.find(point);
    entry.is_some_and(|entry| !entry.is_expired() && entry.outcomes.contains(&outcome))
}

/// Builds the records of the ranks. Times become relative to the earliest span of the world: ranks of one host share a
/// clock.
fn rank_records(
    scenario: &Scenario,
    rank_runs: Vec<RankRun>,
    logs: &[std::path::PathBuf],
) -> Vec<RankRecord> {
    let origin = rank_runs
        .iter()
        .flat_map(|rank_run| &rank_run.spans)
        .map(|span| span.start_us)
        .min()
        .unwrap_or(0);
    scenario
        .world_size
        .ranks()
        .zip(rank_runs)
        .map(|(rank, rank_run)| RankRecord {
            rank,
            pid: rank_run.pid(),
            end: match (&rank_run.end, rank_run.killed) {
                (_, true) => "killed by allranks".to_owned(),
                (Some(end), false) => end.to_string(),
                (None, false) => "unknown".to_owned(),
            },
            log: logs[rank.index()].to_string_lossy().into_owned(),
            spans: rank_run
                .spans
                .into_iter()
                .map(|span| Span {
                    start_us: span.start_us.saturating_sub(origin),
                    end_us: span.end_us.map(|end| end.saturating_sub(origin)),
                    ..span
                })
                .collect(),
        })
        .collect()
}
