//! Faults of fleets: each befalls one of several hosts, which are network namespaces, and each has its outcome. And cases that say on
//! how many nodes they are.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use allranks_model::outcome::Outcome;
use allranks_runner::probe;

use super::nodes::{
    DRIVER, MANY, SIZES, agents, no_filters, no_hosts, no_mpi, no_mpich, slurm_command, start,
    use_mpich,
};
use super::stage::{Ran, Stage, assert_reported, checkout};
use super::{Test, plain, unless_lacking, with_torch};

/// What befalls host h2 before `allranks doctor --fleet` looks at three hosts, and what it must say.
struct FaultBeforeDoctor {
    fault: &'static str,
    hosts: &'static str,
    code: i32,
    /// The finding, and what it must say; none: no finding of a host or a pair.
    finding: Option<(&'static str, &'static str)>,
}

const FAULTS_BEFORE_DOCTOR: [FaultBeforeDoctor; 10] = [
    FaultBeforeDoctor {
        fault: "none",
        hosts: "3",
        code: 0,
        finding: None,
    },
    FaultBeforeDoctor {
        fault: "loopback",
        hosts: "2",
        code: 0,
        finding: Some((
            "fleet-name-loopback",
            "on h2 the host's own name stands for a loopback address",
        )),
    },
    FaultBeforeDoctor {
        fault: "torch",
        hosts: "3",
        code: 1,
        finding: Some(("fleet-torch-differs", "1.0.0 on h2")),
    },
    FaultBeforeDoctor {
        fault: "small",
        hosts: "2",
        code: 0,
        finding: Some(("fleet-shm", "/dev/shm of h2 has 1 MiB free")),
    },
    FaultBeforeDoctor {
        fault: "into",
        hosts: "3",
        code: 1,
        finding: Some(("fleet-unreachable", "no other host reaches h2")),
    },
    FaultBeforeDoctor {
        fault: "one-way",
        hosts: "3",
        code: 1,
        finding: Some(("fleet-unreachable", "h1 does not reach h2")),
    },
    FaultBeforeDoctor {
        fault: "pair",
        hosts: "3",
        code: 1,
        finding: Some(("fleet-unreachable", "h1 and h2 do not reach each other")),
    },
    FaultBeforeDoctor {
        // They reach each other where ranks meet.
        fault: "data",
        hosts: "3",
        code: 1,
        finding: Some(("fleet-unreachable", "h1 and h2 do not reach each other")),
    },
    FaultBeforeDoctor {
        // Connections are made, and what is sent over them does not arrive.
        fault: "mtu",
        hosts: "3",
        code: 1,
        finding: Some(("fleet-unreachable", "no other host reaches h2")),
    },
    FaultBeforeDoctor {
        fault: "slow",
        hosts: "3",
        code: 0,
        finding: Some(("slow-link", "h2")),
    },
];

/// What befalls host h2 of two in the middle of a run, and what the run must make of it.
struct FaultDuringRun {
    fault: &'static str,
    /// Seconds without a byte after which a node is lost.
    lost_after: &'static str,
    /// Exit codes of the run and of the agents.
    codes: &'static str,
    /// What the reason of what was not run has; none: everything passes.
    reason: Option<&'static str>,
}

const FAULTS_DURING_RUN: [FaultDuringRun; 6] = [
    FaultDuringRun {
        fault: "slow",
        lost_after: "10",
        codes: "codes 0 0 0\n",
        reason: None,
    },
    FaultDuringRun {
        fault: "link",
        lost_after: "4",
        codes: "codes 4 0 10\n",
        reason: Some("node h2 was lost: nothing came for 4 s"),
    },
    FaultDuringRun {
        fault: "back",
        lost_after: "60",
        codes: "codes 0 0 0\n",
        reason: None,
    },
    FaultDuringRun {
        fault: "drops",
        lost_after: "60",
        codes: "codes 0 0 0\n",
        reason: None,
    },
    FaultDuringRun {
        fault: "agent",
        lost_after: "10",
        codes: "codes 4 0 137\n",
        reason: Some("node h2 was lost: "),
    },
    FaultDuringRun {
        fault: "gone",
        lost_after: "4",
        codes: "codes 4 0 137\n",
        reason: Some("node h2 was lost: "),
    },
];

/// Which connections h2 does not let in from the start, and what is said of the two hosts that do not reach each other.
struct Filtered {
    fault: &'static str,
    hosts: &'static str,
    says: &'static [&'static str],
}

