//! Every driver in `fixtures/drivers` breaks the protocol in one way; the first line of its file says how, and what the harness
//! must report.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use allranks_model::outcome::{Outcome, Verdict};
use rustix::process::Signal;

use super::stage::{Stage, assert_reported, check, checkout, read};
use super::{Lack, Test, plain, unless_lacking, with_torch};

/// No progress for so long is a hang: for drivers that must be caught hanging.
const SHORT: f64 = 3.0;
/// A deadline nothing gets near: for drivers that must be caught at once, or not at all.
const LONG: f64 = 100.0;
/// What must be caught at once is caught long before the deadline, whatever the machine does besides.
const AT_ONCE: Duration = Duration::from_secs(60);

/// More bytes of records than a few checks may make, whatever their ranks send.
const MOST: u64 = 1 << 20;

/// The result that a misbehaviour must have.
struct Misbehaviour {
    driver: &'static str,
    /// The end of the id of the check that shows it.
    shows: &'static str,
    outcome: Outcome,
    class: &'static str,
    /// In the summary, or in what ranks have to say.
    words: &'static str,
}

const fn misbehaviour(
    driver: &'static str,
    shows: &'static str,
    outcome: Outcome,
    class: &'static str,
    words: &'static str,
) -> Misbehaviour {
    Misbehaviour {
        driver,
        shows,
        outcome,
        class,
        words,
    }
}

const SUM: &str = "#0.all_reduce.float32.sum.33";

