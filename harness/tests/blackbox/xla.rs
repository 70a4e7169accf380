//! PyTorch/XLA on its CPU device, where `ci/setup --with xla` has made its environment.

use std::path::{Path, PathBuf};

use super::stage::Stage;
use super::{Test, with_xla};
use allranks::judge::Verdict;

/// All of them.
pub fn tests() -> Vec<Test> {
    vec![with_xla("xla::profile", profile)]
}

/// The Python that has torch_xla, if there is one: `$ALLRANKS_PYTHON_XLA`, or that of `.venv-xla`.
pub fn python() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("ALLRANKS_PYTHON_XLA") {
        return Some(named.into());
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv-xla/bin/python");
    own.exists().then_some(own)
}

/// One process computes rightly; two that do not know of each other are found out.
fn profile() {
    let stage = Stage::new("xla");
    let Some(python) = python() else {
        panic!("this trial needs torch_xla");
    };
    let python = python.display().to_string();
    let run = ["--profile", "xla", "--platform", "xla", "--python", &python];
    stage.run_out(&run).assert_code(0);
    let results = stage.results("out");
    let sum_of = |size: u32| {
        let id = format!("collectives/smoke@xla.xla.ws{size}#0.all_reduce.float32.sum.33");
        let check = results.checks.iter().find(|check| check.id.0 == id);
        check.map(|check| (check.verdict, check.class.clone()))
    };
    assert_eq!(sum_of(1), Some((Verdict::Expected, None)));
    assert_eq!(
        sum_of(2),
        Some((Verdict::KnownFailure, Some("no-op".into())))
    );
}
