//! Reads what an engine says of a worker that has died: vLLM's executor, by the worker's rank; Ray and the kernel, by the
//! process id; handlers of signals and faults of devices, by the rank that writes; `mpirun` and Hydra, by the rank that they name.

use std::sync::LazyLock;

use regex::Regex;

use super::process_lines::ProcessLines;

/// Workers that an engine or the kernel says have died.
#[derive(Clone, Debug, Default)]
pub(super) struct DeadWorkers {
    /// The line that says of a worker that it has died.
    pub(super) lines: ProcessLines,
    /// The line of Ray that says that an actor has died, and after which its process id follows.
    actor: Option<String>,
    /// The first rank in Hydra's table; nothing more is read of the table if there is none in it.
    row: Option<Option<u32>>,
}

static WORKER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"Worker proc \w*Worker-(\d+) died unexpectedly").ok());
static PID: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\s+pid: (\d+)$").ok());
static KILLED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[Oo]ut of memory: Kill(?:ed)? process (\d+) ").ok());

/// Ray's memory monitor, which kills a worker to keep its node alive.
static MEMORY_MONITOR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"Memory on the node .* where the \w+ \(.*\bpid=(\d+), memory used=").ok()
});
/// A fault of a process in the kernel's log: `python[2191]: segfault at 18 ip ...`, `traps: python[2191] general protection fault`.
static KERNEL_FAULT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"[\w.-]\[(\d+)\]: segfault at [0-9a-f]|\btraps: \S+\[(\d+)\] (?:general protection|trap (?:invalid opcode|divide error|int3)|bus error)",
    )
    .ok()
});

/// The signals by which a process fails on its own account; `Aborted` is how watchdogs and uncaught errors end one.
static SIGNAL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^\[[\w.-]+:\d+\] Signal: (?:Segmentation fault|Bus error|Illegal instruction|Floating point exception) \(\d+\)").ok()
});

/// What a process writes at its end by a fault of its device or of its memory: ROCm, Intel's drivers, UCX, c10, glibc.
static FAULT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^Memory access fault by GPU node-\d+|\baborting with error : HSA_STATUS_ERROR|^Segmentation fault from GPU at 0x|\] Caught signal (?:4|7|8|11) \(|^!!!!!!! Segfault encountered !!!!!!!|^(?:double free or corruption|free\(\): invalid|malloc\(\): |munmap_chunk\(\): |corrupted (?:size|double-linked list))",
    )
    .ok()
});
/// What is in each of those lines.
const FAULT_WORDS: &[&str] = &[
    "fault",
    "HSA_STATUS_ERROR",
    "Caught signal",
    "free",
    "malloc",
    "munmap",
    "corrupted",
];
/// Open MPI: `mpirun noticed that process rank 3 with PID 0 on node n2 exited on signal 11 (Segmentation fault).`
static NOTICED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"noticed that process rank (\d+) with PID \d+ on node \S+ exited on signal (?:4|7|8|9|11) ").ok()
});
/// Hydra, of MPICH and Intel MPI, in the rows of its table: the rank, and how it ended.
static ROW: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^=\s+RANK (\d+) PID \d+ RUNNING AT ").ok());
static ROW_SIGNAL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^=\s+KILLED BY SIGNAL: (?:4|7|8|9|11) ").ok());

impl DeadWorkers {
    /// Reads a line of an MPI launcher. Of several ranks the first counts: the launcher has killed the others.
    fn read_mpi(&mut self, text: &str) {
        let number = |pattern: &LazyLock<Option<Regex>>| -> Option<u32> {
            pattern.as_ref()?.captures(text)?[1].parse().ok()
        };
        if text.contains("noticed that process rank ")
            && let Some(rank) = number(&NOTICED)
        {
            self.lines
                .ranks
                .entry(rank)
                .or_insert_with(|| text.to_owned());
        } else if text.starts_with("= ") {
            let is_end = text.contains("KILLED BY SIGNAL: ") || text.contains("EXIT CODE: ");
            let is_signal = || ROW_SIGNAL.as_ref().is_some_and(|row| row.is_match(text));
            if let Some(rank) = number(&ROW) {
                self.row.get_or_insert(Some(rank));
            } else if is_end
                && let Some(rank) = self.row.replace(None).flatten()
                && is_signal()
            {
                self.lines
                    .ranks
                    .entry(rank)
                    .or_insert_with(|| text.to_owned());
            }
        }
    }

