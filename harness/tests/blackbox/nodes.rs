//! Node agents: worlds whose ranks are on several hosts, and what is left of a run that loses one.
//!
//! Most trials have all agents on this machine; those named `hosts` have two network namespaces as hosts, where the system permits
//! them without privileges.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use allranks_model::diagnosis::HangKind;
use allranks_model::names::Rank;
use allranks_model::outcome::{Outcome, Verdict};
use rustix::process::Signal;

use super::stage::{Ran, Running, Stage, assert_reported, checkout, essence};
use super::{Lack, Test, plain, unless_lacking, with_torch};

/// A driver without torch.
pub(super) const DRIVER: &str = "command:python3 fixtures/drivers/pretend.py";
/// More checks than are over before something happens to a node.
pub(super) const MANY: &str = "\
id: many
title: many sums
covers: [COLL-001]
world: {platform: cpu, backend: gloo, size: 2, deadline_s: 120}
steps:
  - all_reduce: {dtype: float32, op: sum, numel: 33}
";
/// Worlds of each of these sizes, one after the other.
pub(super) const SIZES: &str = "\
id: sizes
title: sums
covers: [COLL-001]
world: {platform: cpu, backend: gloo, size: [1, 2, 3], deadline_s: 120}
steps:
  - all_reduce: {dtype: float32, op: sum, numel: 33}
  - barrier: {}
";

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let (hosts, slurm, mpi, mpich) = (no_hosts(), no_slurm(), no_mpi(), no_mpich());
    let killed = || lost(Signal::KILL);
    vec![
        plain("nodes::ranks_are_on_two_nodes", two_nodes),
        plain("nodes::many_with_pretended_ranks", many),
        plain("nodes::a_node_that_does_not_come_is_named", nobody_comes),
        plain(
            "nodes::an_unauthenticated_peer_is_refused_and_reported",
            unauthenticated,
        ),
        plain("nodes::required_nodes_that_are_not_there", required),
        plain("nodes::a_killed_agent_and_rerun", killed),
        plain("nodes::a_silent_agent_is_lost", || lost(Signal::STOP)),
        plain("nodes::agents_end_with_the_run", run_is_killed),
        plain("nodes::an_engine_that_is_not_here", no_engine),
        with_torch("nodes::gloo_on_two_nodes", gloo),
        unless_lacking(hosts.clone(), plain("nodes::hosts_sum", hosts_sum)),
        unless_lacking(
            hosts.clone(),
            plain("nodes::hosts_link_down", hosts_link_down),
        ),
        unless_lacking(hosts, with_torch("nodes::hosts_gloo", hosts_gloo)),
        unless_lacking(
            slurm.clone(),
            plain("nodes::slurm_starts_agents", slurm_runs),
        ),
        unless_lacking(
            slurm,
            plain("nodes::slurm_with_one_node_of_two", slurm_is_small),
        ),
        unless_lacking(
            mpi.clone(),
            plain("nodes::mpi_starts_agents", || mpi_runs("mpi", |_| ())),
        ),
        unless_lacking(
            mpich,
            plain("nodes::mpich_starts_agents", || {
                mpi_runs("mpich", use_mpich);
            }),
        ),
        unless_lacking(mpi, plain("nodes::mpi_ends_before_its_agents", mpi_fails)),
    ]
}

/// Network namespaces stand for hosts.
pub(super) fn no_hosts() -> Option<Lack> {
    let link = "ip link add one type veth peer name two";
    let words = ["--user", "--map-root-user", "--net", "sh", "-c", link];
    lack("network namespaces", "unshare", &words)
}

/// Rules of nftables in a network namespace stand for firewalls.
pub(super) fn no_filters() -> Option<Lack> {
    let words = ["--user", "--map-root-user", "--net", "sh", "-c"];
    let words = [&words[..], &["nft add table inet one"]].concat();
    no_hosts().or_else(|| lack("packet filters", "unshare", &words))
}

pub(super) fn no_slurm() -> Option<Lack> {
    // Its clients tell not even their version without a configuration.
    let programs = ["slurmctld", "slurmd", "salloc", "srun", "sinfo"];
    let found = |program| lack("Slurm", "sh", &["-c", &format!("command -v {program}")]);
    let mut lacks = programs.into_iter().map(found);
    lacks.find_map(|lack| lack)
}

