//! The supervisor of one fresh rank: a process between the harness and the rank that outlives the harness by as long as
//! it takes to kill the rank and all it started.
//!
//! Its standard input is a pipe whose other end only the harness holds, so its end of file means that the harness is
//! gone, however it went. It leads a session and process group that the rank is in too, ends as the rank ends, and
//! writes nothing but what it cannot kill: standard output and error are the rank's.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, kill_process, setrlimit, setsid};

use super::orphans::{TOKEN, end_remains, unkilled};

/// The variable that gives a supervisor the token of its rank. It does not carry [`TOKEN`] itself: several supervisors of one
/// world end what carries it at the same time, and would kill each other before the ranks are gone.
pub(crate) const SUPERVISED: &str = "ALLRANKS_SUPERVISED";
/// Exit code after the harness has gone.
pub(crate) const ORPHANED: i32 = 70;
/// How much later than a rank its supervisor may see the end of the harness.
const NOTICE: Duration = Duration::from_millis(50);
/// From one attempt to the next.
const AGAIN: Duration = Duration::from_millis(10);
/// How often this process signals itself before it concludes that the signal does not end it.
const ATTEMPTS: u32 = 20;

/// Runs `argv` as a rank and ends as it does. Returns only if it cannot be started.
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
        // Nothing is ever written to it.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = sender.send(());
        kill_all(rank, token.as_deref());
        std::process::exit(ORPHANED);
    });
    let status = match child.wait() {
        Ok(status) => status,
        Err(error) => return error,
    };
    // A rank that notices first that the harness is gone must not take the one who cleans up with it.
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

/// Kills a process, then everything that carries the token, until nothing does; says on standard error what cannot be killed.
pub(crate) fn kill_all(process: Pid, token: Option<&str>) {
    let _ = kill_process(process, Signal::KILL);
    if let Some(text) = token.and_then(|token| unkilled(&end_remains(token))) {
        // Nothing reads it now but those who look into the rank's log.
        let _ = writeln!(io::stderr(), "allranks: {text}");
    }
}

/// Ends this process with the code or by the signal that another ended with.
pub(crate) fn end_as(status: ExitStatus) -> ! {
    let Some(signal) = status.signal() else {
        std::process::exit(status.code().unwrap_or(ORPHANED));
    };
    if let Some(signal) = Signal::from_named_raw(signal) {
        // The rank has dumped its core, if cores are dumped here; ours is of no interest.
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        let _ = setrlimit(Resource::Core, none);
        // More than once: Rust's own handler of SIGSEGV and SIGBUS takes the first, and the default comes after it.
        for _ in 0..ATTEMPTS {
            let _ = kill_process(getpid(), signal);
            thread::sleep(AGAIN);
        }
    }
    // A signal that does not end this process: what a shell would say.
    std::process::exit(128 + signal);
}
