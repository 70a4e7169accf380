//! Reads torchrun's table of failures: `rank : 2 (local_rank: 2)`, `exitcode : -9 (pid: ...)`; and how srun's tasks ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::moment::{Form, Moment};
use super::srun::TasksEnd;
use crate::{ErrorCause, error_cause};

/// What the launcher's table says of ranks that ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Launcher {
    /// Exit codes by rank; -9 is signal 9.
    pub(super) exits: BTreeMap<u32, i32>,
    /// The rank whose failure the launcher saw first; `None` if it names none.
    pub(super) first: Option<u32>,
    /// The rank whose container ended first; `None` if no line tells the order.
    pub(super) ended_first: Option<u32>,
    /// When it saw each of them end; a row without a time has none.
    times: BTreeMap<u32, Moment>,
    /// Whether a rank of the table is another local rank: the table is not that of all ranks.
    has_other_hosts: bool,
    /// The ranks whose rows show an error that is an effect of other ranks.
    effects: BTreeSet<u32>,
    row: Option<u32>,
    row_time: Option<Moment>,
    is_root: bool,
    /// How tasks of srun's ended, in the order in which it says so.
    tasks: Vec<TasksEnd>,
}

/// A launcher that tells its ranks to end waits at least for so many seconds before it kills those that do not.
const GRACE: f64 = 5.0;

static RANK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\s*rank\s*: (\d+) \(local_rank: (\d+)\)").ok());
static TIME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\s*time\s*: (\d{4})-(\d\d)-(\d\d)_(\d\d:\d\d:\d\d)").ok());
static EXIT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\s*exitcode\s*: (-?\d+) \(pid").ok());

/// The last line of a row's traceback.
static ERROR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^ {2}((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?::.*)?)$").ok()
});

impl Launcher {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if text.starts_with("Root Cause (first observed failure)") {
            self.is_root = true;
            return;
        }
        if text.contains(" : ")
            && let Some(time) = TIME.as_ref().and_then(|time| time.captures(text))
        {
            let number = |part: usize| time[part].parse().unwrap_or(1);
            self.row_time = Moment::of_date(Form::Iso, number(1), number(2), number(3), &time[4]);
            return;
        }
        if let Some(rank) = self.row
            && text.starts_with("  ")
            && let Some(found) = ERROR.as_ref().and_then(|error| error.captures(text))
        {
            if error_cause(&found[1]) == ErrorCause::Effect {
                self.effects.insert(rank);
            }
            return;
        }
        if !text.contains(" (local_rank") && !text.contains(" (pid") {
            return;
        }
        let number = |pattern: &LazyLock<Option<Regex>>| -> Option<i32> {
            pattern.as_ref()?.captures(text)?[1].parse().ok()
        };
        let rank = RANK.as_ref().and_then(|rank| rank.captures(text));
        if let Some(found) = rank {
            self.has_other_hosts |= found[1] != found[2];
            let Ok(rank) = found[1].parse() else {
                return;
            };
            self.row = Some(rank);
            if let Some(time) = self.row_time.take() {
                self.times.insert(rank, time);
            }
            if self.is_root && self.first.is_none() {
                self.first = Some(rank);
            }
        } else if let (Some(code), Some(rank)) = (number(&EXIT), self.row) {
            self.exits.insert(rank, code);
        }
    }

    /// Notes how tasks of srun's ended, which are ranks.
    pub(super) fn end_tasks(&mut self, end: TasksEnd) {
        self.tasks.push(end);
    }

    /// Decides which of srun's tasks ended by themselves: no more lines come. Those that were killed, or failed, after another one did so
    /// because of that, and so did those that are half of all or more. A fault is a task's own at any time, as is
    /// memory that a single task has run out of.
    pub(super) fn close(&mut self) {
        let all: usize = self.tasks.iter().map(|end| end.tasks.len()).sum();
        let mut has_failed = false;
        for end in std::mem::take(&mut self.tasks) {
            let TasksEnd { tasks, code, .. } = end;
            let is_only_for_memory = tasks.len() == 1 && end.is_out_of_memory;
            let is_fault = (code < 0 && code != -9) || is_only_for_memory;
            let is_own = code == 0 || is_fault || (!has_failed && tasks.len() * 2 < all);
            has_failed |= code != 0;
            for task in tasks {
                self.exits
                    .entry(task)
                    .or_insert(if is_own { code } else { -15 });
            }
        }
    }

    /// Returns true if the row of a rank shows an error that is an effect of other ranks.
    pub(super) fn shows_effect(&self, rank: u32) -> bool {
        self.effects.contains(&rank)
    }

    /// Returns true if a rank was killed by its launcher, because another had failed and this one did not end when told to.
    pub(super) fn was_killed_by_launcher(&self, rank: u32) -> bool {
        let after_first = || {
            let first = self
                .times
                .get(&self.first.filter(|first| *first != rank)?)?;
            self.times.get(&rank)?.since(*first)
        };
        self.exits.get(&rank) == Some(&-9) && after_first().is_some_and(|seconds| seconds >= GRACE)
    }

    /// Returns the ranks that the table does not list although it lists greater ones: they ended with exit code 0. None if the table
    /// is not that of all ranks.
    pub(super) fn not_listed(&self) -> Vec<u32> {
        let highest = self.exits.keys().max().copied().unwrap_or(0);
        let is_whole = self.first.is_some() && !self.has_other_hosts;
        let listed = |rank: &u32| !is_whole || self.exits.contains_key(rank);
        (0..highest).filter(|rank| !listed(rank)).collect()
    }

    /// Returns true if the table names the first failure, and lists the ranks of the only host.
    pub(super) fn is_of_one_host(&self) -> bool {
        self.first.is_some() && !self.has_other_hosts
    }

    /// Adds what another file says; the first rank to fail is kept if it is known.
    pub(super) fn merge(&mut self, other: Self) {
        self.exits.extend(other.exits);
        self.times.extend(other.times);
        self.effects.extend(other.effects);
        self.has_other_hosts |= other.has_other_hosts;
        self.first = self.first.or(other.first);
        self.ended_first = self.ended_first.or(other.ended_first);
    }
}

