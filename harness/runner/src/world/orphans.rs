//! Finds and kills the processes that a world left behind.
//!
//! A process that a rank started, however it detached itself, carries the rank's token in its environment.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};

use allranks_host as host;
use allranks_host::{Activity, ProcessEntry};
use allranks_model::names::Rank;

/// The variable that marks every process of a world, and of a watched command.
pub const TOKEN: &str = "ALLRANKS_TOKEN";

/// How long killed processes may take to end. One in an uninterruptible wait for a device or a disk takes longer, and
/// may never end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time from one attempt to the next.
const RETRY_PERIOD: Duration = Duration::from_millis(10);

/// A process that was running and carried a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The id of the process.
    pub pid: Pid,
    /// The rank that its token names; none if the token names no rank.
    pub rank: Option<Rank>,
}

/// Formats it as `pid 4711 (state D)`, with its state in `/proc` at this moment.
impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.pid.as_raw_nonzero().get();
        match host::state(pid.unsigned_abs()) {
            Some(state) => write!(f, "pid {pid} (state {state})"),
            None => write!(f, "pid {pid}"),
        }
    }
}

/// Returns `cannot kill pid 7 (state D), pid 9 (state D)`; none if there are no processes.
#[must_use]
pub fn unkilled(left: &[Orphan]) -> Option<String> {
    let left: Vec<String> = left.iter().map(Orphan::to_string).collect();
    (!left.is_empty()).then(|| format!("cannot kill {}", left.join(", ")))
}

/// Kills every process except this one whose environment holds this [`TOKEN`], alone or followed by a dot and a rank.
/// Returns those that were running; a zombie is not. Linux only; elsewhere it finds none.
pub fn kill_orphans(token: &str) -> Vec<Orphan> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in processes.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .and_then(Pid::from_raw)
            .filter(|pid| *pid != getpid())
        else {
            continue;
        };
        let id = pid.as_raw_nonzero().get().unsigned_abs();
        let environment = host::environment(id, KILL_TIMEOUT).unwrap_or_default();
        let owner = environment
            .split(|byte| *byte == 0)
            .find_map(|variable| owner(variable, token));
        if let Some(rank) = owner
            && is_running(pid)
            && kill_process(pid, Signal::KILL).is_ok()
        {
            found.push(Orphan { pid, rank });
        }
    }
    found
}

/// Repeats [`kill_orphans`] until it finds nothing, because a process that is killed may just have started another one.
/// Returns what still runs after five seconds. Blocks.
pub fn end_remains(token: &str) -> Vec<Orphan> {
    until_gone(KILL_TIMEOUT, || kill_orphans(token))
}

/// Asks the kernel to give this process the children of every process below it that ends, wherever they are. Does nothing
/// elsewhere than on Linux.
///
/// # Errors
/// The kernel refuses it.
#[cfg(target_os = "linux")]
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(getpid()))?)
}

/// Does nothing: only Linux has subreapers.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn become_subreaper() -> io::Result<()> {
    Ok(())
}

/// Kills every process below this one, but those whose environment holds the token `spared`, until none is left. Returns how
/// many were running, and what still runs after five seconds. A process that has ended is not waited for. Blocks. Linux only;
/// elsewhere it finds none.
pub fn end_children(spared: Option<&str>) -> (u32, Vec<Orphan>) {
    let mut killed = BTreeSet::new();
    let left = until_gone(KILL_TIMEOUT, || {
        if !has_children() {
            return Vec::new();
        }
        let is_spared = |process: &ProcessEntry| {
            let token = process.environment.get(TOKEN);
            token.is_some_and(|token| spared.is_some_and(|spared| names(token, spared).is_some()))
        };
        let mut found = Vec::new();
        for process in host::descendants(std::process::id()) {
            let Some(pid) = Pid::from_raw(process.pid.cast_signed()) else {
                continue;
            };
            if matches!(process.state, 'Z' | 'X') || is_spared(&process) {
                continue;
            }
            if kill_process(pid, Signal::KILL).is_ok() {
                killed.insert((process.pid, process.started));
                found.push(Orphan { pid, rank: None });
            }
        }
        found
    });
    (killed.len() as u32, left)
}

