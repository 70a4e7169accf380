//! Lines about processes whose ranks are known at once, or only once a log has told whose process an id is.

use std::collections::BTreeMap;

/// A line about each of some processes.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessLines {
    /// By the rank of the process.
    pub(super) ranks: BTreeMap<u32, String>,
    /// By process id, as long as its rank is not known.
    pub(super) processes: BTreeMap<String, String>,
}

impl ProcessLines {
    /// Finds the ranks of the processes. The line that a rank has already stays.
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
    fn a_process_is_named_once_its_rank_is_known() {
        let mut lines = ProcessLines::default();
        lines.processes.insert("90".to_owned(), "killed".to_owned());
        lines
            .processes
            .insert("91".to_owned(), "stopped".to_owned());
        lines.ranks.insert(4, "died".to_owned());
        lines.name(|pid| (pid == "91").then_some(3));
        lines.name(|_| Some(4));
        let ranks: Vec<(u32, String)> = lines.ranks.into_iter().collect();
        assert_eq!(ranks, [(3, "stopped".to_owned()), (4, "died".to_owned())]);
        assert!(lines.processes.is_empty());
    }
}