const MISBEHAVIOURS: [Misbehaviour; 24] = [
    misbehaviour("dies_1", "#init", Outcome::InitFailed, "crash", "exit 1"),
    misbehaviour("dies_42", "#init", Outcome::InitFailed, "crash", "exit 42"),
    misbehaviour(
        "dies_sigkill",
        "#init",
        Outcome::InitFailed,
        "crash",
        "signal 9 (SIGKILL)",
    ),
    misbehaviour("exits_three", "#end", Outcome::Crash, "bad-end", "exit 3"),
    misbehaviour(
        "exits_without_bye",
        "#end",
        Outcome::Crash,
        "crash",
        "exit 0",
    ),
    misbehaviour("garbage", "#init", Outcome::InitFailed, "crash", "header"),
    misbehaviour(
        "half_frame",
        "#init",
        Outcome::InitFailed,
        "hang",
        "in prepare of import",
    ),
    misbehaviour(
        "huge_length",
        "#init",
        Outcome::InitFailed,
        "crash",
        "payload",
    ),
    misbehaviour(
        "ignores_sigterm",
        "#init",
        Outcome::InitFailed,
        "hang",
        "in prepare of import",
    ),
    misbehaviour(
        "leaves_daemon",
        "#end",
        Outcome::Crash,
        "bad-end",
        "it left 1 processes",
    ),
    misbehaviour(
        "leaves_grandchild",
        "#end",
        Outcome::Crash,
        "bad-end",
        "it left 1 processes",
    ),
    misbehaviour("lies", SUM, Outcome::Mismatch, "no-op", ""),
    misbehaviour(
        "never_connects",
        "#init",
        Outcome::InitFailed,
        "hang",
        "has not said hello",
    ),
    misbehaviour(
        "never_exits",
        "#end",
        Outcome::Hang,
        "hang",
        "said bye and has not ended",
    ),
    misbehaviour(
        "shouts",
        SUM,
        Outcome::Error,
        "raised-on-every-rank",
        "bytes out of here]\n",
    ),
    misbehaviour(
        "silent",
        "#init",
        Outcome::InitFailed,
        "hang",
        "has not said hello",
    ),
    misbehaviour(
        "skips_enter",
        "#init",
        Outcome::InitFailed,
        "crash",
        "announced 0",
    ),
    misbehaviour(
        "too_few_storages",
        SUM,
        Outcome::Crash,
        "crash",
        "it returns",
    ),
    misbehaviour(
        "too_many_storages",
        "#init",
        Outcome::InitFailed,
        "crash",
        "it returns",
    ),
    misbehaviour(
        "wrong_bye_token",
        "#end",
        Outcome::Crash,
        "bad-end",
        "token",
    ),
    misbehaviour(
        "wrong_rank",
        "#init",
        Outcome::InitFailed,
        "crash",
        "it claims to be rank",
    ),
    misbehaviour(
        "wrong_step",
        "#init",
        Outcome::InitFailed,
        "crash",
        "answers step 1000",
    ),
    misbehaviour(
        "wrong_step_count",
        "#end",
        Outcome::Crash,
        "bad-end",
        "steps",
    ),
    misbehaviour(
        "wrong_token",
        "#init",
        Outcome::InitFailed,
        "crash",
        "exit 1",
    ),
];

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = MISBEHAVIOURS
        .into_iter()
        .map(|misbehaviour| {
            plain(
                format!("misbehaviour::{}", misbehaviour.driver),
                move || try_misbehaving(&misbehaviour),
            )
        })
        .collect();
    tests.push(plain("misbehaviour::wrong_version", || {
        let misbehaviour = misbehaviour(
            "wrong_version",
            "#init",
            Outcome::InitFailed,
            "crash",
            "999, not 1",
        );
        try_misbehaving(&misbehaviour);
    }));
    tests.extend([
        plain("misbehaviour::every_driver_is_tried", every_driver_is_tried),
        plain("harmless::pretend", || {
            drop(try_harmless("pretend", LONG, "1,2"))
        }),
        plain("harmless::slow", || drop(try_harmless("slow", LONG, "2"))),
        plain("harmless::imports_slowly", || {
            drop(try_harmless("imports_slowly", SHORT, "2"));
        }),
        plain("harmless::is_seldom_let_run", seldom_let_run),
        plain("harmless::waits_for_a_processor", waits_for_a_processor),
        with_torch(
            "harmless::script_waits_for_a_processor",
            script_waits_for_a_processor,
        ),
        plain("harmless::ends_when_it_is_let_run", ends_when_it_is_let_run),
        plain(
            "rank::one_that_a_busy_machine_lets_not_import",
            not_let_import,
        ),
        plain("harmless::floods", floods),
        plain("rank::one_of_two_exits_1", || {
            one_of_two("code=1", "exit 1")
        }),
        plain("rank::one_of_two_exits_42", || {
            one_of_two("code=42", "exit 42")
        }),
        plain("rank::one_of_two_is_killed", || {
            one_of_two("signal=9", "signal 9 (SIGKILL)")
        }),
        plain("rank::one_of_two_leaves_a_process", || {
            one_of_two("leaves=0", "it left 1 processes running");
        }),
        plain("rank::one_of_two_segfaults", || {
            one_of_two("signal=11", "signal 11 (SIGSEGV)")
        }),
        plain("rank::one_of_two_lies", one_of_two_lies),
        plain("rank::lost_worlds_are_too_many", lost_worlds),
        plain("exhausted::files_of_the_harness", || {
            for files in [16, 40] {
                exhausted_harness(files);
            }
        }),
        plain("exhausted::files_of_a_rank", || {
            exhausted_rank("files", "Too many open files");
        }),
        plain("exhausted::threads_of_a_rank", || {
            exhausted_rank("threads", "out of open files, threads or processes");
        }),
        unless_lacking(
            no_other_user(),
            plain("exhausted::processes_of_another_user", exhausted_user),
        ),
        plain("rank::nothing_to_check_is_said", nothing_to_check),
        plain("rank::a_driver_that_is_not_there", no_driver),
        plain("rank::a_world_known_not_to_initialise", known_init),
    ]);
    tests
}

fn driver(name: &str) -> String {
    format!("command:python3 fixtures/drivers/{name}.py")
}

fn own_driver(name: &str) -> String {
    format!("command:python3 harness/tests/blackbox/drivers/{name}")
}

/// The drivers' case, with another deadline.
fn case(stage: &Stage, deadline: f64) -> String {
    let text = std::fs::read_to_string(checkout().join("fixtures/drivers/case.yaml")).unwrap();
    let changed = text.replace("deadline_s: 60", &format!("deadline_s: {deadline}"));
    assert_ne!(text, changed, "the case has no such deadline");
    stage.write("drivers/case.yaml", &changed)
}

