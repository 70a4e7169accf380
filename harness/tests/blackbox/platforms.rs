//! Platform files meet installations: a vendor's own file with simulated devices in place of the vendor's, and packages that
//! keep torch from being imported.

use allranks_model::evidence::Evidence;
use allranks_model::outcome::{Outcome, Verdict};

use super::stage::{Ran, Stage, check, checkout};
use super::{Test, plain, with_torch};

/// Platforms whose vendor's package `fixtures/sim/vendors` stands in for, with a backend of theirs.
const VENDORS: [(&str, &str); 5] = [
    ("hpu", "hccl"),
    ("mlu", "cncl"),
    ("musa", "mccl"),
    ("npu", "hccl"),
    ("tpu", "tpu_dist"),
];

/// A platform with one device.
const FEW: &str = "\
name: few
device_type: few
evidence: simulated
python_path: [lib]
count: '1'
backends: {gloo: {supports: [{ops: [barrier, all_reduce]}]}}
";

/// A torch that loads packages as the real one does, and can do nothing else.
const TORCH: &str = r#"
import os
from importlib.metadata import entry_points
__version__ = "2.11.0"
class distributed:
    is_available = staticmethod(lambda: True)
    is_backend_available = staticmethod(lambda name: name == "gloo")
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    for point in entry_points(group="torch.backends"):
        point.load()()
"#;

/// Two ranks to a device, of which there are two.
const SHARED: &str = r#"
name: shared
device_type: simxpu
evidence: simulated
import: [allranks_sim.simxpu]
python_path: [SIM]
requires: {torch: ">=2.11"}
count: "2"
set_device: torch.simxpu.set_device
ranks_per_device: 2
env: {OWN_HOST: "host-{rank}"}
backends:
  simxccl: {supports: [{ops: all_reduce}]}
"#;

/// Where each rank of such a world finds itself.
const WHERE: &str = r#"
id: where
title: each rank has its share of a device, and its own environment
covers: [COLL-001]
world: {size: [3, 4, 5]}
steps:
  - all_reduce: {numel: 33}
  - script:
      name: places
      moves:
        - python:
            run: |
              import os
              result = [os.environ["OWN_HOST"] == f"host-{rank}", device.index == rank // 2]
          expect: {value: [true, true]}
"#;

/// A package that one rank of a world takes five seconds to import.
const LAGGING: &str = r#"
import os, time
if os.environ.get("RANK") == "1":
    time.sleep(5)
"#;

/// A platform that needs it.
const LATE: &str = r#"
name: late
device_type: cpu
evidence: host
import: [lagging]
python_path: [.]
requires: {torch: ">=2.4"}
start: fork
backends:
  gloo: {supports: [{ops: all_reduce}]}
"#;

/// A world whose library waits for two seconds.
const HASTY: &str = r#"
id: hasty
title: the library's timeout does not run while a rank imports
covers: [COLL-001]
world: {size: 3, timeout_s: 2, deadline_s: 3}
steps:
  - all_reduce: {numel: 33}
"#;

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        plain("platforms::too_few_devices", too_few),
        plain("platforms::autoload", autoload),
        with_torch("platforms::autoload_of_real_torch", autoload_of_real_torch),
        with_torch("platforms::every_shape_of_a_backend", shapes),
        with_torch("platforms::right_in_c10d_and_wrong_above_it", above_c10d),
        with_torch("platforms::layers_that_need_a_device", layers_on_a_device),
        with_torch("platforms::kernels_without_a_device_are_not_run", kernels),
        with_torch("platforms::a_backend_that_does_nothing", fake),
        with_torch("platforms::ranks_that_share_devices", sharing),
        with_torch("platforms::a_rank_that_imports_slowly", lagging),
    ];
    for (platform, backend) in VENDORS {
        let name = format!("platforms::simulated_{platform}");
        tests.push(with_torch(name, move || simulated(platform, backend)));
    }
    tests
}

