//! A command that is asked something, for a limited time.

use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often a running command is looked at.
const PERIOD: Duration = Duration::from_millis(5);
/// The most output that is read back, in bytes.
const MAX_OUTPUT: u64 = 1 << 20;

/// Runs a command in a process group of its own, without input, and ends whatever is left of the group after it: all that
/// was written to both streams, and how it ended; none if the time was over.
///
/// # Errors
/// It cannot be started, waited for or read.
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
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() >= deadline {
            break None;
        }
        thread::sleep(PERIOD);
    };
    // It fails if nothing is left, and that is well.
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

    #[test]
    fn what_does_not_end_is_ended() {
        let (text, end) =
            run_with_timeout(shell("echo begun; sleep 1000"), Duration::from_secs(1)).unwrap();
        assert_eq!((text.as_str(), end), ("begun\n", None));
    }
}
