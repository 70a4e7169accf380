//! Reads torchrun's table of failures: `rank : 2 (local_rank: 2)`, `exitcode : -9 (pid: ...)`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

/// What the launcher's table says of ranks that ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Launcher {
    /// Exit codes by rank; -9 is signal 9.
    pub(super) exits: BTreeMap<u32, i32>,
    /// The rank whose failure the launcher saw first; `None` if it names none.
    pub(super) first: Option<u32>,
    row: Option<u32>,
    is_root: bool,
}

static RANK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\s*rank\s*: (\d+) \(local_rank: \d+\)").ok());
static EXIT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\s*exitcode\s*: (-?\d+) \(pid").ok());

impl Launcher {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if text.starts_with("Root Cause (first observed failure)") {
            self.is_root = true;
            return;
        }
        if !text.contains(" (local_rank") && !text.contains(" (pid") {
            return;
        }
        let number = |pattern: &LazyLock<Option<Regex>>| -> Option<i32> {
            pattern.as_ref()?.captures(text)?[1].parse().ok()
        };
        if let Some(rank) = number(&RANK) {
            let rank = rank.unsigned_abs();
            self.row = Some(rank);
            if self.is_root && self.first.is_none() {
                self.first = Some(rank);
            }
        } else if let (Some(code), Some(rank)) = (number(&EXIT), self.row) {
            self.exits.insert(rank, code);
        }
    }

    /// Adds what another file says; the first rank to fail is kept if it is known.
    pub(super) fn merge(&mut self, other: Self) {
        self.exits.extend(other.exits);
        self.first = self.first.or(other.first);
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
    fn the_table_is_read() {
        let text = "Failures:\n[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 7)\n---\nRoot Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 8)\n";
        let mut launcher = Launcher::default();
        text.lines().for_each(|line| launcher.read(line));
        assert_eq!(launcher.exits, [(0, -15), (2, -9)].into());
        assert_eq!(launcher.first, Some(2));
        assert_eq!(ending(-9), "signal 9 (SIGKILL)");
        assert!(is_killed_by_signal(-9) && !is_killed_by_signal(-15) && !is_killed_by_signal(1));
    }
}
