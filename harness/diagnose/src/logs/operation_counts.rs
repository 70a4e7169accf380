//! Reads what `ncclras`, the tool of NCCL's RAS, says of a communicator whose ranks have launched different numbers of operations.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

/// The lines of one source so far.
#[derive(Clone, Debug, Default)]
pub(super) struct OperationCounts {
    /// How many processes the job has; `None` if no table says so.
    processes: Option<usize>,
    /// Whether the lines are under the head of that table.
    is_total: bool,
    /// The operation that the counts are of; `None` if the lines are of none.
    operation: Option<String>,
    /// How many ranks have come up to which operation, and those of them that are listed.
    counts: Vec<(usize, u64, BTreeSet<u32>)>,
}

/// Ranks that have launched fewer operations of a communicator of all ranks than the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LateRanks {
    pub(super) late: BTreeSet<u32>,
    /// The number of ranks of the communicator.
    pub(super) all: usize,
    operation: String,
    /// The last operation that most ranks have launched.
    number: u64,
}

static OPERATION: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^\s*Communicator ranks have different (\w+) operation counts"));
static COUNT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"^\s*(\d+) ranks? ha(?:ve|s) launched (?:up to operation (\d+)|no operations)")
});
static RANK: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^\s*Rank (\d+) -- GPU \S+ managed by process"));
/// The row of the job's table: nodes, processes of each, GPUs of each, processes of all, GPUs of all.
static JOB: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^\s*\d+\s+\S+\s+\S+\s+(\d+)\s+\d+\s*$"));

impl OperationCounts {
    /// Reads the next line. Returns the late ranks of the communicator that the lines before it were of.
    pub(super) fn read(&mut self, text: &str) -> Option<LateRanks> {
        if text.contains("Processes") && text.contains("GPUs") {
            self.is_total = true;
            return None;
        }
        if self.is_total
            && let Some(found) = JOB.as_ref().and_then(|row| row.captures(text))
        {
            self.is_total = false;
            self.processes = found[1].parse().ok();
            return None;
        }
        if text.contains("Communicator ranks have different ") {
            let late = self.close();
            let found = OPERATION.as_ref().and_then(|line| line.captures(text));
            self.operation = found.map(|found| found[1].to_owned());
            return late;
        }
        self.operation.as_ref()?;
        if let Some(found) = COUNT.as_ref().and_then(|line| line.captures(text)) {
            let number = found.get(2).and_then(|number| number.as_str().parse().ok());
            let ranks = found[1].parse().unwrap_or(0);
            self.counts
                .push((ranks, number.unwrap_or(0), BTreeSet::new()));
        } else if let Some(found) = RANK.as_ref().and_then(|line| line.captures(text)) {
            if let (Some((.., listed)), Ok(rank)) = (self.counts.last_mut(), found[1].parse()) {
                listed.insert(rank);
            }
        } else if !text.trim().is_empty() {
            return self.close();
        }
        None
    }

    /// Ends the lines of a communicator. Returns its late ranks, if all of them are listed, and the communicator has a rank for each
    /// process: only then its numbers are ranks of the job.
    pub(super) fn close(&mut self) -> Option<LateRanks> {
        let counts = std::mem::take(&mut self.counts);
        let operation = self.operation.take()?;
        let all: usize = counts.iter().map(|(ranks, ..)| ranks).sum();
        let number = counts.iter().map(|(_, number, _)| *number).max()?;
        let behind = counts.iter().filter(|(_, one, _)| *one < number);
        let is_listed = behind
            .clone()
            .all(|(ranks, _, listed)| listed.len() == *ranks);
        let late: BTreeSet<u32> = behind.flat_map(|(.., listed)| listed).copied().collect();
        let is_known = is_listed && !late.is_empty() && self.processes == Some(all);
        is_known.then_some(LateRanks {
            late,
            all,
            operation,
            number,
        })
    }
}

impl LateRanks {
    /// Returns it as a line of a report.
    pub(super) fn line(&self) -> String {
        format!(
            "{} of {} ranks have launched {} {}",
            self.all - self.late.len(),
            self.all,
            self.operation,
            self.number
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the late ranks of a job of 4 processes.
    fn late(lines: &str) -> Option<Vec<u32>> {
        let mut counts = OperationCounts::default();
        let job = "  Nodes  Processes         GPUs  Processes     GPUs\n(total)   per node  per process    (total)  (total)\n      1          4            1          4        4\n";
        let head = "#0-0 (fa93daea854b060b) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n";
        let text = format!("{job}\n{head}{lines}");
        let found = text.lines().find_map(|line| counts.read(line));
        let found = found.or_else(|| counts.close())?;
        Some(found.late.into_iter().collect())
    }

    #[test]
    fn the_few_ranks_with_fewer_operations_are_late() {
        let rank = |rank: u32| {
            format!("  Rank {rank} -- GPU {rank} managed by process 77 on node 10.0.0.1\n")
        };
        let counts = |most: u32, few: u32, last: u64| {
            format!(
                "  {most} ranks have launched up to operation {last}\n  {few} ranks have launched up to operation 88\n"
            )
        };
        let one = format!("{}{}", counts(3, 1, 89), rank(2));
        assert_eq!(late(&one), Some(vec![2]));
        // Of those that are ahead the others may be late, and they are not listed.
        assert_eq!(late(&format!("{}{}", counts(3, 1, 87), rank(2))), None);
        // The communicator has not all ranks, and numbers of its own.
        assert_eq!(late(&format!("{}{}", counts(2, 1, 89), rank(2))), None);
        assert_eq!(late(&counts(3, 1, 89)), None);
    }
}
