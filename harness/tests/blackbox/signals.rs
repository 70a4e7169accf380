//! Signals to the harness: however it ends, nothing it started outlives it.

use std::path::Path;

use allranks_model::outcome::{Outcome, Verdict};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, kill_process};

use super::stage::{Running, Stage, assert_reported, check};
use super::{Test, plain, with_torch};

/// A run that would take a minute: more than is over before a signal comes, and not more, for what was not run is listed.
const LONG_RUN: [&str; 6] = [
    "--profile",
    "smoke",
    "--world-size",
    "2,4",
    "--repeat",
    "40",
];
const CASE: &str = "fixtures/drivers/case.yaml";
/// A case for all of them.
const SUM: &str = "\
id: sum
title: a sum
covers: [COLL-001]
world: {size: 2}
steps:
  - all_reduce: {numel: 33}
";
/// A platform with two devices.
const TAKEN: &str = "\
name: taken
device_type: taken
evidence: simulated
python_path: [lib]
count: '2'
backends: {gloo: {supports: [{ops: [barrier, all_reduce]}]}}
";
/// As much of torch as platforms are looked at by.
const TORCH: &str = "\
__version__ = '2.11.0'
class distributed:
    is_available = staticmethod(lambda: True)
    is_backend_available = staticmethod(lambda name: name == 'gloo')
";
/// In front of it: where ranks are forked from, the import does not come back.
const NOT_IN_A_ZYGOTE: &str = "\
import sys, time
if 'allranks_rank.zygote' in sys.orig_argv:
    open(BEGUN, 'w').close()
    time.sleep(3600)
