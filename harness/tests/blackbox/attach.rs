//! `allranks watch --attach` on jobs that run already: `fixtures/hangs/programs/attached.py`. The job goes on as if no process had
//! looked.

use std::cell::RefCell;
use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::stage::{Ran, Running, Stage};
use super::watch::{LAUNCH, python};
use super::{Test, computing, plain};

const JOB: &str = "fixtures/hangs/programs/attached.py";

/// Jobs that are well.
const HEALTHY: [&str; 4] = ["trains", "slow_steps", "idle", "loads"];

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = HEALTHY
        .into_iter()
        .map(|thing| computing(format!("attach::healthy::{thing}"), move || healthy(thing)))
        .collect();
    tests.extend([
        computing("attach::hang::stopped", stopped),
        computing("attach::hang::tasks_of_slurm", tasks_of_slurm),
        computing("attach::hang::sleeps", sleeps),
        computing("attach::hang::other_call", other_call),
        computing("attach::hang::recorded", recorded),
        computing("attach::hang::ends", ends),
        computing("attach::hang::spawned", spawned),
        computing("attach::two_jobs_side_by_side", two_jobs),
        plain("attach::a_process_of_no_job_is_an_error", no_job),
        computing("evidence::two_nodes", two_nodes),
        plain("evidence::what_is_no_evidence_is_an_error", no_evidence),
    ]);
    tests
}

/// A job of so many ranks that has reached the place where it stays.
struct Job<'a> {
    stage: &'a Stage,
    running: Running,
}

impl<'a> Job<'a> {
    fn start(stage: &'a Stage, size: usize, thing: &str) -> Self {
        Self::start_with(stage, size, &[thing])
    }

    fn start_with(stage: &'a Stage, size: usize, words: &[&str]) -> Self {
        Self::start_within(stage, size, words, &[])
    }

    fn start_within(
        stage: &'a Stage,
        size: usize,
        words: &[&str],
        variables: &[(&str, String)],
    ) -> Self {
        let mut command = Command::new(python());
        command.args([LAUNCH, &size.to_string(), JOB]).args(words);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let running = stage.start(stage.marked(command));
        let is_ready = |running: &Running| running.texts()[0].matches("ready").count() == size;
        stage.wait("all ranks are ready", || is_ready(&running));
        Self { stage, running }
    }

    fn pid(&self) -> String {
        self.running.pid().as_raw_nonzero().to_string()
    }

    /// Its ranks, in order.
    fn ranks(&self) -> Vec<u32> {
        let mut ranks: Vec<(u32, u32)> = children(&self.pid())
            .into_iter()
            .filter_map(|pid| {
                let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
                let text = String::from_utf8_lossy(&environment).into_owned();
                let rank = text.split('\0').find_map(|one| one.strip_prefix("RANK="))?;
                Some((rank.parse().ok()?, pid))
            })
            .collect();
        ranks.sort_unstable();
        ranks.into_iter().map(|(_, pid)| pid).collect()
    }

    fn end(self) {
        for (pid, _) in self.stage.processes() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        self.running.end();
        self.stage.assert_nothing_remains();
    }
}

fn children(pid: &str) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace()
        .map(|one| one.parse().unwrap())
        .collect()
}

/// The letter of the state of a process.
fn state(pid: u32) -> char {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    text.rsplit(") ").next().unwrap().chars().next().unwrap()
}

/// `allranks watch --attach PID` and what it wrote; none of these processes is stopped or traced by it.
#[track_caller]
fn attach(stage: &Stage, pids: &[String], options: &[&str]) -> (Ran, Option<Value>) {
    let json = stage.path("hang.json");
    let _ = fs::remove_file(&json);
    let path = json.display().to_string();
    let mut words = vec!["watch", "--json", &path];
    words.extend(options);
    words.push("--attach");
    words.extend(pids.iter().map(String::as_str));
    let ran = stage.start(stage.command(&words)).end();
    let record = fs::read(json).ok();
    (
        ran,
        record.map(|text| serde_json::from_slice(&text).unwrap()),
    )
}

/// The states of ranks and the processes that trace them.
fn standing(ranks: &[u32]) -> Vec<(bool, String)> {
    let tracer = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("TracerPid"));
        line.unwrap_or_default().to_owned()
    };
    let is_stopped = |pid: &u32| matches!(state(*pid), 'T' | 't');
    ranks
        .iter()
        .map(|pid| (is_stopped(pid), tracer(pid)))
        .collect()
}