fn try_misbehaving(misbehaviour: &Misbehaviour) {
    let stage = Stage::new(misbehaviour.driver);
    let deadline = if misbehaviour.class == "hang" {
        SHORT
    } else {
        LONG
    };
    let case = case(&stage, deadline);
    let driver = driver(misbehaviour.driver);
    let mut arguments = vec![&*case, "--driver", &driver, "--world-size", "2"];
    // It may still be importing something.
    if (misbehaviour.class, misbehaviour.shows) == ("hang", "#init") {
        arguments.extend(["--import-patience", "3"]);
    }
    let ran = stage.run_out(&arguments);
    ran.assert_code(1);
    assert!(ran.took < AT_ONCE, "it took {:?}", ran.took);
    let results = stage.results("out");
    assert_reported(&results);
    let records = std::fs::metadata(stage.out().join("results.jsonl")).unwrap();
    assert!(records.len() < MOST, "{} bytes of records", records.len());
    let check = check(&results, misbehaviour.shows);
    let told: Vec<&str> = std::iter::once(check.summary.as_str())
        .chain(check.ranks.iter().map(|line| line.text.as_str()))
        .collect();
    assert_eq!(check.outcome, misbehaviour.outcome, "{told:?}");
    assert_eq!(check.class.as_deref(), Some(misbehaviour.class), "{told:?}");
    assert!(
        told.iter().any(|text| text.contains(misbehaviour.words)),
        "{told:?}"
    );
}

fn try_harmless(name: &str, deadline: f64, sizes: &str) -> Stage {
    let stage = Stage::new(name);
    let case = case(&stage, deadline);
    let ran = stage.run_out(&[&case, "--driver", &driver(name), "--world-size", sizes]);
    ran.assert_code(0);
    assert_reported(&stage.results("out"));
    stage
}

/// A rank that a busy machine lets run for a fifth of the time is no hang, however long its imports take for it.
fn seldom_let_run() {
    let stage = Stage::new("seldom");
    let case = case(&stage, 2.0);
    let driver = own_driver("is_seldom_let_run.py");
    let arguments = [
        &*case,
        "--driver",
        &driver,
        "--world-size",
        "2",
        "--import-patience",
        "4",
    ];
    stage.run_out(&arguments).assert_code(0);
    assert_reported(&stage.results("out"));
}

/// A rank that computes in a call and has to share its processor with others is no hang, although it takes several times the
/// deadline. Where the machine is far too busy besides, the world is given up, and no rank is blamed.
fn waits_for_a_processor() {
    let stage = Stage::new("waits");
    let case = case(&stage, 1.0);
    let driver = own_driver("works_in_sums.py");
    assert_given_time(&stage, &[&case, "--driver", &driver]);
}

/// The same in a script, whose ranks may wait for each other for as long as they like.
fn script_waits_for_a_processor() {
    let stage = Stage::new("script_waits");
    let case = stage.write(
        "waits.yaml",
        "id: own/waits
title: a rank computes in a script
covers: [COLL-001]
world: {size: 1, deadline_s: 1}
steps:
  - script:
      name: computes
      moves:
        - python:
            run: |
              import os, time
              os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
              worked = time.process_time() + 0.8
              while time.process_time() < worked: pass
",
    );
    assert_given_time(&stage, &[&case]);
}

/// A rank whose connection is closed, and which has to share its processor with others until its process ends, is waited for: how it
/// ends is what the script asks.
fn ends_when_it_is_let_run() {
    let stage = Stage::new("ends");
    let case = stage.write(
        "ends.yaml",
        "id: own/ends
title: a rank ends after its connection
covers: [TEAR-001]
world: {size: 1, deadline_s: 1}
steps:
  - script:
      name: exits
      afterwards: abandon
      moves:
        - exit: {code: 3}
",
    );
    let driver = own_driver("ends_slowly.py");
    assert_given_time(&stage, &[&case, "--driver", &driver]);
}

