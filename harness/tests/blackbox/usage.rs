//! Tests what the command line answers to wrong arguments, and what it prints without running anything.

use super::stage::{Stage, check, checkout};
use super::{Test, plain, with_torch};

const DRIVER: &str = "command:python3 fixtures/drivers/pretend.py";
const CASE: &str = "fixtures/drivers/case.yaml";

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let refused = |name: &'static str,
                   code,
                   arguments: &'static [&'static str],
                   words: &'static str,
                   hint: &'static str| {
        plain(format!("usage::{name}"), move || {
            let stage = Stage::new("usage");
            stage
                .run_out(arguments)
                .assert_code(code)
                .assert_says(words)
                .assert_says(hint);
            assert!(!stage.path("out/results.jsonl").exists(), "something ran");
        })
    };
    vec![
        plain("usage::list_honours_what_selects", list_selected),
        refused(
            "unknown_option",
            2,
            &["--wrold-size", "2"],
            "unexpected argument '--wrold-size'",
            "--world-size",
        ),
        refused(
            "unknown_platform",
            2,
            &["--platform", "abacus"],
            "there is no platform `abacus`",
            "hint: platforms are cpu",
        ),
        refused(
            "unknown_profile",
            2,
            &["--profile", "cor"],
            "there is no profile `cor`",
            "hint: profiles are core, fleet, full, libraries, simulated, smoke, stack, xla",
        ),
        refused(
            "unknown_backend",
            3,
            &["--backend", "glue"],
            "no platform has the backend glue",
            "hint: ",
        ),
        refused(
            "bad_filter",
            2,
            &["--filter", "dtype="],
            "--filter",
            "dtype=",
        ),
        refused("bad_shard", 2, &["--shard", "3/2"], "--shard", "3/2"),
        refused(
            "bad_driver",
            2,
            &["--driver", "pyhton"],
            "--driver",
            "command:PROGRAM",
        ),
        refused(
            "a_command_on_devices",
            3,
            &[CASE, "--driver", DRIVER, "--platform", "cuda"],
            "runs on host platforms only, and these have devices of their own: cuda",
            "hint: name one of cpu",
        ),
        refused(
            "no_such_case",
            2,
            &["cases/no_such.yaml"],
            "there is no such case",
            "no_such.yaml",
        ),
        refused(
            "a_bad_case",
            2,
            &["fixtures/bad/case/empty-title.yaml"],
            "empty-title.yaml",
            "title",
        ),
        refused(
            "nothing_selected",
            3,
            &[CASE, "--driver", DRIVER, "--filter", "no_such_op"],
            "no check was selected",
            "hint: ",
        ),
        refused(
            "required_and_absent",
            4,
            &[
                CASE,
                "--driver",
                DRIVER,
                "--world-size",
                "7",
                "--require",
                "cpu/gloo",
            ],
            "`cpu/gloo` is required and was not run",
            "no selected case runs on it",
        ),
        refused(
            "required_and_unknown",
            4,
            &[
                CASE,
                "--driver",
                DRIVER,
                "--world-size",
                "7",
                "--require",
                "abacus",
            ],
            "`abacus` is required",
            "there is no such platform file",
        ),
        plain("usage::required_and_not_found", required_and_not_found),
        plain("usage::results_are_never_overwritten", never_overwritten),
        plain("usage::the_folder_is_a_file", the_folder_is_a_file),
        plain("usage::no_torch_is_said", no_torch),
        plain("print::schema", || {
            prints(&["schema"], &["\"deadline_s\"", "\"covers\""])
        }),
        plain("print::schema_of_platforms", || {
            prints(&["schema", "platform"], &["\"device_type\""])
        }),
        plain("print::schema_of_expectations", || {
            prints(
                &["schema", "expectation"],
                &["\"also_passes\"", "\"init-failed\""],
            )
        }),
        plain("print::schema_of_waivers", || {
            prints(&["schema", "waiver"], &["\"approver\"", "\"layout_of\""])
        }),
        plain("print::list", || {
            prints(
                &["list"],
                &[
                    "collectives/all_reduce",
                    "profile core:",
                    "platform cpu: backends gloo",
                ],
            )
        }),
        plain("print::requirements", || {
            prints(
                &["list", "--requirements"],
                &["COLL-001", "collectives/all_reduce"],
            )
        }),
        plain("print::plan", || {
            prints(
                &["plan", CASE, "--driver", DRIVER],
                &[
                    "drivers/case@cpu.gloo.ws2  6 checks",
                    "2 scenarios, 11 checks, of 1 cases",
                ],
            )
        }),
        plain("print::help", || {
            prints(&["--help"], &["Exit codes:", "Examples:"])
        }),
        plain("print::help_on_drivers", || {
            prints(&["help", "run"], &["`command:` runs only on host"])
        }),
        plain("print::version", || {
            prints(&["--version"], &[env!("CARGO_PKG_VERSION")])
        }),
        plain("print::explain", explain),
        plain("print::a_reader_who_leaves", a_reader_that_leaves),
        plain(
            "print::a_verdict_that_is_not_read",
            a_verdict_that_is_not_read,
        ),
        plain(
            "usage::an_embedded_suite_is_said",
            an_embedded_suite_is_said,
        ),
        plain("usage::a_case_by_its_id", a_case_by_its_id),
        with_torch("usage::a_binary_alone", a_binary_alone),
    ]
}

