//! `allranks repro`: its scripts under plain `torchrun`. They fail where the suite fails, pass where it passes, and fail
//! where the backend is broken.

use allranks_runner::probe;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use allranks::repro::{Notes, Subject, TrialOutcome, reproducer, trial};
use allranks_model::capability::Declared;
use allranks_model::op_check::OpCheck;
use allranks_model::outcome::Outcome;
use allranks_runner::world;
use allranks_suite::case;
use allranks_suite::expectation::Expectations;
use allranks_suite::plan::{Selection, Target, plan};
use allranks_suite::platform;

use serde_json::Value;

use super::stage::{Ran, Stage, checkout};
use super::{Test, computing, slow};

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let passing = [
        ("sum", "float32", "all_reduce.float32.sum.5"),
        ("refusal", "int16", "all_reduce.int16.sum.5"),
    ];
    let mut tests = vec![
        slow("repro::known_failures_fail", known_failures),
        computing("repro::a_script_of_moves_fails", || {
            script_fails(
                "work/withheld@cpu.gloo.ws2#0.script.peer.reduce_scatter",
                "FAILED: work_a.is_completed(): expected True, got False",
            );
        }),
        computing("repro::what_did_not_raise_fails", || {
            script_fails(
                "p2p/wrong_size@cpu.gloo.ws2#0.script.too-large",
                "rank 1: FAILED: dist.recv: did not raise",
            );
        }),
        computing("repro::a_crash_fails", || {
            script_fails("p2p/wrong_size@cpu.gloo.ws2#1.script.too-small", "SIGABRT");
        }),
        computing("repro::a_script_of_moves_passes", || {
            let stage = Stage::new("moves");
            let ran = of_the_suite(
                &stage,
                "work/withheld@cpu.gloo.ws2#0.script.peer.all_reduce",
            );
            ran.assert_code(0);
            assert_eq!(
                ran.stdout.matches("as expected").count(),
                2,
                "{}",
                ran.stdout
            );
        }),
        computing("repro::ranks_may_die", deaths),
        computing("repro::a_wrong_result_fails", wrong),
        computing("repro::a_hang_fails", hang),
        slow("repro::mutants_fail_as_in_the_suite", mutants),
        slow("repro::every_kind_of_check", every_kind),
    ];
    tests.extend(passing.map(|(name, dtype, check)| {
        computing(format!("repro::passes::{name}"), move || {
            let stage = Stage::new("repro");
            let file = written(&stage, dtype, check);
            let ran = torchrun(&stage, &file, None);
            ran.assert_code(0);
            let votes = ran.stdout.matches("as expected").count();
            assert_eq!(votes, world_size(&file), "{}", ran.stdout);
        })
    }));
    tests
}

/// The script of a check of a small case: a sum on two ranks, which are given 25 seconds.
fn written(stage: &Stage, dtype: &str, check: &str) -> String {
    let case = stage.write(
        "sum.yaml",
        &format!(
            "id: sum\ntitle: a sum\ncovers: [COLL-001]\n\
             world: {{platform: cpu, size: 2, timeout_s: 600, deadline_s: 25}}\n\
             steps:\n  - all_reduce: {{dtype: {dtype}, numel: 5}}\n"
        ),
    );
    let file = stage.path("repro.py").display().to_string();
    let id = format!("sum@cpu.gloo.ws2#0.{check}");
    stage
        .run(&["repro", &id, "--cases", &case, "--out", &file])
        .assert_code(0);
    file
}

/// The script of a check of the suite, run as its header says.
fn of_the_suite(stage: &Stage, id: &str) -> Ran {
    let file = stage.path("repro.py").display().to_string();
    stage.run(&["repro", id, "--out", &file]).assert_code(0);
    start(stage, &file)
}

fn script_fails(id: &str, words: &str) {
    let stage = Stage::new("moves");
    let ran = of_the_suite(&stage, id);
    ran.assert_code(1);
    let told = format!("{}\n{}", ran.stdout, ran.stderr);
    assert!(told.contains(words), "{told}");
}

