//! Reads the lines in which a rank tells the id of its process: `rank 9/16 started, pid 3102`, `pid=30445 RANK=11`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;
use super::rank_claims::rank_of;

static RANK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:\b(?P<other>\w+)[ -])?\b(?:global_|world_)?rank(?:id)?[ =:\[(]+(?P<rank>\d+)\b",
    )
});
static PID: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"\b(?i:pid)[=: ] ?(\d+)\b"));
/// A process with the rank in its command line or beside it: of `py-spy dump`, and a row of `ps`.
static COMMAND: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^(?:Process (\d+): |(?:\w[\w.-]* +)?(\d{2,8}) +\S).*(?:[\s(]RANK=|\s--(?:global[-_])?rank[= ])(\d+)\b",
    )
});
/// Words before `rank` that make it another number.
const OTHER: &[&str] = &[
    "local", "node", "group", "machine", "tp", "pp", "dp", "ep", "cp", "role", "remote", "peer",
    "from", "to",
];

/// What a rank, which the line begins with, says of its own process: `pid 66121 joined`, `worker started as process id 90`.
static OWN_PID: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)^(?:[\w.<>]+:[\w.<>]+:\d+ - )?(?:\W*|(?:\w+ ){0,3}(?:start(?:ed|ing)?|running|joined|alive|up|ready|hello)\b[\w ,]*?|my )(?:pid|process id)[=: ] ?(\d+)\b",
    )
});
/// Words for a process that is not the rank's own.
const NOT_OWN: &[&str] = &[
    "loader", "child", "peer", "kill", "lost", "died", "dead", "parent", "monitor", "exit",
];

/// Returns the id of its process that a rank tells in the text of a line which begins with the rank; `None` if it tells none.
pub(super) fn own_pid(text: &str) -> Option<&str> {
    if !(text.contains("pid") || text.contains("PID") || text.contains("rocess id")) {
        return None;
    }
    let lower = text.to_lowercase();
    if NOT_OWN.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let found = OWN_PID.as_ref()?.captures(text)?;
    found.get(1).map(|pid| pid.as_str())
}

/// Returns the rank in the command line of a process, and the id of the process; `None` if a line has no such command.
pub(super) fn process_of_command(text: &str) -> Option<(u32, &str)> {
    if !(text.contains("RANK=") || text.contains("rank")) {
        return None;
    }
    let found = COMMAND.as_ref()?.captures(text.trim_start())?;
    let pid = found.get(1).or(found.get(2))?;
    Some((found[3].parse().ok()?, pid.as_str()))
}

/// Returns the rank that a line gives to the process that writes it, beside the size of the world; `None` if it gives none.
pub(super) fn rank_of_world(text: &str) -> Option<u32> {
    if !(text.contains("ank") || text.contains("RANK")) {
        return None;
    }
    let (word, rank, _) = rank_of(text)?;
    let is_other = word.is_some_and(|word| OTHER.contains(&word.as_str()));
    (!is_other).then_some(rank)
}

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
            (
                "- (node_id=77ce, ip=10.0.7.22, pid=9080) world_rank=2, local_rank=0, node_rank=1",
                Some((2, "9080")),
            ),
            ("rank 3 lost rank 5, pid 77", None),
            ("local rank 3, pid 77", None),
            ("rank 3: workers pid 77, pid 78", None),
        ] {
            assert_eq!(own_process(text), expected, "{text}");
        }
    }

    #[test]
    fn the_command_of_a_process_has_its_rank() {
        for (text, expected) in [
            (
                "Process 841: /usr/bin/python -u train.py (RANK=3)",
                Some((3, "841")),
            ),
            (
                "  463 pts/5 Tsl 00:43:11 python train.py --rank 1 --world 3",
                Some((1, "463")),
            ),
            (
                "root 463 0.1 1.2 python train.py --rank=2",
                Some((2, "463")),
            ),
            ("Process 841: python train.py --local_rank=3", None),
            ("463 python train.py --node_rank 1", None),
            ("step 12 of rank 3", None),
        ] {
            assert_eq!(process_of_command(text), expected, "{text}");
        }
    }

    #[test]
    fn a_rank_tells_its_process() {
        for (text, expected) in [
            ("pid 66121 joined gloo world of 4", Some("66121")),
            ("a.b:run:140 - pid=7 up", Some("7")),
            ("trainer started, pid 91", Some("91")),
            ("my process id: 91", Some("91")),
            ("DataLoader worker (pid 5120) is killed by signal", None),
            ("started, lost the peer with pid 91", None),
            ("no answer of pid 91", None),
        ] {
            assert_eq!(own_pid(text), expected, "{text}");
        }
    }

    #[test]
    fn a_process_tells_its_rank() {
        for (text, expected) in [
            ("init rank 5/8", Some(5)),
            ("rank 3 of 16 is up", Some(3)),
            ("hello from rank 3 of 16", None),
            ("rank=2 world_size=4 backend=nccl", Some(2)),
            ("local_rank 1/8", None),
            ("TP rank 1/8", None),
            ("rank 3 lost", None),
        ] {
            assert_eq!(rank_of_world(text), expected, "{text}");
        }
    }
}
