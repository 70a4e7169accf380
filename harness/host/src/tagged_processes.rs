//! Finds processes by a variable in their environments.

use std::collections::BTreeMap;

/// A process whose environment holds the variable that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaggedProcess {
    /// The id of the process.
    pub pid: u32,
    /// Process id of the parent.
    pub parent: u32,
    /// When the process started, in clock ticks since the machine did: it tells two processes with the same id apart.
    pub started: u64,
    /// The environment that its program was started with.
    pub environment: BTreeMap<String, String>,
}

/// Returns all processes whose environments hold `NAME=VALUE`, in order of their start. Linux only; elsewhere empty.
#[cfg(target_os = "linux")]
#[must_use]
pub fn members(name: &str, value: &str) -> Vec<TaggedProcess> {
    use super::environment::{PATIENCE, environment, variables};
    use procfs::process::all_processes;

    let mut members: Vec<TaggedProcess> = all_processes()
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|process| {
            let environment = environment(process.pid.cast_unsigned(), PATIENCE).ok()?;
            let environment = variables(&environment);
            if environment.get(name)? != value {
                return None;
            }
            let stat = process.stat().ok()?;
            Some(TaggedProcess {
                pid: stat.pid.cast_unsigned(),
                parent: stat.ppid.cast_unsigned(),
                started: stat.starttime,
                environment,
            })
        })
        .collect();
    members.sort_by_key(|member| (member.started, member.pid));
    members
}

/// Returns all processes whose environments hold `NAME=VALUE`, in order of their start. Linux only; elsewhere empty.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn members(_name: &str, _value: &str) -> Vec<TaggedProcess> {
    Vec::new()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_mark_finds_its_processes_and_no_others() {
        let mark = format!("{}.family", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env("ALLRANKS_FAMILY", &mark)
            .spawn()
            .unwrap();
        let found = loop {
            // It may take a moment until it is seen.
            let found = members("ALLRANKS_FAMILY", &mark);
            if !found.is_empty() {
                break found;
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].pid, found[0].parent),
            (child.id(), std::process::id())
        );
        assert_eq!(members("ALLRANKS_FAMILY", &mark), Vec::new());
    }
}
