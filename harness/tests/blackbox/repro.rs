//! `allranks repro`: its scripts under plain `torchrun`. They fail where the suite fails, pass where it passes, and fail
//! where the backend is broken.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use allranks::judge::{Expectations, Outcome};
use allranks::plan::{Declared, Selection, Target, plan};
use allranks::platform;
use allranks::repro::{Ended, Notes, Subject, script, trial};
use allranks::{case, world};

use super::stage::{Ran, Stage, checkout};
use super::{Test, slow, with_torch};

/// All of them.
pub fn tests() -> Vec<Test> {
    let passing = [
        ("sum", "float32", "all_reduce.float32.sum.5"),
        ("refusal", "int16", "all_reduce.int16.sum.5"),
    ];
    let mut tests = vec![
        with_torch("repro::known_failures_fail", known_failures),
        with_torch("repro::a_wrong_result_fails", wrong),
        with_torch("repro::a_hang_fails", hang),
        slow("repro::every_kind_of_check", every_kind),
    ];
    tests.extend(passing.map(|(name, dtype, check)| {
        with_torch(format!("repro::passes::{name}"), move || {
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

fn world_size(file: &str) -> usize {
    let text = fs::read_to_string(file).unwrap();
    let (_, rest) = text.split_once("--nproc-per-node ").unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// Runs a script as its header says; `patch` is Python that every process runs first.
fn torchrun(stage: &Stage, file: &str, patch: Option<&str>) -> Ran {
    let port = world::lease_port().unwrap();
    let mut command = Command::new(platform::python(None).path);
    command.args(["-m", "torch.distributed.run", "--nproc-per-node"]);
    command.arg(world_size(file).to_string());
    command.args(["--master-port", &port.port.to_string(), file]);
    command.env("RES_OPTIONS", "attempts:0");
    if let Some(patch) = patch {
        let patched = stage.write("patch/sitecustomize.py", patch);
        command.env("PYTHONPATH", Path::new(&patched).parent().unwrap());
    }
    stage.start(stage.marked(command)).end()
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
        let ran = torchrun(&stage, file, None);
        let told = format!("{file}\n{}\n{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, 1, "{told}");
        let words = match entry.outcomes[0] {
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
        if let Some(text) = entry.message.as_ref() {
            assert!(told.contains(text.as_str()), "{told}");
        }
        seen += 1;
    }
    assert!(seen > 0, "no known failure was written:\n{}", ran.stdout);
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
            "import os, time\nimport torch.distributed as dist\ngenuine = dist.all_reduce\n\
             def all_reduce(*args, **kwargs):\n    if os.environ.get('RANK') == '1':\n        time.sleep(600)\n    \
             return genuine(*args, **kwargs)\ndist.all_reduce = all_reduce\n",
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
    let python = platform::python(None).path;
    let platforms = platform::load(&[checkout().join("fixtures/platforms/cpu.yaml")]).unwrap();
    let probed = platform::probe(&python, &platforms[0]);
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
            let kind = (
                (check.op, check.layout, check.mode, check.placement),
                (
                    check.splits.clone(),
                    check.pairs,
                    check.object,
                    check.peer_by,
                ),
                (
                    check.group.name == "world",
                    check.declared == Declared::Supported,
                ),
                scenario.init.method,
            );
            if !kinds.insert(kind) {
                continue;
            }
            let subject = Subject {
                scenario,
                check: Some(check),
                seed: 1,
            };
            let text = script(&subject, &Notes::default()).unwrap();
            let port = world::lease_port().unwrap();
            let ended = trial(&python, &text, scenario.world_size, port.port, 60.0).unwrap();
            let fails = known
                .find(&allranks::run::point(scenario, &torch, check))
                .is_some_and(|entry| !entry.intermittent);
            if (ended == Ended::AsExpected) == fails {
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