fn healthy(thing: &str) {
    let stage = Stage::new(thing);
    let job = Job::start(&stage, 3, thing);
    let ranks = job.ranks();
    let before = standing(&ranks);
    let (ran, record) = attach(&stage, &[job.pid()], &["--patience", "8"]);
    ran.assert_code(0);
    assert!(!ran.stderr.contains("hang: "), "{}", ran.stderr);
    assert_eq!(record, None);
    if thing == "trains" {
        ran.assert_says("not hung: ranks 0–2 move");
    }
    assert_eq!(standing(&ranks), before);
    job.end();
}

#[track_caller]
fn assert_verdict(
    ran: &Ran,
    record: Option<&Value>,
    kind: &str,
    culprits: &[u32],
    confidence: &str,
) {
    ran.assert_code(1);
    let record = record.unwrap();
    let told = (&record["kind"], &record["culprits"], &record["confidence"]);
    let expected = (
        &Value::from(kind),
        &Value::from(culprits.to_vec()),
        &Value::from(confidence),
    );
    assert_eq!(told, expected, "{}", ran.stderr);
}

/// The verdict of what only stacks tell of, which says so.
#[track_caller]
fn assert_verdict_by_stacks(
    ran: &Ran,
    record: Option<&Value>,
    kind: &str,
    culprits: &[u32],
    confidence: &str,
) {
    assert_verdict(ran, record, kind, culprits, confidence);
    ran.assert_says("missing: ");
}

fn stopped() {
    let stage = Stage::new("stopped");
    let job = Job::start(&stage, 3, "stopped");
    let ranks = job.ranks();
    stage.wait("it is stopped", || state(ranks[2]) == 'T');
    let before = standing(&ranks);
    // By a rank that waits: its launcher and the others are found from it.
    let (ran, record) = attach(&stage, &[ranks[0].to_string()], &[]);
    assert_verdict_by_stacks(&ran, record.as_ref(), "peer-stopped", &[2], "proved");
    ran.assert_says("in all_reduce on world (fixtures/hangs/programs/attached.py:");
    assert_eq!(standing(&ranks), before);
    assert!(before[2].0);
    job.end();
}

/// Ranks that Slurm has numbered; and what was seen of them, judged later.
fn tasks_of_slurm() {
    let stage = Stage::new("slurm");
    let job = Job::start_with(&stage, 3, &["as_slurm", "stopped"]);
    let tasks = || children(&job.pid());
    stage.wait("one is stopped", || {
        tasks().iter().any(|pid| state(*pid) == 'T')
    });
    let before = standing(&tasks());
    let folder = stage.path("evidence").display().to_string();
    let (ran, record) = attach(&stage, &[job.pid()], &["--evidence", &folder]);
    assert_verdict_by_stacks(&ran, record.as_ref(), "peer-stopped", &[2], "proved");
    ran.assert_says("the ranks are known by SLURM_PROCID");
    assert_eq!(standing(&tasks()), before);
    let ran = stage.start(stage.command(&["diagnose", &folder])).end();
    ran.assert_code(1);
    for words in [
        "peer-stopped: rank 2 is stopped",
        "ranks 0, 1: in all_reduce",
    ] {
        assert!(ran.stdout.contains(words), "{}", ran.stdout);
    }
    job.end();
}

/// Late is not behind: that is said after 20 seconds in which nothing of the rank has run.
fn sleeps() {
    let stage = Stage::new("sleeps");
    let job = Job::start(&stage, 3, "sleeps");
    let (ran, record) = attach(&stage, &[job.pid()], &["--patience", "3"]);
    assert_verdict_by_stacks(&ran, record.as_ref(), "behind", &[2], "likely");
    ran.assert_says("slow: rank 2 is in code of its own");
    ran.assert_says("`time.sleep(3600)`");
    job.end();
}

fn other_call() {
    let stage = Stage::new("other");
    let job = Job::start(&stage, 3, "other_call");
    let (ran, record) = attach(&stage, &[job.pid()], &["--patience", "3"]);
    assert_verdict_by_stacks(&ran, record.as_ref(), "collective-mismatch", &[2], "likely");
    ran.assert_says("ranks 0 and 1 are in all_reduce on world (fixtures/hangs/");
    ran.assert_says("rank 2 is in broadcast on world (fixtures/hangs/");
    job.end();
}

