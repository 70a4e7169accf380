//! Real Gloo worlds with a fault in one rank: what is said of it, and that it spoils nothing else.

use allranks_model::outcome::Outcome;

use super::stage::{Stage, assert_reported};
use super::{Test, with_torch};

const PLATFORM: &str = "harness/tests/blackbox/faulty/faulty.yaml";

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    vec![
        with_torch("fault::a_rank_hangs", || {
            let told = fault("sleep", Outcome::Hang, "no rank moved for 8.");
            for rank in [
                "rank 0: in all_reduce of 1.all_reduce",
                "rank 1: in all_reduce of 1.all_reduce",
                "flight recorder of rank 0: all_reduce number ",
            ] {
                assert!(told.contains(rank), "{told}");
            }
        }),
        with_torch("fault::a_rank_is_killed", || {
            fault(
                "die",
                Outcome::Crash,
                "rank 1: its process ended: signal 9 (SIGKILL)",
            );
        }),
        with_torch("fault::a_rank_raises", || {
            let told = fault(
                "raise",
                Outcome::Error,
                "1 of 2 ranks raised RuntimeError: a fault of the test",
            );
            assert!(
                told.contains("rank 0: in all_reduce of 3.all_reduce"),
                "{told}"
            );
        }),
        with_torch("fault::fresh_processes", fresh),
    ]
}

fn case(name: &str, fault: &str) -> String {
    // The library's own timeout is longer than the deadline only where the deadline must come first.
    let timeout = if fault == "die" { 5 } else { 600 };
    let mut steps = [
        "all_reduce: {numel: 5}",
        "all_reduce: {numel: 7}",
        "all_reduce: {numel: 9}",
        "broadcast: {numel: 7}",
    ];
    if fault == "raise" {
        // Last: a rank that raises goes on to the next step, and its peers would meet it there.
        steps.rotate_left(2);
    }
    let steps = steps.join("\n  - ");
    format!(
        "id: {name}\ntitle: a fault in the sum of seven\ncovers: [COLL-001]\n\
         world: {{platform: faulty, size: 2, timeout_s: {timeout}, deadline_s: 8, env: {{FAULT: {fault}}}}}\n\
         steps:\n  - {steps}\n"
    )
}

/// A case with the fault and one without, side by side; what was told of the fault.
fn fault(fault: &str, outcome: Outcome, words: &str) -> String {
    let stage = Stage::new(fault);
    let faulty = stage.write("faulty.yaml", &case("faulty", fault));
    let sound = stage.write("sound.yaml", &case("sound", "none"));
    let arguments = [
        &faulty,
        &sound,
        "--platforms",
        PLATFORM,
        "--ranks-at-once",
        "2",
    ];
    stage.run_out(&arguments).assert_code(1);
    let results = stage.results("out");
    assert_reported(&results);
    let spoilt = results.checks.iter().find(|check| {
        check.id.as_str().starts_with("faulty@")
            && check.id.as_str().ends_with("all_reduce.float32.sum.7")
    });
    let spoilt = spoilt.unwrap();
    for check in &results.checks {
        let is_spoilt = check.id == spoilt.id;
        let expected = if is_spoilt { outcome } else { Outcome::Pass };
        assert_eq!(check.outcome, expected, "{}: {}", check.id, check.summary);
    }
    for scenario in &results.scenarios {
        let worlds = if scenario.id.as_str().starts_with("faulty") {
            2
        } else {
            1
        };
        assert_eq!(scenario.worlds, worlds, "{}", scenario.id);
    }
    let mut told = spoilt.summary.clone();
    for line in &spoilt.ranks {
        told.push_str(&format!("\nrank {}: {}", line.rank, line.text));
    }
    let evidence = spoilt.diagnosis.iter().flat_map(|told| &told.evidence);
    for line in evidence {
        told.push_str(&format!("\nwhy: {line}"));
    }
    assert!(told.contains(words), "{told}");
    told
}

/// Where forking is unsafe, every rank is a process that imports torch for itself.
fn fresh() {
    let stage = Stage::new("fresh");
    let platform = std::fs::read_to_string(super::stage::checkout().join(PLATFORM)).unwrap();
    let platform = platform
        .replace("name: faulty", "name: fresh")
        .replace("start: fork", "start: fresh")
        .replace("python_path: [.]\nimport: [faults]\n", "");
    let platform = stage.write("fresh.yaml", &platform);
    let case = case("sound", "none")
        .replace("platform: faulty", "platform: fresh")
        .replace("deadline_s: 8", "deadline_s: 120");
    let case = stage.write("sound.yaml", &case);
    stage
        .run_out(&[&case, "--platforms", &platform])
        .assert_code(0);
    assert_reported(&stage.results("out"));
}
