//! Builds the command that runs a Python script with one JSON argument.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Python text that ends its process when the harness ends.
const EXIT_WITH_HARNESS: &str = include_str!("../exit_with_harness.py");
/// The variable from which that text learns which process is the harness.
const STARTED_BY: &str = "ALLRANKS_STARTED_BY";

/// Returns the command that runs a Python script in an interpreter, with `argument`, in JSON, as the script's only argument. On
/// Linux the process ends with the thread that starts it, so that a harness that is killed leaves no process behind.
#[must_use]
pub fn python_command(python: &Path, script: &str, argument: &Value) -> Command {
    let mut command = Command::new(python);
    let script = format!("{EXIT_WITH_HARNESS}\n{script}");
    command.args(["-c", &script, &argument.to_string()]);
    command.env(STARTED_BY, own_identity());
    command
}

/// Returns this process's id and its PID namespace, as [`STARTED_BY`] holds them.
fn own_identity() -> String {
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", std::process::id(), namespace.display())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Child, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::run_with_timeout;

    /// Returns the output of a script that a shell runs, and that is told that this process is the harness.
    fn output_under_a_shell(harness: &str) -> String {
        let direct = python_command(Path::new("python3"), "print('ran')", &Value::Null);
        let mut command = Command::new("sh");
        command.args(["-c", "\"$@\"; true", "sh"]);
        command.arg(direct.get_program()).args(direct.get_args());
        command.env(STARTED_BY, harness);
        run_with_timeout(command, Duration::from_secs(60))
            .unwrap()
            .0
    }

    fn ended() -> Child {
        Command::new("true").stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_script_under_a_shell_runs_unless_the_harness_has_ended() {
        assert_eq!(output_under_a_shell(&own_identity()), "ran\n");
        let mut child = ended();
        let gone =
            own_identity().replacen(&std::process::id().to_string(), &child.id().to_string(), 1);
        while crate::state(child.id()) != Some('Z') {
            std::thread::yield_now();
        }
        assert_eq!(output_under_a_shell(&gone), "", "a zombie");
        child.wait().unwrap();
        assert_eq!(output_under_a_shell(&gone), "");
        assert_eq!(
            output_under_a_shell("1 pid:[0]"),
            "ran\n",
            "another namespace"
        );
    }
}