/// A rank that is to die does so, and the others say that all is as expected.
fn deaths() {
    let stage = Stage::new("deaths");
    let case = stage.write(
        "death.yaml",
        "id: death\ntitle: a rank dies\ncovers: [COLL-001]\n\
         world: {platform: cpu, size: 3, timeout_s: 20, deadline_s: 25}\n\
         steps:\n  - script:\n      name: late\n      afterwards: abandon\n      moves:\n        \
         - all_reduce: {with: {numel: 5}}\n        - hold: {name: met}\n          on: last\n        \
         - mark: {name: met}\n          on: all_but_last\n        - die: {signal: 9}\n          on: last\n        \
         - all_reduce: {with: {numel: 5}}\n          on: all_but_last\n          expect: {raises: \".\"}\n",
    );
    let file = stage.path("repro.py").display().to_string();
    stage
        .run(&[
            "repro",
            "death@cpu.gloo.ws3#0.script.late",
            "--cases",
            &case,
            "--out",
            &file,
        ])
        .assert_code(0);
    let ran = start(&stage, &file);
    ran.assert_code(0);
    let told = format!("{}\n{}", ran.stdout, ran.stderr);
    assert!(told.contains("rank 2: dies of signal 9"), "{told}");
    assert_eq!(told.matches("raised, as it must").count(), 2, "{told}");
    assert_eq!(told.matches(": as expected").count(), 2, "{told}");
    assert!(!told.contains("FAILED"), "{told}");
}

/// Runs a script in the way that its header names: under `torchrun`, or its ranks side by side in a shell. The exit code is
/// 1 if a rank's was.
fn start(stage: &Stage, file: &str) -> Ran {
    start_patched(stage, file, None)
}

