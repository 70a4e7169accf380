//! Programs as cases: every way in which one rank of a user's program can go wrong, under every launcher, is seen and
//! names that rank; and nothing is left of any of them. The program is `drivers/program.py`, which needs no torch; the
//! interpreter that runs it has to have it all the same, because the platform has.

use std::fs;
use std::path::PathBuf;

use allranks_model::outcome::{Outcome, Verdict};
use rustix::process::Signal;

use super::budget::Load;
use super::stage::{Running, Stage, assert_reported, check};
use super::{Test, with_torch};

const PROGRAM: &str = "harness/tests/blackbox/drivers/program.py";
/// What every rank must print.
const LINES: &str = "lines: [ready, 'rank {rank} of {world_size}: done']";
const LAUNCHERS: [&str; 2] = ["local", "torchrun"];

/// What rank 1 does, and how it must be seen.
struct Row {
    fault: &'static str,
    /// The check that shows it.
    check: &'static str,
    outcome: Outcome,
    class: &'static str,
    /// A text that the report of it contains.
    words: &'static str,
}

const TABLE: [Row; 11] = [
    Row {
        fault: "exits_42",
        check: "#exit",
        outcome: Outcome::Crash,
        class: "exit-code",
        words: "rank 1: exit 42; it must be exit 0; its last line: \"rank 1 of 2: done\"",
    },
    Row {
        fault: "killed",
        check: "#exit",
        outcome: Outcome::Crash,
        class: "signal",
        words: "rank 1: signal 9 (SIGKILL)",
    },
    Row {
        fault: "silent",
        check: "#line-1",
        outcome: Outcome::Mismatch,
        class: "line-missing",
        words: "rank 1: did not print `ready`; it printed nothing",
    },
    Row {
        fault: "says_something_else",
        check: "#line-2",
        outcome: Outcome::Mismatch,
        class: "line-missing",
        words: "rank 1: did not print `rank {rank} of {world_size}: done`",
    },
    Row {
        fault: "leaves_early",
        check: "#line-2",
        outcome: Outcome::Mismatch,
        class: "line-missing",
        words: "its last line: \"ready\"",
    },
    Row {
        fault: "swapped",
        check: "#line-2",
        outcome: Outcome::Mismatch,
        class: "line-too-early",
        words: "on line 1 of its log, before what must come first",
    },
    Row {
        fault: "complains",
        check: "#never-1",
        outcome: Outcome::Mismatch,
        class: "line-forbidden",
        words: "rank 1: printed on line 2 of its log what must not be there: \"WARNING: forbidden\"",
    },
    Row {
        fault: "hangs",
        check: "#exit",
        outcome: Outcome::Hang,
        class: "hang",
        words: "it had not ended after 6 s",
    },
    Row {
        fault: "ignores_sigterm",
        check: "#exit",
        outcome: Outcome::Hang,
        class: "hang",
        words: "it had not ended after 6 s",
    },
    Row {
        fault: "leaves_a_grandchild",
        check: "#end",
        outcome: Outcome::Crash,
        class: "left-behind",
        words: "rank 1 left a process running: sleep 3600",
    },
    Row {
        fault: "kills_its_group",
        check: "#exit",
        outcome: Outcome::Crash,
        class: "no-exit-record",
        words: "rank 1: its end was not recorded",
    },
];

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for launcher in LAUNCHERS {
        let under = |name: &str, body: Box<dyn FnOnce() + Send>| Test {
            load: match launcher {
                // It imports torch too.
                "torchrun" => Load::Computes,
                _ => Load::Imports,
            },
            ..with_torch(format!("programs::{launcher}::{name}"), body)
        };
        tests.extend(
            TABLE
                .into_iter()
                .map(|row| under(row.fault, Box::new(move || seen(&row, launcher)))),
        );
        let on = |name: &str, body: fn(&str)| under(name, Box::new(move || body(launcher)));
        tests.extend([
            on("goes_well", goes_well),
            on("what_is_to_fail_may", fails_as_it_is_to),
            on("what_is_not_there", absent),
            on("killed_with_the_harness", killed),
            on("interrupted", interrupted),
        ]);
    }
    tests.extend([
        with_torch("programs::floods", floods),
        with_torch("programs::a_verdict_is_a_file", verdict),
        with_torch("programs::its_logs_are_understood", diagnosed),
        with_torch("programs::driver_and_launcher_select", selected),
        with_torch("programs::elsewhere", elsewhere),
    ]);
    tests
}