pub(super) fn no_mpi() -> Option<Lack> {
    lack("MPI", "mpirun", &["--version"])
}

/// The mpirun of MPICH, which `ci/setup --with engines` places beside the one in the search path.
pub(super) fn no_mpich() -> Option<Lack> {
    let program = mpich_folder().join("mpirun");
    lack("MPICH", &program.display().to_string(), &["--version"])
}

fn mpich_folder() -> PathBuf {
    checkout().join(".venv-mpich/bin")
}

/// Lets a command find the mpirun of MPICH before others.
pub(super) fn use_mpich(command: &mut Command) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    let path = std::env::join_paths(std::iter::once(mpich_folder()).chain(folders));
    command.env("PATH", path.unwrap());
}

/// What is lacking if this command does not end with 0.
pub(super) fn lack(what: &'static str, program: &str, words: &[&str]) -> Option<Lack> {
    let why = match Command::new(program).args(words).output() {
        Ok(ran) if ran.status.success() => return None,
        Ok(ran) => String::from_utf8_lossy(&ran.stderr).trim().to_owned(),
        Err(error) => format!("{program}: {error}; `ci/setup --with engines` installs it"),
    };
    Some(Lack { what, why })
}

/// Starts a run on two nodes, and returns it when agents can join.
pub(super) fn start(stage: &Stage, arguments: &[&str]) -> Running {
    let mut all = arguments.to_vec();
    all.extend(["--launcher", "attached", "--nodes", "2"]);
    let run = stage.start_run(&all);
    let credentials = stage.path("out/credentials.json");
    stage.wait("the run listens", || {
        credentials.exists() && !fs::read(&credentials).unwrap_or_default().is_empty()
    });
    run
}

/// Starts an agent with these credentials.
fn join(stage: &Stage, credentials: &Path) -> Running {
    let path = credentials.display().to_string();
    let temporary = stage.path("tmp");
    let mut command = stage.command(&["node", "--credentials", &path]);
    command.env("TMPDIR", temporary);
    stage.start(command)
}

pub(super) fn agents(stage: &Stage) -> [Running; 2] {
    let credentials = stage.path("out/credentials.json");
    [0, 1].map(|_| join(stage, &credentials))
}

fn checks_in(folder: &Path) -> usize {
    let text = fs::read_to_string(folder.join("results.jsonl")).unwrap_or_default();
    text.matches("\"type\":\"check\"").count()
}

/// Ten nodes with eight ranks each, all of them pretended by the program of `ci/bench fleet`: once right, and once with a rank that is
/// stopped.
fn many() {
    for stopped in [None, Some(57)] {
        let stage = Stage::new("many-nodes");
        let credentials = stage.path("credentials");
        let mut pretended = Command::new("python3");
        pretended
            .arg(checkout().join("ci/bench.d/pretended_agents.py"))
            .arg(&credentials)
            .args(["10", env!("CARGO_PKG_VERSION")])
            .args(stopped.map(|rank: u32| rank.to_string()));
        let pretended = stage.start(stage.marked(pretended));
        let fleet = checkout().join("ci/bench.d/fleet.yaml");
        let mut words = vec!["--launcher", "attached", "--nodes", "10"];
        let (fleet, path) = (
            fleet.display().to_string(),
            credentials.display().to_string(),
        );
        words.extend([&*fleet, "--world-size", "80", "--require", "nodes=10"]);
        words.extend(["--driver", "command:none", "--credentials", &*path]);
        let ran = stage.start_run(&words).end();
        pretended.end().assert_code(0);
        stage.assert_nothing_remains();
        let results = stage.results("out");
        assert_eq!((results.checks.len(), results.missing()), (3, 0));
        let bad = results
            .checks
            .iter()
            .filter(|one| one.verdict != Verdict::Expected);
        match stopped {
            None => {
                ran.assert_code(0);
                assert_eq!(bad.count(), 0);
            }
            Some(rank) => {
                ran.assert_code(1);
                let found: Vec<_> = bad.filter_map(|one| one.diagnosis.as_ref()).collect();
                assert_eq!(found.len(), 1, "{found:?}");
                assert_eq!(found[0].kind, HangKind::PeerStopped);
                assert_eq!(found[0].culprits, [Rank(rank)]);
            }
        }
    }
}

