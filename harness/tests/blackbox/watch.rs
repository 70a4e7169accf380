//! `allranks watch` around real programs: verdicts on those that hang, silence on those that do not, and nothing left of
//! either. The programs are in `fixtures/hangs/programs`.

use allranks_runner::probe;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::stage::{Ran, Running, Stage};
use super::{Test, computing, plain};

pub const LAUNCH: &str = "fixtures/hangs/programs/launch.py";
const JOB: &str = "fixtures/hangs/programs/job.py";
const DDP: &str = "fixtures/hangs/programs/ddp.py";

/// Programs that hang: what goes wrong, ranks, the verdict, its culprits, and a word that must be said.
const HANGS: [(&str, u32, &str, &[u32], &str); 17] = [
    (
        "port_mismatch",
        3,
        "port-mismatch",
        &[0],
        "rank 0 uses another port",
    ),
    ("world_of_one", 3, "split-world", &[0], "world of 1"),
    (
        "too_large",
        2,
        "missing-rank",
        &[2],
        "rank 2 of 3 has no process",
    ),
    (
        "twins",
        3,
        "duplicate-rank",
        &[2],
        "processes 1, 2 all say that they are rank 1",
    ),
    (
        "lacks_a_variable",
        2,
        "environment-missing",
        &[1],
        "MASTER_PORT",
    ),
    ("killed_before_init", 3, "peer-dead", &[2], "as by a signal"),
    (
        "raises_before_init",
        2,
        "peer-dead",
        &[1],
        "raised ValueError: no data for this rank",
    ),
    (
        "other_collective",
        3,
        "collective-mismatch",
        &[2],
        "broadcast, not all_reduce",
    ),
    (
        "other_reduction",
        3,
        "collective-mismatch",
        &[2],
        "reduce op max, not sum",
    ),
    ("groups_swapped", 3, "group-order", &[2], "in another order"),
    (
        "group_skipped",
        3,
        "group-skipped",
        &[2],
        "does not make group number 1, new_group(0)",
    ),
    (
        // Of four ranks three are members of both groups, so that two are a majority.
        "local_groups_swapped",
        4,
        "cyclic-wait",
        &[3],
        "new_group on ranks 1, 2, 3",
    ),
    (
        // The groups have the same members.
        "circle",
        3,
        "collective-mismatch",
        &[2],
        "all_reduce on group 2",
    ),
    (
        // Either may be where it should not be.
        "circle_of_messages",
        2,
        "cyclic-wait",
        &[],
        "recv from rank 1",
    ),
    (
        "stopped",
        4,
        "peer-stopped",
        &[3],
        "in all_reduce on world (fixtures/hangs/programs/job.py:",
    ),
    (
        "waits_for_one_who_stopped",
        2,
        "peer-stopped",
        &[1],
        "wait for collective number 1 of world",
    ),
    ("leaves_quietly", 3, "collective-skipped", &[2], "barrier"),
];

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = HANGS
        .into_iter()
        .map(|(thing, size, kind, culprits, words)| {
            computing(format!("watch::hang::{thing}"), move || {
                let ranks = size.to_string();
                let options = if kind == "peer-stopped" { SHORT } else { &[] };
                let (ran, record) = condemn(thing, &[LAUNCH, &ranks, JOB, thing], options);
                assert_verdict(&ran, &record, kind, culprits, "proved");
                ran.assert_says(words);
            })
        })
        .collect();
    tests.extend([
        computing("watch::hang::group_before_another", group_before_another),
        computing("watch::hang::under_torchrun", under_torchrun),
        computing("watch::hang::spawned", || without_environment("spawn")),
        computing("watch::hang::forked", || without_environment("fork")),
        computing("watch::hang::silent_listener", silent_listener),
        computing("watch::hang::seen_from_outside_only", outside_only),
        computing("watch::hang::ddp_uneven", || ddp_hangs("uneven")),
        computing("watch::hang::ddp_nan", || ddp_hangs("nan")),
        computing("watch::healthy::ddp", ddp_healthy),
        computing("watch::healthy::stopped_for_a_while", stopped_for_a_while),
        computing("watch::healthy::stopped_again_and_again", || {
            healthy_job("cpucap", &torchrun("cpucap", 3))
        }),
        computing("watch::healthy::worlds_of_some_ranks", || {
            healthy_job("chapters", &torchrun("chapters", 3))
        }),
        computing("watch::hang::ended_without_a_last_record", || {
            ended_job("evict", &torchrun("evict", 4), 3)
        }),
        computing("watch::hang::killed_beside_its_child", || {
            let name = "oom_killed_orphan";
            ended_job(name, &own_script(name), 1)
        }),
        computing("watch::healthy::two_worlds", two_worlds),
        computing("watch::healthy::under_torchrun", healthy),
        computing("watch::healthy::slow", slow),
        computing("watch::healthy::one_who_is_busy_is_not_accused", busy),
        plain("watch::the_exit_code_is_the_commands", exit_codes),
        plain(
            "watch::the_command_goes_on_without_evidence",
            without_evidence,
        ),
        plain("watch::streams_are_the_commands", streams),
        plain(
            "watch::a_sitecustomize_of_ones_own_is_run_too",
            sitecustomize,
        ),
        plain("watch::what_the_command_leaves_is_killed", leftovers),
        plain(
            "watch::a_daemon_without_environment_is_killed_when_the_command_ends",
            || daemon(None),
        ),
        plain(
            "watch::a_daemon_without_environment_is_killed_with_a_killed_watcher",
            || daemon(Some(Signal::KILL)),
        ),
        plain(
            "watch::a_daemon_without_environment_is_killed_at_a_second_interrupt",
            || daemon(Some(Signal::INT)),
        ),
        plain("watch::signals_are_passed_on", || interrupt(1)),
        plain("watch::a_second_signal_kills", || interrupt(2)),
        computing("watch::killed_itself_it_leaves_nothing", killed),
    ]);
    tests
}