/// A vendor's file runs unchanged, and nothing it shows is taken for hardware.
fn simulated(platform: &str, backend: &str) {
    let stage = Stage::new("platforms");
    let out = stage.out().display().to_string();
    let mut command = stage.command(&[
        "run",
        "cases/collectives/all_reduce.yaml",
        "cases/collectives/broadcast.yaml",
        "--platform",
        platform,
        "--world-size",
        "2",
        "--filter",
        "dtype=float32",
        "--out",
        &out,
    ]);
    let sim = std::path::absolute(checkout().join("fixtures/sim")).unwrap();
    let folders = [sim.clone(), sim.join("vendors").join(platform)];
    command.env("PYTHONPATH", std::env::join_paths(folders).unwrap());
    let ran = stage.start(command).end();
    stage.assert_nothing_remains();
    let results = stage.results("out");
    assert!(
        results.scenarios.len() == 2,
        "{}\n{}",
        ran.stdout,
        ran.stderr
    );
    for check in &results.checks {
        let column = &check.column;
        assert_eq!(
            (column.platform.as_str(), column.backend.as_str()),
            (platform, backend)
        );
        assert_eq!(column.evidence, Evidence::Simulated);
        // What the vendor does not declare, Gloo does in its place.
        let fits = [Verdict::Expected, Verdict::UnexpectedPass];
        assert!(fits.contains(&check.verdict), "{check:#?}\n{}", ran.stderr);
    }
    let expected = |verdict| {
        results
            .checks
            .iter()
            .filter(|one| one.verdict == verdict)
            .count()
    };
    assert!(expected(Verdict::Expected) > 4);
    let text = std::fs::read_to_string(stage.out().join("results.jsonl")).unwrap();
    assert!(!text.contains("hardware"), "{text}");
    let said = format!("{platform}/{backend}/ws2 (simulated)");
    assert!(ran.stdout.contains(&said), "{}", ran.stdout);
}

/// A backend in each of the shapes that torch takes does what it is declared to do.
fn shapes() {
    let stage = Stage::new("platforms");
    let arguments = ["--platforms", "fixtures/backends", "--platform", "tiny"];
    let ran =
        stage.run_out(&[&arguments[..], &["--profile", "smoke", "--world-size", "2"]].concat());
    ran.assert_code(0);
    let results = stage.results("out");
    let passed = |backend: &str| {
        let passed = results
            .checks
            .iter()
            .filter(|one| one.outcome == Outcome::Pass);
        passed.filter(|one| one.column.backend == backend).count()
    };
    let all = results.checks.len() / 3;
    assert_eq!((passed("tiny"), passed("tiny_extended")), (all, all));
    // A group in Python refuses what it does not define.
    let group = passed("tiny_group");
    assert!(group > all / 2 && group < all, "{group} of {all}");
}

/// A group that passes c10d's own checks fails those of functional collectives, and not those of DDP; the same collectives
/// registered as a backend pass both. The book's page `above-c10d` tells it.
fn above_c10d() {
    let run = |filter: &str| {
        let stage = Stage::new("platforms");
        let ran = stage.run_out(&[
            "--platforms",
            "fixtures/backends",
            "--platform",
            "tiny",
            "--profile",
            "stack",
            "--world-size",
            "2",
            "--backend",
            "tiny",
            "--backend",
            "tiny_group",
            "--filter",
            filter,
        ]);
        let results = stage.results("out");
        (ran, results)
    };
    let (ran, results) = run("case=stack/functional collective=all_reduce op=sum,avg");
    ran.assert_code(1);
    let all_are = |backend: &str, outcome: Outcome| {
        let own = results
            .checks
            .iter()
            .filter(|check| check.column.backend == backend && check.id.as_str().contains("#0."));
        let outcomes: Vec<_> = own.map(|check| check.outcome).collect();
        assert!(!outcomes.is_empty(), "{}", ran.stdout);
        assert!(outcomes.iter().all(|one| *one == outcome), "{}", ran.stdout);
    };
    all_are("tiny", Outcome::Pass);
    all_are("tiny_group", Outcome::Error);
    let words = "ProcessGroup name not set";
    assert!(ran.stdout.contains(words), "{}", ran.stdout);
    let (ran, results) = run("case=stack/ddp passes=2,3");
    ran.assert_code(0);
    assert!(results.checks.len() > 4, "{}", ran.stdout);
}

