//! Recognises the lines that libraries write when a rank joins the rendezvous or leaves a barrier. They name the rank in their
//! text, not in a header.
//!
//! Texts are those of PyTorch's `distributed_c10d.py` and `ProcessGroupGloo.cpp`, Lightning, and vLLM.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::line::RANKS;
use super::pattern::pattern;
use super::phase::{Edge, Mark, Nature};

/// What one line says about a rank that joins the rendezvous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// The rank that the line is about, which wrote it.
    pub(super) rank: u32,
    /// The phase that the line is a mark of.
    pub(super) mark: Mark,
    /// The rank that it says it is, if the line begins with another one.
    pub(super) claimed: Option<u32>,
    /// Ranks in the world, if it says so.
    pub(super) world_size: Option<u32>,
    /// What the store had counted, if it says so.
    pub(super) counted: Option<Counted>,
}

/// What a store counts of the ranks that come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// The key of the barrier; `clients` for the first meeting.
    pub(super) key: String,
    /// Ranks that had come.
    pub(super) came: u32,
    /// Ranks that it waits for altogether.
    pub(super) of: u32,
    /// The phase that the barrier is part of: `init_process_group`, or `new_group` and the group's name.
    pub(super) phase: String,
}

/// Ranks that a store has counted, by barrier.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// The highest count of each, and the ranks that said that they wait there.
    pub(super) barriers: BTreeMap<String, (Counted, BTreeSet<u32>)>,
    /// What clients of a store joined, as the rank that holds it says.
    pub(super) joined: Option<(u32, u32)>,
}

static BARRIER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?:Waiting in|initializing process group in) store based barrier (?:to initialize process group for(?: [\d.]+ seconds)?|on) ?rank:? (?P<rank>\d+),(?: for)? key: (?P<key>\S+) \(world_size=(?P<size>\d+), (?:worker_count|num_workers_joined)=(?P<came>\d+)",
    )
});
static ADDED: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^Added key: (?P<key>\S+) to store for rank: (?P<rank>\d+)"));
static COMPLETED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^(?:Rank (?P<rank>\d+): )?Completed store-based barrier for key:(?P<key>\S+) with (?P<size>\d+) nodes",
    )
});
static LIGHTNING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:^|\| )initializing (?:ddp|distributed): GLOBAL_RANK: (?P<rank>\d+), MEMBER: \d+/(?P<size>\d+)",
    )
});
static ASSIGNED: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^rank (?P<rank>\d+) in world size (?P<size>\d+) is assigned as "));
static ENGINE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"world_size=(?P<size>\d+) rank=(?P<rank>\d+).* distributed_init_method=")
});
static MONITORED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"^(?:\w*Error: )?Rank (?P<rank>\d+) successfully reached monitoredBarrier")
});
static JOINED: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"waiting for clients\. (\d+)/(\d+) clients joined"));

/// Returns what a line says of a rank that joins the rendezvous; `None` if it says nothing of one. `prefix` is the rank that the
/// line begins with, `owner` that of the file.
pub(super) fn arrival(text: &str, prefix: Option<u32>, owner: Option<u32>) -> Option<Arrival> {
    // Most lines are about something else, and a look is cheaper than a pattern.
    const SIGNS: &[&str] = &[
        "tore",
        "GLOBAL_RANK",
        "world size",
        "distributed_init_method",
        "monitoredBarrier",
    ];
    if !SIGNS.iter().any(|sign| text.contains(sign)) {
        return None;
    }
    let init = Nature::Init;
    let kinds = [
        (&BARRIER, Edge::Begin, &init),
        (&ADDED, Edge::Begin, &init),
        (&COMPLETED, Edge::End, &init),
        (&LIGHTNING, Edge::Begin, &init),
        (&ASSIGNED, Edge::End, &init),
        (&ENGINE, Edge::Begin, &init),
        (&MONITORED, Edge::Begin, &Nature::Collective("barrier")),
    ];
    kinds.into_iter().find_map(|(pattern, edge, nature)| {
        let found = pattern.as_ref()?.captures(text)?;
        let number = |name: &str| found.name(name)?.as_str().parse::<u32>().ok();
        let key = found
            .name("key")
            .map(|key| key.as_str().trim_end_matches(','));
        let told = number("rank");
        // A process may take itself for another rank than its launcher does.
        let launched = prefix.filter(|_| text.contains("GLOBAL_RANK"));
        let rank = launched.or(told).or(prefix).or(owner);
        let rank = rank.filter(|rank| *rank < RANKS)?;
        let claimed = told.filter(|told| *told != rank);
        // A group with `use_local_synchronization` has a name without a number, and its barrier is of its members only.
        let group = key.and_then(|key| Some(key.rsplit_once(':')?.1));
        let is_local = group.is_some_and(|group| group.parse::<u64>().is_err());
        let size = number("size").filter(|_| !is_local);
        let counted = key.zip(number("came")).zip(size);
        // Barriers after the first are those of new groups.
        let is_first = group.is_none_or(|group| matches!(group, "0" | "1"));
        let (name, nature) = match (is_first, nature) {
            (true, Nature::Init) => ("init_process_group".to_owned(), Nature::Init),
            (false, Nature::Init) => {
                let group = group.unwrap_or_default();
                (format!("new_group {group}"), Nature::NewGroup(Vec::new()))
            }
            (_, other) => ("monitored_barrier".to_owned(), other.clone()),
        };
        let counted = counted.map(|((key, came), of)| Counted {
            key: key.to_owned(),
            came,
            of,
            phase: name.clone(),
        });
        Some(Arrival {
            rank,
            claimed,
            mark: Mark { edge, name, nature },
            world_size: size.filter(|size| (1..=RANKS).contains(size)),
            counted,
        })
    })
}

