//! Lists the processes of this machine, each with its parent, its state and what may be read of its environment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A process, as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEntry {
    /// The id of the process.
    pub pid: u32,
    /// The id of its parent.
    pub parent: u32,
    /// When it was started, in clock ticks since the machine was: two processes with the same id differ in it.
    pub started: u64,
    /// The letter that `/proc` has for its state: `Z` if it has ended and its parent has not asked how.
    pub state: char,
    /// How it ended, as `wait` tells it; `None` while it lives, and where the kernel does not say.
    pub status: Option<i32>,
    /// Its environment as it was when its program began; empty if it may not be read, as that of a process that has ended.
    pub environment: BTreeMap<String, String>,
}

/// Returns all processes, in order of their start. Linux only; elsewhere none.
#[cfg(target_os = "linux")]
#[must_use]
pub fn processes() -> Vec<ProcessEntry> {
    use super::environment::{PATIENCE, environment, variables};
    use procfs::process::all_processes;

    let entry = |process: procfs::process::Process| {
        let stat = process.stat().ok()?;
        let environment = environment(process.pid.cast_unsigned(), PATIENCE).unwrap_or_default();
        Some(ProcessEntry {
            pid: stat.pid.cast_unsigned(),
            parent: stat.ppid.cast_unsigned(),
            started: stat.starttime,
            state: stat.state,
            status: stat.exit_code.filter(|_| stat.state == 'Z'),
            environment: variables(&environment),
        })
    };
    let all = all_processes().into_iter().flatten().flatten();
    let mut entries: Vec<ProcessEntry> = all.filter_map(entry).collect();
    entries.sort_by_key(|entry| (entry.started, entry.pid));
    entries
}

/// Returns all processes, in order of their start. Linux only; elsewhere none.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn processes() -> Vec<ProcessEntry> {
    Vec::new()
}

/// Returns all processes below this one: its children, their children, and so on, ended ones that nothing has waited for among
/// them. In order of their start. Linux only; elsewhere none.
#[must_use]
pub fn descendants(pid: u32) -> Vec<ProcessEntry> {
    let mut others = processes();
    let mut below = Vec::new();
    let mut parents = BTreeSet::from([pid]);
    while !parents.is_empty() {
        let (children, rest): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|process| parents.contains(&process.parent));
        parents = children.iter().map(|child| child.pid).collect();
        below.extend(children);
        others = rest;
    }
    below.sort_by_key(|process| (process.started, process.pid));
    below
}

/// Returns for how long a process has lived that was started at `started` (see [`ProcessEntry::started`]); `None` elsewhere than on
/// Linux.
#[cfg(target_os = "linux")]
#[must_use]
pub fn age(started: u64) -> Option<Duration> {
    use procfs::{Current, Uptime};

    let up = Uptime::current().ok()?.uptime_duration();
    let since = Duration::from_millis(started * 1000 / procfs::ticks_per_second());
    Some(up.saturating_sub(since))
}

/// Returns for how long a process has lived that was started at `started` (see [`ProcessEntry::started`]); `None` elsewhere than on
/// Linux.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn age(_started: u64) -> Option<Duration> {
    None
}

/// Returns the network namespace of a process: two processes with the same one see the same `localhost`. `None` if it may not be
/// read, or elsewhere than on Linux.
#[must_use]
pub fn network(pid: u32) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// Returns true if a process has mapped a file whose name holds one of these words, as a program has its libraries. `None` if it may
/// not be read, or elsewhere than on Linux.
#[must_use]
pub fn has_mapped(pid: u32, words: &[&str]) -> Option<bool> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let name = |line: &str| line.rsplit('/').next().unwrap_or_default().to_owned();
    Some(
        maps.lines()
            .filter(|line| line.contains('/'))
            .map(name)
            .any(|name| words.iter().any(|word| name.contains(word))),
    )
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_not_waited_for_is_found_with_how_it_ended() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "exit 3"])
            .spawn()
            .unwrap();
        let entry = loop {
            let all = processes();
            let own = all.into_iter().find(|one| one.pid == child.id()).unwrap();
            if own.state == 'Z' {
                break own;
            }
            std::thread::yield_now();
        };
        assert_eq!(
            (entry.parent, entry.status),
            (std::process::id(), Some(3 << 8))
        );
        child.wait().unwrap();
        assert!(processes().iter().all(|one| one.pid != child.id()));
    }

    #[test]
    fn children_of_children_are_descendants_and_parents_are_not() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60; true"])
            .spawn()
            .unwrap();
        let below = loop {
            let below = descendants(child.id());
            if !below.is_empty() {
                break below;
            }
            std::thread::yield_now();
        };
        assert_eq!(below.len(), 1, "{below:?}");
        assert_eq!(below[0].parent, child.id());
        let own = descendants(std::process::id());
        assert!(own.iter().any(|one| one.pid == child.id()));
        assert!(own.iter().any(|one| one.pid == below[0].pid));
        assert!(own.iter().all(|one| one.pid != std::process::id()));
        let pid = rustix::process::Pid::from_raw(below[0].pid.cast_signed());
        rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn libraries_and_networks_are_seen() {
        let own = std::process::id();
        assert_eq!(has_mapped(own, &["libc.so", "libc-"]), Some(true));
        assert_eq!(has_mapped(own, &["no-such-library"]), Some(false));
        assert!(network(own).is_some());
        assert_eq!(network(u32::MAX), None);
    }
}