fn two_nodes() {
    let stage = Stage::new("two-nodes");
    let case = stage.write("sizes.yaml", SIZES);
    let run = start(&stage, &[&case, "--driver", DRIVER, "--require", "nodes=2"]);
    let nodes = agents(&stage);
    let ran = run.end();
    ran.assert_code(0)
        .assert_says("waiting for 2 node(s); on each host run: allranks node --credentials ")
        .assert_says("node 1 of 2 is here")
        .assert_says("node 2 of 2 is here");
    for node in nodes {
        node.end().assert_code(0).assert_says("the run has ended");
    }
    stage.assert_nothing_remains();
    assert!(
        !stage.path("out/credentials.json").exists(),
        "the secret is left"
    );
    let left: Vec<_> = fs::read_dir(stage.path("tmp"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| name.to_string_lossy().starts_with("allranks-locks-")),
        "{left:?}"
    );
    let results = stage.results("out");
    assert_reported(&results);
    // In whichever order they end. One rank cannot be on two nodes.
    let scenarios = results.scenarios.iter();
    let ids: BTreeSet<&str> = scenarios.map(|one| one.id.as_str()).collect();
    assert_eq!(
        Vec::from_iter(ids),
        ["sizes@cpu.gloo.ws2.nodes-2", "sizes@cpu.gloo.ws3.nodes-2"]
    );
    assert!(
        results
            .checks
            .iter()
            .all(|check| check.outcome == Outcome::Pass)
    );
    let column = &results.scenarios[0].column;
    assert_eq!((column.nodes, column.launcher.as_str()), (2, "attached"));
    let summary = fs::read_to_string(stage.path("out/summary.md")).unwrap();
    assert!(summary.contains("ws2/2n"), "{summary}");
}

fn nobody_comes() {
    let stage = Stage::new("nobody-comes");
    let case = stage.write("sizes.yaml", SIZES);
    let run = start(&stage, &[&case, "--driver", DRIVER, "--join-patience", "2"]);
    let ran = run.end();
    ran.assert_code(4);
    stage.assert_nothing_remains();
    let results = stage.results("out");
    assert_eq!(results.missing(), 0);
    for check in &results.checks {
        assert_eq!(check.verdict, Verdict::NotRun);
        assert!(
            check
                .summary
                .contains("2 of 2 nodes did not come within 2 s"),
            "{check:?}"
        );
    }
}

fn unauthenticated() {
    let stage = Stage::new("unauthenticated");
    let case = stage.write("many.yaml", MANY);
    let run = start(&stage, &[&case, "--driver", DRIVER]);
    let credentials = stage.path("out/credentials.json");
    let text = fs::read_to_string(&credentials).unwrap();
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    let forged = text.replace(read["token"].as_str().unwrap(), "0123");
    let forged = stage.write("forged.json", &forged);
    // Others can read it.
    let refused = join(&stage, Path::new(&forged)).end();
    refused.assert_code(2).assert_says("others can read");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&forged, fs::Permissions::from_mode(0o600)).unwrap();
    let refused = join(&stage, Path::new(&forged)).end();
    refused
        .assert_code(10)
        .assert_says("the run refuses this node: it does not have the run's token");
    let nodes = agents(&stage);
    run.end()
        .assert_code(0)
        .assert_says("refused a connection from")
        .assert_says("it does not have the run's token");
    for node in nodes {
        node.end().assert_code(0);
    }
    stage.assert_nothing_remains();
    // The secret is where it must be, and nowhere else.
    let secret = read["token"].as_str().unwrap();
    for name in ["results.jsonl", "environment.json"] {
        let text = fs::read_to_string(stage.path("out").join(name)).unwrap_or_default();
        assert!(!text.contains(secret), "it is in {name}");
    }
}

fn required() {
    let stage = Stage::new("required-nodes");
    let case = stage.write("many.yaml", MANY);
    stage
        .run_out(&[&case, "--driver", DRIVER, "--require", "nodes=2"])
        .assert_code(4);
    let ran = stage.run(&["plan", &case, "--driver", DRIVER, "--nodes", "2"]);
    ran.assert_code(2).assert_says("add --launcher attached");
}

