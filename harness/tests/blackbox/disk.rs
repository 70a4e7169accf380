//! A disk that is full. The stand-in is a limit on the size of files, which needs no rights; writing beyond it fails
//! as it does on a full disk, in the middle of a line.

use std::process::Command;

use allranks_model::outcome::Outcome;
use allranks_model::record::CheckRecord;

use super::stage::{Stage, assert_reported};
use super::{Test, plain};

/// All of them.
pub fn tests() -> Vec<Test> {
    vec![
        plain("disk::full_from_the_start", || {
            full(0, &["environment.json: File too large"]);
        }),
        plain("disk::full_while_results_are_written", || {
            let stage = full(
                8,
                &[
                    "the results could not be written",
                    "results.jsonl: File too large",
                ],
            );
            // No half line: what is there can be read.
            assert!(!stage.results("out").checks.is_empty());
        }),
        plain("disk::full_while_reports_are_written", || {
            let stage = full(32, &["report.html: File too large", "22 passed"]);
            let results = stage.results("out");
            assert_eq!((results.missing(), results.remarks.len()), (0, 0));
            assert!(
                !stage.path("out/report.html").exists(),
                "half a page is no page"
            );
            let summary = std::fs::read_to_string(stage.path("out/summary.md")).unwrap();
            assert!(summary.contains("exit code 10 "), "{summary}");
            assert!(summary.contains("report.html: File too large"), "{summary}");
        }),
        plain("disk::full_where_a_log_is_cut", log_cannot_be_cut),
    ]
}

/// What was found out stands, though a log is too large and cannot be cut.
fn log_cannot_be_cut() {
    let stage = Stage::new("cut");
    let out = stage.out().display().to_string();
    let mut shell = Command::new("bash");
    let line = "set -o pipefail; trap '' XFSZ; (ulimit -S -f 900; exec \"$@\") 2>&1 | cat";
    shell.args(["-c", line, "bash", env!("CARGO_BIN_EXE_allranks"), "run"]);
    shell.args([
        "fixtures/drivers/case.yaml",
        "--world-size",
        "2",
        "--driver",
    ]);
    shell.args([
        "command:python3 harness/tests/blackbox/drivers/floods_beyond.py",
        "--out",
        &out,
    ]);
    let ran = stage.start(stage.marked(shell)).end();
    ran.assert_code(10);
    let results = stage.results("out");
    let is_passed = |check: &CheckRecord| check.outcome == Outcome::Pass;
    assert!(results.checks.iter().all(is_passed), "{}", ran.stdout);
    assert_reported(&results);
    let troubles = results.end.unwrap().troubles;
    let reason = "cannot cut logs/drivers_case@cpu.gloo.ws2/rank1.log: File too large";
    assert!(
        troubles.iter().any(|text| text.contains(reason)),
        "{troubles:?}"
    );
    assert!(ran.stdout.contains(reason), "{}", ran.stdout);
    stage.assert_nothing_remains();
}

/// Runs with files of so many KiB at most; what it must say. Its words go through a pipe, or they would count.
fn full(kib: u32, words: &[&str]) -> Stage {
    let stage = Stage::new("disk");
    let out = stage.out().display().to_string();
    let mut shell = Command::new("bash");
    let line = format!("set -o pipefail; trap '' XFSZ; (ulimit -f {kib}; exec \"$@\") 2>&1 | cat");
    shell.args(["-c", &line, "bash", env!("CARGO_BIN_EXE_allranks"), "run"]);
    shell.args(["fixtures/drivers/case.yaml", "--driver"]);
    shell.args([
        "command:python3 fixtures/drivers/pretend.py",
        "--repeat",
        "2",
        "--out",
        &out,
    ]);
    let ran = stage.start(stage.marked(shell)).end();
    ran.assert_code(10);
    assert!(!ran.stdout.contains("panicked"), "{}", ran.stdout);
    for words in words {
        assert!(
            ran.stdout.contains(words),
            "`{words}` is not in:\n{}",
            ran.stdout
        );
    }
    stage.assert_nothing_remains();
    stage
}
