//! Reads which rank each process claims to be, and of how many: `rank 2 / 4`, `WORLD_SIZE=4 RANK=2`. It counts where only one is claimed in
//! a file, or by one of the writers that a collector names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::environment::Environment;
use super::pattern::pattern;

/// A rank, and the number of ranks of its world.
type Claim = (u32, u32);

/// The claims of the processes of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct RankClaims {
    /// The claims in the source that is read, rank and number of ranks, by what a collector names as the writer, which is empty if it
    /// names none, and the task that a label names.
    here: BTreeMap<(String, Option<u32>), BTreeSet<Claim>>,
    /// The only claim of each source that was read, or of each of its writers.
    all: Vec<Claim>,
    /// The claims of each writer that has several: a host on which several ranks run.
    of_hosts: Vec<BTreeSet<Claim>>,
}

/// Ranks that are claimed twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimedTwice {
    pub(super) ranks: Vec<u32>,
    /// The ranks that nothing claims, as many as these.
    pub(super) missing: Vec<u32>,
}

/// `rank 3/8`, `rank=3 world_size=8`, and the word before it.
static RANK_OF: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:\b(?P<word>[a-z]+)[ -])?\b(?P<prefix>[a-z]+_)?rank(?: of current process)?[ =:]*(?P<rank>\d+)(?: ?/ ?|,? of |,? out of |[,.]? (?:in )?(?:the )?world[_ ]?size[ =:]*)(?P<size>\d+)\b",
    )
});
/// Words before `rank` that leave it the rank in the world.
const WORLD: &[&str] = &["global", "world", "my", "am", "is", "as", "for", "process"];

impl RankClaims {
    /// Reads the next line, of a writer if a collector names one, and of a task if a label does.
    pub(super) fn read(&mut self, text: &str, writer: Option<&str>, task: Option<u32>) {
        let claim = match (text.contains("RANK="), text.contains("ank")) {
            (true, _) => {
                let mut environment = Environment::default();
                environment.read(text);
                environment.rank.zip(environment.world_size)
            }
            (false, true) => claim(text),
            (false, false) => None,
        };
        if let Some(claim) = claim.filter(|(rank, size)| rank < size) {
            let writer = writer.unwrap_or_default().to_owned();
            self.here.entry((writer, task)).or_default().insert(claim);
        }
    }

    /// Ends the reading of a source. Where several ranks are claimed, the lines are not of one process.
    pub(super) fn close(&mut self) {
        for ((writer, _), claims) in std::mem::take(&mut self.here) {
            if claims.len() == 1 {
                self.all.extend(claims);
            } else if !writer.is_empty() {
                self.of_hosts.push(claims);
            }
        }
    }

    /// Adds what other sources say.
    pub(super) fn merge(&mut self, other: Self) {
        self.all.extend(other.all);
        self.of_hosts.extend(other.of_hosts);
    }

    /// Returns the ranks that two processes claim, if as many processes as there are ranks claim one, and all others are claimed
    /// once.
    pub(super) fn twice(&self) -> Option<ClaimedTwice> {
        self.twice_by_processes().or_else(|| self.twice_by_hosts())
    }

    /// Finds two hosts of which each claims the same ranks.
    fn twice_by_hosts(&self) -> Option<ClaimedTwice> {
        let (_, size) = *self.of_hosts.first()?.first()?;
        let claims = || self.of_hosts.iter().flatten();
        if claims().count() != size as usize || claims().any(|(_, one)| *one != size) {
            return None;
        }
        let is_twin =
            |one: &&BTreeSet<Claim>| self.of_hosts.iter().filter(|other| other == one).count() == 2;
        let twins = self.of_hosts.iter().find(is_twin)?;
        let claimed: BTreeSet<u32> = claims().map(|(rank, _)| *rank).collect();
        let ranks: Vec<u32> = twins.iter().map(|(rank, _)| *rank).collect();
        let missing: Vec<u32> = (0..size).filter(|rank| !claimed.contains(rank)).collect();
        (missing.len() == ranks.len()).then_some(ClaimedTwice { ranks, missing })
    }

