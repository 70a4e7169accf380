//! The supervisor of one spawned rank: a process between the harness and the rank. If the harness ends, it kills the
//! rank and everything that the rank started, and ends.
//!
//! Its standard input is a socket whose other end only the harness holds, so end of file means that the harness has ended, in
//! whatever way. Each byte that comes is the number of a signal for the rank. Just before it ends, the supervisor writes its
//! [`SupervisorReport`] to the socket. The rank leads a process group of its own, so that a signal to it does
//! not reach the supervisor. The supervisor ends with the rank's exit code or signal, and writes nothing to standard output and
//! error, which belong to the rank, but what it cannot kill.
//!
//! It is a subreaper: what a rank starts stays below it, however it detaches itself.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getpid, kill_process, kill_process_group,
    setrlimit, setsid,
};

use super::exhaustion::is_exhaustion;
use super::orphans::{TOKEN, become_subreaper, end_children, end_remains, unkilled};

/// The variable that gives a supervisor the token of its rank. The supervisor does not carry [`TOKEN`] itself: several
/// supervisors of one world kill what carries it at the same time, and would kill each other before the ranks are gone.
pub(crate) const SUPERVISED: &str = "ALLRANKS_SUPERVISED";
/// Exit code of a supervisor whose harness has ended.
pub(crate) const ORPHANED: i32 = 70;
/// How much later than its rank a supervisor may notice the end of the harness.
const HARNESS_END_DELAY: Duration = Duration::from_millis(50);
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
    let line = match become_subreaper().and_then(|()| harness()) {
        Ok(line) => line,
        Err(error) => return error,
    };
    let token = std::env::var(SUPERVISED).ok();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0)
        .env_remove(SUPERVISED);
    if let Some(token) = &token {
        command.env(TOKEN, token);
    }
    let rank = match command.spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) => {
            if is_exhaustion(&error) {
                SupervisorReport::Exhausted.say(&line);
            }
            let program = program.to_string_lossy();
            return io::Error::new(error.kind(), format!("cannot run {program}: {error}"));
        }
    };
    let (sender, harness_is_gone) = mpsc::channel();
    let orders = line.try_clone();
    let own = token.clone();
    let watch = thread::spawn(move || {
        if let Ok(orders) = orders {
            relay_signals(orders, rank);
        }
        let _ = sender.send(());
        kill_all(rank, own.as_deref());
        std::process::exit(ORPHANED);
    });
    let status = match wait(rank) {
        Ok(status) => status,
        Err(error) => return error,
    };
    // If the rank notices first that the harness has ended, the supervisor must not end before it has killed the rest.
    let patience = if status.success() {
        Duration::ZERO
    } else {
        HARNESS_END_DELAY
    };
    if harness_is_gone.recv_timeout(patience).is_ok() {
        let _ = watch.join();
    }
    // The harness finds the processes that carry the token by itself.
    let (killed, left) = end_children(token.as_deref());
    if let Some(text) = unkilled(&left) {
        let _ = writeln!(io::stderr(), "allranks: {text}");
    }
    SupervisorReport::LeftBehind(killed).say(&line);
    end_as(status)
}

/// Returns the socket to the harness, which is standard input.
fn harness() -> io::Result<UnixStream> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Sends the rank the signals that the harness asks for, until the harness has ended.
fn relay_signals(mut orders: UnixStream, rank: Pid) {
    let mut order = [0];
    loop {
        match orders.read(&mut order) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => return,
        }
        if let Some(signal) = Signal::from_named_raw(order[0].into()) {
            let _ = kill_process_group(rank, signal);
        }
    }
}

/// Waits for the rank's end, and takes up every other process that ends meanwhile: the rank's orphans.
pub(crate) fn wait(rank: Pid) -> io::Result<ExitStatus> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == rank => {
                return Ok(ExitStatus::from_raw(status.as_raw()));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// What a supervisor reports about its rank just before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SupervisorReport {
    /// How many processes the rank left running that carry no token.
    LeftBehind(u32),
    /// The rank could not be started, because no more processes or open files were available.
    Exhausted,
}

impl SupervisorReport {
    const EXHAUSTED: u32 = u32::MAX;

    fn say(self, mut line: &UnixStream) {
        let number = match self {
            Self::LeftBehind(count) => count,
            Self::Exhausted => Self::EXHAUSTED,
        };
        // It fails if the harness has ended.
        let _ = line.write_all(&number.to_le_bytes());
    }

    /// Reads the report after the supervisor has ended. `None` if there is none, because something ended the supervisor.
    pub(crate) fn read(mut line: &UnixStream) -> Option<Self> {
        let mut number = [0; 4];
        line.read_exact(&mut number).ok()?;
        Some(match u32::from_le_bytes(number) {
            Self::EXHAUSTED => Self::Exhausted,
            count => Self::LeftBehind(count),
        })
    }
}

/// Kills a process, then everything that carries the token or is a child of this process, until nothing is left. Writes what
/// cannot be killed to standard error.
pub(crate) fn kill_all(process: Pid, token: Option<&str>) {
    let _ = kill_process(process, Signal::KILL);
    let mut left = token.map(end_remains).unwrap_or_default();
    left.extend(end_children(None).1);
    if let Some(text) = unkilled(&left) {
        // The harness has ended: only the rank's log is left to say so.
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
