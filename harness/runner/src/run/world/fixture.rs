//! What tests of a world are made of: a scenario without files, expectations, ends.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::result::WorldResult;
use crate::world::RankExit;
use allranks_model::outcome::Outcome;
use allranks_suite::expectation::Expectations;
use allranks_suite::plan::Check;
use allranks_suite::plan::CheckKind;
use allranks_suite::plan::Scenario;
use allranks_suite::plan::Selection;
use allranks_suite::plan::Target;
use allranks_suite::plan::plan;
use allranks_yaml::Source;

/// Everything but `all_gather` is declared.
const PLATFORM: &str = "
name: cpu
device_type: cpu
evidence: host
backends:
  gloo:
    supports:
      - ops: [barrier]
      - ops: [all_reduce, all_gather_into_tensor]
        dtypes: [float32]
        reduce: [sum]
";

/// Every call that a driver of these tests has.
pub const CALLS: [&str; 18] = [
    "prepare",
    "init_process_group",
    "destroy_process_group",
    "barrier",
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "wait",
    "mark",
    "hold",
    "sleep",
    "pause",
    "die",
    "exit",
    "attempt",
    "python",
    "grow",
    "windows",
];

/// The only scenario of a case: `world` and `steps` are YAML as in a case file.
pub fn planned(world: &str, steps: &str) -> Scenario {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("case.yaml");
    let text = format!("id: case\ntitle: t\ncovers: [COLL-001]\nworld: {world}\nsteps:\n{steps}");
    std::fs::write(&file, text).unwrap();
    let library =
        allranks_suite::case::load(&[file]).unwrap_or_else(|found| panic!("{}", found[0]));
    let platform =
        allranks_suite::platform::parse(Source::new("cpu.yaml", PLATFORM), Path::new("."));
    let target = Target {
        platform: Arc::new(platform.unwrap_or_else(|found| panic!("{}", found[0]))),
        backend: "gloo".to_owned(),
        devices: None,
    };
    let mut plan = plan(&library.cases, &[target], &Selection::default());
    assert_eq!(plan.scenarios.len(), 1);
    let mut scenario = plan.scenarios.remove(0);
    // A barrier is one check for each rank that is late in it; here it is one, and none is late.
    let late = |check: &Check| check.op().and_then(|op| op.late);
    scenario
        .checks
        .retain(|check| late(check).unwrap_or(0) == 0);
    for check in &mut scenario.checks {
        if let CheckKind::Op(op) = &mut check.kind {
            op.late = None;
        }
    }
    scenario
}

/// Expectations, as in their files.
pub fn expectations(text: &str) -> Expectations {
    let source = Source::new("expectations.yaml", text);
    Expectations::parse(source).unwrap_or_else(|found| panic!("{}", found[0]))
}

/// So many milliseconds.
pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Outcomes of the checks that have a finding, by their place.
pub fn outcomes(result: &WorldResult) -> Vec<(usize, Outcome)> {
    let checks = result.checks.iter();
    checks
        .map(|(index, finding)| (*index, finding.outcome))
        .collect()
}

/// An exit with that code that left nothing behind.
pub const fn exit(code: i32) -> RankExit {
    RankExit::Exited {
        code,
        left_behind: 0,
    }
}
