//! A disk that is full. The stand-in is a limit on the size of files, which needs no rights; writing beyond it fails
//! as it does on a full disk, in the middle of a line.

use std::process::Command;

use super::stage::Stage;
use super::{Test, plain};

/// All of them.
pub fn tests() -> Vec<Test> {
    vec![
        plain("disk::full_while_results_are_written", || full(8)),
        plain("disk::full_while_reports_are_written", || full(64)),
        plain("disk::full_from_the_start", || full(0)),
    ]
}

/// Runs with files of so many KiB at most.
fn full(kib: u32) {
    let stage = Stage::new("disk");
    let out = stage.out().display().to_string();
    let mut shell = Command::new("bash");
    // What is written to standard error must not count: it is a pipe.
    let line = format!("trap '' XFSZ; ulimit -f {kib}; exec \"$@\" 2> >(cat >&2)");
    shell.args(["-c", &line, "bash", env!("CARGO_BIN_EXE_allranks"), "run"]);
    shell.args([
        "fixtures/drivers/case.yaml",
        "--driver",
        "command:python3 fixtures/drivers/pretend.py",
    ]);
    shell.args(["--repeat", "8", "--out", &out]);
    let ran = stage.start(stage.marked(shell)).end();
    ran.assert_code(10);
    stage.assert_nothing_remains();
}