/// Layers without kernels for the host are right on a simulated device that has them.
fn layers_on_a_device() {
    let stage = Stage::new("platforms");
    let ran = stage.run_out(&[
        "cases/stack/batch_norm.yaml",
        "cases/stack/context_parallel.yaml",
        "cases/stack/random_numbers.yaml",
        "--platform",
        "simgpu",
        "--world-size",
        "3",
    ]);
    ran.assert_code(0);
    let results = stage.results("out");
    assert_eq!(results.scenarios.len(), 3, "{}", ran.stdout);
    for check in &results.checks {
        assert_eq!(check.outcome, Outcome::Pass, "{check:#?}");
        assert_eq!(check.column.evidence, Evidence::Simulated);
    }
}

/// Ranks that have imported wait for those that have not, before any of them initialises.
fn lagging() {
    let stage = Stage::new("platforms");
    stage.write("lagging.py", LAGGING);
    let platform = stage.write("late.yaml", LATE);
    let case = stage.write("hasty.yaml", HASTY);
    let on = ["--platforms", &platform, "--platform", "late"];
    stage.run_out(&[&[&*case][..], &on].concat()).assert_code(0);
    let results = stage.results("out");
    let passed = results
        .checks
        .iter()
        .filter(|one| one.outcome == Outcome::Pass);
    assert_eq!(passed.count(), 3);
}

/// Worlds in which ranks share devices need as many as that takes, and each rank is told which is its own.
fn sharing() {
    let stage = Stage::new("platforms");
    let sim = std::path::absolute(checkout().join("fixtures/sim")).unwrap();
    let platform = stage.write(
        "shared.yaml",
        &SHARED.replace("SIM", &sim.to_string_lossy()),
    );
    let case = stage.write("where.yaml", WHERE);
    let on = ["--platforms", &platform, "--platform", "shared"];
    let program = "cases/programs/staged.yaml";
    let planned = stage.run(&[&["plan", &case, program][..], &on].concat());
    for words in [
        "where@shared.simxccl.ws5: needs 3 devices, found 2",
        "a program takes its local rank for its device's index",
    ] {
        assert!(planned.stdout.contains(words), "{}", planned.stdout);
    }
    let ran = stage.run_out(&[&[&*case][..], &on].concat());
    ran.assert_code(0);
    let results = stage.results("out");
    let places = |size| {
        check(
            &results,
            &format!("where@shared.simxccl.ws{size}#1.script.places"),
        )
    };
    assert_eq!([places(3).outcome, places(4).outcome], [Outcome::Pass; 2]);
    let script = stage.path("repro.py");
    let id = "where@shared.simxccl.ws4#0.all_reduce.float32.sum.33";
    let file = script.to_string_lossy();
    let mut arguments = vec!["repro", id, "--cases", &case, "--out", &file];
    arguments.extend(["--platforms", &platform]);
    let written = stage.run(&arguments);
    written.assert_code(0);
    let script = std::fs::read_to_string(&script).unwrap();
    for words in [
        "torch.device(\"simxpu\", int(os.environ[\"LOCAL_RANK\"]) // 2)",
        "\"host-{rank}\".replace(\"{rank}\", os.environ[\"RANK\"])",
    ] {
        assert!(script.contains(words), "{script}");
    }
}

/// What stands in front of a device's backend is not run where there is none, and fails if it is required.
fn kernels() {
    let stage = Stage::new("platforms");
    let mut arguments = vec!["--platforms", "fixtures/kernels"];
    arguments.extend(["--expectations", "fixtures/kernels/expectations"]);
    for kernel in ["one_shot", "two_shot", "intra_node"] {
        let required = format!("{kernel}/nccl");
        let own = ["--platform", kernel, "--require", &required];
        let cases = ["fixtures/kernels/cases", "cases/collectives/repeated.yaml"];
        let mut command = stage.command(&["run"]);
        command.args(&arguments).args(own).args(cases);
        command.arg("--out").arg(stage.path(kernel));
        command.env("CUDA_VISIBLE_DEVICES", "");
        let ran = stage.start(command).end();
        ran.assert_code(4);
        ran.assert_says(&format!(
            "`{required}` is required and was not run: 0 devices"
        ));
    }
}