/// Returns true if this process has children, ended ones that nothing has waited for among them.
fn has_children() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::All, look).err() != Some(Errno::CHILD)
}

/// Repeats `kill` until it finds nothing. Returns what it found last, when `limit` is over. Blocks.
pub fn until_gone<T>(limit: Duration, mut kill: impl FnMut() -> Vec<T>) -> Vec<T> {
    let began = Instant::now();
    loop {
        let left = kill();
        if left.is_empty() || began.elapsed() >= limit {
            return left;
        }
        thread::sleep(RETRY_PERIOD);
    }
}

/// Returns the rank behind the token if the variable `NAME=VALUE` is this token: the outer option is none if it is not,
/// the inner one if no rank follows.
fn owner(variable: &[u8], token: &str) -> Option<Option<Rank>> {
    let value = variable.strip_prefix(TOKEN.as_bytes())?;
    let value = String::from_utf8_lossy(value.strip_prefix(b"=")?);
    names(&value, token)
}

/// Returns the rank behind the token in a value of [`TOKEN`]: the outer option is none if the value is of another token, the
/// inner one if no rank follows.
fn names(value: &str, token: &str) -> Option<Option<Rank>> {
    let rest = value.strip_prefix(token)?;
    if rest.is_empty() {
        return Some(None);
    }
    Some(rest.strip_prefix('.')?.parse().ok().map(Rank))
}

fn is_running(pid: Pid) -> bool {
    let pid = pid.as_raw_nonzero().get().unsigned_abs();
    host::activity(pid) != Some(Activity::Gone)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_does_not_go_is_given_up() {
        let mut attempts = 0;
        let left = until_gone(Duration::from_millis(50), || {
            attempts += 1;
            vec![4711]
        });
        assert_eq!(left, [4711]);
        assert!(attempts > 1);
        let mut left = vec![3, 2, 1];
        let gone = until_gone(Duration::MAX, || {
            left.pop();
            left.clone()
        });
        assert_eq!(gone, Vec::<i32>::new());
    }

    #[test]
    fn a_token_names_its_rank_and_ends_at_a_dot() {
        let owner = |value: &str| owner(format!("{TOKEN}={value}").as_bytes(), "tok.1");
        assert_eq!(owner("tok.1"), Some(None));
        assert_eq!(owner("tok.1.12"), Some(Some(Rank(12))));
        assert_eq!(owner("tok.1.x"), Some(None));
        assert_eq!((owner("tok.10"), owner("tok.10.1")), (None, None));
        assert_eq!(super::owner(b"OTHER_TOKEN=tok.1", "tok.1"), None);
    }

    #[test]
    fn a_token_is_that_of_its_world_and_of_each_rank() {
        assert_eq!(names("tok.1", "tok.1"), Some(None));
        assert_eq!(names("tok.1.3", "tok.1"), Some(Some(Rank(3))));
        assert_eq!(
            (names("tok.13", "tok.1"), names("tok", "tok.1")),
            (None, None)
        );
    }

    #[test]
    fn a_zombie_is_not_running() {
        let token = format!("zombie{}", std::process::id());
        let start = |rank: u32| {
            let mut command = Command::new("sleep");
            command.arg("60").env(TOKEN, format!("{token}.{rank}"));
            command.spawn().unwrap()
        };
        let mut children = [start(1), start(10)];
        // They may still be replacing their program.
        let found = kill_orphans(&format!("{token}.1"));
        let pids: Vec<u32> = (found.iter())
            .map(|orphan| orphan.pid.as_raw_nonzero().get().unsigned_abs())
            .collect();
        assert_eq!(pids, [children[0].id()]);
        // The processes are killed, but not waited for.
        assert_eq!(end_remains(&format!("{token}.1")), Vec::new());
        assert!(
            children[1].try_wait().unwrap().is_none(),
            "rank 10 was killed for rank 1"
        );
        assert_eq!(end_remains(&token), Vec::new());
        for child in &mut children {
            let status = child.wait().unwrap();
            assert_eq!(
                status.signal(),
                Some(Signal::KILL.as_raw()),
                "it ended by itself"
            );
        }
    }
}