/// A node is lost in the middle of a run. What was decided stays, nothing is blamed, and `rerun` does the rest.
fn lost(how: Signal) {
    let stage = Stage::new("lost-node");
    let case = stage.write("many.yaml", MANY);
    let arguments = [
        &case,
        "--driver",
        DRIVER,
        "--repeat",
        "40",
        "--lost-after",
        "5",
        "--ranks-at-once",
        "2",
    ];
    let run = start(&stage, &arguments);
    let [first, second] = agents(&stage);
    stage.wait("some checks are over", || checks_in(&stage.out()) >= 3);
    second.signal(how);
    let ran = run.end();
    ran.assert_code(4);
    first.end().assert_code(0);
    if how == Signal::STOP {
        second.signal(Signal::CONT);
    }
    let code = second.end().code;
    let expected = if how == Signal::STOP { 10 } else { 1009 };
    assert_eq!(code, expected);
    stage.assert_nothing_remains();
    let results = stage.results("out");
    assert_eq!(results.missing(), 0);
    let (passed, left): (Vec<_>, Vec<_>) = results
        .checks
        .iter()
        .partition(|check| check.outcome == Outcome::Pass);
    assert!(
        passed.len() >= 3 && !left.is_empty(),
        "{} and {}",
        passed.len(),
        left.len()
    );
    for check in &left {
        assert_eq!(check.outcome, Outcome::NotRun, "blamed: {check:?}");
        assert!(check.summary.contains(" was lost: "), "{check:?}");
    }
    if how == Signal::KILL {
        let decided = passed.len();
        rerun(&stage, decided);
    }
}

/// The folders of agents that are left.
fn folders_of_agents(stage: &Stage) -> usize {
    let entries = fs::read_dir(stage.path("tmp")).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("allranks-node-"))
        .count()
}

fn rerun(stage: &Stage, decided: usize) {
    let (from, to) = (stage.out().display().to_string(), stage.path("again"));
    let mut command = stage.command(&[
        "rerun",
        &from,
        "--driver",
        DRIVER,
        "--out",
        &to.display().to_string(),
    ]);
    command.env("TMPDIR", stage.path("tmp"));
    let run = stage.start(command);
    let credentials = to.join("credentials.json");
    stage.wait("the run listens again", || {
        credentials.exists() && !fs::read(&credentials).unwrap_or_default().is_empty()
    });
    let nodes = [0, 1].map(|_| join(stage, &credentials));
    let ran = run.end();
    ran.assert_code(0).assert_says(&format!(
        "{decided} checks keep the results of the earlier run"
    ));
    for node in nodes {
        node.end().assert_code(0);
    }
    stage.assert_nothing_remains();
    let results = stage.results("again");
    assert_reported(&results);
    assert_eq!(
        folders_of_agents(stage),
        0,
        "the next agents remove what the killed one has left"
    );
    let ids = essence(&results);
    assert_eq!(
        ids.len(),
        120,
        "a sum, an init and a teardown in each round"
    );
}

fn run_is_killed() {
    let stage = Stage::new("run-is-killed");
    let case = stage.write("many.yaml", MANY);
    let run = start(&stage, &[&case, "--driver", DRIVER, "--repeat", "40"]);
    let nodes = agents(&stage);
    stage.wait("some checks are over", || checks_in(&stage.out()) >= 3);
    run.signal(Signal::KILL);
    run.end().assert_code(1009);
    for node in nodes {
        node.end().assert_code(10).assert_says("the run is gone");
    }
    stage.assert_nothing_remains();
}

fn gloo() {
    let stage = Stage::new("nodes-gloo");
    let arguments = [
        "cases/collectives/smoke.yaml",
        "--platform",
        "cpu",
        "--world-size",
        "2,4",
        "--require",
        "nodes=2",
    ];
    let run = start(&stage, &arguments);
    let nodes = agents(&stage);
    let ran = run.end();
    ran.assert_code(0);
    for node in nodes {
        node.end().assert_code(0);
    }
    stage.assert_nothing_remains();
    let results = stage.results("out");
    assert_reported(&results);
    // One zygote on each node: two pids differ although the ranks are alike.
    let on_four = results
        .scenarios
        .iter()
        .find(|one| one.column.world_size.0 == 4)
        .unwrap();
    assert_eq!(on_four.column.nodes, 2);
    assert!(
        results
            .checks
            .iter()
            .all(|check| check.verdict == Verdict::Expected)
    );
}