/// Asserts that a run of one rank, beside three processes that keep its processor busy, passes, or ends with code 4, all its checks not
/// run and no rank blamed.
fn assert_given_time(stage: &Stage, arguments: &[&str]) {
    let others = Stage::new("others");
    let keeps_busy = || {
        let mut command = Command::new("python3");
        command.arg("harness/tests/blackbox/drivers/keeps_busy.py");
        others.start(others.marked(command))
    };
    let busy = [keeps_busy(), keeps_busy(), keeps_busy()];
    let ran = stage.run_out(&[arguments, &["--world-size", "1"]].concat());
    for process in busy {
        process.signal(Signal::KILL);
        process.end();
    }
    if ran.code == 0 {
        assert_reported(&stage.results("out"));
    } else {
        ran.assert_code(4);
        assert_given_up(stage);
    }
}

/// A rank that still gets on with its imports, but has not been let run for as long as they may take in ten times that long, is
/// given up: whether they would ever have ended is not known.
fn not_let_import() {
    let stage = Stage::new("not_let");
    let case = case(&stage, 2.0);
    let driver = own_driver("gets_on_too_slowly.py");
    let words = ["--driver", &driver, "--import-patience", "2"];
    let ran = stage.run_out(&[&[&*case, "--world-size", "1"][..], &words].concat());
    ran.assert_code(4);
    assert_given_up(&stage);
}

#[track_caller]
fn assert_given_up(stage: &Stage) {
    let results = stage.results("out");
    assert_reported(&results);
    for check in &results.checks {
        match check.outcome {
            Outcome::Pass => {}
            outcome => {
                assert_eq!(outcome, Outcome::NotRun, "{}: {}", check.id, check.summary);
                let words = "the machine is too busy: in ";
                assert!(check.summary.contains(words), "{}", check.summary);
            }
        }
    }
}

fn floods() {
    const MOST: u64 = 5 << 20;

    let stage = try_harmless("floods", LONG, "2");
    for rank in &stage.results("out").scenarios[0].ranks {
        let log = std::fs::metadata(stage.out().join(&rank.log)).unwrap();
        assert!(log.len() < MOST, "{} has {} bytes", rank.log, log.len());
    }
}

fn every_driver_is_tried() {
    let known: Vec<&str> = MISBEHAVIOURS
        .iter()
        .map(|misbehaviour| misbehaviour.driver)
        .chain([
            "wrong_version",
            "pretend",
            "slow",
            "imports_slowly",
            "floods",
            // Behaves: `drivers::skeleton` tries it.
            "skeleton",
        ])
        .collect();
    for entry in std::fs::read_dir(checkout().join("fixtures/drivers")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_driver = path.extension().is_some_and(|end| end == "py");
        assert!(
            !is_driver || known.contains(&name.as_str()),
            "{name} is not tried"
        );
    }
}

fn one_of_two(how: &str, words: &str) {
    let stage = Stage::new("half_dies");
    let case = case(&stage, LONG);
    let driver = own_driver(&format!("half_dies.py {how}"));
    let ran = stage.run_out(&[&case, "--driver", &driver, "--world-size", "2"]);
    ran.assert_code(1);
    let results = stage.results("out");
    assert_reported(&results);
    let end = check(&results, "#end");
    assert_eq!(end.outcome, Outcome::Crash);
    assert_eq!(
        end.ranks.len(),
        1,
        "only rank 1 ended badly: {:?}",
        end.ranks
    );
    assert!(
        end.ranks[0].rank.0 == 1 && end.ranks[0].text.contains(words),
        "{:?}",
        end.ranks
    );
    assert_eq!(check(&results, SUM).outcome, Outcome::Pass);
}

