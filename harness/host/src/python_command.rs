//! The command that runs Python text with one JSON argument.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const LEASH: &str = include_str!("../leash.py");

/// Returns the command that runs Python text in an interpreter, with `question` as its one argument, in JSON. Where the kernel supports
/// it, the process ends with the thread that starts it, so that a harness that is killed leaves no process behind.
#[must_use]
pub fn python_command(python: &Path, text: &str, question: &Value) -> Command {
    let mut command = Command::new(python);
    command.args(["-c", &format!("{LEASH}\n{text}"), &question.to_string()]);
    command.env("ALLRANKS_ASKER", asker());
    command
}

/// Returns this process's id and its PID namespace.
fn asker() -> String {
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", std::process::id(), namespace.display())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Child, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::run_with_timeout;

    /// Returns the output of a process whose environment names this asker, and which is started by a shell that goes on.
    fn said_behind_a_shell(asker: &str) -> String {
        let direct = python_command(Path::new("python3"), "print('asked')", &Value::Null);
        let mut command = Command::new("sh");
        command.args(["-c", "\"$@\"; true", "sh"]);
        command.arg(direct.get_program()).args(direct.get_args());
        command.env("ALLRANKS_ASKER", asker);
        run_with_timeout(command, Duration::from_secs(60))
            .unwrap()
            .0
    }

    fn ended() -> Child {
        Command::new("true").stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn the_process_goes_on_behind_a_shell_for_as_long_as_there_is_the_asker() {
        assert_eq!(said_behind_a_shell(&asker()), "asked\n");
        let mut child = ended();
        let gone = asker().replacen(&std::process::id().to_string(), &child.id().to_string(), 1);
        while crate::state(child.id()) != Some('Z') {
            std::thread::yield_now();
        }
        assert_eq!(said_behind_a_shell(&gone), "", "a zombie");
        child.wait().unwrap();
        assert_eq!(said_behind_a_shell(&gone), "");
        assert_eq!(
            said_behind_a_shell("1 pid:[0]"),
            "asked\n",
            "another namespace"
        );
    }
}
