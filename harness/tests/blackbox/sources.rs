//! Receives without a source: what a platform file declares of them is compared with what the backend does.

use allranks_model::outcome::{Outcome, Verdict};

use super::stage::{Stage, check};
use super::{Test, with_torch};

/// Gloo, with what a test declares of sources in place of SOURCES and a module of its own.
const PLATFORM: &str = "\
name: told
device_type: cpu
evidence: host
python_path: [lib]
import: [told_sources]
start: fork
backends:
  gloo:
    supports:
      - ops: [barrier, all_reduce]
      - {ops: [send_recv, isend_irecv], pairs: [ring, all]SOURCES}
";

/// Has Gloo refuse receives without a source.
const REFUSES: &str = r#"
import torch.distributed as dist

def refusing(receive):
    def call(tensor, src=None, group=None, tag=0, group_src=None):
        if src is None and group_src is None:
            raise RuntimeError("receives without a source are not supported")
        return receive(tensor, src, group, tag, group_src)
    return call

for name in ("recv", "irecv"):
    changed = refusing(getattr(dist, name))
    setattr(dist, name, changed)
    setattr(dist.distributed_c10d, name, changed)
"#;

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    vec![
        with_torch("sources::refused_as_declared", refused_as_declared),
        with_torch("sources::refused_and_declared", refused_and_declared),
        with_torch("sources::taken_and_not_declared", taken_and_not_declared),
    ]
}

/// Runs cases in a world of two on Gloo with this module and this declaration. Returns the exit code.
fn run(stage: &Stage, module: &str, sources: &str, cases: &[&str]) -> i32 {
    stage.write("lib/told_sources.py", module);
    let file = stage.write("told.yaml", &PLATFORM.replace("SOURCES", sources));
    let mut arguments = cases.to_vec();
    arguments.extend([
        "--platforms",
        &file,
        "--platform",
        "told",
        "--world-size",
        "2",
    ]);
    stage.run_out(&arguments).code
}

/// The refusal is seen, and nothing that needs a receive without a source is there.
fn refused_as_declared() {
    let stage = Stage::new("refused");
    let cases = [
        "cases/p2p/any_source.yaml",
        "cases/p2p/named_source.yaml",
        "cases/p2p/objects.yaml",
    ];
    assert_eq!(run(&stage, REFUSES, ", sources: named", &cases), 0);
    let results = stage.results("out");
    let refused = check(&results, "p2p/named_source@told.gloo.ws2#0.script.refused");
    assert_eq!(refused.outcome, Outcome::Unsupported, "{refused:?}");
    assert_eq!(refused.verdict, Verdict::Expected, "{refused:?}");
    let scenario = results.scenarios.iter();
    let mut scenario = scenario.filter(|one| one.case.as_str() == "p2p/named_source");
    assert_eq!(
        scenario.next().unwrap().worlds,
        1,
        "a refusal costs no world"
    );
    let needs_any = |id: &str| id.contains("any_source") || id.contains("without-a-source");
    let mut ids = results.checks.iter().map(|check| check.id.as_str());
    assert!(!ids.any(|id| needs_any(id) && id.contains(".script.")));
}

/// A backend that refuses what its platform file declares fails.
fn refused_and_declared() {
    let stage = Stage::new("declared");
    let case = stage.write(
        "any.yaml",
        "id: any\ntitle: any source\ncovers: [P2P-004]\nworld: {size: 2, timeout_s: 4, deadline_s: 25}\n\
         steps:\n  - script:\n      name: one\n      messages: {m: {from: last, to: first}}\n      \
         moves:\n        - send: {message: m}\n        - recv: {message: m, any_source: true}\n",
    );
    assert_eq!(run(&stage, REFUSES, "", &[&case]), 1);
    let results = stage.results("out");
    let one = check(&results, "any@told.gloo.ws2#0.script.one");
    assert_eq!(one.verdict, Verdict::Regression, "{one:?}");
    assert_eq!(one.outcome, Outcome::Error, "{one:?}");
}

/// A backend that takes what its platform file does not declare fails.
fn taken_and_not_declared() {
    let stage = Stage::new("taken");
    let case = "cases/p2p/named_source.yaml";
    assert_eq!(run(&stage, "", ", sources: named", &[case]), 1);
    let results = stage.results("out");
    let taken = check(&results, "p2p/named_source@told.gloo.ws2#0.script.refused");
    assert_eq!(taken.verdict, Verdict::Regression, "{taken:?}");
    assert_eq!(taken.class.as_deref(), Some("any-source-not-refused"));
}
