//! Measures the processor time that ranks and the processes below them (data loaders, compilers, an evaluation in a program of
//! its own) have used since nothing has moved.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often processor times are read.
const INTERVAL: Duration = Duration::from_secs(1);
/// The processor time, in clock ticks, that tells work from a heartbeat.
const WORK: u64 = 10;

/// The work of the processes below each rank, by the rank's process id, since it was first looked at.
#[derive(Debug, Default)]
pub struct Below {
    looked: Option<Instant>,
    marks: BTreeMap<u32, Mark>,
    /// The ranks' own processor times at the first look, in clock ticks.
    own: BTreeMap<u32, u64>,
}

#[derive(Debug)]
struct Mark {
    /// Processor times when work was last seen.
    ticks: BTreeMap<u32, u64>,
    /// When that was; none if none was seen yet.
    worked: Option<Instant>,
    /// Processor times at the last look.
    last: BTreeMap<u32, u64>,
    /// What has been used of the processor since the first look, in clock ticks.
    used: u64,
}

impl Below {
    /// Looks at the processes below these, if the last look is long enough ago.
    pub fn look(&mut self, pids: &[u32]) {
        let now = Instant::now();
        if (self.looked).is_some_and(|looked| now.duration_since(looked) < INTERVAL) {
            return;
        }
        self.looked = Some(now);
        self.take(allranks_host::processor_times_below(pids), now);
    }

    fn take(&mut self, times: BTreeMap<u32, BTreeMap<u32, u64>>, now: Instant) {
        self.marks.retain(|pid, _| times.contains_key(pid));
        for (pid, ticks) in times {
            let mark = self.marks.entry(pid).or_insert_with(|| Mark {
                ticks: ticks.clone(),
                worked: None,
                last: ticks.clone(),
                used: 0,
            });
            let gained = ticks.iter().map(|(child, now)| {
                now.saturating_sub(mark.last.get(child).copied().unwrap_or_default())
            });
            mark.used += gained.sum::<u64>();
            mark.last.clone_from(&ticks);
            if has_worked(&mark.ticks, &ticks) {
                mark.ticks = ticks;
                mark.worked = Some(now);
            }
        }
    }

    /// Returns what the processes below this one have used of the processor since the first look, in clock ticks.
    pub fn used_below(&self, pid: u32) -> u64 {
        self.marks.get(&pid).map_or(0, |mark| mark.used)
    }

    /// Notes the processor time, in clock ticks, that a rank itself has used; returns what of it is since the first note.
    pub fn own(&mut self, pid: u32, ticks: u64) -> u64 {
        ticks.saturating_sub(*self.own.entry(pid).or_insert(ticks))
    }

    /// Returns true if a process below this one was seen to work within that time.
    pub fn has_worked_within(&self, pid: u32, time: Duration) -> bool {
        let worked = self.marks.get(&pid).and_then(|mark| mark.worked);
        worked.is_some_and(|worked| worked.elapsed() < time)
    }
}

/// Returns true if processes have come or gone, or have used the processor in between.
fn has_worked(before: &BTreeMap<u32, u64>, now: &BTreeMap<u32, u64>) -> bool {
    !before.keys().eq(now.keys())
        || now.values().sum::<u64>() >= before.values().sum::<u64>() + WORK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_rank_counts_from_the_first_note() {
        let mut below = Below::default();
        assert_eq!(below.own(1, 500), 0);
        assert_eq!(below.own(1, 700), 200);
        assert_eq!(below.own(2, 700), 0);
    }

    #[test]
    fn work_is_told_from_a_heartbeat() {
        let mut below = Below::default();
        let now = Instant::now();
        let mut take = |child: u32, ticks: u64| {
            let times = [(1, BTreeMap::from([(child, ticks)]))];
            below.take(times.into(), now);
            below.has_worked_within(1, Duration::from_secs(3600))
        };
        assert!(!take(2, 100));
        assert!(!take(2, 101));
        assert!(take(2, 115));
        assert_eq!(below.used_below(1), 15);
        // Another child is work, too.
        let mut below = Below::default();
        below.take([(1, BTreeMap::from([(2, 100)]))].into(), now);
        below.take([(1, BTreeMap::from([(3, 0)]))].into(), now);
        assert!(below.has_worked_within(1, Duration::from_secs(3600)));
        assert!(!below.has_worked_within(2, Duration::from_secs(3600)));
    }
}