/// A scenario gives up after so many lost worlds, those apart that known failures took with them.
fn lost_worlds() {
    const LIMIT: usize = 24;
    let stage = Stage::new("dies_in_sums");
    let numels: Vec<String> = (1..=LIMIT + 2).map(|numel| numel.to_string()).collect();
    let case = stage.write(
        "case.yaml",
        &format!(
            "id: case\ntitle: sums that end the process\ncovers: [COLL-001]\n\
             world: {{platform: cpu, backend: gloo, size: 1}}\n\
             steps:\n  - all_reduce: {{dtype: float32, op: sum, numel: [{}], sweep: full}}\n  - barrier: {{}}\n",
            numels.join(", ")
        ),
    );
    let driver = own_driver("dies_in_sums.py");
    let count = |outcome: Outcome| {
        let checks = stage.results("out").checks;
        checks.iter().filter(|one| one.outcome == outcome).count()
    };
    stage.run_out(&[&case, "--driver", &driver]).assert_code(1);
    assert_eq!(count(Outcome::Crash), LIMIT);
    assert!(count(Outcome::NotRun) > 0);

    let known = stage.write(
        "known.yaml",
        "- match: {op: all_reduce}\n  outcome: crash\n  reason: It ends the process.\n  local: true\n",
    );
    let arguments = [&case, "--driver", &driver, "--expectations", &known];
    std::fs::remove_dir_all(stage.path("out")).unwrap();
    stage.run_out(&arguments).assert_code(0);
    assert_eq!(count(Outcome::Crash), numels.len());
    assert_eq!(count(Outcome::NotRun), 0);
}

/// A world that is known not to initialise is given up soon, and so is what is not run for it. An entry about checks says
/// nothing of init.
fn known_init() {
    let stage = Stage::new("known_init");
    let long = case(&stage, LONG);
    let driver = driver("ignores_sigterm");
    let entry = |outcome: &str| {
        let text = format!(
            "- match: {{case: drivers/case}}\n  outcome: {outcome}\n  reason: It waits.\n  local: true\n"
        );
        stage.write("known.yaml", &text)
    };
    let arguments = "--world-size 2 --import-patience 3 --expectations".split(' ');
    let arguments: Vec<&str> = ["--driver", &driver].into_iter().chain(arguments).collect();
    let known = entry("init-failed");
    let ran = stage.run_out(&[&[&*long][..], &arguments, &[&known]].concat());
    ran.assert_code(0);
    assert!(ran.took < AT_ONCE, "it took {:?}", ran.took);
    let results = stage.results("out");
    assert_eq!(check(&results, "#init").outcome, Outcome::InitFailed);
    let verdicts = results.checks.iter().map(|one| one.verdict);
    assert!(verdicts.into_iter().all(|one| one == Verdict::KnownFailure));

    let known = entry("hang");
    std::fs::remove_dir_all(stage.out()).unwrap();
    let short = case(&stage, SHORT);
    let ran = stage.run_out(&[&[&*short][..], &arguments, &[&known]].concat());
    ran.assert_code(1);
    let results = stage.results("out");
    assert_eq!(check(&results, "#init").verdict, Verdict::Regression);
}

fn one_of_two_lies() {
    let stage = Stage::new("one_liar");
    let case = case(&stage, LONG);
    let driver = own_driver("one_liar.py");
    let ran = stage.run_out(&[&case, "--driver", &driver, "--world-size", "2"]);
    ran.assert_code(1);
    let results = stage.results("out");
    let sum = check(&results, SUM);
    assert_eq!(sum.outcome, Outcome::Mismatch);
    let wrong = &sum.difference.as_ref().unwrap().ranks;
    assert_eq!(wrong.iter().map(|rank| rank.0).collect::<Vec<_>>(), [1]);
}

/// With fewer open files than a run needs, there is no result, and nothing is blamed on a backend.
fn exhausted_harness(files: u32) {
    let stage = Stage::new("exhausted");
    let case = case(&stage, LONG);
    let out = stage.out().display().to_string();
    let driver = driver("pretend");
    let run = stage.command(&["run", &case, "--driver", &driver, "--out", &out]);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {files} && exec \"$@\""), "sh"]);
    command.arg(run.get_program()).args(run.get_args());
    let ran = stage.start(stage.marked(command)).end();
    ran.assert_code(10).assert_says("ulimit -n");
    stage.assert_nothing_remains();
}

/// A user of whom there are no other processes: limits on processes count all of a user's, and none of root's.
const OTHER_USER: u32 = 64_716;

