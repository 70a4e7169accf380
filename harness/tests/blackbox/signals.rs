//! Signals to the harness: however it ends, nothing it started outlives it.

use std::path::Path;

use allranks::judge::{Outcome, Verdict};
use rustix::process::{Signal, kill_process};

use super::stage::{Stage, assert_reported};
use super::{Test, plain, with_torch};

/// A run that would take minutes.
const LONG_RUN: [&str; 6] = [
    "--profile",
    "smoke",
    "--world-size",
    "2,4",
    "--repeat",
    "500",
];
const CASE: &str = "fixtures/drivers/case.yaml";

/// All of them.
pub fn tests() -> Vec<Test> {
    let fresh = |name: &'static str, driver: &'static str, word: &'static str| {
        plain(format!("kill::{name}"), move || kill_fresh(driver, word))
    };
    vec![
        fresh("silent", "fixtures/drivers/silent.py", "silent.py"),
        fresh(
            "never_connects",
            "fixtures/drivers/never_connects.py",
            "never_connects.py",
        ),
        fresh(
            "ignores_sigterm",
            "fixtures/drivers/ignores_sigterm.py",
            "ignores_sigterm.py",
        ),
        // Its ranks start processes that flee to sessions of their own.
        fresh(
            "clings",
            "harness/tests/blackbox/drivers/clings.py",
            "sleep 3600",
        ),
        with_torch("kill::zygote", || kill_zygote("python")),
        Test {
            needs_libtorch: true,
            ..with_torch("kill::libtorch_zygote", || kill_zygote("libtorch"))
        },
        with_torch("interrupt::sigint", || interrupt(Signal::INT)),
        with_torch("interrupt::sigterm", || interrupt(Signal::TERM)),
        with_torch("interrupt::twice", interrupt_twice),
        plain("interrupt::before_any_rank_says_hello", interrupt_silence),
    ]
}

/// Outside the run's folder there is nothing but the locks, which are empty files.
fn assert_no_litter(stage: &Stage) {
    for entry in std::fs::read_dir(stage.path("tmp")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(
            name.starts_with("allranks-locks-"),
            "left in the temporary folder: {name}"
        );
        for lock in std::fs::read_dir(entry.path()).unwrap().flatten() {
            assert_eq!(lock.metadata().unwrap().len(), 0);
        }
    }
}

fn is_ended(results: &Path) -> bool {
    let text = std::fs::read_to_string(results).unwrap_or_default();
    text.contains(r#""type":"scenario""#)
}

/// Kills a harness with two ranks once there are two processes with this in their command lines.
fn kill_fresh(driver: &str, word: &str) {
    let stage = Stage::new("kill");
    let driver = format!("command:python3 {driver}");
    let running = stage.start_run(&[CASE, "--driver", &driver, "--world-size", "2"]);
    stage.wait("both ranks run", || {
        let is_rank = |line: &str| line.contains(word) && !line.contains("allranks ");
        let processes = stage.processes();
        processes.iter().filter(|(_, line)| is_rank(line)).count() == 2
    });
    running.signal(Signal::KILL);
    running.end().assert_code(1009);
    stage.assert_nothing_remains();
    assert_no_litter(&stage);
}

fn kill_zygote(driver: &str) {
    let stage = Stage::new("kill");
    let arguments = [&LONG_RUN[..], &["--platform", "cpu", "--driver", driver]].concat();
    let running = stage.start_run(&arguments);
    stage.wait("a scenario has ended", || {
        is_ended(&stage.path("out/results.jsonl"))
    });
    // Harness, zygote, ranks.
    stage.wait("ranks run", || stage.processes().len() > 3);
    running.signal(Signal::KILL);
    running.end().assert_code(1009);
    stage.assert_nothing_remains();
    assert_no_litter(&stage);
    // What was recorded is readable, and says that it is not all.
    let results = stage.results("out");
    assert!(!results.scenarios.is_empty() && results.end.is_none());
    assert!(
        results
            .remarks
            .iter()
            .any(|remark| remark.contains("cut off"))
    );
    let out = stage.out().display().to_string();
    stage.run(&["report", &out]).assert_code(0);
}

fn interrupt(signal: Signal) {
    let stage = Stage::new("interrupt");
    let running = stage.start_run(&LONG_RUN);
    stage.wait("a scenario has ended", || {
        is_ended(&stage.path("out/results.jsonl"))
    });
    running.signal(signal);
    running.end().assert_code(4);
    stage.assert_nothing_remains();
    assert_no_litter(&stage);
    assert_interrupted(&stage);
}

#[track_caller]
fn assert_interrupted(stage: &Stage) {
    let results = stage.results("out");
    let end = results.end.clone().unwrap();
    assert_eq!(
        (end.exit_code, end.troubles),
        (4, vec!["interrupted".to_owned()])
    );
    assert_eq!(results.missing(), 0, "what was not run is listed too");
    assert!(
        results
            .checks
            .iter()
            .any(|check| check.verdict == Verdict::NotRun)
    );
    for check in &results.checks {
        assert!(
            matches!(check.outcome, Outcome::Pass | Outcome::NotRun),
            "{}: {}",
            check.id,
            check.summary
        );
        assert!(
            check.outcome == Outcome::Pass || check.summary.contains("interrupted"),
            "{}",
            check.summary
        );
    }
    let reports = ["junit.xml", "report.html", "summary.md"];
    assert!(reports.iter().all(|name| stage.out().join(name).is_file()));
}

/// A zygote that is stopped cannot kill its ranks: the harness waits for it, and a second signal ends the wait.
fn interrupt_twice() {
    let stage = Stage::new("interrupt");
    let running = stage.start_run(&LONG_RUN);
    stage.wait("a scenario has ended", || {
        is_ended(&stage.path("out/results.jsonl"))
    });
    stage.wait("ranks run", || stage.processes().len() > 3);
    let zygote = stage.processes().into_iter().find(|(pid, line)| {
        line.contains("allranks_rank.zygote")
            && parent(pid.as_raw_nonzero().get()) == running.pid().as_raw_nonzero().get()
    });
    let (zygote, _) = zygote.unwrap();
    kill_process(zygote, Signal::STOP).unwrap();
    running.signal(Signal::INT);
    std::thread::sleep(std::time::Duration::from_millis(500));
    running.signal(Signal::INT);
    let ran = running.end();
    kill_process(zygote, Signal::CONT).unwrap();
    assert!(ran.code == 130, "exit code {}: {}", ran.code, ran.stderr);
    stage.assert_nothing_remains();
}

fn parent(pid: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn interrupt_silence() {
    let stage = Stage::new("interrupt");
    let driver = "command:python3 fixtures/drivers/silent.py";
    let running = stage.start_run(&[CASE, "--driver", driver]);
    stage.wait("ranks run", || stage.processes().len() > 2);
    running.signal(Signal::INT);
    running.end().assert_code(4);
    stage.assert_nothing_remains();
    assert_interrupted(&stage);
    assert_reported(&stage.results("out"));
}