/// Describes an exit code: `exit 1`, `signal 9 (SIGKILL)`.
pub(super) fn ending(code: i32) -> String {
    let name = match -code {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        _ => "",
    };
    match (code, name) {
        (0.., _) => format!("exit {code}"),
        (_, "") => format!("signal {}", -code),
        (_, name) => format!("signal {} ({name})", -code),
    }
}

/// Returns true if an exit code shows a signal that is not an effect of other ranks. SIGINT and SIGTERM come from the
/// user or the launcher, and a watchdog or Gloo aborts a process because of others.
pub(super) fn is_killed_by_signal(code: i32) -> bool {
    code < 0 && !matches!(-code, 2 | 6 | 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_killed_after_a_failure_were_killed_for_it() {
        let exits = |ends: &[(&[u32], i32)]| {
            let mut launcher = Launcher::default();
            for (tasks, code) in ends {
                let (tasks, code) = (tasks.to_vec(), *code);
                launcher.end_tasks(TasksEnd {
                    tasks,
                    code,
                    is_out_of_memory: false,
                });
            }
            launcher.close();
            launcher.exits.into_values().collect::<Vec<_>>()
        };
        assert_eq!(exits(&[(&[1], -9), (&[0, 2], -6)]), [-6, -9, -6]);
        assert_eq!(exits(&[(&[0], 1), (&[1, 2], -9)]), [1, -15, -15]);
        assert_eq!(exits(&[(&[0], -6), (&[1], 1), (&[2], -11)]), [-6, -15, -11]);
        assert_eq!(exits(&[(&[0, 1, 2], -9)]), [-15, -15, -15]);
    }

    #[test]
    fn the_table_is_read() {
        let text = "Failures:\n[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 7)\n---\nRoot Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 8)\n";
        let mut launcher = Launcher::default();
        text.lines().for_each(|line| launcher.read(line));
        assert_eq!(launcher.exits, [(0, -15), (2, -9)].into());
        assert_eq!(launcher.first, Some(2));
        assert_eq!(ending(-9), "signal 9 (SIGKILL)");
        assert!(launcher.not_listed() == [1]);
        assert!(is_killed_by_signal(-9) && !is_killed_by_signal(-15) && !is_killed_by_signal(1));
    }
}
