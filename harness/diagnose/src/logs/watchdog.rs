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
}

/// A work: one collective of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// Its number in the group.
    pub(super) number: i64,
    /// The op, such as `ALLREDUCE`.
    pub(super) op: String,
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
static GROUP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\[PG (?:ID )?(?P<id>\d+)(?: PG GUID (?P<guid>[\w:]+))?\s*(?:\((?P<name>[^)]*)\))? Rank \d+\]").ok()
});

impl Watchdog {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if !text.contains("work: ") && !text.contains("WorkNCCL(") {
            return;
        }
        if let Some(found) = WORK.as_ref().and_then(|work| work.captures(text)) {
            let number = found[1].parse().unwrap_or(0);
            self.pending = Some(Work {
                number,
                op: found[2].to_owned(),
                elements: found.get(3).map(|numel| numel.as_str().to_owned()),
            });
        }
        let enqueued = ENQUEUED.as_ref().and_then(|line| line.captures(text));
        let Some(number) = enqueued.and_then(|found| found[1].parse::<i64>().ok()) else {
            return;
        };
        let works = self.groups.entry(group(text)).or_default();
        works.enqueued = Some(number.max(works.enqueued.unwrap_or(number)));
        if works.timed_out.is_none() {
            works.timed_out = self.pending.take();
        }
    }

    /// Ends the reading: a work whose group no line names belongs to the world if no other group is named.
    pub(super) fn close(&mut self) {
        if let (true, Some(work)) = (self.groups.is_empty(), self.pending.take()) {
            let works = self.groups.entry(WORLD.to_owned()).or_default();
            works.timed_out = Some(work);
        }
    }
}

impl Works {
    /// Returns the number of the last work that the rank is known to have issued; `None` if it is not known.
    pub(super) fn reached(&self) -> Option<i64> {
        let timed_out = self.timed_out.as_ref().map(|work| work.number);
        self.enqueued.max(timed_out)
    }
}

fn group(text: &str) -> String {
    let Some(found) = GROUP.as_ref().and_then(|group| group.captures(text)) else {
        return WORLD.to_owned();
    };
    let part = |name: &str| found.name(name).map(|part| part.as_str());
    match (part("name"), part("guid"), part("id")) {
        (Some(WORLD), ..) => WORLD.to_owned(),
        (None, None, Some("0")) => WORLD.to_owned(),
        (name, guid, id) => {
            let number = guid.or(id).unwrap_or_default();
            format!("{} {number}", name.unwrap_or("group"))
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
        assert_eq!(works.timed_out.as_ref().unwrap().op, "ALLREDUCE");
    }

    #[test]
    fn a_rank_that_only_dumps_has_issued_less() {
        let mut watchdog = Watchdog::default();
        watchdog.read("[PG ID 2 PG GUID 5(tp) Rank 0] Received a dump signal due to a collective timeout from rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: -1, last completed NCCL work: -1.This is most likely");
        watchdog.close();
        assert_eq!(watchdog.groups["tp 5"].reached(), Some(-1));
    }
}
