//! Runs that end early, and what continues them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use allranks_model::outcome::Outcome;
use allranks_model::record::CheckRecord;
use allranks_report::Results;
use rustix::process::Signal;

use super::stage::{Stage, assert_reported, essence};
use super::{Test, plain};

/// Three checks, of which the second is held.
const CASE: &str = "\
id: sums
title: sums
covers: [COLL-001]
world: {platform: cpu, backend: gloo, size: [1, 2], deadline_s: 600}
steps:
  - all_reduce: {numel: 5}
  - all_reduce: {numel: 7}
  - all_reduce: {numel: 9}
";
/// Checks of both scenarios together, those of init and teardown among them.
const CHECKS: usize = 10;
const DRIVER: &str = "command:python3 harness/tests/blackbox/drivers/holds.py";

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    vec![
        plain("rerun::records_of_a_killed_run", keep_records),
        plain("rerun::after_a_kill", || continue_after(Signal::KILL)),
        plain("rerun::after_an_interrupt", || continue_after(Signal::INT)),
        plain("rerun::of_what_failed", retry),
        plain("rerun::reports_of_an_interrupted_run", report_interrupted),
        plain("rerun::of_what_cannot_be_continued", refuse),
    ]
}

/// A stage with the case, and the file that holds its ranks.
struct Held {
    stage: Stage,
    hold: PathBuf,
    case: String,
}

impl Held {
    fn new(name: &str) -> Self {
        let stage = Stage::new(name);
        let case = stage.write("sums.yaml", CASE);
        let hold = PathBuf::from(stage.write("hold", ""));
        Self { stage, hold, case }
    }

    /// The binary, which tells its ranks of the hold.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.stage.command(arguments);
        command.env("BLACKBOX_HOLD", &self.hold);
        command
    }

    /// Starts a run, and ends it with this signal when the first check of each scenario is recorded.
    fn end_early(&self, signal: Signal) -> i32 {
        let out = self.stage.out().display().to_string();
        let command = self.command(&["run", &self.case, "--driver", DRIVER, "--out", &out]);
        let running = self.stage.start(command);
        self.stage.wait("the first checks are recorded", || {
            let text = std::fs::read_to_string(self.stage.path("out/results.jsonl"));
            text.unwrap_or_default()
                .matches("\"type\":\"check\"")
                .count()
                == 2
        });
        running.signal(signal);
        let code = running.end().code;
        self.stage.assert_nothing_remains();
        code
    }
}

/// What was decided before the kill is there, though no scenario has ended.
fn keep_records() {
    let held = Held::new("records");
    assert_eq!(held.end_early(Signal::KILL), 1009);
    let results = held.stage.results("out");
    let ids: Vec<&str> = results
        .checks
        .iter()
        .map(|check| check.id.as_str())
        .collect();
    assert_eq!(results.checks.len(), 2, "{ids:?}");
    assert!(ids.iter().all(|id| id.ends_with(".5")), "{ids:?}");
    let is_passed = |outcome| outcome == Outcome::Pass;
    assert!(results.checks.iter().all(|check| is_passed(check.outcome)));
    assert_eq!(results.missing() as usize, CHECKS - 2);
    assert!(results.scenarios.is_empty() && results.end.is_none());
}

/// What was not run is run, and every check is there once; then there is nothing left to do.
fn continue_after(signal: Signal) {
    let held = Held::new("continue");
    let code = held.end_early(signal);
    assert_eq!(code, if signal == Signal::KILL { 1009 } else { 4 });
    std::fs::remove_file(&held.hold).unwrap();
    let stage = &held.stage;
    let again = stage.path("again").display().to_string();
    let out = stage.out().display().to_string();
    let ran = stage
        .start(held.command(&["rerun", &out, "--out", &again]))
        .end();
    ran.assert_code(0)
        .assert_says("2 checks keep the results of the earlier run");
    stage.assert_nothing_remains();
    let results = stage.results("again");
    assert_reported(&results);
    assert_eq!(results.scenarios.len(), 2);
    assert_eq!(
        results.end.as_ref().unwrap().verdicts["expected"] as usize,
        CHECKS
    );
    assert_once(&results);
    let first = essence(&stage.results("out"));
    let passed = first
        .iter()
        .filter(|(_, outcome, _)| *outcome == Outcome::Pass)
        .count();
    assert!(passed >= 2, "{first:?}");
    let whole = essence(&results);
    assert!(
        whole
            .iter()
            .all(|(_, outcome, _)| *outcome == Outcome::Pass),
        "{whole:?}"
    );
    let junit = std::fs::read_to_string(stage.path("again/junit.xml")).unwrap();
    assert_eq!(junit.matches("<testcase ").count(), CHECKS, "{junit}");
    // A rerun can be continued as well, and this one need not be.
    let ran = stage.run(&["rerun", &again]);
    ran.assert_code(0);
    assert!(
        ran.stdout.contains("nothing to do: every check of"),
        "{}",
        ran.stdout
    );
}