impl Counts {
    /// Adds what a rank says about a barrier.
    pub(super) fn add(&mut self, rank: u32, counted: Counted) {
        let entry = self.barriers.entry(counted.key.clone());
        let (highest, ranks) = entry.or_insert_with(|| (counted.clone(), BTreeSet::new()));
        ranks.insert(rank);
        if counted.came > highest.came {
            *highest = counted;
        }
    }

    /// Removes a barrier that a rank has passed.
    pub(super) fn complete(&mut self, text: &str) {
        if !text.contains("Completed store-based barrier") {
            return;
        }
        let found = COMPLETED.as_ref().and_then(|line| line.captures(text));
        if let Some(found) = found {
            self.barriers.remove(&found["key"]);
        }
    }

    /// Reads a line that counts the clients of a store.
    pub(super) fn read(&mut self, text: &str) {
        self.complete(text);
        if !text.contains("clients joined") {
            return;
        }
        if let Some(found) = JOINED.as_ref().and_then(|line| line.captures(text)) {
            self.joined = found[1].parse().ok().zip(found[2].parse().ok());
        }
    }

    /// Adds what another file says.
    pub(super) fn merge(&mut self, other: Self) {
        for (counted, ranks) in other.barriers.into_values() {
            for rank in ranks {
                self.add(rank, counted.clone());
            }
        }
        self.joined = self.joined.or(other.joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_name_themselves() {
        for (text, rank, edge, size) in [
            (
                "Waiting in store based barrier to initialize process group for rank: 3, key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)",
                3,
                Edge::Begin,
                Some(4),
            ),
            (
                "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=2, worker_count=1, timeout=0:10:00)",
                0,
                Edge::Begin,
                Some(2),
            ),
            (
                "Waiting in store based barrier to initialize process group for 10.0 secondsrank: 0, key: store_based_barrier_key:2 (world_size=4, num_workers_joined=2, timeout=0:10:00 error=wait timeout)",
                0,
                Edge::Begin,
                Some(4),
            ),
            (
                "DistStoreError: Timed out initializing process group in store based barrier on rank 1, for key: store_based_barrier_key:0f3e9a (world_size=2, num_workers_joined=1, timeout=0:10:00)",
                1,
                Edge::Begin,
                None,
            ),
            (
                "Added key: store_based_barrier_key:1 to store for rank: 5",
                5,
                Edge::Begin,
                None,
            ),
            (
                "Initializing distributed: GLOBAL_RANK: 2, MEMBER: 3/8",
                2,
                Edge::Begin,
                Some(8),
            ),
            (
                "rank 7 in world size 8 is assigned as DP rank 0, PP rank 0, TP rank 7",
                7,
                Edge::End,
                Some(8),
            ),
            (
                "Adjusting world_size=16 rank=8 distributed_init_method=tcp://127.0.0.1:42051 for DP",
                8,
                Edge::Begin,
                Some(16),
            ),
            (
                "Rank 3 successfully reached monitoredBarrier, but received errors",
                3,
                Edge::Begin,
                None,
            ),
        ] {
            let arrival = arrival(text, None, None).unwrap();
            assert_eq!(
                (arrival.rank, arrival.mark.edge, arrival.world_size),
                (rank, edge, size),
                "{text}"
            );
        }
        assert_eq!(arrival("a store based on something", None, None), None);
        let alone = "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1";
        let labelled = arrival(alone, Some(2), Some(3)).unwrap();
        assert_eq!((labelled.rank, labelled.claimed), (2, Some(0)));
        assert_eq!(arrival(alone, None, Some(3)).unwrap().rank, 0);
    }

    #[test]
    fn a_barrier_that_is_over_counts_no_more() {
        let mut counts = Counts::default();
        let counted = |came| Counted {
            key: "k:1".to_owned(),
            came,
            of: 3,
            phase: "init_process_group".to_owned(),
        };
        counts.add(0, counted(1));
        counts.add(1, counted(2));
        assert_eq!(counts.barriers["k:1"], (counted(2), [0, 1].into()));
        counts.read("Rank 0: Completed store-based barrier for key:k:1 with 3 nodes.");
        assert!(counts.barriers.is_empty());
        counts.read("Timed out after 6 seconds waiting for clients. 4/5 clients joined.");
        assert_eq!(counts.joined, Some((4, 5)));
    }
}