fn prints(arguments: &[&str], words: &[&str]) {
    let ran = Stage::new("print").run(arguments);
    ran.assert_code(0);
    for word in words {
        assert!(
            ran.stdout.contains(word),
            "`{word}` is not in:\n{}",
            ran.stdout
        );
    }
}

/// A platform whose devices only another Python could count: exit 4, with the reason, and what can run runs.
fn required_and_not_found() {
    let stage = Stage::new("required");
    let platform = stage.write(
        "abacus.yaml",
        "name: abacus\ndevice_type: abacus\nevidence: hardware\ncount: torch.abacus.device_count()\n\
         backends:\n  gloo:\n    supports: [{ops: [barrier]}]\n",
    );
    let arguments = [
        CASE,
        "--driver",
        DRIVER,
        "--platforms",
        &platform,
        "--require",
        "abacus",
    ];
    let ran = stage.run_out(&arguments);
    ran.assert_code(4)
        .assert_says("not found: platform abacus: only the Python driver can count its devices");
    let end = stage.results("out").end.unwrap();
    assert_eq!(
        end.issues,
        ["`abacus` is required and was not run: only the Python driver can count its devices"]
    );
}

fn never_overwritten() {
    let stage = Stage::new("twice");
    let arguments = [CASE, "--driver", DRIVER, "--world-size", "1"];
    stage.run_out(&arguments).assert_code(0);
    let before = std::fs::read(stage.path("out/results.jsonl")).unwrap();
    // Before anything runs: not even the case is looked at.
    let ran = stage.run_out(&["no/such/case", "--driver", DRIVER]);
    ran.assert_code(2)
        .assert_says("holds the results of another run")
        .assert_says("hint: name another folder");
    assert_eq!(
        std::fs::read(stage.path("out/results.jsonl")).unwrap(),
        before
    );
    let out = stage.out().display().to_string();
    stage
        .run(&["merge", &out, "--out", &out])
        .assert_code(2)
        .assert_says("holds the results of another run");
}

fn the_folder_is_a_file() {
    let stage = Stage::new("file");
    stage.write("out", "");
    stage
        .run_out(&[CASE, "--driver", DRIVER])
        .assert_code(10)
        .assert_says("cannot make the folder");
}

/// An interpreter that cannot import torch: nothing runs, and it says why.
fn no_torch() {
    let stage = Stage::new("torchless");
    stage.write("bin/python3", "#!/bin/sh\nexec python3 -I -S \"$@\"\n");
    let python = stage.path("bin/python3").display().to_string();
    let mut chmod = std::process::Command::new("chmod");
    chmod.args(["+x", &python]);
    assert!(chmod.status().unwrap().success());
    stage
        .run_out(&["--profile", "smoke", "--python", &python])
        .assert_code(3)
        .assert_says("no platform was found")
        .assert_says("torch");
}

fn explain() {
    let id = "collectives/all_reduce@cpu.gloo.ws3";
    let stage = Stage::new("explain");
    for (driver, argv) in [
        ("command:./mine --fast", "argv       ./mine --fast\n"),
        ("libtorch", "allranks-libtorch, forked from"),
        ("python", " -m allranks_rank, forked from"),
    ] {
        let ran = stage.run(&["explain", id, "--driver", driver]);
        assert!(ran.stdout.contains(argv), "{}", ran.stdout);
    }
    let ran = stage.run(&["explain", id]);
    ran.assert_code(0);
    let check = ran
        .stdout
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with(&format!("{id}#0.")))
        .unwrap();
    for (id, word) in [
        (check, "MASTER_ADDR"),
        (&format!("{id}#init"), "every rank initialises"),
        (&format!("{id}#end"), "every rank tears down"),
    ] {
        let ran = stage.run(&["explain", id]);
        ran.assert_code(0);
        assert!(ran.stdout.contains(word), "{}", ran.stdout);
    }
    stage
        .run(&["explain", "collectives/all_reduce@cpu.glue.ws3"])
        .assert_code(2)
        .assert_says("hint: a similar id is collectives/all_reduce@cpu.gloo");
}

/// `allranks list | head -1` is no error.
fn a_reader_that_leaves() {
    let stage = Stage::new("pipe");
    let mut shell = std::process::Command::new("bash");
    let binary = env!("CARGO_BIN_EXE_allranks");
    let line = format!("set -o pipefail; {binary} schema | head -c 10 >/dev/null");
    shell.args(["-c", &line]);
    stage.start(stage.marked(shell)).end().assert_code(0);
}

