//! How often a run imports torch.

use std::fs;

use super::stage::Stage;
use super::{Test, with_torch};

/// Notes each process that imports torch: a forked rank has it already, and to look whether there is one is no import.
const NOTE: &str = "import os, sys\n\
    class Finder:\n    \
    def find_spec(self, name, path=None, target=None):\n        \
    if name == 'torch' and sys._getframe(2).f_code.co_name == '_find_and_load_unlocked':\n            \
    open(os.environ['IMPORTS'], 'a').write(f'{os.getpid()}\\n')\n\
    sys.meta_path.insert(0, Finder())\n";

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    vec![with_torch("imports::once_in_a_run", once_in_a_run)]
}

/// The probe and the doctor ask the process from which ranks are forked.
fn once_in_a_run() {
    let stage = Stage::new("imports");
    stage.write("lib/sitecustomize.py", NOTE);
    let imports = stage.write("imports", "");
    let out = stage.out().display().to_string();
    let platform = ["--platform", "cpu", "--platform", "cuda"];
    let what = ["run", "--profile", "smoke", "--world-size", "2"];
    let mut command = stage.command(&[&what[..], &platform, &["--out", &out]].concat());
    command
        .env("PYTHONPATH", stage.path("lib"))
        .env("IMPORTS", &imports);
    stage.start(command).end().assert_code(0);
    stage.assert_nothing_remains();
    let processes = fs::read_to_string(&imports).unwrap();
    assert_eq!(
        processes.lines().count(),
        1,
        "processes that import torch:\n{processes}"
    );
    // What they answered is there all the same.
    let text = fs::read_to_string(stage.out().join("environment.json")).unwrap();
    let environment: serde_json::Value = serde_json::from_str(&text).unwrap();
    let version = &environment["torch"]["import"]["works"]["version"];
    assert!(version.is_string(), "{environment}");
}
