//! Builds what tests of a world need without files: scenarios, expectations, exits.

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

/// A platform that declares every op but `all_gather`.
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

/// The calls of the driver in these tests.
pub const CALLS: &[&str] = &[
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

/// Plans the only scenario of a case. `world` and `steps` are YAML as in a case file.
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
    // A `barrier` makes one check for each late rank; here it makes one in which no rank is late.
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

/// Parses expectations, as in their files.
pub fn expectations(text: &str) -> Expectations {
    let source = Source::new("expectations.yaml", text);
    Expectations::parse(source).unwrap_or_else(|found| panic!("{}", found[0]))
}

/// Returns a duration of `count` milliseconds.
pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Returns the outcomes of the checks that have a result, with their indices.
pub fn outcomes(result: &WorldResult) -> Vec<(usize, Outcome)> {
    let checks = result.checks.iter();
    checks
        .map(|(index, check_result)| (*index, check_result.outcome))
        .collect()
}

/// Returns an exit with this code that left no process behind.
pub const fn exit(code: i32) -> RankExit {
    RankExit::Exited {
        code,
        left_behind: 0,
    }
}