const FILTERED: [Filtered; 3] = [
    Filtered {
        // The ports of backends' own listeners.
        fault: "data",
        hosts: "2",
        says: &["port ", ": no answer for 5 s, while port ", " answers"],
    },
    Filtered {
        fault: "rendezvous",
        hosts: "2",
        says: &["port ", ": no answer for 5 s, while port ", " answers"],
    },
    Filtered {
        // The world has a rendezvous, and the backend then fails.
        fault: "others",
        hosts: "3",
        says: &["does not reach node h", "no answer for 5 s"],
    },
];

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let (hosts, filters) = (no_hosts(), no_filters());
    let mut tests = vec![
        plain("fleet::a_case_says_on_how_many_nodes", placed),
        with_torch("fleet::two_agents_of_torchrun", torchrun),
        unless_lacking(
            no_mpi(),
            with_torch("fleet::programs_under_mpi", || {
                mpi("mpi", "Open MPI (OMPI_COMM_WORLD_RANK, ", |_| ());
            }),
        ),
        unless_lacking(
            no_mpich(),
            with_torch("fleet::programs_under_mpich", || {
                mpi("mpich", "PMI (PMI_RANK, ", use_mpich);
            }),
        ),
        unless_lacking(
            super::nodes::no_slurm(),
            with_torch("fleet::programs_under_slurm", slurm),
        ),
        unless_lacking(
            hosts.clone().or_else(no_mpi),
            with_torch("fleet::hosts_under_mpi", || under_engine("mpi")),
        ),
        unless_lacking(
            no_hosts_of_root().or_else(super::nodes::no_slurm),
            with_torch("fleet::hosts_under_slurm", || under_engine("slurm")),
        ),
        plain("fleet::torchrun_starts_agents", starts_of_torchrun),
        plain("fleet::kubernetes_gets_manifests", kubernetes),
    ];
    tests.extend(FAULTS_BEFORE_DOCTOR.into_iter().map(|sick| {
        let name = format!("fleet::doctor::{}", sick.fault);
        let lacks = match sick.fault {
            "into" | "one-way" | "pair" | "data" => &filters,
            _ => &hosts,
        };
        unless_lacking(lacks.clone(), plain(name, move || doctor(&sick)))
    }));
    tests.extend(FILTERED.into_iter().map(|filtered| {
        let name = format!("fleet::filtered::{}", filtered.fault);
        let trial = with_torch(name, move || unreached(&filtered));
        unless_lacking(filters.clone(), trial)
    }));
    tests.extend(FAULTS_DURING_RUN.into_iter().map(|hit| {
        let name = format!("fleet::run::{}", hit.fault);
        unless_lacking(hosts.clone(), plain(name, move || run(&hit)))
    }));
    tests
}

/// Network namespaces outside of a user namespace stand for hosts.
fn no_hosts_of_root() -> Option<super::Lack> {
    let link = "ip link add one type veth peer name two";
    let words = ["--net", "--mount", "--uts", "sh", "-c", link];
    super::nodes::lack("network namespaces of root", "unshare", &words)
}

/// The Python of this machine, whether it has torch or not.
fn python() -> PathBuf {
    let found = probe::python(None).path;
    match found.is_file() {
        true => std::path::absolute(&found).unwrap(),
        false => found,
    }
}

/// Runs a command of allranks beside hosts; returns how the script went, and what command and agents said.
fn on_hosts(stage: &Stage, count: &str, fault: &str, words: &[&str]) -> (Ran, String) {
    let temporary = stage.path("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        "--uts",
        "sh",
    ]);
    command.arg(checkout().join("harness/tests/blackbox/hosts/fleet.sh"));
    command
        .arg(env!("CARGO_BIN_EXE_allranks"))
        .arg(stage.out())
        .args([count, fault])
        .args(words)
        .env("ALLRANKS_PYTHON", python())
        .env("TMPDIR", temporary);
    let ran = stage.start(stage.marked(command)).end();
    stage.assert_nothing_remains();
    let files = ["out.stderr", "out.h1", "out.h2"];
    let said = files.map(|name| fs::read_to_string(stage.path(name)).unwrap_or_default());
    (ran, said.join("\n"))
}