/// What is judged tells the exit code, though no output is read: the pipe is closed before the command starts.
fn a_verdict_that_is_not_read() {
    let stage = Stage::new("unread");
    let unread = |streams: &str, arguments: &[&str]| {
        let mut shell = std::process::Command::new("bash");
        let line = format!("exec 3> >(true); wait $!; exec \"$@\" {streams} 3>&-");
        shell.args(["-c", &line, "bash", env!("CARGO_BIN_EXE_allranks")]);
        shell.args(arguments);
        stage.start(stage.marked(shell)).end()
    };
    let driver = "command:python3 fixtures/drivers/lies.py";
    let run = |streams: &str, folder: &str, driver: &str| {
        let out = stage.path(folder).display().to_string();
        let all = ["run", CASE, "--driver", driver, "--out", &out];
        let ran = unread(streams, &all);
        super::stage::assert_reported(&stage.results(folder));
        (ran, out)
    };
    let (ran, lies) = run(">&3", "lies", driver);
    ran.assert_code(1).assert_says("wrong");
    let (ran, _) = run(">&3 2>&3", "silent", driver);
    ran.assert_code(1);
    let (ran, good) = run(">&3 2>&3", "good", DRIVER);
    ran.assert_code(0);
    unread(">&3", &["diff", &good, &lies]).assert_code(1);
    unread(">&3 2>&3", &["diagnose", "fixtures/logs/killed"]).assert_code(1);
    unread(">&3", &["list"]).assert_code(0);
    unread(">&3", &["--help"]).assert_code(0);
    stage.assert_nothing_remains();
}

const EMBEDDED: &str = "note: no cases/ here: using the suite embedded in this binary (version ";

/// Where there is no checkout, commands that read the suite say which one they have.
fn an_embedded_suite_is_said() {
    let stage = Stage::new("embedded");
    let elsewhere = |arguments: &[&str]| {
        let mut command = stage.command(arguments);
        command.current_dir(stage.path(""));
        stage.start(command).end()
    };
    for command in [&["list"][..], &["plan", "--driver", "command:true"]] {
        let there = elsewhere(command);
        there.assert_code(0).assert_says(EMBEDDED);
        assert_eq!(
            there.stderr.matches("note: ").count(),
            1,
            "{}",
            there.stderr
        );
        let here = stage.run(command);
        here.assert_code(0);
        assert!(!here.stderr.contains("embedded"), "{}", here.stderr);
    }
}

/// A case is named by its path or its id, with or without `.yaml`, in a checkout and outside of one.
fn a_case_by_its_id() {
    let stage = Stage::new("named");
    for name in [
        "cases/collectives/all_reduce.yaml",
        "cases/collectives/all_reduce",
        "collectives/all_reduce",
    ] {
        let mut command = stage.command(&["list", name]);
        command.current_dir(stage.path(""));
        let outside = stage.start(command).end();
        outside.assert_code(0).assert_says(EMBEDDED);
        let within = stage.run(&["list", name]);
        within.assert_code(0);
        assert_eq!(outside.stdout, within.stdout);
        assert!(within.stdout.contains("collectives/all_reduce"));
        assert!(!within.stdout.contains("collectives/all_gather"));
    }
}

/// The binary as `cargo install` leaves it: in a folder with nothing else, it has its cases, platforms and driver.
fn a_binary_alone() {
    let stage = Stage::new("alone");
    let folder = stage.path("empty");
    std::fs::create_dir(&folder).unwrap();
    let mut command = stage.command(&["run", "--profile", "smoke", "--world-size", "2"]);
    command.current_dir(&folder);
    let ran = stage.start(command).end();
    ran.assert_code(0).assert_says(EMBEDDED);
    stage.assert_nothing_remains();
    let mut runs = std::fs::read_dir(folder.join("target/allranks")).unwrap();
    let run = runs.next().unwrap().unwrap().path();
    let results = super::stage::read(&run);
    super::stage::assert_reported(&results);
    let first = check(&results, "#0.all_reduce.float32.sum.33");
    assert!(!checkout().join(&first.at).is_file(), "{}", first.at);
}

/// Options that select narrow a list as they narrow a run.
fn list_selected() {
    let stage = Stage::new("list");
    let listed = |arguments: &[&str]| {
        let ran = stage.run(&[&["list"], arguments].concat());
        ran.assert_code(0);
        let cases = ran.stdout.split("\n\n").next().unwrap_or_default();
        cases.lines().count()
    };
    let all = listed(&[]);
    let smoke = listed(&["--profile", "smoke"]);
    let core = listed(&["--profile", "core"]);
    let barriers = listed(&["--profile", "core", "--filter", "barrier"]);
    assert!(smoke < core && core < all, "{smoke} {core} {all}");
    assert!(barriers > 0 && barriers < core, "{barriers} {core}");
    let ran = stage.run(&["list", "--profile", "smoke", "--filter", "no_such_op"]);
    ran.assert_code(3).assert_says("no case was selected");
    let ran = stage.run(&["list", "--requirements", "--profile", "smoke"]);
    ran.assert_code(0);
    assert!(
        ran.stdout
            .contains("requirements that the listed cases cover")
    );
    assert!(!ran.stdout.contains("UNCOVERED"), "{}", ran.stdout);
}
