//! Turns results into suites and cases as the `junit-report` crate models them, and beside them what its model has no place
//! for.

use std::collections::BTreeSet;

use junit_report::{Duration, OffsetDateTime, TestCase, TestCaseBuilder, TestSuite};

use super::{EXCERPTS_LIMIT, MESSAGE_LIMIT, SYSTEM_OUT_LIMIT, TEXT_LIMIT};
use crate::details::{DetailLine, details, failing_ranks, summary_line};
use crate::excerpt::log_tail;
use crate::results::{Results, ScenariosByCheck, column_names, evidence_word};
use crate::status_counts::Headline;
use crate::text::{clean, clip, one_line};
use allranks_model::names::ScenarioId;
use allranks_model::outcome::Outcome;
use allranks_model::record::{
    CheckRecord, Column, INTERRUPTED, RunRecord, STOPPED, ScenarioRecord,
};
use allranks_model::status::Status;

/// The most bytes of a case's name.
const NAME_LIMIT: usize = 500;

/// A pair for each property: its name and its value.
pub(super) type Properties = Vec<(String, String)>;

/// The suites of a run, and what the file's root says.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) run: String,
    pub(super) started: OffsetDateTime,
    pub(super) suites: Vec<SuiteDraft>,
}

/// A suite, and what the model has no place for; one [`CaseExtra`] for each case, in the same order.
#[derive(Debug)]
pub(super) struct SuiteDraft {
    pub(super) suite: TestSuite,
    pub(super) properties: Properties,
    pub(super) cases: Vec<CaseExtra>,
}

/// What the `junit-report` model has no place for in a case.
#[derive(Debug, Default)]
pub(super) struct CaseExtra {
    pub(super) line: Option<String>,
    pub(super) properties: Properties,
}

impl Draft {
    /// Turns results into suites and cases: one suite for each column, and one for what belongs to no check.
    pub(super) fn of(results: &Results) -> Self {
        let mut drafter = Drafter::new(results);
        let columns = results.columns();
        for (column, name) in columns.iter().zip(column_names(&columns)) {
            drafter.add_column(column, &name);
        }
        drafter.add_troubles();
        Self {
            run: one_line(&format!("allranks {}", results.run.name)),
            started: timestamp(&results.run, 0),
            suites: drafter.suites,
        }
    }
}

struct Drafter<'a> {
    results: &'a Results,
    scenarios: ScenariosByCheck<'a>,
    names: BTreeSet<String>,
    excerpts_left: usize,
    suites: Vec<SuiteDraft>,
}

impl<'a> Drafter<'a> {
    fn new(results: &'a Results) -> Self {
        Self {
            results,
            scenarios: results.scenarios_by_check(),
            names: BTreeSet::new(),
            excerpts_left: EXCERPTS_LIMIT,
            suites: Vec::new(),
        }
    }

    fn add_column(&mut self, column: &Column, name: &str) {
        let results = self.results;
        let start_ms = results.scenarios.iter();
        let start_ms = start_ms
            .filter(|scenario| scenario.column == *column)
            .map(|scenario| scenario.start_ms)
            .min();
        let mut suite = self.new_suite(name, start_ms.unwrap_or(0));
        let mut cases = Vec::new();
        let classname = name
            .split('/')
            .map(class_part)
            .collect::<Vec<_>>()
            .join(".");
        for check in results.checks.iter().filter(|one| one.column == *column) {
            let case = check.case.as_str().split('/').map(class_part);
            let classname = format!("{classname}.{}", case.collect::<Vec<_>>().join("."));
            suite.add_testcase(self.case_of(check, &classname));
            cases.push(case_extra(check));
        }
        let properties = column_properties(column);
        self.suites.push(SuiteDraft {
            suite,
            properties,
            cases,
        });
    }