/// A job that was started with torch's pipe for its flight recorder.
fn recorded() {
    let stage = Stage::new("recorded");
    let path = |name: &str| stage.path(name).display().to_string();
    let variables = [
        ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", path("pipe")),
        ("TORCH_FR_DUMP_TEMP_FILE", path("record")),
        ("TORCH_FR_BUFFER_SIZE", "100".to_owned()),
    ];
    let job = Job::start_within(&stage, 3, &["recorded"], &variables);
    let (ran, record) = attach(&stage, &[job.pid()], &["--patience", "3"]);
    assert_verdict(&ran, record.as_ref(), "collective-mismatch", &[2], "likely");
    ran.assert_says("collective number 3 of default_pg is ");
    assert!(!ran.stderr.contains("missing: "), "{}", ran.stderr);
    job.end();
    // Without an answer it says so, and judges by the stacks.
    let job = Job::start_within(&stage, 3, &["other_call"], &variables);
    let (ran, record) = attach(&stage, &[job.pid()], &["--patience", "3"]);
    assert_verdict_by_stacks(&ran, record.as_ref(), "collective-mismatch", &[2], "likely");
    ran.assert_says("missing: the flight recorder of rank 0: ");
    job.end();
}

fn ends() {
    let stage = Stage::new("ends");
    let job = Job::start(&stage, 3, "ends");
    let (ran, record) = attach(&stage, &[job.pid()], &["--patience", "3"]);
    // It has not been waited for: the kernel still knows how it ended.
    assert_verdict_by_stacks(&ran, record.as_ref(), "peer-dead", &[2], "proved");
    ran.assert_says("its process ended: exit 0");
    job.end();
}

/// Ranks whose environments do not say which they are.
fn spawned() {
    let stage = Stage::new("spawned");
    let mut command = Command::new(python());
    command.args(["fixtures/hangs/programs/spawn.py", "spawn"]);
    let running = stage.start(stage.marked(command));
    let pid = running.pid().as_raw_nonzero().to_string();
    stage.wait("a rank has stopped itself", || {
        children(&pid).iter().any(|pid| state(*pid) == 'T')
    });
    let (ran, record) = attach(&stage, &[pid], &["--patience", "3"]);
    assert_verdict_by_stacks(&ran, record.as_ref(), "peer-stopped", &[2], "likely");
    ran.assert_says("in barrier");
    Job {
        stage: &stage,
        running,
    }
    .end();
}

/// One hangs and the other does not; each is told by its own launcher.
fn two_jobs() {
    let stage = Stage::new("two");
    let other = Stage::new("other");
    let (hangs, trains) = (
        Job::start(&stage, 2, "stopped"),
        Job::start(&other, 2, "trains"),
    );
    let (ran, record) = attach(&stage, &[trains.pid()], &["--patience", "8"]);
    ran.assert_code(0);
    assert_eq!(record, None, "{}", ran.stderr);
    let both = [hangs.pid(), trains.pid()];
    let (ran, record) = attach(&stage, &both, &["--patience", "8"]);
    assert_verdict_by_stacks(&ran, record.as_ref(), "peer-stopped", &[1], "proved");
    ran.assert_says("not hung: ranks 0, 1 move");
    let pid = format!("rank 1 is pid {}", hangs.ranks()[1]);
    ran.assert_says(&pid);
    hangs.end();
    trains.end();
}

fn no_job() {
    let stage = Stage::new("no-job");
    let mut command = Command::new("sleep");
    command.arg("600");
    let running = stage.start(stage.marked(command));
    let pid = running.pid().as_raw_nonzero().to_string();
    let ran = stage
        .start(stage.command(&["watch", "--attach", &pid]))
        .end();
    ran.assert_code(2)
        .assert_says(&format!("process {pid} leads to no rank of a job"));
    let options = ["watch", "--kill-on-verdict", "--attach", &pid];
    stage.start(stage.command(&options)).end().assert_code(2);
    running.signal(Signal::KILL);
    running.end();
    stage.assert_nothing_remains();
}