/// `allranks watch OPTIONS -- COMMAND`, with its temporary files on the stage.
fn watching(stage: &Stage, options: &[&str], command: &[&str]) -> Command {
    let temporary = stage.path("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let mut words = vec!["watch"];
    words.extend(options);
    words.push("--");
    words.extend(command);
    let mut command = stage.command(&words);
    command.env("TMPDIR", temporary);
    command
}

pub fn python() -> String {
    let python = probe::python(None).path;
    // A link into an environment must not be followed: Python knows its packages by where the link is.
    match python.is_file() {
        true => std::path::absolute(python).unwrap(),
        false => python,
    }
    .display()
    .to_string()
}

/// Nothing is left: no process, no file.
#[track_caller]
fn assert_gone(stage: &Stage) {
    stage.assert_nothing_remains();
    let left = || fs::read_dir(stage.path("tmp")).unwrap().flatten();
    let mine = || {
        left()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("allranks"))
            .collect::<Vec<_>>()
    };
    assert_eq!(mine(), Vec::<String>::new());
}

/// So that a job with a stopped rank is ended within seconds: it is let be for 3 times the patience.
const SHORT: &[&str] = &["--patience", "6"];

/// Runs a Python program that hangs until the verdict kills it.
#[track_caller]
fn condemn(name: &str, program: &[&str], options: &[&str]) -> (Ran, Value) {
    let stage = Stage::new(name);
    condemn_on(&stage, program, options, |_| {})
}

#[track_caller]
fn condemn_on(
    stage: &Stage,
    program: &[&str],
    options: &[&str],
    prepare: impl FnOnce(&mut Command),
) -> (Ran, Value) {
    let (python, json) = (python(), stage.path("hang.json").display().to_string());
    let mut all = vec!["--kill-on-verdict", "--json", &json];
    all.extend(options);
    let mut words = vec![python.as_str()];
    words.extend(program);
    let mut command = watching(stage, &all, &words);
    prepare(&mut command);
    let ran = stage.start(command).end();
    ran.assert_code(1);
    assert_gone(stage);
    let text = fs::read(stage.path("hang.json")).unwrap();
    (ran, serde_json::from_slice(&text).unwrap())
}

