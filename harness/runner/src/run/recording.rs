//! Turns the check results of a scenario into records, with their verdicts.

use std::collections::BTreeMap;

use super::Shared;
use super::scenario_run::ScenarioRun;
use super::story::RankStory;
use crate::check_result::CheckResult;
use allranks_model::names::{CheckId, RequirementId};
use allranks_model::outcome::Outcome;
use allranks_model::record::REFUSED;
use allranks_model::record::{
    CheckRecord, Column, FORMAT, RankRecord, Record, ScenarioRecord, Span,
};
use allranks_suite::case::Starts;
use allranks_suite::expectation::{Expectations, Point};
use allranks_suite::plan::{Check, Scenario};

/// The driver's name in records of scenarios with a user's program.
const PROGRAM: &str = "program";
/// Requirements that the checks `init` and `teardown` of a program cover.
const PROGRAM_COVERS: [&str; 1] = ["PROG-001"];

/// Requirements that the check `init` of every scenario covers.
const OPENING_COVERS: [&str; 2] = ["INIT-001", "INIT-002"];
/// Requirement that `init` covers as well if a group has a timeout of its own: every rank reports the timeouts.
const GROUP_TIMEOUT_COVERS: &str = "GRP-013";
const CLOSING_COVERS: [&str; 1] = ["DOWN-001"];

/// Returns the column of the matrix that a scenario belongs to.
fn column(shared: &Shared, scenario: &Scenario, torch: &str) -> Column {
    let driver = match scenario.case.program {
        Some(_) => PROGRAM,
        None => shared.settings.driver.name(),
    };
    Column {
        platform: scenario.platform.name.clone(),
        backend: scenario.backend.clone(),
        world_size: scenario.world_size,
        driver: driver.to_owned(),
        launcher: scenario.launcher.name().to_owned(),
        evidence: scenario.platform.evidence,
        torch: torch.to_owned(),
    }
}

/// The version of torch that the ranks reported, or that was found before; empty if neither is known.
pub fn torch_of<'a>(scenario: &'a Scenario, ranks: &'a [RankStory]) -> &'a str {
    let reported = ranks.iter().find_map(RankStory::torch);
    let found = scenario.platform.torch.as_deref();
    reported.or(found).unwrap_or_default()
}

/// Returns one record for each check, and then one for the scenario.
pub fn records(shared: &Shared, scenario: &Scenario, round: u32, run: ScenarioRun) -> Vec<Record> {
    let column = column(shared, scenario, torch_of(scenario, &run.ranks));
    let mut writer = Writer {
        shared,
        scenario,
        round,
        column: &column,
        records: Vec::with_capacity(run.checks.len() + 3),
    };
    let [init, end] = scenario.frame_checks();
    let starts = scenario.case.world.starts;
    let (opening, closing): (&[&str], &[&str]) = match starts {
        _ if scenario.case.program.is_some() => (&PROGRAM_COVERS, &PROGRAM_COVERS),
        Starts::Initialised => (&OPENING_COVERS, &CLOSING_COVERS),
        // Its scripts initialise and destroy; they name themselves what that covers.
        Starts::Bare => (&[], &[]),
    };
    let mut opening = opening.to_vec();
    if scenario
        .groups
        .iter()
        .any(|group| group.how.timeout_s.is_some())
    {
        opening.push(GROUP_TIMEOUT_COVERS);
    }
    if scenario.refused.is_some() {
        // Checks that must fail in init cover their requirements there.
        opening.extend(scenario.case.covers.iter().map(RequirementId::as_str));
    }
    writer.frame(init, "init", &opening, run.init);
    for (check, finding) in scenario.checks.iter().zip(run.checks.into_iter().flatten()) {
        writer.check(check, finding);
    }
    writer.frame(end, "teardown", closing, run.end);
    let mut records = writer.records;
    records.push(Record::Scenario(Box::new(ScenarioRecord {
        format: FORMAT,
        id: scenario.id.clone(),
        case: scenario.case.id.clone(),
        title: scenario.case.title.clone(),
        column,
        trouble: run.trouble,
        start_ms: (run.began - shared.started).as_millis() as u64,
        duration_ms: (run.ended - run.began).as_millis() as u64,
        worlds: run.worlds,
        ranks: rank_records(scenario, run.ranks, &run.logs),
    })));
    records
}