/// A case with two ranks of the program.
fn case(stage: &Stage, fault: &str, launcher: &str, asked: &str) -> String {
    let text = format!(
        "id: case\ntitle: a program with a fault\nworld: {{platform: cpu, backend: gloo, size: 2}}\n\
         program:\n  run: [python, {PROGRAM}, {fault}]\n  launcher: {launcher}\n  {}\n",
        asked.replace('\n', "\n  ")
    );
    stage.write("case.yaml", &text)
}

/// Nothing is left: no process, no file outside the run's folder but locks, and in it what a run has.
#[track_caller]
fn assert_gone(stage: &Stage) {
    stage.assert_nothing_remains();
    for entry in fs::read_dir(stage.path("tmp")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(name.starts_with("allranks-locks-"), "left: {name}");
    }
}

/// No scratch folder in the run's.
#[track_caller]
fn assert_tidy(stage: &Stage) {
    for entry in fs::read_dir(stage.out()).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(!name.starts_with("allranks-"), "left: {name}");
    }
}

fn seen(row: &Row, launcher: &str) {
    let stage = Stage::new(row.fault);
    // A program that hangs is given up after this; the others take less.
    let within = if row.outcome == Outcome::Hang { 6 } else { 90 };
    let asked = format!("{LINES}\nnever: [WARNING]\nwithin: {within}s");
    let case = case(&stage, row.fault, launcher, &asked);
    let ran = stage.start_run(&[&case]).end();
    ran.assert_code(1);
    assert_gone(&stage);
    assert_tidy(&stage);
    let results = stage.results("out");
    assert_reported(&results);
    let shown = check(&results, row.check);
    // The summary is of the first rank only, and torchrun may end that one for another.
    let ranks = shown.ranks.iter();
    let lines: Vec<_> = ranks
        .map(|line| format!("rank {}: {}", line.rank, line.text))
        .collect();
    let told = format!("{}\n{}", shown.summary, lines.join("\n"));
    assert_eq!(shown.outcome, row.outcome, "{told}");
    assert_eq!(shown.verdict, Verdict::Regression, "{told}");
    assert_eq!(shown.class.as_deref(), Some(row.class), "{told}");
    assert!(told.contains(row.words), "{told}");
    let column = &results.scenarios[0].column;
    assert_eq!(
        (column.driver.as_str(), column.launcher.as_str()),
        ("program", launcher)
    );
    if launcher == "torchrun" && row.fault == "exits_42" {
        // It does fail, and was not to.
        let own = check(&results, "#launcher-exit");
        assert_eq!(own.outcome, Outcome::Crash, "{}", own.summary);
    }
}

fn goes_well(launcher: &str) {
    let stage = Stage::new("well");
    let asked = format!("{LINES}\nnever: [WARNING]");
    let case = case(&stage, "goes_well", launcher, &asked);
    stage.start_run(&[&case]).end().assert_code(0);
    assert_gone(&stage);
    assert_tidy(&stage);
    let results = stage.results("out");
    assert_reported(&results);
    for check in &results.checks {
        assert_eq!(check.outcome, Outcome::Pass, "{}", check.id);
        assert_eq!(check.checked, [1, 1], "{}", check.id);
    }
    let scenario = &results.scenarios[0];
    for rank in &scenario.ranks {
        assert!(rank.pid > 0 && rank.end == "exit 0", "{rank:?}");
        let log = fs::read_to_string(results.folder.join(&rank.log)).unwrap();
        assert_eq!(log, format!("ready\nrank {} of 2: done\n", rank.rank));
    }
}

fn fails_as_it_is_to(launcher: &str) {
    for (fault, is) in [
        ("exits_42", "42"),
        ("killed", "SIGKILL"),
        ("exits_42", "failed"),
    ] {
        let stage = Stage::new("fails");
        let exit = format!("exit: [{{on: last, is: {is}}}, {{on: first, is: any}}]");
        let asked = format!("lines: [{{on: last, line: done}}]\n{exit}");
        let case = case(&stage, fault, launcher, &asked);
        let ran = stage.start_run(&[&case]).end();
        ran.assert_code(2)
            .assert_says("nothing shows that rank 0 of a world of 2 has done anything");
        let asked = asked.replace("{on: last, line: done}", "ready");
        let case = self::case(&stage, fault, launcher, &asked);
        stage.start_run(&[&case]).end().assert_code(0);
        assert_gone(&stage);
        let results = stage.results("out");
        assert!(
            results
                .checks
                .iter()
                .all(|one| one.outcome == Outcome::Pass)
        );
        let has_own = results
            .checks
            .iter()
            .any(|one| one.id.as_str().ends_with("#launcher-exit"));
        assert_eq!(has_own, launcher == "torchrun");
    }
}

