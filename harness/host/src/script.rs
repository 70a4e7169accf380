//! A Python script that is asked something.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const LEASH: &str = include_str!("../leash.py");

/// The script in an interpreter, with the question as its one argument. Where the kernel can it ends with the thread that
/// starts it, so that nothing is left of a harness that is killed while it waits for the answer.
#[must_use]
pub fn script(python: &Path, text: &str, question: &Value) -> Command {
    let mut command = Command::new(python);
    command.args(["-c", &format!("{LEASH}\n{text}"), &question.to_string()]);
    command.env("ALLRANKS_ASKER", std::process::id().to_string());
    command
}
