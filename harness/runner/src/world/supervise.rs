//! The supervisor of one spawned rank: a process between the harness and the rank. If the harness ends, it kills the
//! rank and everything that the rank started, and ends.
//!
//! Its standard input is a pipe whose other end only the harness holds, so end of file means that the harness has
//! ended, in whatever way. It leads a session and process group that the rank is in too, ends with the rank's exit code
//! or signal, and writes nothing but what it cannot kill: standard output and error belong to the rank.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, kill_process, setrlimit, setsid};

use super::orphans::{TOKEN, end_remains, unkilled};

/// The variable that gives a supervisor the token of its rank. The supervisor does not carry [`TOKEN`] itself: several
/// supervisors of one world kill what carries it at the same time, and would kill each other before the ranks are gone.
pub(crate) const SUPERVISED: &str = "ALLRANKS_SUPERVISED";
/// Exit code of a supervisor whose harness has ended.
pub(crate) const ORPHANED: i32 = 70;
/// How much later than the rank the supervisor may notice the end of the harness.
const NOTICE: Duration = Duration::from_millis(50);
/// Time from one attempt to the next.
const RETRY_PERIOD: Duration = Duration::from_millis(10);
/// How often this process sends itself a signal before it concludes that the signal does not end it.
const ATTEMPTS: u32 = 20;

/// Runs `argv` as a rank, and ends with its exit code or signal. Returns only if it cannot be started.
#[must_use]
pub fn supervise(argv: &[OsString]) -> io::Error {
    let Some((program, arguments)) = argv.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no command to supervise");
    };
    if let Err(error) = setsid() {
        return error.into();
    }
    let token = std::env::var(SUPERVISED).ok();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove(SUPERVISED);
    if let Some(token) = &token {
        command.env(TOKEN, token);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = program.to_string_lossy();
            return io::Error::new(error.kind(), format!("cannot run {program}: {error}"));
        }
    };
    let rank = Pid::from_child(&child);
    let (sender, harness_is_gone) = mpsc::channel();
    let watch = thread::spawn(move || {
        // Nothing is ever written to the pipe.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = sender.send(());
        kill_all(rank, token.as_deref());
        std::process::exit(ORPHANED);
    });
    let status = match child.wait() {
        Ok(status) => status,
        Err(error) => return error,
    };
    // If the rank notices first that the harness has ended, the supervisor must not end before it has killed the rest.
    let patience = if status.success() {
        Duration::ZERO
    } else {
        NOTICE
    };
    if harness_is_gone.recv_timeout(patience).is_ok() {
        let _ = watch.join();
    }
    end_as(status)
}

/// Kills a process, then everything that carries the token, until nothing is left. Writes what cannot be killed to
/// standard error.
pub(crate) fn kill_all(process: Pid, token: Option<&str>) {
    let _ = kill_process(process, Signal::KILL);
    if let Some(text) = token.and_then(|token| unkilled(&end_remains(token))) {
        // Now it is read only by people, in the rank's log.
        let _ = writeln!(io::stderr(), "allranks: {text}");
    }
}

/// Ends this process with the exit code or signal of another.
pub(crate) fn end_as(status: ExitStatus) -> ! {
    let Some(signal) = status.signal() else {
        std::process::exit(status.code().unwrap_or(ORPHANED));
    };
    if let Some(signal) = Signal::from_named_raw(signal) {
        // The rank has dumped its core, if cores are dumped here; a core of this process is of no use.
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        let _ = setrlimit(Resource::Core, none);
        // More than once: Rust's own handler of SIGSEGV and SIGBUS takes the first, and the default action comes after
        // it.
        for _ in 0..ATTEMPTS {
            let _ = kill_process(getpid(), signal);
            thread::sleep(RETRY_PERIOD);
        }
    }
    // The signal does not end this process: exits with the code that a shell gives for it.
    std::process::exit(128 + signal);
}