fn absent(launcher: &str) {
    let stage = Stage::new("absent");
    let text = format!(
        "id: case\ntitle: t\nworld: {{platform: cpu, backend: gloo, size: 2}}\n\
         program: {{run: [./no-such-program], launcher: {launcher}, lines: [ready]}}\n"
    );
    let case = stage.write("case.yaml", &text);
    let ran = stage.start_run(&[&case]).end();
    ran.assert_code(2)
        .assert_says("there is no file `./no-such-program`");
    let case = stage.write("case.yaml", &text.replace("./no-such", "no-such"));
    stage.start_run(&[&case]).end().assert_code(1);
    assert_gone(&stage);
    let results = stage.results("out");
    assert_reported(&results);
    for check in &results.checks {
        if check.id.as_str().ends_with("#end") {
            continue;
        }
        assert_ne!(check.outcome, Outcome::Pass, "{}", check.id);
    }
    let init = check(&results, "#init");
    assert_eq!(init.outcome, Outcome::InitFailed);
    let words = "it could not be started: no-such-program: No such file";
    assert!(init.summary.contains(words), "{}", init.summary);
    // As soon as torchrun has seen one rank fail, it ends the other, which may not have come so far.
    if launcher != "torchrun" {
        assert!(
            init.summary.contains("rank 0: it could"),
            "{}",
            init.summary
        );
        assert!(init.summary.contains("(2 of 2 ranks)"), "{}", init.summary);
    }
}

/// Starts a program that would run for an hour, and waits until both ranks have children in sessions of their own.
fn start_busy(stage: &Stage, launcher: &str) -> Running {
    let asked = format!("{LINES}\nwithin: 1h");
    let case = case(stage, "busy", launcher, &asked);
    let running = stage.start_run(&[&case]);
    stage.wait("both ranks have children", || {
        let sleeps = stage.processes();
        sleeps
            .iter()
            .filter(|(_, line)| line.starts_with("sleep"))
            .count()
            == 2
    });
    running
}

fn killed(launcher: &str) {
    let stage = Stage::new("killed");
    let running = start_busy(&stage, launcher);
    running.signal(Signal::KILL);
    running.end().assert_code(1009);
    assert_gone(&stage);
}

fn interrupted(launcher: &str) {
    let stage = Stage::new("interrupted");
    let running = start_busy(&stage, launcher);
    running.signal(Signal::INT);
    running.end().assert_code(4);
    assert_gone(&stage);
    assert_tidy(&stage);
    let results = stage.results("out");
    assert_eq!(results.missing(), 0);
    for check in &results.checks {
        assert_eq!(check.verdict, Verdict::NotRun, "{}", check.id);
        assert!(check.summary.contains("interrupted"), "{}", check.summary);
    }
}

/// Sixteen megabytes, almost all of them in one line, are looked through, and the log is cut.
fn floods() {
    let stage = Stage::new("floods");
    let case = case(&stage, "floods", "local", LINES);
    stage.start_run(&[&case]).end().assert_code(0);
    let results = stage.results("out");
    let log = stage.out().join(&results.scenarios[0].ranks[1].log);
    assert!(fs::metadata(log).unwrap().len() < 5 << 20);
}

