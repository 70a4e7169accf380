//! Divides results into JUnit suites: one for each column, and one for problems of the run. Cases are only counted here; `case`
//! makes them, one at a time.

use std::collections::BTreeSet;

use junit_report::{Duration, OffsetDateTime};

use super::{MESSAGE_LIMIT, Properties};
use crate::check_set::CheckSet;
use crate::results::{Results, column_names, evidence_word};
use crate::status_counts::Headline;
use crate::text::{clip, one_line};
use allranks_model::names::ScenarioId;
use allranks_model::record::{CheckRecord, Column, INTERRUPTED, RunRecord, STOPPED};
use allranks_model::status::Status;

/// The suites of a run, and the totals of the root element.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) run: String,
    pub(super) started: OffsetDateTime,
    pub(super) suites: Vec<SuiteDraft>,
}

/// A suite, with its cases as indices.
#[derive(Debug)]
pub(super) struct SuiteDraft {
    pub(super) name: String,
    pub(super) package: String,
    pub(super) timestamp: OffsetDateTime,
    pub(super) properties: Properties,
    pub(super) totals: Totals,
    pub(super) cases: Cases,
}

/// The cases of a suite.
#[derive(Debug)]
pub(super) enum Cases {
    /// The checks with these indices; their class names begin with `class`.
    Checks { class: String, indices: Vec<usize> },
    /// Problems of the run that belong to no check.
    RunProblems(Vec<RunProblem>),
}

/// A problem of the run that belongs to no check.
#[derive(Debug)]
pub(super) struct RunProblem {
    pub(super) name: String,
    pub(super) type_: &'static str,
    pub(super) text: String,
}

/// The counts of a suite, and the time of all its cases.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) tests: usize,
    pub(super) errors: usize,
    pub(super) failures: usize,
    pub(super) skipped: usize,
    pub(super) time: Duration,
}

impl Draft {
    /// Divides results into suites: one for each column, and one for problems of the run.
    pub(super) fn of<C: CheckSet>(results: &Results<C>) -> Self {
        let columns = results.columns();
        let named = columns.iter().zip(column_names(&columns));
        let suites = named.map(|(column, name)| column_suite(results, column, &name));
        Self {
            run: one_line(&format!("allranks {}", results.run.name)),
            started: timestamp(&results.run, 0),
            suites: suites.chain(run_problems_suite(results)).collect(),
        }
    }
}

fn column_suite<C: CheckSet>(results: &Results<C>, column: &Column, name: &str) -> SuiteDraft {
    let start_ms = results.scenarios.iter();
    let start_ms = start_ms
        .filter(|scenario| scenario.column == *column)
        .map(|scenario| scenario.start_ms)
        .min();
    let checks = &results.checks;
    let indices: Vec<usize> = checks.indices_where(|one| one.column == column).collect();
    let mut totals = Totals::default();
    for index in &indices {
        let brief = checks.brief(*index);
        totals.tests += 1;
        totals.time += one_case_time(brief.duration_us);
        match brief.status() {
            Status::Passed => {}
            Status::NotRun if is_interrupted(&checks.record(*index)) => totals.errors += 1,
            Status::Refused | Status::KnownFailure | Status::Waived | Status::NotRun => {
                totals.skipped += 1;
            }
            Status::Regression | Status::UnexpectedPass => totals.failures += 1,
            Status::HarnessError => totals.errors += 1,
        }
    }
    SuiteDraft {
        name: one_line(name),
        package: dotted(name),
        timestamp: timestamp(&results.run, start_ms.unwrap_or(0)),
        properties: column_properties(column),
        totals,
        cases: Cases::Checks {
            class: dotted(name),
            indices,
        },
    }
}

/// Returns the suite of problems of the run; `None` if there are none.
fn run_problems_suite<C: CheckSet>(results: &Results<C>) -> Option<SuiteDraft> {
    let mut all = Vec::new();
    let mut add = |name: String, type_: &'static str, text: &str| {
        let text = clip(&one_line(text), MESSAGE_LIMIT);
        all.push(RunProblem { name, type_, text });
    };
    if results.end.is_none() {
        add("run".into(), "cut-off", &Headline::of(results).sentence);
    }
    let checks = &results.checks;
    let mut not_run = checks.records_where(|check| check.status() == Status::NotRun);
    let is_detailed = not_run.any(|check| is_interrupted(&check));
    let issues = results.issues().into_iter();
    let issues = issues.filter(|issue| !(is_detailed && *issue == STOPPED));
    for (number, issue) in issues.enumerate() {
        add(format!("trouble {}", number + 1), "trouble", issue);
    }
    let with_checks: BTreeSet<&ScenarioId> = checks.briefs().map(|check| check.scenario).collect();
    for scenario in &results.scenarios {
        if !with_checks.contains(&scenario.id) {
            let failure = scenario.failure.as_deref().unwrap_or("it left no check");
            add(scenario.id.to_string(), "no-check", failure);
        }
    }
    if all.is_empty() {
        return None;
    }
    let name = "allranks";
    Some(SuiteDraft {
        name: name.to_owned(),
        package: name.to_owned(),
        timestamp: timestamp(&results.run, 0),
        properties: Vec::new(),
        totals: Totals {
            tests: all.len(),
            errors: all.len(),
            ..Totals::default()
        },
        cases: Cases::RunProblems(all),
    })
}

/// Returns how long a case took.
pub(super) fn one_case_time(duration_us: u64) -> Duration {
    Duration::microseconds(i64::try_from(duration_us).unwrap_or(i64::MAX))
}

/// Returns true if a check was not run because the run was stopped.
pub(super) fn is_interrupted(check: &CheckRecord) -> bool {
    check.status() == Status::NotRun && check.summary.contains(INTERRUPTED)
}

/// Replaces the slashes of a name by dots: `cpu/gloo` becomes `cpu.gloo`.
pub(super) fn dotted(name: &str) -> String {
    let parts: Vec<String> = name.split('/').map(class_part).collect();
    parts.join(".")
}

fn column_properties(column: &Column) -> Properties {
    let properties = [
        ("platform", column.platform.clone()),
        ("backend", column.backend.clone()),
        ("world_size", column.world_size.to_string()),
        ("driver", column.driver.clone()),
        ("launcher", column.launcher.clone()),
        ("evidence", evidence_word(column.evidence).to_owned()),
        ("torch", column.torch.clone()),
    ];
    let properties = properties.into_iter();
    properties
        .map(|(name, value)| (name.to_owned(), one_line(&value)))
        .collect()
}

/// Returns a text as one part of a dotted name, without dots, spaces and special characters.
fn class_part(text: &str) -> String {
    let part: String = text
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect();
    clip(&part, 200)
}

fn timestamp(run: &RunRecord, later_ms: u64) -> OffsetDateTime {
    let seconds = run.started.saturating_add(later_ms / 1_000);
    let seconds = i64::try_from(seconds).unwrap_or(0);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Returns the time in UTC, to the second, as `xs:dateTime`.
pub(super) fn timestamp_text(timestamp: OffsetDateTime) -> String {
    let (date, time) = (timestamp.date(), timestamp.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}
