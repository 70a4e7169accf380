//! Lists the threads of a process, and detects whether one has run since an earlier look.

/// A thread at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its id; that of the main thread is the process's.
    pub id: u32,
    /// Its name, cut by the kernel to 15 bytes.
    pub name: String,
    /// The letter that `/proc` has for its state.
    pub state: char,
    /// How often it has left the processor to wait for something. A thread that sleeps in one wait adds nothing.
    pub waits: u64,
    /// How often it was made to leave the processor.
    pub preemptions: u64,
    /// Time on the processor so far, in clock ticks.
    pub ticks: u64,
}

impl Thread {
    #[cfg(target_os = "linux")]
    fn of(task: &procfs::process::Task) -> Option<Self> {
        let (stat, status) = (task.stat().ok()?, task.status().ok()?);
        Some(Self {
            id: task.tid.cast_unsigned(),
            name: stat.comm,
            state: stat.state,
            waits: status.voluntary_ctxt_switches?,
            preemptions: status.nonvoluntary_ctxt_switches?,
            ticks: stat.utime + stat.stime,
        })
    }

    /// Returns true if it has not run between `before` and now: what it was in then, it is in now.
    #[must_use]
    pub fn has_slept_since(&self, before: &Self) -> bool {
        let counts = |thread: &Self| {
            (
                thread.id,
                thread.waits,
                thread.preemptions,
                thread.ticks,
                thread.state,
            )
        };
        sleeps(self.state) && counts(self) == counts(before)
    }
}

/// Returns true if a thread in this state, a letter of `/proc`, waits for an event and not for the processor.
pub(crate) fn sleeps(state: char) -> bool {
    matches!(state, 'S' | 'D' | 'I')
}

/// Returns the threads of a process, the main thread first. Empty if it is gone, or may not be looked at; Linux only.
#[cfg(target_os = "linux")]
#[must_use]
pub fn threads(pid: u32) -> Vec<Thread> {
    use procfs::process::Process;

    let tasks = Process::new(pid.cast_signed()).and_then(|process| process.tasks());
    let mut threads: Vec<Thread> = tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| Thread::of(&task))
        .collect();
    threads.sort_by_key(|thread| (thread.id != pid, thread.id));
    threads
}

/// Returns the main thread of a process; `None` if it is gone, or may not be looked at; Linux only.
#[cfg(target_os = "linux")]
#[must_use]
pub fn main_thread(pid: u32) -> Option<Thread> {
    let process = procfs::process::Process::new(pid.cast_signed()).ok()?;
    Thread::of(&process.task_main_thread().ok()?)
}

/// Returns the main thread of a process; `None` if it is gone, or may not be looked at; Linux only.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn main_thread(_pid: u32) -> Option<Thread> {
    None
}

/// Returns the threads of a process, the main thread first. Empty if it is gone, or may not be looked at; Linux only.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn threads(_pid: u32) -> Vec<Thread> {
    Vec::new()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_thread_that_sleeps_is_told_from_one_that_runs_now_and_then() {
        let start = |script: &str| {
            std::process::Command::new("sh")
                .args(["-c", script])
                .spawn()
                .unwrap()
        };
        let (mut sleeper, mut poller) = (
            start("exec sleep 600"),
            start("while :; do sleep 0.05; done"),
        );
        let first = |pid: u32| threads(pid).into_iter().next();
        let before = loop {
            let before = first(sleeper.id()).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            let after = first(sleeper.id()).unwrap();
            if before.name == "sleep" && after.has_slept_since(&before) {
                break before;
            }
        };
        assert_eq!(before.id, sleeper.id());
        assert_eq!(main_thread(sleeper.id()).unwrap().id, before.id);
        let before = first(poller.id()).unwrap();
        while first(poller.id()).unwrap().has_slept_since(&before) {
            std::thread::sleep(Duration::from_millis(20));
        }
        for child in [&mut sleeper, &mut poller] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(threads(sleeper.id()), Vec::new());
    }
}
