//! Runs a command for a limited time and returns its output.

use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::charged_time::ChargedTime;

/// Time between two checks of whether the command has ended.
const POLL_PERIOD: Duration = Duration::from_millis(5);
/// Most output that is read back, in bytes; the rest is dropped.
const MAX_OUTPUT: u64 = 1 << 20;

/// Runs a command in a process group of its own, without input, and then kills what is left of the group. Returns standard
/// output and standard error as one text, and the exit status; `None` if the command had not ended when the time that is
/// charged to it (see [`ChargedTime`]) reached `limit`.
///
/// # Errors
/// The command cannot be started or waited for, or its output cannot be read.
pub fn run_with_timeout(
    mut command: Command,
    limit: Duration,
) -> io::Result<(String, Option<ExitStatus>)> {
    let mut output = tempfile::tempfile()?;
    let child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .process_group(0)
        .spawn()?;
    let end = wait(child, limit)?;
    let mut bytes = Vec::new();
    output.rewind()?;
    output.take(MAX_OUTPUT).read_to_end(&mut bytes)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), end))
}

fn wait(mut child: Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let group = rustix::process::Pid::from_child(&child);
    let mut time = ChargedTime::of(child.id());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if time.is_over(limit) {
            break None;
        }
        thread::sleep(POLL_PERIOD);
    };
    // Fails if no process of the group is left.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    if status.is_none() {
        child.wait()?;
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_and_the_end() {
        let (text, end) =
            run_with_timeout(shell("echo a; echo b >&2; exit 3"), Duration::from_secs(60)).unwrap();
        assert_eq!(
            (text.as_str(), end.and_then(|end| end.code())),
            ("a\nb\n", Some(3))
        );
        assert!(run_with_timeout(Command::new("/no/such/program"), Duration::ZERO).is_err());
    }

    /// It works a little in each second, and sleeps otherwise, as a process does that a busy machine seldom lets run.
    #[test]
    fn what_gets_on_slowly_is_not_ended() {
        let script = "for i in 1 2 3 4 5 6 7 8 9 10; do \
                      n=0; while [ $n -lt 30000 ]; do n=$((n+1)); done; sleep 0.4; done; echo done";
        let (text, end) = run_with_timeout(shell(script), Duration::from_millis(2500)).unwrap();
        assert_eq!(text, "done\n");
        assert!(end.is_some_and(|end| end.success()));
    }

    #[test]
    fn what_does_not_end_is_ended() {
        let (text, end) =
            run_with_timeout(shell("echo begun; sleep 1000"), Duration::from_secs(1)).unwrap();
        assert_eq!((text.as_str(), end), ("begun\n", None));
    }
}