#[track_caller]
fn assert_verdict(ran: &Ran, record: &Value, kind: &str, culprits: &[u32], confidence: &str) {
    let told = (&record["format"], &record["kind"], &record["culprits"]);
    let expected = (
        &Value::from(1),
        &Value::from(kind),
        &Value::from(culprits.to_vec()),
    );
    assert_eq!(told, expected, "{}", ran.stderr);
    assert_eq!(record["confidence"], confidence, "{}", ran.stderr);
    ran.assert_says(&format!("allranks watch: hang: {kind}: "));
    // The report says where every rank is, and no culprit is among the victims.
    let places = record["places"].as_array().unwrap();
    assert!(!places.is_empty());
    let victims = record["victims"].as_array().unwrap();
    assert!(
        !victims
            .iter()
            .any(|rank| culprits.iter().any(|one| rank == one))
    );
}

fn under_torchrun() {
    let program = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        JOB,
        "port_mismatch",
    ];
    let (ran, record) = condemn("torchrun", &program, &[]);
    assert_verdict(&ran, &record, "port-mismatch", &[0], "proved");
}

fn without_environment(start: &str) {
    let program = ["fixtures/hangs/programs/spawn.py", start];
    let (ran, record) = condemn(start, &program, SHORT);
    assert_verdict(&ran, &record, "peer-stopped", &[2], "proved");
    ran.assert_says("in barrier on world (fixtures");
}

/// While rank 2 makes its group, it cannot be told from outside whether the other one comes later or never. Gloo may let it in, to
/// the group that the others have made under that number, and then it waits elsewhere and has left one out.
fn group_before_another() {
    let thing = "group_before_another";
    let (ran, record) = condemn(thing, &[LAUNCH, "3", JOB, thing], &[]);
    let (kind, words) = match record["kind"].as_str() {
        Some("group-skipped") => (
            "group-skipped",
            "rank 2 does not make group number 1, new_group(0, 1)",
        ),
        _ => (
            "group-order",
            "rank 2 has not made new_group(0, 1), and makes another group first",
        ),
    };
    assert_verdict(&ran, &record, kind, &[2], "proved");
    ran.assert_says(words);
    let waits_elsewhere = ran.stderr.contains("rank 2: in all_reduce on world");
    assert_eq!(kind == "group-skipped", waits_elsewhere, "{}", ran.stderr);
}

fn silent_listener() {
    let stage = Stage::new("silent");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    let program = [LAUNCH, "2", JOB, "port_in_use"];
    let (ran, record) = condemn_on(&stage, &program, &[], |command| {
        command.env("MASTER_PORT", &port);
    });
    assert_verdict(&ran, &record, "silent-listener", &[0], "proved");
    // The owner is this very process.
    ran.assert_says(&format!("(pid {})", std::process::id()));
}

fn outside_only() {
    let options = ["--stacks", "off", "--patience", "4"];
    let (ran, record) = condemn("outside", &[LAUNCH, "3", JOB, "stopped"], &options);
    assert_verdict(&ran, &record, "peer-stopped", &[2], "likely");
}

/// What DDP's reducer issues is in no Python call: torch's flight recorder has it.
fn ddp_hangs(what: &str) {
    let (ran, record) = condemn(
        &format!("ddp_{what}"),
        &[LAUNCH, "3", DDP, what],
        &["--patience", "12"],
    );
    let kind = record["kind"].as_str().unwrap_or_default();
    assert!(kind.starts_with("collective-"), "{}", ran.stderr);
    assert_verdict(&ran, &record, kind, &[2], "proved");
}

