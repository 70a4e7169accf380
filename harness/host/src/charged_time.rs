//! The time that is charged to a process, for timeouts. On a busy machine it passes more slowly than time on a clock.
//!
//! A timeout must find a process that is stuck, not one that the machine does not let run. If the process or one of its
//! descendants used processor time in a period, or was ready to, only that processor time is charged. A period in which all of
//! them slept is charged in full. The charge is never more than the time that has passed.

use std::time::{Duration, Instant};

/// The period that is charged at once. A clock tick of the kernel is a hundredth of it.
const PERIOD: Duration = Duration::from_secs(1);
/// The longest time on the clock, as a multiple of the limit, whatever was charged. It ends the wait for a process that neither
/// works nor ends.
const MAX_CLOCK_FACTOR: u32 = 10;

/// Measures the time that is charged to a process and its descendants.
#[derive(Debug)]
pub struct ChargedTime {
    pid: u32,
    began: Instant,
    looked: Instant,
    used: Duration,
    charged: Duration,
}

impl ChargedTime {
    /// Begins to measure the charged time of a process.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let now = Instant::now();
        Self {
            pid,
            began: now,
            looked: now,
            used: Duration::ZERO,
            charged: Duration::ZERO,
        }
    }

    /// Returns true if the time that was charged has reached `limit`, or if ten times as much has passed. Looks at the
    /// processes at most once a second, so it can be called at any time.
    pub fn is_over(&mut self, limit: Duration) -> bool {
        let passed = self.looked.elapsed();
        // Less time than the limit cannot be over. Ticks are too coarse for periods shorter than this.
        let is_near = self.charged + passed >= limit && passed >= limit.min(PERIOD / 10);
        if passed >= PERIOD || is_near {
            let (used, is_ready) = usage(self.pid);
            // The processor time of a process is lost when it ends.
            let more = used.saturating_sub(self.used);
            self.charged += charge(passed, more, is_ready);
            (self.used, self.looked) = (used, Instant::now());
        }
        self.charged >= limit || self.began.elapsed() >= limit * MAX_CLOCK_FACTOR
    }
}

/// Returns the charge for a period: `passed` on the clock, with `used` processor time. `is_ready`: a thread was ready to run at
/// its end.
fn charge(passed: Duration, used: Duration, is_ready: bool) -> Duration {
    match used.is_zero() && !is_ready {
        true => passed,
        false => passed.min(used),
    }
}

/// Returns the processor time that a process and its descendants have used. Linux only; elsewhere zero.
#[must_use]
pub fn processor_time(pid: u32) -> Duration {
    usage(pid).0
}

/// Returns the time in which threads of a process and its descendants were ready to run but waited for a processor, added up
/// over all threads. Linux only, and where the kernel counts it; elsewhere zero.
#[cfg(target_os = "linux")]
#[must_use]
pub fn time_ready(pid: u32) -> Duration {
    use procfs::process::Process;

    let (mut waited, mut open) = (Duration::ZERO, vec![pid]);
    while let Some(pid) = open.pop() {
        let process = Process::new(pid.cast_signed());
        let tasks = process.and_then(|process| process.tasks());
        for task in tasks.into_iter().flatten().flatten() {
            let delay = task.schedstat().map(|stat| stat.run_delay);
            waited += Duration::from_nanos(delay.unwrap_or_default());
            open.extend(task.children().unwrap_or_default());
        }
    }
    waited
}

/// Returns zero: only Linux tells.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn time_ready(_pid: u32) -> Duration {
    Duration::ZERO
}

/// Returns the processor time that a process and its descendants have used, and whether one of their threads runs or is ready
/// to run.
#[cfg(target_os = "linux")]
fn usage(pid: u32) -> (Duration, bool) {
    use procfs::process::Process;

    let (mut ticks, mut is_ready) = (0, false);
    let mut open = vec![pid];
    while let Some(pid) = open.pop() {
        let Ok(process) = Process::new(pid.cast_signed()) else {
            continue;
        };
        let Ok(stat) = process.stat() else {
            continue;
        };
        let of_ended = stat.cutime.max(0).cast_unsigned() + stat.cstime.max(0).cast_unsigned();
        ticks += stat.utime + stat.stime + of_ended;
        for task in process.tasks().into_iter().flatten().flatten() {
            // `D` is a wait for a disk, which takes long on a busy machine.
            is_ready |= task
                .stat()
                .is_ok_and(|stat| matches!(stat.state, 'R' | 'D'));
            open.extend(task.children().unwrap_or_default());
        }
    }
    let seconds = ticks as f64 / procfs::ticks_per_second() as f64;
    (Duration::from_secs_f64(seconds), is_ready)
}

/// Returns zero and false, so that all time is charged: only Linux tells.
#[cfg(not(target_os = "linux"))]
fn usage(_pid: u32) -> (Duration, bool) {
    (Duration::ZERO, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_is_time_asleep_and_processor_time() {
        let ms = Duration::from_millis;
        assert_eq!(charge(ms(1000), ms(0), false), ms(1000), "asleep");
        assert_eq!(charge(ms(1000), ms(0), true), ms(0), "not let run");
        assert_eq!(charge(ms(1000), ms(60), true), ms(60), "let run a little");
        assert_eq!(charge(ms(1000), ms(60), false), ms(60));
        assert_eq!(charge(ms(1000), ms(4000), true), ms(1000), "four threads");
    }

    #[test]
    fn a_process_that_sleeps_is_over_when_the_limit_is() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let (began, limit) = (Instant::now(), Duration::from_millis(300));
        let mut time = ChargedTime::of(child.id());
        while !time.is_over(limit) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(began.elapsed() >= limit);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
