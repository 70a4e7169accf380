//! Measures for how long a thread has not run, by the kernel's own counters, so that the time before the first look counts as
//! well.

use std::time::Duration;

#[cfg(target_os = "linux")]
use crate::thread::sleeps;

/// Returns for how long a thread of process `pid` has slept without a break. `None` if it does not sleep, has ended, belongs to
/// another user, or the kernel does not tell (it needs CONFIG_SCHED_DEBUG). Moves the calling thread for a moment to the
/// processor on which the thread last ran.
///
/// Each processor has a scheduler clock of its own, which excludes the time of interrupts and of the hypervisor. Clocks of two
/// processors have been seen seconds apart, so both readings are taken from the same one.
#[cfg(target_os = "linux")]
#[must_use]
pub fn idle_time(pid: u32, thread: u32) -> Option<Duration> {
    let before = sleeping_on(pid, thread)?;
    let last = last_run(&format!("/proc/{pid}/task/{thread}/sched"))?;
    let now = std::thread::Builder::new()
        .spawn(move || clock_of(before))
        .ok()?
        .join()
        .ok()??;
    (sleeping_on(pid, thread)? == before)
        .then(|| Duration::from_secs_f64((now - last).max(0.0) / 1000.0))
}

/// Returns for how long a thread of process `pid` has slept without a break: not known here, `None`.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn idle_time(_pid: u32, _thread: u32) -> Option<Duration> {
    None
}

/// Returns the processor on which a thread ran last; `None` if it does not sleep.
#[cfg(target_os = "linux")]
fn sleeping_on(pid: u32, thread: u32) -> Option<usize> {
    let task = procfs::process::Process::new(pid.cast_signed())
        .ok()?
        .task_from_tid(thread.cast_signed())
        .ok()?;
    let stat = task.stat().ok()?;
    let processor = usize::try_from(stat.processor?).ok()?;
    sleeps(stat.state).then_some(processor)
}

/// Moves the calling thread to a processor, and whatever it starts. `None` if it may not run there.
#[cfg(target_os = "linux")]
fn move_to(processor: usize) -> Option<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};

    if processor >= CpuSet::MAX_CPU {
        return None;
    }
    let mut processors = CpuSet::new();
    processors.set(processor);
    sched_setaffinity(None, &processors).ok()
}

/// Moves the calling thread to a processor and returns what its clock says, in milliseconds. `None` if it may not run there.
#[cfg(target_os = "linux")]
fn clock_of(processor: usize) -> Option<f64> {
    move_to(processor)?;
    // The kernel notes the time when the thread is given the processor again.
    std::thread::yield_now();
    last_run("/proc/thread-self/sched")
}

/// Returns when a thread was last on its processor, in milliseconds of that processor's clock. `None` if the kernel does not
/// tell, or has just moved the thread to another processor: until it runs there the time is 0.
#[cfg(target_os = "linux")]
fn last_run(path: &str) -> Option<f64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("se.exec_start"))?;
    let time: f64 = line.rsplit(':').next()?.trim().parse().ok()?;
    (time > 0.0).then_some(time)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity};
    use std::process::Command;
    use std::time::Instant;

    /// Ends and waits for a child when it goes out of scope.
    struct Sleeper(std::process::Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Returns what a function does on this processor; what it starts stays there.
    fn on<T: Send>(processor: usize, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let pinned = || {
                move_to(processor).unwrap();
                act()
            };
            scope.spawn(pinned).join().unwrap()
        })
    }

    #[test]
    fn a_sleeper_has_slept_since_it_began_on_whichever_processor() {
        if last_run("/proc/self/sched").is_none() {
            return;
        }
        let allowed = sched_getaffinity(None).unwrap();
        for processor in (0..CpuSet::MAX_CPU).filter(|one| allowed.is_set(*one)) {
            let began = Instant::now();
            let sleeper =
                Sleeper(on(processor, || Command::new("sleep").arg("600").spawn()).unwrap());
            let pid = sleeper.0.id();
            // It is asleep for good once it has been so for longer than a program takes to start up between two waits.
            let settled = Duration::from_millis(300);
            let first = loop {
                if let Some(idle) = idle_time(pid, pid).filter(|idle| *idle >= settled) {
                    break idle;
                }
                assert!(began.elapsed() < Duration::from_secs(60));
                std::thread::sleep(Duration::from_millis(20));
            };
            std::thread::sleep(settled);
            // The processor's clock may leave out what interrupts and the hypervisor took, and adds nothing.
            let idle = idle_time(pid, pid).unwrap();
            assert!(idle > first, "{idle:?} after {first:?} on {processor}");
            assert!(idle <= began.elapsed(), "{idle:?} on {processor}");
        }
    }

    #[test]
    fn what_runs_or_is_gone_is_not_idle() {
        let own = std::process::id();
        // The calling thread runs.
        let thread = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .cast_unsigned();
        assert_eq!(idle_time(own, thread), None);
        assert_eq!(idle_time(u32::MAX >> 1, 1), None);
    }
}
