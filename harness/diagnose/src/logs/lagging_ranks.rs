//! Reads which ranks torch's own tools say have not joined a collective: the desync report of `TORCH_NCCL_DESYNC_DEBUG` (texts of
//! `TraceUtils.h`), and what `torchfrtrace` (`fr_trace`) finds in the dumps of flight recorders. `ncclras` counts operations, and XLA's
//! coordination service lists the tasks that have not come to a barrier.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::operation_counts::OperationCounts;
use super::pattern::pattern;
use super::rank_list::ranks_of_list;

/// The reports of one source, in the order of their lines.
#[derive(Clone, Debug, Default)]
pub(super) struct LaggingRanks {
    pub(super) reports: Vec<LagReport>,
    /// The rank of the last line that a rank begins.
    writer: Option<u32>,
    /// Whether the report that the lines are of numbers the ranks of a smaller group.
    is_of_group: bool,
    /// How many dumps the analyzer has loaded; `None` if it does not say.
    loaded: Option<usize>,
    /// The ranks that the analyzer says have called something else than the rest, each with its line.
    pub(super) mismatched: BTreeMap<u32, String>,
    /// How many ranks the collective has of which it says so.
    pub(super) compared: usize,
    /// What the analyzer says of the collective that its lines are of: title, and the ranks that have not joined.
    entry: Option<(String, BTreeSet<u32>)>,
    operation_counts: OperationCounts,
    /// What a coordination service says of a barrier that its lines are of: the line, and the tasks that have not come.
    barrier: Option<(String, BTreeSet<u32>)>,
}

/// One statement that ranks have not joined a collective that others are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LagReport {
    /// The ranks that have not joined.
    pub(super) missing: BTreeSet<u32>,
    /// How many ranks should have; 0 if it is not told.
    pub(super) expected: usize,
    /// The line that says so.
    pub(super) line: String,
}

static TIMEOUT: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^\s*- \[(\d+)\] Timeout at collective: "));
static DID_NOT_JOIN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"\[([\d, ]+)\] finished collective #\d+, but didn't join collective #\d+")
});
static NEVER_JOINED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"ranks \[([\d, ]+)\] are the lagging ranks that caused this timeout")
});
static LOADED: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"^loaded (\d+) files in "));
static ENTRY: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"\bNot all ranks joining collective\b"));
/// What `torchfrtrace` says of a rank whose entry is not that of the first of the group.
static CULPRIT: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"\bCulprit rank (\d+); Error type: \w*MISMATCH"));
/// What XLA's coordination service says of a barrier: how many of its tasks have come. It lists the others in the next lines.
static TASKS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"# of tasks that reached the barrier: (\d+)/(\d+)\..* timed out task names:")
});
static TASK: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^\s*/job:\w+/replica:\d+/task:(\d+)\s*$"));
static SET: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^(missing|expected) ranks: (?:set\(\)|\{([\d, ]+)\})"));

impl LaggingRanks {
    /// Reads the next line, which begins with a rank if `writer` is one.
    pub(super) fn read(&mut self, text: &str, writer: Option<u32>) {
        self.writer = writer.or(self.writer);
        // Most lines are about something else, and a look is cheaper than the patterns.
        if text.contains("ollective") || text.contains(" lagging ranks ") {
            self.read_desync(text);
        }
        self.read_analysis(text);
        self.read_tasks(text);
        if let Some(counts) = self.operation_counts.read(text) {
            let line = counts.line();
            self.add(counts.late, counts.all, &line);
        }
    }

    /// Ends the reading: no more lines come.
    pub(super) fn close(&mut self) {
        self.end_tasks();
        if let Some(counts) = self.operation_counts.close() {
            let line = counts.line();
            self.add(counts.late, counts.all, &line);
        }
    }

    fn read_desync(&mut self, text: &str) {
        if let Some(found) = captures(&TIMEOUT, text) {
            // A rank whose number in the group is another reports the numbers of that group.
            let own = found[1].parse().ok();
            self.is_of_group = self.writer.is_some() && self.writer != own;
            return;
        }
        if self.is_of_group {
            return;
        }
        if text.contains("] joined but didn't finish collective #") {
            // Ranks are in the collective before, too: the report does not tell who is late.
            self.is_of_group = true;
            return;
        }
        let found = captures(&DID_NOT_JOIN, text).or_else(|| captures(&NEVER_JOINED, text));
        if let Some(found) = found {
            self.add(ranks_of_list(&found[1]).collect(), 0, text);
        }
    }

    fn read_tasks(&mut self, text: &str) {
        if text.contains("timed out task names") {
            self.barrier = Some((text.to_owned(), BTreeSet::new()));
        } else if let Some((_, tasks)) = &mut self.barrier {
            match captures(&TASK, text).and_then(|task| task[1].parse().ok()) {
                Some(task) => drop(tasks.insert(task)),
                None => self.end_tasks(),
            }
        }
    }

    /// Ends the list of tasks that have not come to a barrier, which counts if it is complete.
    fn end_tasks(&mut self) {
        let Some((line, tasks)) = self.barrier.take() else {
            return;
        };
        let Some(found) = captures(&TASKS, &line) else {
            return;
        };
        let number = |part: usize| found[part].parse::<usize>().unwrap_or(0);
        let (came, all) = (number(1), number(2));
        if came + tasks.len() == all {
            self.add(tasks, all, &line);
        }
    }

