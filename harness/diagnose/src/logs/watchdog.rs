//! Reads the lines of NCCL's watchdog (texts of `ProcessGroupNCCL.cpp`, PyTorch 2.2 to 2.11): which work of a group
//! timed out, and up to which work a rank had come.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

/// What the watchdog of one rank says.
#[derive(Clone, Debug, Default)]
pub(super) struct Watchdog {
    /// The works of each group: `default_pg`, or its name and number.
    pub(super) groups: BTreeMap<String, Works>,
    /// Whether its monitor says that the watchdog itself hangs: a call of CUDA or another thread does not let it run.
    pub(super) is_stuck: bool,
    /// A work that timed out, and whose group a later line names.
    pending: Option<Work>,
}

/// What the watchdog says of one group on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Works {
    /// The work that timed out; `None` if none did.
    pub(super) timed_out: Option<Work>,
    /// The number of the last work that was issued, -1 for none; `None` if it is not told.
    pub(super) enqueued: Option<i64>,
    /// The number of the last work that was over, -1 for none; `None` if it is not told.
    pub(super) completed: Option<i64>,
    /// The rank within the group, if only a number that the rank itself has given names the group.
    pub(super) local_rank: Option<u32>,
}

/// A work: one collective of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// Its number in the group.
    pub(super) number: i64,
    /// `ALLREDUCE`; none if no line that is here names it.
    pub(super) op: Option<String>,
    /// The number of elements, `NumelIn`; `None` if it is not told.
    pub(super) elements: Option<String>,
}

/// The name of the group of the whole world.
pub(super) const WORLD: &str = "default_pg";

static WORK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+)(?:, NumelIn=(\d+))?",
    )
    .ok()
});
static ENQUEUED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)last enqueued (?:NCCL )?work: (-?\d+)").ok());
static COMPLETED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)last completed (?:NCCL )?work: (-?\d+)").ok());
static AT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?:Timeout at NCCL work|watchdog at work(?: sequence id)?): (\d+)").ok()
});
static GROUP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\[PG (?:ID )?(?P<id>\d+)(?: PG GUID (?P<guid>[\w:]+))?\s*(?:\((?P<name>[^)]*)\))? Rank (?P<rank>\d+)\]").ok()
});

impl Watchdog {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        self.is_stuck |= text.contains("watchdog got stuck for ");
        if !text.contains("work: ") && !text.contains("WorkNCCL(") {
            return;
        }
        if let Some(found) = WORK.as_ref().and_then(|work| work.captures(text)) {
            let number = found[1].parse().unwrap_or(0);
            self.pending = Some(Work {
                number,
                op: Some(found[2].to_owned()),
                elements: found.get(3).map(|numel| numel.as_str().to_owned()),
            });
        }
        let enqueued = ENQUEUED.as_ref().and_then(|line| line.captures(text));
        let Some(number) = enqueued.and_then(|found| found[1].parse::<i64>().ok()) else {
            return;
        };
        let (group, local_rank) = group(text);
        let works = self.groups.entry(group).or_default();
        works.local_rank = local_rank;
        works.enqueued = Some(number.max(works.enqueued.unwrap_or(number)));
        let completed = COMPLETED.as_ref().and_then(|line| line.captures(text));
        let completed = completed.and_then(|found| found[1].parse().ok());
        works.completed = works.completed.max(completed);
        if works.timed_out.is_none() {
            let at = AT.as_ref().and_then(|line| line.captures(text));
            let number = at.and_then(|found| found[1].parse().ok());
            let unnamed = number.map(|number| Work {
                number,
                op: None,
                elements: None,
            });
            works.timed_out = self.pending.take().or(unnamed);
        }
    }

    /// Returns true if a work of any group timed out.
    pub(super) fn timed_out(&self) -> bool {
        let mut works = self.groups.values();
        works.any(|works| works.timed_out.is_some())
    }

    /// Returns true if a message to or from another rank timed out.
    pub(super) fn waits_for_message(&self) -> bool {
        let works = self.groups.values();
        let mut ops = works.filter_map(|works| works.timed_out.as_ref()?.op.as_deref());
        ops.any(|op| op.contains("SEND") || op.contains("RECV"))
    }

    /// Ends the reading: a work whose group no line names belongs to the world if no other group is named.
    pub(super) fn close(&mut self) {
        if let (true, Some(work)) = (self.groups.is_empty(), self.pending.take()) {
            let works = self.groups.entry(WORLD.to_owned()).or_default();
            works.timed_out = Some(work);
        }
    }
}

impl Work {
    /// Returns the name of the group for reports.
    pub(super) fn title(&self) -> &str {
        self.op.as_deref().unwrap_or("a collective")
    }
}

impl Works {
    /// Returns the number of the last work that the rank is known to have issued; `None` if it is not known.
    pub(super) fn reached(&self) -> Option<i64> {
        let timed_out = self.timed_out.as_ref().map(|work| work.number);
        self.enqueued.max(timed_out)
    }
}

/// Returns the group that a line is about, and the rank's number in it where the group has no name that all ranks share.
fn group(text: &str) -> (String, Option<u32>) {
    let Some(found) = GROUP.as_ref().and_then(|group| group.captures(text)) else {
        return (WORLD.to_owned(), None);
    };
    let part = |name: &str| found.name(name).map(|part| part.as_str());
    match (part("name"), part("guid"), part("id")) {
        (Some(WORLD), ..) | (None, None, Some("0")) => (WORLD.to_owned(), None),
        (name, Some(guid), _) => (format!("{} {guid}", name.unwrap_or("group")), None),
        (name, None, id) => {
            let title = format!("{} {}", name.unwrap_or("group"), id.unwrap_or_default());
            let local_rank = part("rank").and_then(|rank| rank.parse().ok());
            (title, local_rank)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_are_read() {
        let mut watchdog = Watchdog::default();
        watchdog.read("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.");
        watchdog.read("[PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either an error or timeout) detected by watchdog at work: 808, last enqueued NCCL work: 811, last completed NCCL work: 807.");
        watchdog.close();
        let works = &watchdog.groups[WORLD];
        assert_eq!(works.reached(), Some(811));
        let op = works.timed_out.as_ref().unwrap().op.as_deref();
        assert_eq!(op, Some("ALLREDUCE"));
    }

    #[test]
    fn a_work_may_be_without_its_name() {
        let mut watchdog = Watchdog::default();
        watchdog.read("[PG 0 (default_pg) Rank 3] Timeout at NCCL work: 2070, last enqueued NCCL work: 2082, last completed NCCL work: 2069.");
        watchdog.close();
        let work = watchdog.groups[WORLD].timed_out.as_ref().unwrap();
        assert_eq!((work.number, work.op.as_deref()), (2070, None));
    }

    #[test]
    fn a_rank_that_only_dumps_has_issued_less() {
        let mut watchdog = Watchdog::default();
        watchdog.read("[PG ID 2 PG GUID 5(tp) Rank 0] Received a dump signal due to a collective timeout from rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: -1, last completed NCCL work: -1.This is most likely");
        watchdog.close();
        assert_eq!(watchdog.groups["tp 5"].reached(), Some(-1));
    }
}