    /// Reads the next line, which a rank has written if it is known.
    pub(super) fn read(&mut self, text: &str, rank: Option<u32>) {
        self.read_mpi(text);
        let may_be_fault = || FAULT_WORDS.iter().any(|words| text.contains(words));
        if let Some(rank) = rank
            && may_be_fault()
            && FAULT.as_ref().is_some_and(|line| line.is_match(text))
        {
            self.lines
                .ranks
                .entry(rank)
                .or_insert_with(|| text.to_owned());
            return;
        }
        if let Some(rank) = rank
            && text.contains("] Signal: ")
            && SIGNAL.as_ref().is_some_and(|line| line.is_match(text))
        {
            self.lines
                .ranks
                .entry(rank)
                .or_insert_with(|| text.to_owned());
            return;
        }
        let number = |pattern: &LazyLock<Option<Regex>>| {
            let found = pattern.as_ref()?.captures(text)?;
            Some(found.get(1).or(found.get(2))?.as_str().to_owned())
        };
        let line = || text.trim().to_owned();
        if text.contains(" died unexpectedly, shutting down") {
            if let Some(rank) = number(&WORKER).and_then(|rank| rank.parse().ok()) {
                self.lines.ranks.entry(rank).or_insert_with(line);
            }
        } else if text.contains("actor died unexpectedly") {
            self.actor = Some(line());
        } else if let Some(actor) = &self.actor
            && let Some(pid) = number(&PID)
        {
            self.lines.processes.entry(pid).or_insert(actor.clone());
            self.actor = None;
        } else if text.contains("ut of memory: Kill")
            && let Some(pid) = number(&KILLED)
        {
            self.lines.processes.entry(pid).or_insert_with(line);
        } else if text.contains(", memory used=")
            && let Some(pid) = number(&MEMORY_MONITOR)
        {
            let line = || format!("Ray's memory monitor killed process {pid}");
            self.lines.processes.entry(pid.clone()).or_insert_with(line);
        } else if (text.contains("]: segfault at ") || text.contains("traps: "))
            && let Some(pid) = number(&KERNEL_FAULT)
        {
            self.lines.processes.entry(pid).or_insert_with(line);
        }
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
            dead.lines.name(|pid| (pid == "90").then_some(5));
            dead.lines.ranks.into_keys().collect::<Vec<_>>()
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
        assert_eq!(
            read(
                "Memory on the node (IP: 10.0.0.4, ID: 2c0c) where the task (task ID: 76b2, name=f, pid=90, memory used=0.05GB) was running was 219.41GB / 230.40GB (0.952289), which exceeds the memory usage threshold of 0.95. Ray killed this worker"
            ),
            [5]
        );
        for fault in [
            "[14531.790543] python[90]: segfault at 100324c2400 ip 00007f16 sp 00007f15 error 4 in libcuda.so[7f16+b1f000]",
            "kernel: traps: pt_main_thread[90] general protection fault ip:7f3a sp:7ffd error:0 in libc.so.6",
        ] {
            assert_eq!(read(fault), [5], "{fault}");
        }
        assert_eq!(read("[h:77153] Signal: Segmentation fault (11)"), [7]);
        assert!(read("[h:77153] Signal: Aborted (6)").is_empty());
    }

    #[test]
    fn faults_and_launchers_of_mpi_name_a_rank() {
        let read = |text: &str| {
            let mut dead = DeadWorkers::default();
            text.lines().for_each(|line| dead.read(line, Some(7)));
            dead.lines.ranks.into_keys().collect::<Vec<_>>()
        };
        for fault in [
            "Memory access fault by GPU node-5 (Agent handle: 0x56) on address 0x7e. Reason: Unknown.",
            ":0:rocdevice.cpp            :2984: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: x",
            "[n1:4242:0:4242] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)",
            "free(): invalid pointer",
        ] {
            assert_eq!(read(fault), [7], "{fault}");
        }
        assert!(read("[n1:4242:0:4242] Caught signal 15 (Terminated: sent by kill)").is_empty());
        assert!(read("free memory: 3 GiB, default 7").is_empty());
        assert_eq!(
            read(
                "mpirun noticed that process rank 3 with PID 0 on node n2 exited on signal 11 (Segmentation fault)."
            ),
            [3]
        );
        let row = |rank: u32, signal: &str| {
            format!("=   RANK {rank} PID 9 RUNNING AT n2\n=   KILLED BY SIGNAL: {signal}\n")
        };
        let table = format!(
            "{}{}",
            row(2, "11 (Segmentation fault)"),
            row(0, "9 (Killed)")
        );
        assert_eq!(read(&table), [2]);
        let effect = format!("{}{}", row(2, "6 (Aborted)"), row(0, "9 (Killed)"));
        assert!(read(&effect).is_empty());
    }
}
