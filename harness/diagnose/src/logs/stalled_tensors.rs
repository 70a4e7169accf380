//! Reads Horovod's reports of tensors that some ranks have not submitted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;
use super::rank_list::ranks_of_list;

/// What the latest report says.
#[derive(Clone, Debug, Default)]
pub(super) struct StalledTensors {
    /// Ranks for which the others wait, each with the line.
    pub(super) missing: BTreeMap<u32, String>,
    /// The tensors that each of them has not submitted, as the report lists them.
    tensors: BTreeMap<u32, String>,
    /// Whether rows follow, each of one rank.
    is_table: bool,
    /// The ranks of the report before, and how many reports in a row had named these while no rank wrote of a step.
    earlier: (BTreeSet<u32>, usize),
}

/// A row of the table of Horovod 0.16 and later: `5: [allreduce.layer1.weight, ...]`.
static ROW: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"^(\d+): \[(.*)\]"));
/// A tensor in a report of any version before.
static TENSOR: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(\S+)?\s*\[missing ranks: ([\d, ]+)\]"));

impl StalledTensors {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if text.contains("One or more tensors were submitted to be reduced, gathered or") {
            let earlier = (self.missing.keys().copied().collect(), self.reports());
            *self = Self {
                earlier,
                ..Self::default()
            };
        } else if text.contains("[missing ranks: ") {
            let Some(found) = TENSOR.as_ref().and_then(|line| line.captures(text)) else {
                return;
            };
            let tensor = found.get(1).map_or("", |tensor| tensor.as_str());
            for rank in ranks_of_list(&found[2]) {
                self.missing.entry(rank).or_insert_with(|| text.to_owned());
                let tensors = self.tensors.entry(rank).or_default();
                tensors.push_str(tensor);
                tensors.push(' ');
            }
        } else if text.starts_with("Missing ranks:") {
            self.is_table = true;
        } else if self.is_table {
            let row = ROW.as_ref().and_then(|row| row.captures(text));
            self.is_table = row.is_some();
            if let Some(row) = row
                && let Ok(rank) = row[1].parse()
            {
                self.missing.insert(rank, text.to_owned());
                self.tensors.insert(rank, row[2].to_owned());
            }
        }
    }

    /// Notes that a rank has written of a step: those that wait are not the same as before.
    pub(super) fn step(&mut self) {
        self.earlier = (BTreeSet::new(), 0);
    }

    /// Counts the reports in a row that name the same ranks, the latest included, while no rank has written of a step.
    pub(super) fn reports(&self) -> usize {
        let (ranks, reports) = &self.earlier;
        let is_same = !ranks.is_empty() && ranks.iter().eq(self.missing.keys());
        let earlier = if is_same { *reports } else { 0 };
        earlier + usize::from(!self.missing.is_empty())
    }

    /// Returns the few ranks that wait for tensors which no other rank has submitted, while all others wait for theirs; `None` if some
    /// of this many ranks are not missing, or they are not divided into these two.
    pub(super) fn divided(&self, ranks: usize) -> Option<BTreeSet<u32>> {
        let mut sides: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for (rank, tensors) in &self.tensors {
            sides.entry(tensors).or_default().insert(*rank);
        }
        let is_whole = self.missing.len() == ranks && self.tensors.len() == ranks;
        let few = sides.values().min_by_key(|side| side.len())?;
        (is_whole && sides.len() == 2 && few.len() * 2 < ranks).then(|| few.clone())
    }

    /// Adds what another file says.
    pub(super) fn merge(&mut self, other: Self) {
        if other.reports() > self.reports() {
            self.earlier = other.earlier;
        }
        self.missing.extend(other.missing);
        self.tensors.extend(other.tensors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_report_counts() {
        let read = |text: &str| {
            let mut stalled = StalledTensors::default();
            text.lines().for_each(|line| stalled.read(line));
            stalled.missing.into_keys().collect::<Vec<_>>()
        };
        let report = "W stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks";
        let table = |rank: u32| {
            format!("{report}\nMissing ranks:\n{rank}: [allreduce.a, allreduce.b ...]\n")
        };
        assert_eq!(read(&table(5)), [5]);
        assert_eq!(read(&format!("{}{}", table(5), table(7))), [7]);
        assert_eq!(read(&format!("{}\n6: [x]", table(5))), [5]);
        let old =
            format!("{report}\nStalled ops:\na_0 [missing ranks: 1, 2]\nb_0 [missing ranks: 2]");
        assert_eq!(read(&old), [1, 2]);
    }

    #[test]
    fn reports_in_a_row_are_counted() {
        let mut stalled = StalledTensors::default();
        let report = |stalled: &mut StalledTensors, rank: u32| {
            stalled.read("One or more tensors were submitted to be reduced, gathered or x");
            stalled.read("Missing ranks:");
            stalled.read(&format!("{rank}: [allreduce.a, allreduce.b ...]"));
            stalled.reports()
        };
        assert_eq!(
            [3, 3, 3, 5, 5].map(|rank| report(&mut stalled, rank)),
            [1, 2, 3, 1, 2]
        );
        stalled.step();
        assert_eq!(report(&mut stalled, 5), 2);
    }

    #[test]
    fn a_rank_that_waits_for_other_tensors_than_all_others_is_told_from_them() {
        let divided = |rows: &[&str]| {
            let mut stalled = StalledTensors::default();
            stalled.read("One or more tensors were submitted to be reduced, gathered or x");
            stalled.read("Missing ranks:");
            rows.iter().for_each(|row| stalled.read(row));
            let few = stalled.divided(4)?;
            Some(few.into_iter().collect::<Vec<_>>())
        };
        let rows = [
            "0: [m.loss]",
            "1: [m.loss]",
            "2: [g.a, g.b ...]",
            "3: [m.loss]",
        ];
        assert_eq!(divided(&rows), Some(vec![2]));
        assert_eq!(divided(&rows[..3]), None);
        let halves = ["0: [m.loss]", "1: [g.a]", "2: [g.a]", "3: [m.loss]"];
        assert_eq!(divided(&halves), None);
        let three = ["0: [m.loss]", "1: [m.top]", "2: [g.a]", "3: [m.loss]"];
        assert_eq!(divided(&three), None);
    }
}