";
/// A platform whose torch is a module of the stage.
const NEVER: &str = "\
name: never
device_type: cpu
evidence: simulated
python_path: [lib]
backends: {gloo: {supports: [{ops: barrier}]}}
";

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let fresh = |name: &'static str, driver: &'static str, word: &'static str| {
        plain(format!("kill::{name}"), move || kill_spawned(driver, word))
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
        fresh(
            "clings_by_daemon",
            "harness/tests/blackbox/drivers/clings_by_daemon.py",
            " daemon ",
        ),
        plain("kill::supervisor", kill_supervisor),
        plain("interrupt::clings_by_daemon", interrupt_daemons),
        plain("kill::while_platforms_are_looked_at", kill_looking),
        plain("kill::while_interpreters_start", kill_starting),
        plain("kill::while_a_zygote_imports_torch", kill_importing),
        plain("interrupt::while_torch_is_imported", interrupt_importing),
        plain(
            "interrupt::while_others_have_the_devices",
            interrupt_waiting,
        ),
        with_torch("kill::zygote", || kill_zygote("python")),
        Test {
            needs_libtorch: true,
            ..with_torch("kill::libtorch_zygote", || kill_zygote("libtorch"))
        },
        with_torch("interrupt::sigint", || interrupt(Signal::INT)),
        with_torch("interrupt::sigterm", || interrupt(Signal::TERM)),
        with_torch("interrupt::sighup", || interrupt(Signal::HUP)),
        with_torch("interrupt::sighup_is_ignored_under_nohup", ignore_hangup),
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
fn kill_spawned(driver: &str, word: &str) {
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

/// A run whose two ranks cling, and have daemons.
fn with_daemons() -> (Stage, Running) {
    let stage = Stage::new("daemons");
    let driver = "command:python3 harness/tests/blackbox/drivers/clings_by_daemon.py";
    let running = stage.start_run(&[CASE, "--driver", driver, "--world-size", "2"]);
    stage.wait("both daemons run", || {
        let processes = stage.processes();
        let daemons = processes
            .iter()
            .filter(|(_, line)| line.contains(" daemon "));
        daemons.count() == 2
    });
    (stage, running)
}

/// Kills what stands between the harness and its ranks: the run goes on to its end at once, and blames no rank.
fn kill_supervisor() {
    let (stage, running) = with_daemons();
    for (pid, line) in stage.processes() {
        if line.contains(" supervise ") {
            // It may have been ended already, with the other one.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    running.end().assert_code(10);
    stage.assert_nothing_remains();
    let results = stage.results("out");
    let init = check(&results, "#init");
    assert_eq!(init.outcome, Outcome::HarnessError, "{}", init.summary);
    assert!(
        init.summary.contains("killed its supervisor"),
        "{}",
        init.summary
    );
}

fn interrupt_daemons() {
    let (stage, running) = with_daemons();
    running.signal(Signal::INT);
    running.end().assert_code(4);
    stage.assert_nothing_remains();
}

/// Kills a harness that waits for an `import torch` which does not come back.
fn kill_looking() {
    let stage = Stage::new("kill");
    let begun = stage.path("begun");
    let code = format!("import time\nopen({begun:?}, 'w').close()\ntime.sleep(3600)\n");
    stage.write("lib/torch.py", &code);
    let platform = stage.write("never.yaml", NEVER);
    let running = stage.start_run(&[CASE, "--platforms", &platform, "--platform", "never"]);
    stage.wait("it is imported", || begun.exists());
    running.signal(Signal::KILL);
    running.end().assert_code(1009);
    stage.assert_nothing_remains();
    assert_no_litter(&stage);
}

/// Kills a harness at many moments of its start, when interpreters have been started and have not begun their scripts.
fn kill_starting() {
    let stage = Stage::new("kill");
    stage.write("lib/torch.py", "import time\ntime.sleep(3600)\n");
    let platform = stage.write("never.yaml", NEVER);
    for moment in 0..15 {
        let running = stage.start_run(&[CASE, "--platforms", &platform, "--platform", "never"]);
        stage.wait("an interpreter starts", || stage.processes().len() > 1);
        std::thread::sleep(std::time::Duration::from_millis(moment * 4));
        running.signal(Signal::KILL);
        running.end().assert_code(1009);
        stage.assert_nothing_remains();
    }
}

/// Where ranks are forked from, the import of torch does not come back.
fn interrupt_importing() {
    let (stage, running) = importing();
    running.signal(Signal::INT);
    running.end().assert_code(4);
    stage.assert_nothing_remains();
}

/// As above, and nothing can say so to the process that imports.
fn kill_importing() {
    let (stage, running) = importing();
    running.signal(Signal::KILL);
    running.end().assert_code(1009);
    stage.assert_nothing_remains();
}

/// A run whose zygote is in an import of torch that does not come back.
fn importing() -> (Stage, Running) {
    let stage = Stage::new("importing");
    let begun = stage.path("begun");
    let first = NOT_IN_A_ZYGOTE.replace("BEGUN", &format!("{begun:?}"));
    stage.write("lib/torch.py", &(first + TORCH));
    let out = stage.out().display().to_string();
    let mut command = stage.command(&["run", CASE, "--platform", "cpu", "--out", &out]);
    command.env("PYTHONPATH", stage.path("lib"));
    let running = stage.start(command);
    stage.wait("it is imported", || begun.exists());
    (stage, running)
}

/// Another process holds one of the two devices for the whole test.
fn interrupt_waiting() {
    let stage = Stage::new("waiting");
    stage.write("lib/torch.py", TORCH);
    let platform = stage.write("taken.yaml", TAKEN);
    let user = rustix::process::getuid().as_raw();
    let lock = stage.write(&format!("tmp/allranks-locks-{user}/device-taken-1"), "");
    let lock = std::fs::File::open(lock).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let case = stage.write("sum.yaml", SUM);
    let running = stage.start_run(&[&case, "--platforms", &platform, "--platform", "taken"]);
    stage.wait("the run has begun", || {
        let results = std::fs::metadata(stage.path("out/results.jsonl"));
        results.is_ok_and(|file| file.len() > 0)
    });
    let said = "waiting for 2 of 2 taken devices; held by another allranks run: 1";
    stage.wait("it says what it waits for", || {
        running.texts()[1].contains(said)
    });
    running.signal(Signal::INT);
    let ran = running.end();
    ran.assert_code(4);
    assert_eq!(
        ran.stderr.matches("waiting for").count(),
        1,
        "{}",
        ran.stderr
    );
    // Where the kernel tells which process holds a lock, so does the note.
    let is_told = std::fs::read_to_string("/proc/locks")
        .is_ok_and(|locks| locks.contains(&format!(" {} ", std::process::id())));
    if is_told {
        ran.assert_says(&format!("{said} (pid {})", std::process::id()));
    }
    assert_interrupted(&stage);
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
    stage.run(&["report", &out]).assert_code(4);
    let whole = stage.path("merged").display().to_string();
    stage.run(&["merge", "--out", &whole, &out]).assert_code(4);
}

/// The end of a terminal is no signal for a run under `nohup`: the one after it is the first, and not the second.
fn ignore_hangup() {
    let stage = Stage::new("nohup");
    let out = stage.out().display().to_string();
    let run = stage.command(&[&["run"], &LONG_RUN[..], &["--out", &out]].concat());
    let mut nohup = std::process::Command::new("bash");
    nohup.args(["-c", "trap '' HUP; exec \"$@\"", "bash"]);
    nohup.arg(run.get_program()).args(run.get_args());
    for (name, value) in run.get_envs() {
        nohup.env(name, value.unwrap_or_default());
    }
    let running = stage.start(stage.marked(nohup));
    stage.wait("a scenario has ended", || {
        is_ended(&stage.path("out/results.jsonl"))
    });
    running.signal(Signal::HUP);
    std::thread::sleep(std::time::Duration::from_millis(300));
    running.signal(Signal::INT);
    running.end().assert_code(4);
    stage.assert_nothing_remains();
    assert_interrupted(&stage);
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
        (end.exit_code, end.issues),
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