fn ddp_healthy() {
    silent(
        "ddp_healthy",
        &[
            "sh",
            "-c",
            &format!("{} {LAUNCH} 3 {DDP} healthy", python()),
        ],
    );
}

/// A job goes on under `--kill-on-verdict` if its stopped rank is continued within 3 times the patience; the verdict is given all the same.
fn stopped_for_a_while() {
    let stage = Stage::new("stopped_for_a_while");
    let json = stage.path("hang.json").display().to_string();
    let options = ["--kill-on-verdict", "--patience", "12", "--json", &json];
    let python = python();
    let program = "fixtures/jobs/healthy_suspended_and_resumed.py";
    let words = [python.as_str(), LAUNCH, "3", program];
    let ran = stage.start(watching(&stage, &options, &words)).end();
    ran.assert_code(0);
    ran.assert_says("allranks watch: hang: peer-stopped: rank 1 is stopped (state T)");
    ran.assert_says("allranks watch: it makes progress again");
    let record: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(record["kind"], "peer-stopped");
    assert_eq!(record["moves_again"], true);
    assert_gone(&stage);
}

/// A line for `sh` that runs a program of `fixtures/jobs` under torchrun.
fn torchrun(name: &str, ranks: u32) -> String {
    let python = python();
    let run = "-m torch.distributed.run --standalone --nproc-per-node";
    format!("{python} {run} {ranks} fixtures/jobs/{name}.py")
}

/// A line for `sh` that runs a script of `fixtures/jobs`, which starts the ranks itself.
fn own_script(name: &str) -> String {
    let python = python();
    let folder = Path::new(&python).parent().unwrap().display();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = port.local_addr().unwrap().port();
    format!("cd fixtures/jobs && PATH={folder}:$PATH PORT={port} bash {name}.sh")
}

/// Runs a job under the watch. Returns the stage, and how it ended.
fn watch_job(name: &str, line: &str) -> (Stage, Ran) {
    let stage = Stage::new(name);
    let json = stage.path("hang.json").display().to_string();
    let options = ["--kill-on-verdict", "--patience", "8", "--json", &json];
    let running = stage.start(watching(&stage, &options, &["sh", "-c", line]));
    (stage, running.end())
}

/// A job that looks hung and is not ends by itself under `--kill-on-verdict`.
fn healthy_job(name: &str, line: &str) {
    let (stage, ran) = watch_job(name, line);
    ran.assert_code(0);
    assert_gone(&stage);
}