/// Runs on two hosts; returns how the run went, and the exit codes of run, node 1 and node 2.
fn on_hosts(stage: &Stage, fault: &str, arguments: &[&str]) -> (String, Ran) {
    let temporary = stage.path("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh"]);
    command.arg(checkout().join("harness/tests/blackbox/hosts/two.sh"));
    command
        .arg(env!("CARGO_BIN_EXE_allranks"))
        .arg(stage.out())
        .arg(fault);
    command.args(arguments).env("TMPDIR", temporary);
    let python = allranks_runner::probe::python(None).path;
    if python.is_file() {
        command.env("ALLRANKS_PYTHON", std::path::absolute(python).unwrap());
    }
    let ran = stage.start(stage.marked(command)).end();
    stage.assert_nothing_remains();
    let files = ["out.stderr", "out.node1", "out.node2"]
        .map(|name| fs::read_to_string(stage.path(name)).unwrap_or_default());
    (files.join("\n"), ran)
}

fn hosts_sum() {
    let stage = Stage::new("hosts-sum");
    let case = stage.write("sizes.yaml", SIZES);
    let (said, ran) = on_hosts(
        &stage,
        "none",
        &[&case, "--driver", DRIVER, "--require", "nodes=2"],
    );
    ran.assert_code(0);
    assert_eq!(ran.stdout, "codes 0 0 0\n", "{said}");
    assert!(said.contains("at 10.77.0.2"), "{said}");
    let results = stage.results("out");
    assert_reported(&results);
    assert!(
        results
            .checks
            .iter()
            .all(|check| check.outcome == Outcome::Pass)
    );
}

/// Ranks on both hosts wait for each other when the link goes down. No check is blamed for it.
fn hosts_link_down() {
    let stage = Stage::new("hosts-link");
    let case = stage.write("many.yaml", MANY);
    let arguments = [
        &case,
        "--driver",
        DRIVER,
        "--repeat",
        "40",
        "--ranks-at-once",
        "2",
    ];
    let (said, ran) = on_hosts(&stage, "link", &arguments);
    ran.assert_code(0);
    assert_eq!(ran.stdout, "codes 4 0 10\n", "{said}");
    assert!(
        said.contains("the run is gone (nothing came for 4 s)"),
        "{said}"
    );
    let results = stage.results("out");
    let left: Vec<_> = results
        .checks
        .iter()
        .filter(|check| check.outcome != Outcome::Pass)
        .collect();
    assert!(!left.is_empty() && left.len() < results.checks.len());
    for check in left {
        assert_eq!(check.outcome, Outcome::NotRun, "blamed: {check:?}");
        assert!(
            check.summary.contains("was lost: nothing came for 4 s"),
            "{check:?}"
        );
    }
}

fn hosts_gloo() {
    let stage = Stage::new("hosts-gloo");
    let arguments = [
        "cases/collectives/smoke.yaml",
        "--platform",
        "cpu",
        "--world-size",
        "2,4",
        "--require",
        "nodes=2",
    ];
    let (said, ran) = on_hosts(&stage, "none", &arguments);
    ran.assert_code(0);
    assert_eq!(ran.stdout, "codes 0 0 0\n", "{said}");
    assert_reported(&stage.results("out"));
}