    /// Adds what belongs to no check, as cases of a suite of its own; no suite if there is nothing.
    fn add_troubles(&mut self) {
        let results = self.results;
        let mut suite = self.new_suite("allranks", 0);
        let mut add = |name: String, type_: &str, text: &str| {
            let name = self.unique(&name);
            let message = clip(&one_line(text), MESSAGE_LIMIT);
            let mut case = TestCaseBuilder::error(&name, Duration::ZERO, type_, &message);
            case.set_classname("allranks.run").set_trace(&message);
            suite.add_testcase(case.build());
        };
        if results.end.is_none() {
            add("run".into(), "cut-off", &Headline::of(results).sentence);
        }
        let is_detailed = results.checks.iter().any(is_interrupted);
        let troubles = results.troubles().into_iter();
        let troubles = troubles.filter(|trouble| !(is_detailed && *trouble == STOPPED));
        for (number, trouble) in troubles.enumerate() {
            add(format!("trouble {}", number + 1), "trouble", trouble);
        }
        let with_checks: BTreeSet<&ScenarioId> =
            results.checks.iter().map(|check| &check.scenario).collect();
        for scenario in &results.scenarios {
            if !with_checks.contains(&scenario.id) {
                let trouble = scenario.trouble.as_deref().unwrap_or("it left no check");
                add(scenario.id.to_string(), "no-check", trouble);
            }
        }
        if suite.testcases.is_empty() {
            return;
        }
        let cases = suite.testcases.iter().map(|_| CaseExtra::default());
        self.suites.push(SuiteDraft {
            properties: Vec::new(),
            cases: cases.collect(),
            suite,
        });
    }

    fn new_suite(&self, name: &str, start_ms: u64) -> TestSuite {
        let mut suite = TestSuite::new(&one_line(name));
        suite.package = name
            .split('/')
            .map(class_part)
            .collect::<Vec<_>>()
            .join(".");
        suite.set_timestamp(timestamp(&self.results.run, start_ms));
        suite
    }

    fn case_of(&mut self, check: &CheckRecord, classname: &str) -> TestCase {
        let name = self.unique(check.id.as_str());
        let time = Duration::microseconds(i64::try_from(check.duration_us).unwrap_or(i64::MAX));
        let status = check.status();
        let message = clip(&message(check), MESSAGE_LIMIT);
        let mut case = match status {
            Status::Passed => TestCaseBuilder::success(&name, time),
            Status::NotRun if is_interrupted(check) => {
                TestCaseBuilder::error(&name, time, Outcome::NotRun.name(), &message)
            }
            Status::Refused | Status::KnownFailure | Status::Waived | Status::NotRun => {
                let type_ = status.word().replace(' ', "-");
                let mut case = TestCase::skipped_with_cause(&name, &type_, &message);
                case.time = time;
                TestCaseBuilder { testcase: case }
            }
            Status::Regression => {
                TestCaseBuilder::failure(&name, time, check.outcome.name(), &message)
            }
            Status::UnexpectedPass => {
                TestCaseBuilder::failure(&name, time, "unexpected-pass", &message)
            }
            Status::HarnessError => {
                TestCaseBuilder::error(&name, time, Outcome::HarnessError.name(), &message)
            }
        };
        case.set_classname(classname);
        let (file, _) = file_and_line(&check.at);
        if !file.is_empty() {
            case.set_filepath(&file);
        }
        if status.is_failing() {
            let scenario = self.scenarios.get(check);
            let lines = details(&self.results.run, scenario, check);
            case.set_trace(&clean(&trace(check, &lines)));
            case.set_system_out(&clean(&self.system_out(check, scenario, &lines)));
        }
        case.build()
    }