/// A command as another user, with at most so many processes and threads.
fn as_other_user(line: &str, words: &Command) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", line, "bash"]);
    command.arg(words.get_program()).args(words.get_args());
    command.uid(OTHER_USER).gid(OTHER_USER);
    // The first python3 of the path may be one that only this user can read.
    command.env("PATH", "/usr/bin:/bin");
    command
}

/// What this machine lacks to run the binary as another user: the right to, or a checkout that others can read.
fn no_other_user() -> Option<Lack> {
    let mut binary = Command::new(env!("CARGO_BIN_EXE_allranks"));
    let ran = as_other_user("\"$@\" && python3 --version", binary.arg("--version")).output();
    let why = match ran {
        Ok(ran) if ran.status.success() => return None,
        Ok(ran) => String::from_utf8_lossy(&ran.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    Some(Lack {
        what: "another user",
        why,
    })
}

/// With however few processes and threads, a run ends with its result or says that the machine has no more: it does not break
/// off, and blames no rank.
fn exhausted_user() {
    for processes in [1, 4, 6, 9, 11] {
        let stage = Stage::new("exhausted_user");
        let case = case(&stage, LONG);
        let out = stage.out().display().to_string();
        for path in [stage.path("."), stage.path("drivers"), case.clone().into()] {
            std::os::unix::fs::chown(path, Some(OTHER_USER), None).unwrap();
        }
        let driver = driver("pretend");
        let words = ["run", &case, "--driver", &driver, "--out", &out];
        let run = stage.command(&[&words[..], &["--world-size", "2"]].concat());
        let line = format!("ulimit -u {processes} && exec \"$@\"");
        let mut command = as_other_user(&line, &run);
        command.env("TMPDIR", stage.path("."));
        let ran = stage.start(stage.marked(command)).end();
        if ran.code != 0 || processes < 9 {
            ran.assert_code(10);
        }
        stage.assert_nothing_remains();
    }
}

/// A rank that cannot open files or start threads as it starts tells nothing about the backend.
fn exhausted_rank(what: &str, words: &str) {
    let stage = Stage::new("exhausted_rank");
    let case = case(&stage, LONG);
    let driver = own_driver(&format!("starves.py {what}"));
    let ran = stage.run_out(&[&case, "--driver", &driver, "--world-size", "2"]);
    ran.assert_code(10);
    let results = stage.results("out");
    let init = check(&results, "#init");
    assert_eq!(init.outcome, Outcome::HarnessError, "{}", init.summary);
    assert!(init.summary.contains(words), "{}", init.summary);
}

/// An empty tensor has no element that could be wrong: its check passes, and every rank's guard bands were looked at.
fn nothing_to_check() {
    let stage = Stage::new("empty");
    let case = stage.write(
        "empty.yaml",
        "id: empty\ntitle: nothing to sum\ncovers: [COLL-001]\n\
         world: {platform: cpu, backend: gloo, size: 2, deadline_s: 60}\n\
         steps:\n  - all_reduce: {dtype: float32, op: sum, numel: 0}\n",
    );
    let ran = stage.run_out(&[&case, "--driver", &driver("pretend")]);
    ran.assert_code(0);
    let results = read(&stage.out());
    for check in &results.checks {
        assert_eq!(check.outcome, Outcome::Pass);
        assert_eq!(check.checked.len(), 2, "{}: a rank has no vote", check.id);
        assert!(
            check.checked.iter().all(|count| *count > 0),
            "{}: {:?}",
            check.id,
            check.checked
        );
    }
}

fn no_driver() {
    let stage = Stage::new("nobody");
    let case = case(&stage, LONG);
    let ran = stage.run_out(&[
        &case,
        "--driver",
        "command:/no/such/driver",
        "--world-size",
        "2",
    ]);
    ran.assert_code(1);
    let results = stage.results("out");
    assert_reported(&results);
    // The first to fail ends the world, maybe before the other has tried.
    let ranks = results.scenarios[0].ranks.iter();
    let logs: Vec<String> = ranks
        .map(|rank| std::fs::read_to_string(stage.out().join(&rank.log)).unwrap())
        .collect();
    let told = |log: &String| log.contains("cannot run /no/such/driver");
    assert!(logs.iter().any(told), "{logs:?}");
}
