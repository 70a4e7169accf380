//! Reads the lines in which a rank tells the id of its process: `rank 9/16 started, pid 3102`, `pid=30445 RANK=11`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

static RANK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"(?i)(?:\b(?P<other>\w+)[ -])?\b(?:global_)?rank(?:id)?[ =:\[(]+(?P<rank>\d+)\b")
});
static PID: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"\b(?i:pid)[=: ] ?(\d+)\b"));
/// Words before `rank` that make it another number.
const OTHER: &[&str] = &[
    "local", "node", "group", "machine", "tp", "pp", "dp", "ep", "cp", "role", "remote", "peer",
    "from", "to",
];

/// Returns the rank and the id of its process; `None` if a line does not name one of each.
pub(super) fn own_process(text: &str) -> Option<(u32, &str)> {
    // Most lines name none, and a look is cheaper than the patterns.
    if !(text.contains("pid") || text.contains("PID"))
        || !(text.contains("ank") || text.contains("RANK"))
    {
        return None;
    }
    let ranks = RANK.as_ref()?.captures_iter(text).filter(|found| {
        let other = found.name("other").map(|word| word.as_str().to_lowercase());
        !other.is_some_and(|word| OTHER.contains(&word.as_str()))
    });
    let ranks: BTreeSet<u32> = ranks
        .filter_map(|found| found["rank"].parse().ok())
        .collect();
    let pids = PID.as_ref()?.captures_iter(text);
    let pids: BTreeSet<&str> = pids
        .filter_map(|found| Some(found.get(1)?.as_str()))
        .collect();
    match (ranks.len(), pids.len()) {
        (1, 1) => Some((*ranks.first()?, pids.first()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_and_its_process_are_read() {
        for (text, expected) in [
            ("rank 9/16 started, pid 3102", Some((9, "3102"))),
            ("pid=30445 RANK=11 LOCAL_RANK=3", Some((11, "30445"))),
            (
                "| distributed init (rank 11): env:// host=n3 pid=51625",
                Some((11, "51625")),
            ),
            (
                "rank 6 local 6 device_name Ascend910B3 pid 20036",
                Some((6, "20036")),
            ),
            (
                "pid 1590, rank 0 / size 12, local rank 3 / local size 4",
                Some((0, "1590")),
            ),
            ("rank 3 lost rank 5, pid 77", None),
            ("local rank 3, pid 77", None),
            ("rank 3: workers pid 77, pid 78", None),
        ] {
            assert_eq!(own_process(text), expected, "{text}");
        }
    }
}