/// Runs a script as [`start`] does; `patch` is Python that every process runs first.
fn start_patched(stage: &Stage, file: &str, patch: Option<&str>) -> Ran {
    let text = fs::read_to_string(file).unwrap();
    if text.contains("--nproc-per-node ") {
        return torchrun(stage, file, patch);
    }
    let (_, rest) = text.split_once("for r in ").unwrap();
    let ranks = rest.split(';').next().unwrap().split_whitespace();
    let (python, ports) = (probe::python(None).path, two_ports());
    let port = &ports[0];
    let (ranks, size) = (ranks.clone().collect::<Vec<_>>().join(" "), ranks.count());
    let line = format!(
        "for r in {ranks}; do ( RANK=$r LOCAL_RANK=$r WORLD_SIZE={size} MASTER_ADDR=127.0.0.1 MASTER_PORT={} '{}' '{file}'; \
         test $? = 1 && touch '{file}.failed' ) & done; wait; test ! -e '{file}.failed'",
        port.port,
        python.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("OMP_NUM_THREADS", "1");
    with_patch(stage, &mut command, patch);
    stage.start(stage.marked(command)).end()
}

/// A port and the one after it, which scripts of moves take too.
fn two_ports() -> Vec<world::PortLease> {
    let mut ports = vec![world::lease_port().unwrap()];
    loop {
        ports.push(world::lease_port().unwrap());
        let last = ports.len() - 2;
        if ports[last].port + 1 == ports[last + 1].port {
            return ports.split_off(last);
        }
    }
}

fn world_size(file: &str) -> usize {
    let text = fs::read_to_string(file).unwrap();
    let (_, rest) = text.split_once("--nproc-per-node ").unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// Runs a script as its header says; `patch` is Python that every process runs first.
fn torchrun(stage: &Stage, file: &str, patch: Option<&str>) -> Ran {
    let ports = two_ports();
    let port = &ports[0];
    let mut command = Command::new(probe::python(None).path);
    command.args(["-m", "torch.distributed.run", "--nproc-per-node"]);
    command.arg(world_size(file).to_string());
    command.args(["--master-port", &port.port.to_string(), file]);
    command.env("RES_OPTIONS", "attempts:0");
    with_patch(stage, &mut command, patch);
    stage.start(stage.marked(command)).end()
}

/// Lets every Python process of a command run `patch` first.
fn with_patch(stage: &Stage, command: &mut Command, patch: Option<&str>) {
    if let Some(patch) = patch {
        let patched = stage.write("patch/sitecustomize.py", patch);
        command.env("PYTHONPATH", Path::new(&patched).parent().unwrap());
    }
}

/// Every known failure of this torch, in the words of its kind.
fn known_failures() {
    let stage = Stage::new("known");
    let folder = stage.path("repro").display().to_string();
    let ran = stage.run(&["repro", "--known-failures", &folder]);
    ran.assert_code(0);
    let known = Expectations::load(&[checkout().join("fixtures/expectations")]).unwrap();
    let mut seen = 0;
    for line in ran.stdout.lines() {
        let Some((at, rest)) = line
            .split_once(": ")
            .filter(|(_, rest)| rest.contains(".py ("))
        else {
            continue;
        };
        let file = rest.split(" (").next().unwrap();
        let entry = known.iter().find(|entry| entry.at.ends_with(at)).unwrap();
        let ran = start(&stage, file);
        let told = format!("{file}\n{}\n{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, 1, "{told}");
        // Where several outcomes may come, any failure will do.
        let words = match entry.outcomes[0] {
            _ if entry.outcomes.len() > 1 => "",
            Outcome::Mismatch => "FAILED: ",
            Outcome::Error => "FAILED: raised",
            Outcome::Hang => "FAILED: hangs",
            Outcome::Crash => "Signal",
            Outcome::Unsupported
            | Outcome::InitFailed
            | Outcome::Pass
            | Outcome::HarnessError
            | Outcome::NotRun => "",
        };
        assert!(told.contains(words), "{told}");
        // The suite names the move of a script, and its file the line.
        let mut words = entry
            .messages
            .iter()
            .map(|message| message.strip_prefix("raised in ").unwrap_or(message));
        assert!(
            entry.messages.is_empty() || words.any(|words| told.contains(words)),
            "{told}"
        );
        seen += 1;
    }
    assert!(seen > 0, "no known failure was written:\n{}", ran.stdout);
}

/// Seeded bugs of several kinds. For those that show in no element, what the script must say.
const MUTANTS: [(&str, Option<&str>); 20] = [
    ("nan_dropped", None),
    ("sum_of_infinities_is_zero", None),
    ("inf_flushed", None),
    ("integers_saturate", None),
    ("last_two_not_written", None),
    ("uneven_offsets_from_even_splits", None),
    ("transposed_by_memory_order", None),
    ("float16_accumulated_in_bfloat16", None),
    (
        "one_before_the_start",
        Some("its storage was written to around it"),
    ),
    (
        "error_bytes_before_the_next_tensor",
        Some("its storage was written to around it"),
    ),
    (
        "gathered_objects_sorted_by_size",
        Some("rank 0: FAILED: received: expected [None, "),
    ),
    ("all_zero_splits_divide_by_zero", Some("Signal 8 (SIGFPE)")),
    ("killed_in_init", Some("Signal 7 (SIGBUS)")),
    (
        "peer_in_the_group_taken_for_global",
        Some("FAILED: raised RuntimeError"),
    ),
    (
        "async_barrier_not_waited_for",
        Some("before the last rank entered it"),
    ),
    (
        "double_init_accepted",
        Some("FAILED: init: did not raise; it must say"),
    ),
    (
        "monitored_barrier_names_no_rank",
        Some("raised RuntimeError: a rank did not come; it must say"),
    ),
    (
        "result_of_all_to_all_single_is_zeros",
        Some("expected {}, got {'all_to_all_single': [0.0, 0.0]}"),
    ),
    (
        "options_of_reduce_scatter_ignored",
        Some("expected {}, got {'reduce_scatter': [[100.0, 102.0, 104.0, 106.0]]}"),
    ),
    (
        "callback_error_of_gather_swallowed",
        Some("expected {}, got {'gather': 'the error of the callback is lost'}"),
    ),
];

/// The script of the check that kills a mutant fails on that mutant for the same reason: at the same first element of the same
/// rank, by the same signal, or in the same words.
fn mutants() {
    let stage = Stage::new("mutants");
    let out = stage.path("prove").display().to_string();
    let mut words = vec!["prove", "--panel", "none", "--out", &out];
    words.extend(MUTANTS.map(|(name, _)| name));
    stage.run(&words).assert_code(0);
    let kills = fs::read_to_string(stage.path("prove/kills.jsonl")).unwrap();
    let mut seen = 0;
    for line in kills.lines() {
        let kill: Value = serde_json::from_str(line).unwrap();
        let named = |(name, _): &&(&str, Option<&str>)| kill["name"] == *name;
        let Some((name, words)) = MUTANTS.iter().find(named) else {
            continue;
        };
        let failed = &kill["witness"];
        let file = stage.path(&format!("{name}.py")).display().to_string();
        let id = failed["check"].as_str().unwrap();
        stage.run(&["repro", id, "--out", &file]).assert_code(0);
        let patch = format!(
            "import os, sys\nif 'RANK' in os.environ:\n    sys.path.insert(0, {:?})\n    \
             os.environ['ALLRANKS_MUTANT'] = '{name}'\n    import allranks_mutants\n",
            checkout().join("fixtures/mutants")
        );
        let ran = start_patched(&stage, &file, Some(&patch));
        let told = format!("{name}, {id}: {failed}\n{}\n{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, 1, "{told}");
        let first = match (words, &failed["difference"]) {
            (Some(words), _) => (*words).to_owned(),
            (None, first) => format!(
                "rank {}: FAILED: {}[{}:], ",
                first["rank"],
                first["buffer"].as_str().unwrap(),
                first["index"]
            ),
        };
        assert!(told.contains(&first), "`{first}` is not in:\n{told}");
        seen += 1;
    }
    assert_eq!(seen, MUTANTS.len(), "{kills}");
}

/// The script of a check that passes fails if the backend does nothing.
fn wrong() {
    let stage = Stage::new("wrong");
    let file = written(&stage, "float32", "all_reduce.float32.sum.5");
    let ran = torchrun(
        &stage,
        &file,
        Some("import torch.distributed as dist\ndist.all_reduce = lambda *args, **kwargs: None\n"),
    );
    ran.assert_code(1);
    for rank in 0..2 {
        let words = format!("rank {rank}: FAILED: tensor[0:], 5 elements: expected [");
        assert!(ran.stdout.contains(&words), "{}", ran.stdout);
    }
}

/// A rank that never comes: the others say where they hang, and the world ends.
fn hang() {
    let stage = Stage::new("hang");
    let file = written(&stage, "float32", "all_reduce.float32.sum.5");
    let ran = torchrun(
        &stage,
        &file,
        Some(
            "import os, time\nimport torch.distributed as dist\noriginal = dist.all_reduce\n\
             def all_reduce(*args, **kwargs):\n    if os.environ.get('RANK') == '1':\n        time.sleep(600)\n    \
             return original(*args, **kwargs)\ndist.all_reduce = all_reduce\n",
        ),
    );
    ran.assert_code(1);
    for rank in 0..2 {
        let words = format!("rank {rank}: FAILED: hangs: still in the call after 25 s");
        assert!(
            ran.stdout.contains(&words),
            "{}\n{}",
            ran.stdout,
            ran.stderr
        );
    }
}

/// One check of every op in every layout, mode, placement, group and pattern ends as the suite says.
fn every_kind() {
    let python = probe::python(None).path;
    let platforms = platform::load(&[checkout().join("fixtures/platforms/cpu.yaml")]).unwrap();
    let probed = probe::probe(&python, &platforms[0], probe::IMPORT_PATIENCE);
    let torch = probed.torch.unwrap();
    let target = Target {
        platform: Arc::new(platforms[0].with_torch(Some(&torch))),
        backend: "gloo".to_owned(),
        devices: None,
    };
    let known = Expectations::load(&[checkout().join("fixtures/expectations")]).unwrap();
    let library = case::load(&[checkout().join("cases")]).unwrap();
    let selection = Selection {
        world_sizes: vec![3],
        ..Selection::default()
    };
    let plan = plan(&library.cases, &[target], &selection);
    let (mut kinds, mut wrong) = (BTreeSet::new(), Vec::new());
    for scenario in &plan.scenarios {
        for check in &scenario.checks {
            let op = |op: &OpCheck| {
                let axes = (op.op, op.layout, op.mode, op.placement);
                (axes, op.splits.clone(), op.pairs, op.object, op.peer_by)
            };
            let kind = (
                (check.op().map(op), check.script().is_some()),
                (
                    check.group.name == "world",
                    check.declared == Declared::Supported,
                ),
                scenario.init.method,
            );
            // Layers above c10d have no script yet.
            if check.stack().is_some() || !kinds.insert(kind) {
                continue;
            }
            let subject = Subject {
                scenario,
                check: Some(check),
                seed: 1,
            };
            let text = reproducer(&subject, &Notes::default()).unwrap();
            let port = world::lease_port().unwrap();
            let ended = trial(&python, &text, scenario.world_size, port.port, 60.0).unwrap();
            let fails = known
                .find(&allranks_suite::expectation::Point::of(
                    scenario,
                    &torch,
                    Some(check),
                ))
                .is_some_and(|entry| !entry.intermittent && entry.also_passes.is_none());
            if (ended == TrialOutcome::AsExpected) == fails {
                wrong.push(format!("{}: {ended:?}", check.id));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "of {} kinds:\n{}",
        kinds.len(),
        wrong.join("\n")
    );
}