/// Two nodes of two ranks, of which each is watched by itself: the second has the rank that differs.
fn two_nodes() {
    let stage = Stage::new("nodes");
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    drop(socket);
    let folders = ["one", "two"].map(|name| stage.path(name).display().to_string());
    let program = format!(
        "{} fixtures/hangs/programs/job.py other_collective",
        python()
    );
    let start = |node: usize| {
        let first = node * 2;
        let script = format!(
            "RANK={first} LOCAL_RANK=0 {program} & RANK={} LOCAL_RANK=1 {program} & wait",
            first + 1
        );
        let words = [
            "watch",
            "--patience",
            "2",
            "--evidence",
            &folders[node],
            "--",
            "sh",
            "-c",
            &script,
        ];
        let mut command = stage.command(&words);
        for (name, value) in [
            ("WORLD_SIZE", "4"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
            ("OMP_NUM_THREADS", "1"),
        ] {
            command.env(name, value);
        }
        stage.start(command)
    };
    let nodes = [start(0), start(1)];
    let file = |folder: &str| -> Option<Value> {
        let mut entries = fs::read_dir(folder).ok()?.flatten();
        let entry = entries.find(|one| one.path().extension().is_some_and(|end| end == "json"))?;
        serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()
    };
    stage.wait("both have seen their ranks still", || {
        folders.iter().all(|folder| {
            let seen = file(folder);
            seen.is_some_and(|seen| {
                let has_come = |rank: &Value| {
                    let trace = &rank["trace"]["inside"]["entry"]["what"];
                    trace == "collective"
                };
                let ranks = seen["ranks"].as_array().cloned().unwrap_or_default();
                seen["still_s"].as_f64() > Some(3.0)
                    && ranks.len() == 2
                    && ranks.iter().all(has_come)
            })
        })
    });
    let judge = |folders: &[&String]| {
        let mut words = vec!["diagnose", "--json"];
        words.extend(folders.iter().map(|folder| folder.as_str()));
        let ran = stage.start(stage.command(&words)).end();
        let worlds: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(worlds.as_array().unwrap().len(), 1, "{}", ran.stdout);
        (worlds[0]["verdict"].clone(), worlds[0]["notes"].to_string())
    };
    // A rank that a busy machine does not let answer for a moment may be anywhere, and the files say so then.
    let judged = RefCell::new(None);
    stage.wait("the verdict on both", || {
        let (verdict, notes) = judge(&[&folders[0], &folders[1]]);
        let is_there = verdict["kind"] == "collective-mismatch";
        judged.replace(Some((verdict, notes)));
        is_there
    });
    let (verdict, notes) = judged.into_inner().unwrap();
    let told =
        |verdict: &Value| ["kind", "culprits", "confidence"].map(|name| verdict[name].to_string());
    assert_eq!(
        told(&verdict),
        ["\"collective-mismatch\"", "[3]", "\"proved\""]
    );
    assert!(!notes.contains("absent"), "{notes}");
    // Ranks that run elsewhere are not missing, and may agree with either side.
    let (verdict, notes) = judge(&[&folders[1]]);
    assert_eq!(
        told(&verdict),
        ["\"collective-mismatch\"", "[]", "\"likely\""]
    );
    assert!(
        notes.contains("the evidence of ranks 0, 1 is absent"),
        "{notes}"
    );
    let (verdict, notes) = judge(&[&folders[0]]);
    assert_eq!(told(&verdict), ["\"unknown\"", "[]", "\"none\""]);
    assert!(
        notes.contains("the evidence of ranks 2, 3 is absent"),
        "{notes}"
    );
    for node in nodes {
        node.signal(Signal::TERM);
        node.signal(Signal::TERM);
        node.end();
    }
    stage.assert_nothing_remains();
    // What was seen of a job that was ended stays.
    assert!(folders.iter().all(|folder| file(folder).is_some()));
}

fn no_evidence() {
    let stage = Stage::new("none");
    let file = stage.write("one/x.evidence.json", "{}");
    let ran = stage.run(&["diagnose", &file]);
    ran.assert_code(2).assert_says("is no evidence of format 1");
    let ran = stage.run(&["diagnose", &file, "README.md"]);
    ran.assert_code(2)
        .assert_says("README.md holds no evidence of a watch");
}