#[track_caller]
fn assert_once(results: &Results) {
    let ids: BTreeSet<&str> = results
        .checks
        .iter()
        .map(|check| check.id.as_str())
        .collect();
    assert_eq!((ids.len(), results.checks.len()), (CHECKS, CHECKS));
}

/// What failed stays failed, unless it is asked for; then it says what it was.
fn retry() {
    let held = Held::new("retry");
    let stage = &held.stage;
    let (out, again) = (
        stage.out().display().to_string(),
        stage.path("again").display().to_string(),
    );
    let failing = stage.write("failing", "");
    let run = |arguments: &[&str]| {
        let mut command = held.command(arguments);
        command
            .env("BLACKBOX_FAIL", &failing)
            .env_remove("BLACKBOX_HOLD");
        let ran = stage.start(command).end();
        stage.assert_nothing_remains();
        ran
    };
    run(&["run", &held.case, "--driver", DRIVER, "--out", &out]).assert_code(1);
    let said = run(&["rerun", &out, "--out", &again]);
    said.assert_code(1);
    assert!(said.stdout.contains("nothing to do"), "{}", said.stdout);
    assert!(!stage.path("again").exists());
    std::fs::remove_file(&failing).unwrap();
    run(&["rerun", &out, "--failed", "--out", &again]).assert_code(0);
    let results = stage.results("again");
    assert_once(&results);
    let before = |check: &CheckRecord| check.observations.get("before").cloned();
    let changed: Vec<_> = results
        .checks
        .iter()
        .filter_map(|check| Some((check.id.as_str(), before(check)?)))
        .collect();
    assert_eq!(changed.len(), 2, "{changed:?}");
    for (id, before) in changed {
        assert!(id.ends_with(".7"), "{id}");
        assert!(
            before.starts_with("regression: ") && before.contains("it is broken"),
            "{before}"
        );
    }
}

fn refuse() {
    let held = Held::new("refuse");
    let stage = &held.stage;
    held.end_early(Signal::KILL);
    let out = stage.out().display().to_string();
    let rerun = |arguments: &[&str]| {
        let all = [&["rerun", &out], arguments].concat();
        let ran = stage.start(held.command(&all)).end();
        stage.assert_nothing_remains();
        ran
    };
    rerun(&["--driver", "command:python3 another.py"])
        .assert_code(2)
        .assert_says("this is not the driver of the run");
    stage.write("sums.yaml", &CASE.replace("numel: 9", "numel: 11"));
    rerun(&[])
        .assert_code(2)
        .assert_says("cannot be continued: its cases have changed");
    let merged = stage.path("merged").display().to_string();
    stage.run(&["merge", &out, "--out", &merged]).assert_code(4);
    let ran = stage.run(&["rerun", &merged]);
    ran.assert_code(2)
        .assert_says("it does not record the suite and platforms that it was made from");
}

/// What was never started is not counted as run, is in the column of what was, and has one case of JUnit for each check.
fn report_interrupted() {
    let held = Held::new("reports");
    let stage = &held.stage;
    let out = stage.out().display().to_string();
    let once = ["--driver", DRIVER, "--out", &out, "--world-size", "2"];
    let arguments = [
        &["run", &held.case, "--ranks-at-once", "1", "--repeat", "2"],
        &once[..],
    ];
    let running = stage.start(held.command(&arguments.concat()));
    stage.wait("the first check is recorded", || {
        let text = std::fs::read_to_string(stage.path("out/results.jsonl"));
        text.unwrap_or_default().contains("\"type\":\"check\"")
    });
    running.signal(Signal::INT);
    let ran = running.end();
    ran.assert_code(4);
    assert!(
        ran.stdout.contains("1 of 2 scenarios in "),
        "{}",
        ran.stdout
    );
    let results = stage.results("out");
    assert_eq!(
        (results.columns().len(), results.checks.len()),
        (1, CHECKS),
        "{:?}",
        results.columns()
    );
    let junit = std::fs::read_to_string(stage.path("out/junit.xml")).unwrap();
    assert_eq!(junit.matches("<testcase ").count(), CHECKS, "{junit}");
    assert!(junit.contains("<error type=\"not-run\""), "{junit}");
    stage.assert_nothing_remains();
}
