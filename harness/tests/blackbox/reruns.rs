//! Runs that end early, and what continues them.

use std::path::PathBuf;
use std::process::Command;

use allranks_model::outcome::Outcome;
use rustix::process::Signal;

use super::stage::Stage;
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

/// All of them.
pub fn tests() -> Vec<Test> {
    vec![plain("rerun::records_of_a_killed_run", keep_records)]
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
