//! Makes a JUnit test case of a check, or of a problem of the run that belongs to no check.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use junit_report::{Duration, TestCase, TestCaseBuilder};

use super::draft::{RunProblem, dotted, is_interrupted, one_case_time};
use super::{EXCERPTS_LIMIT, MESSAGE_LIMIT, Properties, SYSTEM_OUT_LIMIT, TEXT_LIMIT};
use crate::check_set::CheckSet;
use crate::details::{DetailLine, details, failing_ranks, summary_line};
use crate::excerpt::log_tail;
use crate::results::{Results, ScenariosByCheck};
use crate::text::{clean, clip, one_line};
use allranks_model::outcome::Outcome;
use allranks_model::record::{CheckRecord, ScenarioRecord};
use allranks_model::status::Status;

/// The longest name of a case, in bytes.
const NAME_LIMIT: usize = 500;

/// The fields of a case that the `junit-report` model lacks.
#[derive(Debug, Default)]
pub(super) struct CaseExtra {
    pub(super) line: Option<String>,
    pub(super) properties: Properties,
}

/// Makes the cases of a file, in its order.
pub(super) struct CaseMaker<'a, C> {
    results: &'a Results<C>,
    scenarios: ScenariosByCheck<'a>,
    names: Names,
    excerpts_left: usize,
}

/// The names of the cases so far. Only a 128-bit hash of each is kept, because a million names take a hundred megabytes.
#[derive(Default)]
struct Names {
    hashers: [RandomState; 2],
    hashes: HashSet<u128>,
}

impl Names {
    /// Adds a name. Returns false if it was there already.
    fn insert(&mut self, name: &str) -> bool {
        let [high, low] = self.hashers.each_ref();
        let (high, low) = (high.hash_one(name), low.hash_one(name));
        self.hashes.insert(u128::from(high) << 64 | u128::from(low))
    }
}

impl<'a, C: CheckSet> CaseMaker<'a, C> {
    pub(super) fn new(results: &'a Results<C>) -> Self {
        Self {
            results,
            scenarios: results.scenarios_by_check(),
            names: Names::default(),
            excerpts_left: EXCERPTS_LIMIT,
        }
    }

    /// Returns the case of the check with this index. `class` is the beginning of its class name.
    pub(super) fn check(&mut self, index: usize, class: &str) -> (TestCase, CaseExtra) {
        let check = self.results.checks.record(index);
        let class = format!("{class}.{}", dotted(check.case.as_str()));
        (self.case_of(&check, &class), case_extra(&check))
    }

    /// Returns the case of a problem that belongs to no check.
    pub(super) fn run_problem(&mut self, problem: &RunProblem) -> TestCase {
        let name = self.unique(&problem.name);
        let text = &problem.text;
        let mut case = TestCaseBuilder::error(&name, Duration::ZERO, problem.type_, text);
        case.set_classname("allranks.run").set_trace(text);
        case.build()
    }

    fn case_of(&mut self, check: &CheckRecord, classname: &str) -> TestCase {
        let name = self.unique(check.id.as_str());
        let time = one_case_time(check.duration_us);
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

    /// Returns the details, then the end of each failing rank's log, cut off at the limit.
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
            // GitLab and Jenkins' attachments plugin show this as a link.
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
            // An excerpt of a few bytes is left out.
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

    /// Makes a name unique in the file, because readers keep only the first of several cases with one name.
    fn unique(&mut self, name: &str) -> String {
        let name = clip(&one_line(name), NAME_LIMIT);
        let mut unique = name.clone();
        let mut number = 1;
        while !self.names.insert(&unique) {
            number += 1;
            unique = format!("{name} ({number})");
        }
        unique
    }
}

/// Returns the summary line, and the reason if the check was excused or not run.
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

/// Returns the text of a failure. It begins with the summary line, because some readers show nothing else, and ends with the step
/// in the form that annotating readers recognise.
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

/// Splits `cases/x.yaml:12` into the file and the line; `None` if there is no line.
fn file_and_line(at: &str) -> (String, Option<String>) {
    let at = clip(&one_line(at), MESSAGE_LIMIT);
    match at.rsplit_once(':') {
        Some((file, line)) if !line.is_empty() && line.chars().all(|c| c.is_ascii_digit()) => {
            (file.to_owned(), Some(line.to_owned()))
        }
        _ => (at, None),
    }
}