/// Gloo on two hosts whose agents an engine starts.
fn under_engine(engine: &str) {
    let stage = Stage::new(&format!("fleet-hosts-{engine}"));
    let temporary = stage.path("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let mut command = Command::new("unshare");
    // Slurm's daemons drop groups, which nobody may in a user namespace.
    if engine != "slurm" {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "--uts", "sh"]);
    command.arg(checkout().join("harness/tests/blackbox/hosts/engine.sh"));
    command
        .arg(env!("CARGO_BIN_EXE_allranks"))
        .arg(stage.out())
        .arg(engine)
        .args(["cases/collectives/smoke.yaml", "--platform", "cpu"])
        .args(["--world-size", "2,4", "--require", "nodes=2"])
        .env("TMPDIR", temporary)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let ran = stage.start(stage.marked(command)).end();
    programs(&stage, &ran, engine, 2, 2);
    ran.assert_says("node 1 of 2 is here: h1 at ")
        .assert_says("node 2 of 2 is here: h2 at ");
}

fn doctor(sick: &FaultBeforeDoctor) {
    let stage = Stage::new(&format!("fleet-doctor-{}", sick.fault));
    if sick.fault == "torch" {
        use std::os::unix::fs::PermissionsExt;
        // The same Python in all else.
        let python = python();
        let script = format!(
            "#!/bin/sh\nsaid=$({} \"$@\" 2>/dev/null)\necho 1.0.0\necho \"$said\" | sed -n 2p\n",
            python.display()
        );
        let path = stage.write("out.python", &script);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let words = ["doctor", "--fleet", "--json", "--patience", "60"];
    let (ran, said) = on_hosts(&stage, sick.hosts, sick.fault, &words);
    ran.assert_code(0);
    let text = fs::read_to_string(stage.path("out.stdout")).unwrap();
    let codes = ran.stdout.split_whitespace().nth(1).unwrap();
    assert_eq!(codes, sick.code.to_string(), "{said}{text}");
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    let findings = whole["findings"].as_array().unwrap();
    let of_host = |one: &&serde_json::Value| {
        // What this machine has on all of its hosts is no fault of one.
        let text = one["what"].as_str().unwrap();
        text.contains("h2") && !text.contains("h1, h2")
    };
    let found: Vec<&serde_json::Value> = findings.iter().filter(of_host).collect();
    let told = |one: &&&serde_json::Value| {
        let (id, what) = sick.finding.unwrap_or_default();
        one["id"] == id && one["what"].as_str().unwrap().contains(what)
    };
    match sick.finding {
        None => {
            let faults = findings.iter().filter(|one| one["severity"] == "fault");
            assert_eq!(faults.count(), 0, "{text}");
        }
        Some(_) => assert!(found.iter().any(|one| told(&one)), "{text}"),
    }
    // Nothing else is said to be a fault.
    let expected = usize::from(sick.code == 1);
    let faults = findings.iter().filter(|one| one["severity"] == "fault");
    assert_eq!(faults.count(), expected, "{text}");
}

fn run(hit: &FaultDuringRun) {
    let stage = Stage::new(&format!("fleet-run-{}", hit.fault));
    let case = stage.write("many.yaml", MANY);
    let words = [
        "run",
        &case,
        "--driver",
        DRIVER,
        "--repeat",
        "40",
        "--ranks-at-once",
        "2",
        "--lost-after",
        hit.lost_after,
        "--out",
        &stage.out().display().to_string(),
    ];
    let (ran, said) = on_hosts(&stage, "2", hit.fault, &words);
    ran.assert_code(0);
    assert_eq!(ran.stdout, hit.codes, "{said}");
    let results = stage.results("out");
    assert_eq!(results.missing(), 0);
    let (passed, left): (Vec<_>, Vec<_>) = results
        .checks
        .iter()
        .partition(|check| check.outcome == Outcome::Pass);
    assert!(!passed.is_empty());
    match hit.reason {
        None => assert!(left.is_empty(), "accused: {left:?}"),
        Some(reason) => {
            assert!(!left.is_empty());
            for check in left {
                assert_eq!(check.outcome, Outcome::NotRun, "accused: {check:?}");
                assert!(check.summary.contains(reason), "{check:?}");
            }
        }
    }
}

/// A backend is not blamed for hosts that do not reach each other.
fn unreached(filtered: &Filtered) {
    let stage = Stage::new(&format!("fleet-filtered-{}", filtered.fault));
    let needed = format!("nodes={}", filtered.hosts);
    let words = [
        "run",
        "cases/collectives/smoke.yaml",
        "--platform",
        "cpu",
        "--world-size",
        filtered.hosts,
        "--require",
        &needed,
        "--out",
        &stage.out().display().to_string(),
    ];
    let (ran, said) = on_hosts(&stage, filtered.hosts, filtered.fault, &words);
    ran.assert_code(0);
    let codes = ran.stdout.split_whitespace().nth(1);
    assert_eq!(codes, Some("4"), "{said}");
    let results = stage.results("out");
    assert_eq!(results.missing(), 0);
    for check in results.checks {
        assert_eq!(check.outcome, Outcome::NotRun, "accused: {check:?}");
        for says in filtered.says {
            assert!(check.summary.contains(says), "{check:?}");
        }
    }
}

fn placed() {
    let stage = Stage::new("placed");
    let nodes = SIZES.replace("size: [1, 2, 3]", "size: 4, nodes: [1, 2]");
    let case = stage.write("sizes.yaml", &nodes);
    let uneven = SIZES
        .replace("id: sizes", "id: uneven")
        .replace("size: [1, 2, 3]", "size: 4, placement: [3, 1]");
    let uneven = stage.write("uneven.yaml", &uneven);
    let run = start(
        &stage,
        &[&case, &uneven, "--driver", DRIVER, "--require", "nodes=2"],
    );
    let nodes = agents(&stage);
    run.end().assert_code(0);
    for node in nodes {
        node.end().assert_code(0);
    }
    stage.assert_nothing_remains();
    let results = stage.results("out");
    assert_reported(&results);
    let mut scenarios: Vec<(&str, u32)> = results
        .scenarios
        .iter()
        .map(|one| (one.id.as_str(), one.column.nodes))
        .collect();
    scenarios.sort_unstable();
    assert_eq!(
        scenarios,
        [
            ("sizes@cpu.gloo.ws4", 1),
            ("sizes@cpu.gloo.ws4.nodes-2", 2),
            ("uneven@cpu.gloo.ws4.placement-3-1", 2)
        ]
    );
    // Without nodes it is said why, and `--require` makes a failure of it.
    let alone = Stage::new("not-placed");
    let ran = alone.run_out(&[&case, &uneven, "--driver", DRIVER]);
    ran.assert_code(0)
        .assert_says("not run: 2 scenario(s): needs 2 nodes; `--launcher attached --nodes 2`");
    let again = Stage::new("not-placed-required");
    let ran = again.run_out(&[&case, "--driver", DRIVER, "--require", "nodes=2"]);
    ran.assert_code(4);
    let stdout = &ran.stdout;
    assert!(stdout.contains("`nodes=2` is required"), "{stdout}");
}

/// Runs cases of the suite by their ids, all of which must be as expected on this many nodes.
fn programs(stage: &Stage, ran: &Ran, launcher: &str, nodes: u32, count: usize) {
    ran.assert_code(0);
    stage.assert_nothing_remains();
    let results = stage.results("out");
    assert_reported(&results);
    assert_eq!(results.scenarios.len(), count, "{}", ran.stderr);
    for scenario in &results.scenarios {
        let column = &scenario.column;
        assert_eq!((column.launcher.as_str(), column.nodes), (launcher, nodes));
    }
}

fn torchrun() {
    let stage = Stage::new("fleet-torchrun");
    let ran = stage.run_out(&["cases/fleet/two_nodes_of_four.yaml", "--platform", "cpu"]);
    programs(&stage, &ran, "torchrun", 2, 1);
    let stage = Stage::new("fleet-torchrun-trap");
    let ran = stage.run_out(&[
        "cases/fleet/dialects/torchrun_node_as_rank.yaml",
        "--platform",
        "cpu",
    ]);
    programs(&stage, &ran, "torchrun", 1, 1);
}

fn mpi(name: &str, variables: &str, prepare: impl Fn(&mut Command)) {
    let stage = Stage::new(&format!("fleet-{name}"));
    let out = stage.out().display().to_string();
    let mut command = stage.command(&[
        "run",
        "cases/fleet/dialects/open_mpi.yaml",
        "cases/fleet/dialects/open_mpi_node_rank_as_node.yaml",
        "cases/fleet/dialects/worlds_of_one.yaml",
        "--platform",
        "cpu",
        "--out",
        &out,
    ]);
    // Open MPI asks for this where tests run in a container.
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    prepare(&mut command);
    let ran = stage.start(command).end();
    ran.assert_says(&format!(
        "under mpi, ranks of programs take their rank and sizes from the variables of {variables}"
    ));
    programs(&stage, &ran, "mpi", 1, 4);
}

fn slurm() {
    let stage = Stage::new("fleet-slurm");
    let out = stage.out().display().to_string();
    let words = [
        env!("CARGO_BIN_EXE_allranks"),
        "run",
        "cases/fleet/dialects/slurm.yaml",
        "--platform",
        "cpu",
        "--out",
        &out,
    ];
    let ran = stage.start(slurm_command(&stage, "2", &words)).end();
    ran.assert_says(
        "under slurm, ranks of programs take their rank and sizes from the variables of Slurm",
    );
    programs(&stage, &ran, "slurm", 2, 1);
}

/// What torchrun does with an agent: it tells it its number in RANK.
fn starts_of_torchrun() {
    let stage = Stage::new("starts-of-torchrun");
    let case = stage.write("sizes.yaml", SIZES);
    let arguments = [
        &case,
        "--driver",
        DRIVER,
        "--launcher",
        "torchrun",
        "--nodes",
        "2",
    ];
    let run = stage.start_run(&arguments);
    let credentials = stage.path("out/credentials.json");
    stage.wait("the run listens", || {
        !fs::read(&credentials).unwrap_or_default().is_empty()
    });
    let path = credentials.display().to_string();
    let agents = ["1", "0"].map(|rank| {
        let mut command = stage.command(&["node", "--credentials", &path]);
        command
            .env("TMPDIR", stage.path("tmp"))
            .env("RANK", rank)
            .env("WORLD_SIZE", "2")
            .env("LOCAL_RANK", "0")
            .env("TORCHELASTIC_RUN_ID", "x");
        stage.start(command)
    });
    run.end().assert_code(0).assert_says(
        "on each host run: torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d",
    );
    for (agent, rank) in agents.into_iter().zip(["1", "0"]) {
        let said = format!("RANK={rank}, WORLD_SIZE=2");
        agent.end().assert_code(0).assert_says(&said);
    }
    stage.assert_nothing_remains();
    let column = &stage.results("out").scenarios[0].column;
    assert_eq!((column.launcher.as_str(), column.nodes), ("torchrun", 2));
}

fn kubernetes() {
    let stage = Stage::new("kubernetes");
    let case = stage.write("sizes.yaml", SIZES);
    let arguments = [
        &case,
        "--driver",
        DRIVER,
        "--launcher",
        "kubernetes",
        "--nodes",
        "2",
        "--launcher-options",
        "image=r.example/allranks:1",
    ];
    let run = stage.start_run(&arguments);
    let credentials = stage.path("out/credentials.json");
    stage.wait("the run listens", || {
        !fs::read(&credentials).unwrap_or_default().is_empty()
    });
    let secret = fs::read_to_string(&credentials).unwrap();
    // What a Pod of the Job has: the credentials in a variable, and its index.
    let agents = ["0", "1"].map(|index| {
        let mut command = stage.command(&["node"]);
        command
            .env("TMPDIR", stage.path("tmp"))
            .env("ALLRANKS_CREDENTIALS", &secret)
            .env("ALLRANKS_NODES", "2")
            .env("JOB_COMPLETION_INDEX", index);
        stage.start(command)
    });
    run.end()
        .assert_code(0)
        .assert_says("kubectl create secret generic allranks-out '--from-file=credentials.json=");
    for agent in agents {
        agent.end().assert_code(0);
    }
    stage.assert_nothing_remains();
    let token = serde_json::from_str::<serde_json::Value>(&secret).unwrap();
    let token = token["token"].as_str().unwrap().to_owned();
    for name in ["job.yaml", "jobset.yaml", "trainjob.yaml"] {
        let text = fs::read_to_string(stage.path("out/kubernetes").join(name)).unwrap();
        assert!(text.contains("r.example/allranks:1"), "{text}");
        assert!(!text.contains(&token), "the secret is in {name}");
    }
    // An option that is none of Pods is refused before anything is waited for.
    let refused = Stage::new("kubernetes-words");
    let mut wrong = arguments.to_vec();
    *wrong.last_mut().unwrap() = "gpus=8";
    refused
        .run_out(&wrong)
        .assert_code(2)
        .assert_says("`gpus=8` is not an option for Pods");
}