/// A rank that has ended is named as such, whatever it has left behind.
fn ended_job(name: &str, line: &str, culprit: u32) {
    let (stage, ran) = watch_job(name, line);
    ran.assert_code(1);
    ran.assert_says("allranks watch: hang: peer-dead");
    let record = fs::read(stage.path("hang.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(record["culprits"], serde_json::json!([culprit]));
    assert_gone(&stage);
}

/// Two jobs at once, one step apart: each is a world of its own.
fn two_worlds() {
    let one = format!("{} {LAUNCH} 2", python());
    let script =
        format!("{one} {JOB} slow & {one} {DDP} healthy & wait; sleep 2; {one} {JOB} healthy");
    silent("two_worlds", &["sh", "-c", &script]);
}

#[track_caller]
fn silent(name: &str, program: &[&str]) {
    let stage = Stage::new(name);
    let ran = stage.start(watching(&stage, &[], program)).end();
    ran.assert_code(0);
    assert!(!ran.stderr.contains("hang:"), "{}", ran.stderr);
    assert_gone(&stage);
}

fn healthy() {
    let stage = Stage::new("healthy");
    let python = python();
    let program = [
        python.as_str(),
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        JOB,
        "healthy",
    ];
    let ran = stage.start(watching(&stage, &[], &program)).end();
    ran.assert_code(0);
    assert!(!ran.stderr.contains("allranks"), "{}", ran.stderr);
    assert_gone(&stage);
}

fn slow() {
    let stage = Stage::new("slow");
    let python = python();
    let program = [python.as_str(), LAUNCH, "3", JOB, "slow"];
    // Even without any patience no rank is accused.
    for options in [["--patience", "30"], ["--patience", "0.5"]] {
        let ran = stage.start(watching(&stage, &options, &program)).end();
        ran.assert_code(0);
        assert!(!ran.stderr.contains("hang:"), "{}", ran.stderr);
    }
    assert_gone(&stage);
}

fn busy() {
    let stage = Stage::new("busy");
    let python = python();
    let program = [python.as_str(), LAUNCH, "3", JOB, "skips"];
    let options = ["--patience", "2"];
    let running = stage.start(watching(&stage, &options, &program));
    stage.wait("the ranks that are waited for are named", || {
        said(&running).contains("slow: rank 2 is in code of its own")
    });
    running.signal(Signal::TERM);
    let ran = running.end();
    ran.assert_code(128 + 15);
    assert!(!ran.stderr.contains("hang:"), "{}", ran.stderr);
    ran.assert_says("collectives called on world: 1 by rank 2; 2 by ranks 0 and 1");
    ran.assert_says("`time.sleep(3600)`");
    assert_gone(&stage);
}

fn said(running: &Running) -> String {
    running.texts()[1].clone()
}

/// Where evidence cannot be written any more, the command goes on, and this is told once.
fn without_evidence() {
    let stage = Stage::new("without_evidence");
    let folder = stage.path("evidence").display().to_string();
    let over = stage.path("over");
    // Two ranks, and a file in the place of the folder.
    let job = "echo file > \"$1\"; for rank in 0 1; do \
               RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29400 \
               sh -c 'until [ -e \"$0\" ]; do sleep 0.2; done' \"$2\" & done; wait; exit 7";
    let job = ["sh", "-c", job, "sh", &folder, &over.display().to_string()];
    let command = watching(&stage, &["--evidence", &folder], &job);
    let running = stage.start(command);
    stage.wait("it is told", || {
        said(&running).contains("evidence cannot be written to")
    });
    // More looks, at which it is not told again.
    std::thread::sleep(Duration::from_secs(3));
    fs::write(over, "").unwrap();
    let ran = running.end();
    ran.assert_code(7);
    let told = ran.stderr.matches("evidence cannot be written to").count();
    assert_eq!(told, 1, "{}", ran.stderr);
    ran.assert_says("the command goes on");
    assert_gone(&stage);
}

fn exit_codes() {
    let stage = Stage::new("codes");
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 128 + 9)] {
        let ran = stage
            .start(watching(&stage, &[], &["sh", "-c", script]))
            .end();
        assert_eq!((ran.code, ran.stderr.as_str()), (code, ""), "{script}");
    }
    let ran = stage
        .start(watching(&stage, &[], &["no-such-command"]))
        .end();
    ran.assert_code(2)
        .assert_says("there is no command `no-such-command`");
    assert_gone(&stage);
}

fn streams() {
    let stage = Stage::new("streams");
    let script = "read line; echo out $line; echo err >&2; echo $PYTHONPATH";
    for (stacks, path) in [("off", "/mine".to_owned()), ("auto", ":/mine".to_owned())] {
        let input = stage.write("input", "in\n");
        let mut command = watching(&stage, &["--stacks", stacks], &["sh", "-c", script]);
        command
            .env("PYTHONPATH", "/mine")
            .stdin(fs::File::open(input).unwrap());
        let ran = stage.start(command).end();
        ran.assert_code(0);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!((lines[0], ran.stderr.as_str()), ("out in", "err\n"));
        assert!(lines[1].ends_with(&path), "{}", ran.stdout);
        assert_eq!(lines[1] == "/mine", stacks == "off");
    }
    assert_gone(&stage);
}