/// Runs under an engine: its command ends as the run does.
fn engine_run(
    stage: &Stage,
    before: &[&str],
    arguments: &[&str],
    prepare: impl Fn(&mut Command),
) -> Ran {
    let temporary = stage.path("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let out = stage.out().display().to_string();
    let binary = env!("CARGO_BIN_EXE_allranks");
    let command = [binary, "run"];
    let words = before.iter().chain(&command).chain(arguments);
    let words: Vec<&str> = words
        .copied()
        .chain(["--nodes", "2", "--out", &out])
        .collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("TMPDIR", temporary);
    // Open MPI asks for this where tests run in a container.
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    prepare(&mut command);
    let ran = stage.start(stage.marked(command)).end();
    stage.assert_nothing_remains();
    ran
}

fn assert_column(stage: &Stage, launcher: &str) {
    let results = stage.results("out");
    assert_reported(&results);
    assert!(
        results
            .checks
            .iter()
            .all(|check| check.outcome == Outcome::Pass)
    );
    let column = &results.scenarios[0].column;
    assert_eq!((column.nodes, column.launcher.as_str()), (2, launcher));
}

/// Returns the command that runs `words` under a Slurm of its own, in an allocation of this many nodes.
pub(super) fn slurm_command(stage: &Stage, nodes: &str, words: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command
        .arg(checkout().join("harness/tests/blackbox/hosts/slurm.sh"))
        .arg(stage.path("slurm"))
        .arg(nodes)
        .args(words)
        .current_dir(checkout());
    stage.marked(command)
}

/// Runs under a Slurm of its own, in an allocation of this many nodes.
fn slurm_run(stage: &Stage, nodes: &str) -> Ran {
    let case = stage.write("sizes.yaml", SIZES);
    let script = checkout()
        .join("harness/tests/blackbox/hosts/slurm.sh")
        .display()
        .to_string();
    let folder = stage.path("slurm").display().to_string();
    let before = ["sh", &script, &folder, nodes];
    engine_run(
        stage,
        &before,
        &[&case, "--driver", DRIVER, "--launcher", "slurm"],
        |_| (),
    )
}

fn slurm_runs() {
    let stage = Stage::new("slurm");
    slurm_run(&stage, "2")
        .assert_code(0)
        .assert_says("one task for each of 2 node(s); starting: srun --nodes=2");
    let log = fs::read_to_string(stage.path("out/engine.log")).unwrap();
    assert!(
        log.contains("SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=2"),
        "{log}"
    );
    assert_column(&stage, "slurm");
}

fn slurm_is_small() {
    let stage = Stage::new("slurm-small");
    slurm_run(&stage, "1")
        .assert_code(2)
        .assert_says("the allocation has 1 node(s), and --nodes asks for 2");
}

/// Runs under mpirun, which is given these options.
fn mpi_run(stage: &Stage, options: &str, prepare: impl Fn(&mut Command)) -> Ran {
    let case = stage.write("sizes.yaml", SIZES);
    let arguments = [
        case.as_str(),
        "--driver",
        DRIVER,
        "--launcher",
        "mpi",
        "--launcher-options",
        options,
    ];
    engine_run(stage, &[], &arguments, prepare)
}

fn mpi_runs(name: &str, prepare: impl Fn(&mut Command)) {
    let stage = Stage::new(name);
    let ran = mpi_run(&stage, "--host localhost:2", prepare);
    ran.assert_code(0).assert_says("`mpirun --version` says");
    let log = fs::read_to_string(stage.path("out/engine.log")).unwrap();
    assert!(log.contains("=1, ") && log.contains("_SIZE=2"), "{log}");
    assert_column(&stage, "mpi");
}

/// What mpirun complains of is the reason why nothing was run.
fn mpi_fails() {
    let stage = Stage::new("mpi-fails");
    let ran = mpi_run(&stage, "--no-such-option", |_| ());
    ran.assert_code(4)
        .assert_says("2 of 2 nodes did not come: mpirun ended (exit status: ");
}

fn no_engine() {
    let stage = Stage::new("no-engine");
    let case = stage.write("sizes.yaml", SIZES);
    let out = stage.out().display().to_string();
    let mut command = stage.command(&[
        "run",
        &case,
        "--driver",
        DRIVER,
        "--launcher",
        "slurm",
        "--out",
        &out,
    ]);
    command.env_remove("SLURM_JOB_ID");
    let ran = stage.start(command).end();
    ran.assert_code(2)
        .assert_says("SLURM_JOB_ID is not set")
        .assert_says("hint: salloc --nodes=1 allranks run ...");
    let planned = stage.run(&[
        "plan",
        &case,
        "--driver",
        DRIVER,
        "--launcher",
        "attached",
        "--nodes",
        "2",
    ]);
    planned.assert_code(0);
    assert!(
        planned
            .stdout
            .contains("sizes@cpu.gloo.ws3.nodes-2  6 checks on 2 node(s) (2+1 ranks)"),
        "{}",
        planned.stdout
    );
    assert!(
        planned
            .stdout
            .contains("needs 2 ranks or more, one for each node"),
        "{}",
        planned.stdout
    );
}
