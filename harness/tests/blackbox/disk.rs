//! A disk that is full. The stand-in is a limit on the size of files, which needs no rights; writing beyond it fails
//! as it does on a full disk, in the middle of a line.

use std::fs;
use std::path::Path;
use std::process::Command;

use allranks_model::outcome::Outcome;
use allranks_model::record::CheckRecord;
use allranks_report::jsonl;

use super::stage::{Stage, assert_reported};
use super::{Lack, Test, plain, unless_lacking};

/// Returns every trial of this file.
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
            let summary = fs::read_to_string(stage.path("out/summary.md")).unwrap();
            assert!(summary.contains("exit code 10 "), "{summary}");
            assert!(summary.contains("report.html: File too large"), "{summary}");
        }),
        plain("disk::full_where_a_log_is_cut", log_cannot_be_cut),
        unless_lacking(
            no_small_disk(),
            plain("disk::full_for_real", || {
                for kib in [8, 20, 48] {
                    full_disk(kib);
                }
            }),
        ),
    ]
}

/// What a shell does in namespaces of its own: mounts a disk of `$1` KiB at `$2`, and then the rest.
const MOUNT: &str = "mount -t tmpfs -o size=\"$1\"k small \"$2\" && shift 2";

/// A disk that only one process sees.
fn no_small_disk() -> Option<Lack> {
    let folder = tempfile::tempdir().unwrap();
    let ran = small_disk(4, folder.path(), "exec true").output();
    let why = match ran {
        Ok(ran) if ran.status.success() => return None,
        Ok(ran) => String::from_utf8_lossy(&ran.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    Some(Lack {
        what: "a disk of its own",
        why,
    })
}

/// A shell for which a small disk is mounted on a folder; `then` is what it does there.
fn small_disk(kib: u32, folder: &Path, then: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    command.arg(format!("{MOUNT} && {then}")).arg("sh");
    command.arg(kib.to_string()).arg(folder);
    command
}

/// A run on a disk that is full while it goes on: it says so, its end is no success, and what is there can be read.
fn full_disk(kib: u32) {
    let stage = Stage::new("disk");
    let small = stage.path("small");
    fs::create_dir(&small).unwrap();
    let kept = stage.out().display().to_string();
    // The disk is gone with the shell.
    let then = format!(
        "\"$@\"; code=$?; cp -r {}/out {kept}; exit $code",
        small.display()
    );
    let mut shell = small_disk(kib, &small, &then);
    shell.args([
        env!("CARGO_BIN_EXE_allranks"),
        "run",
        "fixtures/drivers/case.yaml",
    ]);
    shell.args(["--driver", "command:python3 fixtures/drivers/pretend.py"]);
    shell
        .args(["--repeat", "2", "--out"])
        .arg(small.join("out"));
    let ran = stage.start(stage.marked(shell)).end();
    ran.assert_code(10);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains("No space left on device"), "{said}");
    assert!(!said.contains("exit code 0"), "{said}");
    stage.assert_nothing_remains();
    // It may have been full before the first record.
    if let Ok(results) = jsonl::read(&stage.out()) {
        let is_whole = results.end.is_some();
        let ran = stage.run(&["report", &kept]);
        let codes: &[i32] = if is_whole { &[0, 10] } else { &[4] };
        assert!(codes.contains(&ran.code), "{}: {}", ran.code, ran.stderr);
    }
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
    let issues = results.end.unwrap().issues;
    let reason = "cannot cut logs/drivers_case@cpu.gloo.ws2/rank1.log: File too large";
    assert!(
        issues.iter().any(|text| text.contains(reason)),
        "{issues:?}"
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