    /// Returns the details, then the end of each failing rank's log. What exceeds the limit is cut off at the end.
    fn system_out(
        &mut self,
        check: &CheckRecord,
        scenario: Option<&ScenarioRecord>,
        lines: &[DetailLine],
    ) -> String {
        let mut text = values_with_counts(lines);
        let ranks = failing_ranks(scenario, check);
        for rank in &ranks {
            let path = self.results.folder.join(&rank.log);
            // GitLab and Jenkins' attachments plugin show a link.
            let path = one_line(&path.display().to_string());
            text.push_str(&format!("[[ATTACHMENT|{path}]]\n"));
        }
        let room = SYSTEM_OUT_LIMIT
            .saturating_sub(text.len())
            .min(self.excerpts_left);
        let share = room / ranks.len().max(1);
        for rank in &ranks {
            let heading = format!(
                "\n--- end of {} ({})\n",
                one_line(&rank.log),
                one_line(&rank.end)
            );
            // A few lines are worth a quote, a few bytes are not.
            let Some(limit) = share.checked_sub(heading.len()).filter(|left| *left > 200) else {
                continue;
            };
            if let Some(tail) = log_tail(self.results, &rank.log, limit) {
                self.excerpts_left = self.excerpts_left.saturating_sub(tail.len());
                text.push_str(&heading);
                text.push_str(&tail);
            }
        }
        clip(&text, SYSTEM_OUT_LIMIT)
    }

    /// Makes a name unique in the file: readers keep only the first of several cases with one name.
    fn unique(&mut self, name: &str) -> String {
        let name = clip(&one_line(name), NAME_LIMIT);
        let mut unique = name.clone();
        let mut number = 1;
        while !self.names.insert(unique.clone()) {
            number += 1;
            unique = format!("{name} ({number})");
        }
        unique
    }
}

/// Returns true if a check was not run because the run was stopped.
fn is_interrupted(check: &CheckRecord) -> bool {
    check.status() == Status::NotRun && check.summary.contains(INTERRUPTED)
}

/// The sentence, and for what is excused or not run the reason.
fn message(check: &CheckRecord) -> String {
    let sentence = summary_line(check);
    match &check.expectation {
        Some(reason) => {
            let url = reason.url.as_deref().unwrap_or("");
            one_line(&format!("{sentence}: {} {url}", reason.text))
        }
        None => sentence,
    }
}

/// The text of a failure. It begins with the sentence, because some readers show nothing else, and ends with the step
/// in the form that annotating readers look for.
fn trace(check: &CheckRecord, lines: &[DetailLine]) -> String {
    let mut text = format!("{}\n\n", summary_line(check));
    let rest: Vec<DetailLine> = lines
        .iter()
        .filter(|line| line.label != "what")
        .cloned()
        .collect();
    text.push_str(&values_with_counts(&rest));
    let text = clip(&text, TEXT_LIMIT - MESSAGE_LIMIT);
    let at = clip(&one_line(&check.at), MESSAGE_LIMIT - 16);
    format!("{text}\n at {at}\n")
}

fn values_with_counts(lines: &[DetailLine]) -> String {
    let lines = lines.iter();
    let lines = lines.map(|line| format!("{}: {}\n", line.label, line.text));
    lines.collect()
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

fn case_extra(check: &CheckRecord) -> CaseExtra {
    let (_, line) = file_and_line(&check.at);
    let mut properties = vec![
        ("outcome".to_owned(), check.outcome.to_string()),
        ("verdict".to_owned(), check.verdict.to_string()),
    ];
    let covers = check.covers.iter().map(|one| one.as_str());
    let covers = covers.collect::<Vec<_>>().join(",");
    let class = check.class.clone().unwrap_or_default();
    let mut add = |name: &str, value: &str| {
        let value = clip(&one_line(value), MESSAGE_LIMIT);
        if !value.is_empty() {
            let name = clip(&one_line(name), MESSAGE_LIMIT);
            properties.push((name, value));
        }
    };
    add("requirements", &covers);
    add("class", &class);
    for (name, value) in &check.params {
        add(&format!("param.{name}"), value);
    }
    for (name, value) in &check.observations {
        add(&format!("observed.{name}"), value);
    }
    CaseExtra { line, properties }
}

/// `cases/x.yaml:12` as a file and, if it is one, a line.
fn file_and_line(at: &str) -> (String, Option<String>) {
    let at = clip(&one_line(at), MESSAGE_LIMIT);
    match at.rsplit_once(':') {
        Some((file, line)) if !line.is_empty() && line.chars().all(|c| c.is_ascii_digit()) => {
            (file.to_owned(), Some(line.to_owned()))
        }
        _ => (at, None),
    }
}

/// One part of a dotted name: no dots, no spaces, nothing a reader would take for something else.
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