    fn twice_by_processes(&self) -> Option<ClaimedTwice> {
        let size = self.all.first()?.1;
        let is_whole = self.all.len() == size as usize;
        if !is_whole || self.all.iter().any(|(_, one)| *one != size) {
            return None;
        }
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for (rank, _) in &self.all {
            *counts.entry(*rank).or_default() += 1;
        }
        let mut absent = (0..size).filter(|rank| !counts.contains_key(rank));
        let (missing, None) = (absent.next()?, absent.next()) else {
            return None;
        };
        let (twice, _) = counts.iter().find(|(_, count)| **count == 2)?;
        Some(ClaimedTwice {
            ranks: vec![*twice],
            missing: vec![missing],
        })
    }
}

/// Returns the rank in the world, and the number of ranks, that a line claims for its writer; `None` if it claims none.
pub(super) fn claim(text: &str) -> Option<Claim> {
    let (word, rank, size) = rank_of(text)?;
    let is_world = word.is_none_or(|word| WORLD.contains(&word.as_str()));
    is_world.then_some((rank, size))
}

/// Returns the only rank that a line gives beside the number of ranks, both, and in lower case the word before it, if there is one;
/// `None` if the line gives none, or several.
pub(super) fn rank_of(text: &str) -> Option<(Option<String>, u32, u32)> {
    let mut found = RANK_OF.as_ref()?.captures_iter(text);
    let (only, None) = (found.next()?, found.next()) else {
        return None;
    };
    let word = only.name("prefix").or(only.name("word"));
    let word = word.map(|word| word.as_str().trim_end_matches('_').to_lowercase());
    let number = |name: &str| only[name].parse().ok();
    Some((word, number("rank")?, number("size")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read() {
        for (text, expected) in [
            (
                "nodeB: local_rank 1 -> rank 2 / 4, init file://x",
                Some((2, 4)),
            ),
            ("gpu-b:7730 rank 1 of 4, waiting for others", Some((1, 4))),
            (
                "MASTER_PORT=29400 WORLD_SIZE=4 RANK=1 python a.py",
                Some((1, 4)),
            ),
            ("TP rank 1/8", None),
            ("local_rank 1 of 8", None),
            ("rank 9 of 8", None),
            ("LOCAL_RANK=1 WORLD_SIZE=4", None),
        ] {
            let mut claims = RankClaims::default();
            claims.read(text, None, None);
            claims.close();
            assert_eq!(claims.all.pop(), expected, "{text}");
        }
    }

    #[test]
    fn a_rank_that_two_of_all_claim_is_found() {
        let twice = |ranks: &[u32]| {
            let mut claims = RankClaims::default();
            for rank in ranks {
                claims.read(&format!("rank {rank} of 4"), None, None);
                claims.close();
            }
            claims
                .twice()
                .map(|twice| (twice.ranks[0], twice.missing[0]))
        };
        let mut of_pods = RankClaims::default();
        for (pod, rank) in [("m-0", 0), ("w-0", 1), ("w-1", 1), ("w-2", 3)] {
            of_pods.read(&format!("RANK={rank} WORLD_SIZE=4"), Some(pod), None);
        }
        of_pods.close();
        let twice_of_pods = of_pods.twice().unwrap();
        assert_eq!(
            (twice_of_pods.ranks, twice_of_pods.missing),
            (vec![1], vec![2])
        );
        assert_eq!(twice(&[0, 1, 2, 2]), Some((2, 3)));
        assert_eq!(twice(&[0, 1, 2, 3]), None);
        assert_eq!(twice(&[0, 1, 2]), None);
        // Each rank has two files, or some have.
        assert_eq!(twice(&[0, 0, 1, 1]), None);
        assert_eq!(twice(&[0, 1, 2, 3, 3]), None);
    }

    #[test]
    fn two_hosts_that_claim_the_same_ranks_are_found() {
        let twice = |hosts: [[u32; 2]; 2], size: u32| {
            let mut claims = RankClaims::default();
            for (host, ranks) in ["a", "b"].iter().zip(hosts) {
                for rank in ranks {
                    claims.read(&format!("RANK={rank} WORLD_SIZE={size}"), Some(host), None);
                }
            }
            claims.close();
            claims.twice().map(|twice| (twice.ranks, twice.missing))
        };
        let both = Some((vec![0, 1], vec![2, 3]));
        assert_eq!(twice([[0, 1], [0, 1]], 4), both);
        assert_eq!(twice([[0, 1], [2, 3]], 4), None);
        assert_eq!(twice([[0, 1], [0, 1]], 8), None);
    }
}