/// A backend that reports success and sends nothing passes no check of content.
fn fake() {
    let stage = Stage::new("platforms");
    let arguments = ["--platforms", "fixtures/backends", "--platform", "fake"];
    let ran =
        stage.run_out(&[&arguments[..], &["--profile", "smoke", "--world-size", "2"]].concat());
    ran.assert_code(1);
    let results = stage.results("out");
    for check in &results.checks {
        let id = check.id.as_str();
        let is_frame = id.ends_with("#init") || id.ends_with("#end") || id.contains("barrier");
        assert!(is_frame || check.outcome != Outcome::Pass, "{id} passed");
    }
    let classes: Vec<_> = results
        .checks
        .iter()
        .filter_map(|one| one.class.as_deref())
        .collect();
    assert!(classes.contains(&"no-op"), "{classes:?}");
}

/// A package that torch loads by itself and that fails, in the words of `plan`, `run` and `list`.
fn autoload() {
    let stage = Stage::new("platforms");
    stage.write("lib/torch.py", TORCH);
    plant(&stage);
    let ask = |arguments: &[&str], autoload: &str| {
        let mut command = stage.command(arguments);
        command
            .env("PYTHONPATH", stage.path("lib"))
            .env("TORCH_DEVICE_BACKEND_AUTOLOAD", autoload);
        stage.start(command).end()
    };
    let case = "cases/collectives/barrier.yaml";
    let python = ["--python", "python3", "--platform", "cpu"];
    let plan = |autoload| ask(&[&["plan", case], &python[..]].concat(), autoload);
    let failed = plan("1");
    failed.assert_code(3);
    names(&failed, "python3");
    let past = plan("0");
    past.assert_code(0);
    assert!(!past.stdout.contains("not found"), "{}", past.stdout);
    stage.assert_nothing_remains();
}

fn autoload_of_real_torch() {
    let stage = Stage::new("platforms");
    plant(&stage);
    let run = |autoload: &str| {
        let out = stage.path(autoload).display().to_string();
        let mut command = stage.command(&[
            "run",
            "cases/collectives/barrier.yaml",
            "--platform",
            "cpu",
            "--world-size",
            "2",
            "--out",
            &out,
        ]);
        command
            .env("PYTHONPATH", stage.path("lib"))
            .env("TORCH_DEVICE_BACKEND_AUTOLOAD", autoload);
        stage.start(command).end()
    };
    let failed = run("1");
    failed.assert_code(3);
    names(&failed, "python");
    assert!(
        failed
            .stderr
            .contains("Failed to load the backend extension: venb")
    );
    run("0").assert_code(0);
    stage.assert_nothing_remains();
}

/// An entry point that raises.
fn plant(stage: &Stage) {
    stage.install(
        "venb",
        "def start():\n    raise OSError('libvenb.so: no such file')\n",
        "[torch.backends]\nvenb = venb:start\n",
    );
}

/// The message names the package at fault, and both ways past it.
#[track_caller]
fn names(ran: &Ran, python: &str) {
    for words in [
        "torch loads venb-wheel (entry point venb = venb:start of torch.backends) by itself",
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0 lets torch be imported without it",
        &format!("{python} -m pip uninstall venb-wheel"),
    ] {
        ran.assert_says(words);
    }
}

/// What was selected needs more devices than there are: that is said, and not that nothing was selected.
fn too_few() {
    let stage = Stage::new("few");
    stage.write("lib/torch.py", TORCH);
    let platform = stage.write("few.yaml", FEW);
    let case = "id: sum\ntitle: a sum\ncovers: [COLL-001]\nworld: {size: 2}\nsteps:\n  - all_reduce: {numel: 33}\n";
    let case = stage.write("sum.yaml", case);
    let ran = stage.run_out(&[&case, "--platforms", &platform, "--platform", "few"]);
    ran.assert_code(3)
        .assert_says("does not fit this machine: sum@few.gloo.ws2: needs 2 devices, found 1");
    assert!(
        !ran.stderr.contains("no check was selected"),
        "{}",
        ran.stderr
    );
}
