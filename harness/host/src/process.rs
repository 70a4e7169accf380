//! The state of a process, as `/proc` shows it.

/// The state of a process, as far as a hang verdict needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It runs, or waits for an event.
    Alive {
        /// Processor time of all its threads so far, in clock ticks.
        ticks: u64,
    },
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It has ended, even if its parent has not reaped it yet.
    Gone,
}

/// Returns the state of a process now; `None` where this machine does not tell.
#[cfg(target_os = "linux")]
#[must_use]
pub fn activity(pid: u32) -> Option<Activity> {
    use procfs::ProcError;
    use procfs::process::{ProcState, Process};

    let stat = Process::new(pid.cast_signed()).and_then(|process| process.stat());
    match stat {
        Ok(stat) => Some(match stat.state() {
            Ok(ProcState::Stopped | ProcState::Tracing) => Activity::Stopped,
            Ok(ProcState::Zombie | ProcState::Dead) => Activity::Gone,
            Ok(_) | Err(_) => Activity::Alive {
                ticks: stat.utime + stat.stime,
            },
        }),
        Err(ProcError::NotFound(_)) => Some(Activity::Gone),
        Err(_) => None,
    }
}

/// Returns the state of a process now; `None` where this machine does not tell.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn activity(_pid: u32) -> Option<Activity> {
    None
}

/// Returns true if a process is exiting: it has given back its memory, so no program runs in it, but it has not ended. False
/// where this machine does not tell.
#[must_use]
pub fn is_ending(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    program.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        && matches!(activity(pid), Some(Activity::Alive { .. }))
}

/// Returns the letter that `/proc` has for the state of a process, as `D` for an uninterruptible wait; `None` if the process does
/// not exist, or where this machine does not tell.
#[cfg(target_os = "linux")]
#[must_use]
pub fn state(pid: u32) -> Option<char> {
    let process = procfs::process::Process::new(pid.cast_signed()).ok()?;
    process.stat().ok().map(|stat| stat.state)
}

/// Returns the letter that `/proc` has for the state of a process, as `D` for an uninterruptible wait; `None` if the process does
/// not exist, or where this machine does not tell.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn state(_pid: u32) -> Option<char> {
    None
}

/// Returns true if a process's main thread waits for an event, and not for the processor.
#[cfg(target_os = "linux")]
#[must_use]
pub fn is_asleep(pid: u32) -> bool {
    use procfs::process::{ProcState, Process};

    let stat = Process::new(pid.cast_signed()).and_then(|process| process.stat());
    stat.is_ok_and(|stat| matches!(stat.state(), Ok(ProcState::Sleeping)))
}

/// Returns true if a process's main thread waits for an event, and not for the processor.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn is_asleep(_pid: u32) -> bool {
    false
}

/// Returns command line and process id, `python3 train.py (pid 4711)`, or the id alone if the command line cannot be read.
#[must_use]
pub fn describe(pid: u32) -> String {
    match command(pid) {
        Some(command) => format!("{command} (pid {pid})"),
        None => format!("pid {pid}"),
    }
}

/// Returns the function of the kernel in which a process's main thread sleeps; `None` if it does not sleep, or if this machine does
/// not tell.
#[cfg(target_os = "linux")]
#[must_use]
pub fn sleeps_in(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/wchan")).ok()?;
    let name = name.trim();
    (!name.is_empty() && name != "0").then(|| name.to_owned())
}

/// Returns the function of the kernel in which a process's main thread sleeps; `None` if it does not sleep, or if this machine does
/// not tell.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn sleeps_in(_pid: u32) -> Option<String> {
    None
}

/// Returns the words of a process's command line; empty if they cannot be read.
#[cfg(target_os = "linux")]
#[must_use]
pub fn arguments(pid: u32) -> Vec<String> {
    let process = procfs::process::Process::new(pid.cast_signed());
    let words = process.and_then(|process| process.cmdline());
    words.unwrap_or_default()
}

/// Returns the words of a process's command line; empty if they cannot be read.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn arguments(_pid: u32) -> Vec<String> {
    Vec::new()
}

/// Returns true if the standard input of a process is a pipe; false where this machine does not tell.
#[must_use]
pub fn reads_a_pipe(pid: u32) -> bool {
    let input = std::fs::read_link(format!("/proc/{pid}/fd/0"));
    input.is_ok_and(|input| input.to_string_lossy().starts_with("pipe:"))
}

/// The longest command line that is shown, in characters.
#[cfg(target_os = "linux")]
const COMMAND: usize = 80;

#[cfg(target_os = "linux")]
fn command(pid: u32) -> Option<String> {
    let process = procfs::process::Process::new(pid.cast_signed()).ok()?;
    let words = process.cmdline().ok()?.join(" ");
    let line: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return process.stat().ok().map(|stat| stat.comm);
    }
    Some(match line.char_indices().nth(COMMAND) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    })
}

#[cfg(not(target_os = "linux"))]
fn command(_pid: u32) -> Option<String> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_alive_stopped_and_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id();
        assert!(matches!(activity(pid), Some(Activity::Alive { .. })));
        // It is this program until it has become that one.
        while !describe(pid).contains("sleep 60") {
            std::thread::yield_now();
        }
        let raw = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(raw, rustix::process::Signal::STOP).unwrap();
        while activity(pid) != Some(Activity::Stopped) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(activity(pid), Some(Activity::Gone));
    }
}