fn verdict() {
    let stage = Stage::new("verdict");
    let case = stage.write(
        "case.yaml",
        "id: case\ntitle: t\nworld: {platform: cpu, backend: gloo, size: 3}\nprogram:\n  \
         run: [python, fixtures/programs/staged.py, --goes-wrong, skips]\n  lines: [sum is right]\n",
    );
    // It hangs, and no expectation says so.
    let ran = stage.start_run(&[&case]).end();
    ran.assert_code(1);
    assert_gone(&stage);
    let results = stage.results("out");
    let shown = check(&results, "#exit");
    assert_eq!(shown.outcome, Outcome::Hang);
    assert!(
        shown.summary.contains("collective-mismatch: rank 2"),
        "{}",
        shown.summary
    );
    let files: Vec<PathBuf> = fs::read_dir(stage.out().join("hangs"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let text = fs::read_to_string(&files[0]).unwrap();
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        file["hangs"][0]["diagnosis"]["culprits"],
        serde_json::json!([2])
    );
    // Seconds, not the minute that the program has.
    assert!(results.scenarios[0].duration_ms < 50_000);
}

/// The sample says where it is in words that `allranks diagnose` understands.
fn diagnosed() {
    let stage = Stage::new("diagnosed");
    let case = "cases/programs/killed.yaml";
    stage
        .start_run(&[case, "--platform", "cpu"])
        .end()
        .assert_code(0);
    let results = stage.results("out");
    let rank = &results.scenarios[0].ranks[0];
    let logs = stage.out().join(&rank.log);
    let logs = logs.parent().unwrap().display().to_string();
    let ran = stage.run(&["diagnose", &logs]);
    ran.assert_code(1);
    assert!(ran.stdout.contains("culprit: rank 2"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("all_reduce of step 3"),
        "{}",
        ran.stdout
    );
}

fn selected() {
    let stage = Stage::new("selected");
    let cases = ["cases/programs/exits.yaml", "cases/collectives/smoke.yaml"];
    let plan = |options: &[&str]| {
        let mut words = vec!["plan", "--platform", "cpu", "--world-size", "2"];
        words.extend(options);
        words.extend(cases);
        let ran = stage.run(&words);
        ran.assert_code(0);
        let ids = ran.stdout.lines().filter(|line| line.contains('@'));
        let ids: Vec<String> = ids
            .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
            .collect();
        (ids, ran.stdout)
    };
    let torchrun = "programs/exits@cpu.gloo.ws2.launcher-torchrun";
    let local = "programs/exits@cpu.gloo.ws2.launcher-local";
    let smoke = "collectives/smoke@cpu.gloo.ws2";
    assert_eq!(plan(&[]).0, [smoke, local, torchrun]);
    assert_eq!(plan(&["--driver", "program"]).0, [local, torchrun]);
    assert_eq!(plan(&["--driver", "python"]).0, [smoke]);
    assert_eq!(plan(&["--launcher", "local"]).0, [smoke, local]);
    assert_eq!(plan(&["--filter", "launcher=torchrun"]).0, [torchrun]);
    let (ids, said) = plan(&["--launcher", "torchrun"]);
    assert_eq!(ids, [torchrun]);
    let why = "because `--launcher torchrun` starts other ranks than those of programs with `--nodes` only";
    assert!(said.contains(why), "{said}");
    let ran = stage.run(&[
        "run",
        cases[1],
        "--platform",
        "cpu",
        "--launcher",
        "torchrun",
    ]);
    ran.assert_code(3)
        .assert_says("starts other ranks than those of programs with `--nodes` only");
    let ran = stage.run(&["explain", torchrun]);
    ran.assert_code(0);
    for words in [
        "torch.distributed.run --nnodes 1 --nproc-per-node 2",
        "each rank: ",
        "staged.py --goes-wrong exits",
    ] {
        assert!(ran.stdout.contains(words), "{}", ran.stdout);
    }
    let ran = stage.run(&["explain", &format!("{local}#exit")]);
    assert!(ran.stdout.contains("rank 1     exit 42"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("env rank 1 LOCAL_RANK=1"),
        "{}",
        ran.stdout
    );
    let ran = stage.run(&["repro", &format!("{local}#exit")]);
    ran.assert_code(2)
        .assert_says("the program itself is the reproduction");
    ran.assert_says("torchrun --nproc-per-node 2 --no-python python");
}

/// The binary carries the suite's programs, and runs them in any folder.
fn elsewhere() {
    let stage = Stage::new("elsewhere");
    let out = stage.out().display().to_string();
    let filter = "case=programs/staged launcher=local size=2";
    let mut command = stage.command(&[
        "run",
        "--platform",
        "cpu",
        "--filter",
        filter,
        "--out",
        &out,
    ]);
    let empty = stage.path("empty");
    fs::create_dir(&empty).unwrap();
    command.current_dir(&empty);
    stage.start(command).end().assert_code(0);
    stage.assert_nothing_remains();
    assert_eq!(stage.results("out").scenarios.len(), 1);
    assert_eq!(fs::read_dir(empty).unwrap().count(), 0);
}
