//! Adds up the processor time that the descendants of processes have used.

use std::collections::BTreeMap;

/// Returns, by process id, the processor time in clock ticks of every living process that one of `pids` has started, directly or
/// by others, under the id of the one that has. Empty where this machine does not tell.
#[cfg(target_os = "linux")]
#[must_use]
pub fn processor_times_below(pids: &[u32]) -> BTreeMap<u32, BTreeMap<u32, u64>> {
    use procfs::process::{ProcState, all_processes};

    let stats: Vec<_> = (all_processes().into_iter().flatten().flatten())
        .filter_map(|process| process.stat().ok())
        .filter(|stat| !matches!(stat.state(), Ok(ProcState::Zombie | ProcState::Dead)))
        .map(|stat| {
            let (pid, parent) = (stat.pid.cast_unsigned(), stat.ppid.cast_unsigned());
            (pid, parent, stat.utime + stat.stime)
        })
        .collect();
    let below = |top: u32| {
        let mut found = BTreeMap::new();
        let mut parents = vec![top];
        while let Some(one) = parents.pop() {
            for (pid, _, ticks) in stats.iter().filter(|(_, parent, _)| *parent == one) {
                if found.insert(*pid, *ticks).is_none() {
                    parents.push(*pid);
                }
            }
        }
        found
    };
    pids.iter().map(|pid| (*pid, below(*pid))).collect()
}

/// Returns, by process id, the processor time in clock ticks of every living process that one of `pids` has started, directly or
/// by others, under the id of the one that has. Empty where this machine does not tell.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn processor_times_below(_pids: &[u32]) -> BTreeMap<u32, BTreeMap<u32, u64>> {
    BTreeMap::new()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_works_is_told_from_one_that_sleeps() {
        let start = |text: &str| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", text]).spawn().unwrap()
        };
        let mut worker = start("while :; do :; done");
        let mut sleeper = start("exec sleep 100");
        let own = std::process::id();
        let of = |pid: u32| processor_times_below(&[own])[&own].get(&pid).copied();
        let (idle, began) = (of(sleeper.id()), of(worker.id()));
        while of(worker.id()) < began.map(|ticks| ticks + 5) {
            std::thread::yield_now();
        }
        assert!(idle.is_some());
        assert!(processor_times_below(&[worker.id()])[&worker.id()].is_empty());
        for child in [&mut worker, &mut sleeper] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(of(own).is_none());
    }
}