fn sitecustomize() {
    let stage = Stage::new("site");
    stage.write("site/sitecustomize.py", "print('mine is run')\nMINE = 1\n");
    let program = "import sitecustomize; print(sitecustomize.MINE)";
    let mut command = watching(&stage, &[], &["python3", "-c", program]);
    command.env("PYTHONPATH", stage.path("site"));
    let ran = stage.start(command).end();
    assert_eq!(ran.assert_code(0).stdout, "mine is run\n1\n");
    assert_gone(&stage);
}

fn leftovers() {
    let stage = Stage::new("leftovers");
    let script = "setsid sleep 3600 & exit 3";
    let ran = stage
        .start(watching(&stage, &[], &["sh", "-c", script]))
        .end();
    ran.assert_code(3);
    assert_gone(&stage);
}

/// The command starts a daemon in a session of its own, with an empty environment and a parent that has ended. Without a signal the
/// command ends by itself; SIGKILL goes to the watcher, and SIGINT twice.
fn daemon(signal: Option<Signal>) {
    let stage = Stage::new("daemon");
    let up = stage.path("up").display().to_string();
    let service = format!(": >{up}; while :; do /bin/sleep 0.2; done");
    let start = format!(
        "(setsid env -i /bin/sh -c '{service}' \"BLACKBOX_STAGE=$BLACKBOX_STAGE\" </dev/null >/dev/null 2>&1 &)"
    );
    let rest = match signal {
        None => "exit 3",
        Some(_) => "while :; do sleep 0.1; done",
    };
    let script = format!(
        "trap 'echo asked' INT; {start}; until [ -e {up} ]; do sleep 0.1; done; echo ready; {rest}"
    );
    let running = stage.start(watching(&stage, &[], &["sh", "-c", &script]));
    if let Some(signal) = signal {
        let said = |word: &str| running.texts()[0].contains(word);
        stage.wait("the daemon runs", || said("ready"));
        running.signal(signal);
        if signal == Signal::INT {
            stage.wait("the command was asked", || said("asked"));
            running.signal(signal);
        }
    }
    let ran = running.end();
    ran.assert_code(match signal {
        None => 3,
        Some(Signal::INT) => 130,
        Some(_) => 1009,
    });
    stage.assert_nothing_remains();
}

/// A program that takes the first signal as a request, and the second one not at all.
fn interrupt(times: u32) {
    let stage = Stage::new("interrupt");
    let script = match times {
        1 => "trap 'echo asked; exit 5' INT; echo ready; while :; do sleep 0.1; done",
        _ => "trap 'echo asked' INT; echo ready; while :; do sleep 0.1; done",
    };
    let running = stage.start(watching(&stage, &[], &["sh", "-c", script]));
    stage.wait("it has set its trap", || {
        running.texts()[0].contains("ready")
    });
    running.signal(Signal::INT);
    if times == 2 {
        stage.wait("it was asked", || running.texts()[0].contains("asked"));
        running.signal(Signal::INT);
    }
    let ran = running.end();
    ran.assert_code(if times == 1 { 5 } else { 130 });
    assert!(ran.stdout.contains("asked"));
    assert_gone(&stage);
}

fn killed() {
    let stage = Stage::new("killed");
    let python = python();
    let program = [python.as_str(), LAUNCH, "2", JOB, "skips"];
    let options = ["--patience", "1"];
    let running = stage.start(watching(&stage, &options, &program));
    stage.wait("ranks run", || {
        let is_rank = |line: &str| line.contains("skips") && !line.contains("launch.py");
        stage
            .processes()
            .iter()
            .filter(|(_, line)| is_rank(line))
            .count()
            == 2
    });
    running.signal(Signal::KILL);
    running.end().assert_code(1009);
    stage.assert_nothing_remains();
    stage.wait("its folder is removed", || {
        fs::read_dir(stage.path("tmp"))
            .unwrap()
            .flatten()
            .all(|entry| {
                !entry
                    .file_name()
                    .to_string_lossy()
                    .starts_with("allranks-watch")
            })
    });
}
