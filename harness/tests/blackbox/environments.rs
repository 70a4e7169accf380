//! What needs a Python environment of its own, where `ci/setup --with ...` has made it.

use std::path::{Path, PathBuf};

use super::stage::Stage;
use super::{Test, within};
use allranks_model::outcome::Verdict;

/// A Python environment besides the one that has torch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// PyTorch/XLA.
    Xla,
    /// Libraries of model-parallel groups.
    Layouts,
}

impl Environment {
    /// What `ci/setup --with` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xla => "xla",
            Self::Layouts => "layouts",
        }
    }

    /// Its Python, if it is there: `$ALLRANKS_PYTHON_XLA`, or that of `.venv-xla`.
    pub fn python(self) -> Option<PathBuf> {
        let name = self.name();
        if let Some(named) = std::env::var_os(format!("ALLRANKS_PYTHON_{}", name.to_uppercase())) {
            return Some(named.into());
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../.venv-{name}"));
        Some(folder.join("bin/python")).filter(|python| python.exists())
    }

    /// Runs a profile on a platform of it, which must end with code 0.
    fn run(self, profile: &str, platform: &str) -> Stage {
        let stage = Stage::new(self.name());
        let Some(python) = self.python() else {
            panic!("this trial needs `ci/setup --with {}`", self.name());
        };
        let python = python.display().to_string();
        let run = [
            "--profile",
            profile,
            "--platform",
            platform,
            "--python",
            &python,
        ];
        stage.run_out(&run).assert_code(0);
        stage
    }
}

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    vec![
        within(Environment::Xla, "environments::xla", xla),
        within(Environment::Layouts, "environments::layouts", layouts),
    ]
}

/// One process computes correctly; two that do not know of each other are detected.
fn xla() {
    let stage = Environment::Xla.run("xla", "xla");
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

/// A library whose groups are those that its degrees say passes; one that forgets an axis does not.
fn layouts() {
    let stage = Environment::Layouts.run("libraries", "model_parallel");
    let results = stage.results("out");
    let verdict_on = |script: &str| {
        let ends = format!(".script.{script}");
        let check = results
            .checks
            .iter()
            .find(|check| check.id.0.ends_with(&ends));
        check.map(|check| check.verdict)
    };
    assert_eq!(verdict_on("same-members"), Some(Verdict::Expected));
    assert_eq!(verdict_on("alone"), Some(Verdict::Expected));
    let beside = verdict_on("beside-tensor-parallelism");
    assert_eq!(beside, Some(Verdict::KnownFailure));
}
