//! Reads what an engine says of a worker that has died: vLLM's executor, by the worker's rank; Ray and the kernel, by the
//! process id; Open MPI's handler of signals, by the rank that writes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

/// Workers that an engine or the kernel says have died, each with the line.
#[derive(Clone, Debug, Default)]
pub(super) struct DeadWorkers {
    /// The line that says that a worker has died, by the rank of the worker.
    pub(super) ranks: BTreeMap<u32, String>,
    /// By process id, as long as its rank is not known.
    processes: BTreeMap<String, String>,
    /// The line of Ray that says that an actor has died, and after which its process id follows.
    actor: Option<String>,
}

static WORKER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"Worker proc \w*Worker-(\d+) died unexpectedly").ok());
static PID: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\s+pid: (\d+)$").ok());
static KILLED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[Oo]ut of memory: Kill(?:ed)? process (\d+) ").ok());

/// The signals by which a process fails on its own account; `Aborted` is how watchdogs and uncaught errors end one.
static SIGNAL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^\[[\w.-]+:\d+\] Signal: (?:Segmentation fault|Bus error|Illegal instruction|Floating point exception) \(\d+\)").ok()
});

impl DeadWorkers {
    /// Reads the next line, which a rank has written if it is known.
    pub(super) fn read(&mut self, text: &str, rank: Option<u32>) {
        if let Some(rank) = rank
            && text.contains("] Signal: ")
            && SIGNAL.as_ref().is_some_and(|line| line.is_match(text))
        {
            self.ranks.entry(rank).or_insert_with(|| text.to_owned());
            return;
        }
        let number = |pattern: &LazyLock<Option<Regex>>| {
            let found = pattern.as_ref()?.captures(text)?;
            Some(found[1].to_owned())
        };
        let line = || text.trim().to_owned();
        if text.contains(" died unexpectedly, shutting down") {
            if let Some(rank) = number(&WORKER).and_then(|rank| rank.parse().ok()) {
                self.ranks.entry(rank).or_insert_with(line);
            }
        } else if text.contains("actor died unexpectedly") {
            self.actor = Some(line());
        } else if let Some(actor) = &self.actor
            && let Some(pid) = number(&PID)
        {
            self.processes.entry(pid).or_insert(actor.clone());
            self.actor = None;
        } else if text.contains("ut of memory: Kill")
            && let Some(pid) = number(&KILLED)
        {
            self.processes.entry(pid).or_insert_with(line);
        }
    }

    /// Finds the ranks of the processes.
    pub(super) fn name(&mut self, rank_of: impl Fn(&str) -> Option<u32>) {
        for (pid, line) in std::mem::take(&mut self.processes) {
            match rank_of(&pid) {
                Some(rank) => drop(self.ranks.entry(rank).or_insert(line)),
                None => drop(self.processes.insert(pid, line)),
            }
        }
    }

    /// Adds what another file says.
    pub(super) fn merge(&mut self, other: Self) {
        self.ranks.extend(other.ranks);
        self.processes.extend(other.processes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_workers_are_read() {
        let read = |text: &str| {
            let mut dead = DeadWorkers::default();
            text.lines().for_each(|line| dead.read(line, Some(7)));
            dead.name(|pid| (pid == "90").then_some(5));
            dead.ranks.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(
            read("Worker proc VllmWorker-2 died unexpectedly, shutting down executor."),
            [2]
        );
        let ray = "ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: W\n\tpid: 90";
        assert_eq!(read(ray), [5]);
        assert!(read(" pid: 90").is_empty());
        assert_eq!(
            read("Memory cgroup out of memory: Killed process 90 (python) total-vm:1kB"),
            [5]
        );
        assert_eq!(read("[h:77153] Signal: Segmentation fault (11)"), [7]);
        assert!(read("[h:77153] Signal: Aborted (6)").is_empty());
    }
}