    fn read_analysis(&mut self, text: &str) {
        if text.contains("Culprit rank ")
            && let Some(culprits) = CULPRIT.as_ref()
        {
            let ranks = culprits.captures_iter(text);
            let ranks = ranks.filter_map(|found| found[1].parse().ok());
            self.mismatched
                .extend(ranks.map(|rank: u32| (rank, text.trim().to_owned())));
        }
        if let Some(found) = captures(&LOADED, text) {
            self.loaded = found[1].parse().ok();
        } else if ENTRY.as_ref().is_some_and(|entry| entry.is_match(text)) {
            self.entry = Some((text.trim().to_owned(), BTreeSet::new()));
        } else if let Some(found) = captures(&SET, text) {
            let ranks = found
                .get(2)
                .map(|ranks| ranks_of_list(ranks.as_str()).collect());
            let ranks: BTreeSet<u32> = ranks.unwrap_or_default();
            let is_missing = &found[1] == "missing";
            if !is_missing {
                self.compared = self.compared.max(ranks.len());
            }
            let Some((title, missing)) = &mut self.entry else {
                return;
            };
            if is_missing {
                *missing = ranks;
                return;
            }
            let (title, missing) = (std::mem::take(title), std::mem::take(missing));
            self.entry = None;
            // Of a rank whose dump was not loaded nothing is known.
            if self.loaded.is_none_or(|loaded| loaded >= ranks.len()) {
                let line = format!("{title}: missing {missing:?} of {ranks:?}");
                self.add(missing, ranks.len(), &line);
            }
        }
    }

    fn add(&mut self, missing: BTreeSet<u32>, expected: usize, line: &str) {
        if !missing.is_empty() {
            let line = line.trim().trim_start_matches("- ").to_owned();
            self.reports.push(LagReport {
                missing,
                expected,
                line,
            });
        }
    }

    /// Adds what another file says.
    pub(super) fn merge(&mut self, other: Self) {
        self.reports.extend(other.reports);
        self.mismatched.extend(other.mismatched);
        self.compared = self.compared.max(other.compared);
    }

    /// Returns true if it says nothing of any rank.
    pub(super) fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.mismatched.is_empty()
    }

    /// Returns the ranks that all reports name, and the line of the first; `None` if there is no report, or reports differ.
    pub(super) fn agreed(&self) -> Option<&LagReport> {
        let first = self.reports.first()?;
        let is_same = |report: &LagReport| report.missing == first.missing;
        self.reports.iter().all(is_same).then_some(first)
    }
}

fn captures<'a>(pattern: &LazyLock<Option<Regex>>, text: &'a str) -> Option<regex::Captures<'a>> {
    pattern.as_ref()?.captures(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(lines: &[(Option<u32>, &str)]) -> Option<Vec<u32>> {
        let mut lagging = LaggingRanks::default();
        for (writer, text) in lines {
            lagging.read(text, *writer);
        }
        let agreed = lagging.agreed()?;
        Some(agreed.missing.iter().copied().collect())
    }

    #[test]
    fn a_desync_report_names_the_ranks_that_have_not_joined() {
        let late =
            "\t     [2, 7] finished collective #88, but didn't join collective #89 (count from 1)";
        let report = [
            (Some(1), "ProcessGroupNCCL preparing to dump debug info."),
            (None, "\t - [1] Timeout at collective: ALLGATHER, #89"),
            (
                None,
                "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
            ),
            (None, late),
        ];
        assert_eq!(missing(&report), Some(vec![2, 7]));
        let never = "\t - To our best knowledge, ranks [5] are the lagging ranks that caused this timeout. They never joined any collectives";
        assert_eq!(
            missing(&[report[0], report[1], (None, never)]),
            Some(vec![5])
        );
        // Another report names another rank.
        assert_eq!(missing(&[report[1], report[3], (None, never)]), None);
        // Rank 6 is the second of its group.
        assert_eq!(missing(&[(Some(6), "x"), report[1], report[3]]), None);
        let stuck = "\t   - [0] joined but didn't finish collective #88 (count from 1)";
        assert_eq!(missing(&[report[1], (None, stuck), report[3]]), None);
    }

    #[test]
    fn the_tasks_that_a_coordination_service_lists_have_not_come() {
        let lines = |count: &'static str, last: &'static str| {
            [
                (None, count),
                (None, "/job:jax_worker/replica:0/task:5"),
                (None, last),
            ]
        };
        let one = "DEADLINE_EXCEEDED: Barrier timed out. # of tasks that reached the barrier: 7/8. The first task at the barrier: /job:jax_worker/replica:0/task:0. Some timed out task names:";
        assert_eq!(missing(&lines(one, "done")), Some(vec![5]));
        // Another one is not listed.
        let two = "Barrier timed out. # of tasks that reached the barrier: 6/8. Some timed out task names:";
        assert_eq!(missing(&lines(two, "done")), None);
    }

    #[test]
    fn the_analysis_of_flight_recorders_names_the_ranks_that_have_not_joined() {
        let entry = "Not all ranks joining collective: sequence number: 31";
        let lines = |loaded: &'static str| {
            [
                (None, loaded),
                (None, entry),
                (None, "collective: nccl:all_gather"),
                (None, "missing ranks: {1}"),
                (None, "expected ranks: {0, 1, 2, 3}"),
            ]
        };
        assert_eq!(missing(&lines("loaded 4 files in 0.1s")), Some(vec![1]));
        assert_eq!(missing(&lines("loaded 3 files in 0.1s")), None);
    }
}