struct Writer<'a> {
    shared: &'a Shared,
    scenario: &'a Scenario,
    round: u32,
    column: &'a Column,
    records: Vec<Record>,
}

/// What identifies a check in the records; used for checks of steps, for `init` and for `teardown`.
struct Identity<'a> {
    id: CheckId,
    covers: Vec<RequirementId>,
    params: BTreeMap<String, String>,
    at: String,
    check: Option<&'a Check>,
}

impl Writer<'_> {
    fn check(&mut self, check: &Check, finding: CheckResult) {
        let identity = Identity {
            id: check.id.clone(),
            covers: check.covers.to_vec(),
            params: check.params.iter().cloned().collect(),
            at: check.at.to_string(),
            check: Some(check),
        };
        self.write(identity, finding);
    }

    fn frame(&mut self, id: CheckId, call: &str, covers: &[&str], finding: CheckResult) {
        let mut params = BTreeMap::from([("call".to_owned(), call.to_owned())]);
        if let Some(fail) = &self.scenario.refused {
            params.insert(REFUSED.to_owned(), fail.at.as_slice().join(", "));
        }
        let identity = Identity {
            id,
            covers: covers.iter().map(|id| RequirementId::from(*id)).collect(),
            params,
            at: format!("{}:1", self.scenario.case.source.display()),
            check: None,
        };
        self.write(identity, finding);
    }

    fn write(&mut self, identity: Identity<'_>, finding: CheckResult) {
        let Identity {
            mut id,
            covers,
            mut params,
            at,
            check,
        } = identity;
        params.extend(self.scenario.init.swept.clone());
        if self.round > 0 {
            let round = self.round + 1;
            params.insert("round".to_owned(), round.to_string());
            id = CheckId(format!("{id}.round{round}"));
        }
        let point = Point::of(self.scenario, &self.column.torch, check);
        let class = finding.class.as_deref();
        let expectations = &self.shared.expectations;
        let judged = expectations.judge(&point, finding.outcome, class, finding.summary);
        self.records.push(Record::Check(Box::new(CheckRecord {
            format: FORMAT,
            id,
            scenario: self.scenario.id.clone(),
            case: self.scenario.case.id.clone(),
            column: self.column.clone(),
            covers,
            params,
            at,
            outcome: finding.outcome,
            verdict: judged.verdict,
            summary: judged.summary,
            remark: judged.remark,
            class: finding.class,
            difference: finding.difference,
            ranks: finding.ranks,
            diagnosis: finding.diagnosis,
            expectation: judged.expectation,
            observations: finding.observations,
            checked: finding.checked,
            duration_us: finding.duration_us,
        })));
    }
}

/// Returns true if an expectation that has not expired allows this outcome for the check at this index; without an
/// index, for the world as a whole.
pub fn is_expected(
    expectations: &Expectations,
    scenario: &Scenario,
    ranks: &[RankStory],
    index: Option<usize>,
    outcome: Outcome,
) -> bool {
    let check = index.map(|index| &scenario.checks[index]);
    let point = Point::of(scenario, torch_of(scenario, ranks), check);
    let entry = expectations.find(&point);
    entry.is_some_and(|entry| !entry.is_expired() && entry.outcomes.contains(&outcome))
}

/// Builds the records of the ranks. Times become relative to the earliest span of the world: ranks of one host share a
/// clock.
fn rank_records(
    scenario: &Scenario,
    stories: Vec<RankStory>,
    logs: &[std::path::PathBuf],
) -> Vec<RankRecord> {
    let origin = stories
        .iter()
        .flat_map(|story| &story.spans)
        .map(|span| span.start_us)
        .min()
        .unwrap_or(0);
    scenario
        .world_size
        .ranks()
        .zip(stories)
        .map(|(rank, story)| RankRecord {
            rank,
            pid: story.pid(),
            end: match (&story.end, story.killed) {
                (_, true) => "killed by allranks".to_owned(),
                (Some(end), false) => end.to_string(),
                (None, false) => "unknown".to_owned(),
            },
            log: logs[rank.index()].to_string_lossy().into_owned(),
            spans: story
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
