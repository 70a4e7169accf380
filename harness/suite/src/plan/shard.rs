//! `--shard I/N`: selects a stable part of the scenarios, so that a run can be split over machines; with `--times` parts that last alike.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use allranks_model::names::ScenarioId;

/// Part `index` of `count`. As on the command line, `index` counts from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u64,
    count: u64,
}

/// A text that is not a shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a shard; hint: write I/N with I from 1 to N, such as 2/4")]
pub struct ShardError(String);

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_once('/')
            .and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)))
            .filter(|(index, count)| (1..=*count).contains(index))
            .map(|(index, count)| Self { index, count })
            .ok_or_else(|| ShardError(text.to_owned()))
    }
}

/// The part of the scenarios that a run has: one of the parts that all runs with the same times divide them into.
#[derive(Clone, Debug)]
pub struct Share {
    shard: Shard,
    /// The part of each scenario whose time is known, from 0.
    parts: Arc<BTreeMap<ScenarioId, u64>>,
}

impl Share {
    /// Returns a part by the scenarios' ids alone.
    #[must_use]
    pub fn by_id(shard: Shard) -> Self {
        Self {
            shard,
            parts: Arc::default(),
        }
    }

    /// Returns a part of scenarios whose times are known, in milliseconds: the longest first, each goes to the part that has the least
    /// so far. A scenario that is not among them, or took no time, goes where [`by_id`](Self::by_id) puts it. It depends on the times
    /// alone, not on what is planned, so it is the same on machines that can run different scenarios.
    #[must_use]
    pub fn by_time(shard: Shard, times: &BTreeMap<ScenarioId, u64>) -> Self {
        let mut longest_first: Vec<(&ScenarioId, u64)> = times
            .iter()
            .map(|(id, time)| (id, *time))
            .filter(|(_, time)| *time > 0)
            .collect();
        longest_first.sort_by_key(|(id, time)| (Reverse(*time), *id));
        // For each part that has something its time; the others have 0. There are never more parts than scenarios to look at.
        let count = shard.count.min(longest_first.len() as u64);
        let mut sums: Vec<u64> = (0..count).map(|_| 0).collect();
        let mut parts = BTreeMap::new();
        for (id, time) in longest_first {
            let least = sums.iter_mut().zip(0_u64..).min_by_key(|(sum, _)| **sum);
            if let Some((sum, part)) = least {
                *sum = sum.saturating_add(time);
                parts.insert(id.clone(), part);
            }
        }
        Self {
            shard,
            parts: Arc::new(parts),
        }
    }

    /// Returns whether the scenario belongs to this part.
    #[must_use]
    pub fn owns(&self, scenario: &ScenarioId) -> bool {
        match self.parts.get(scenario) {
            Some(part) => *part == self.shard.index - 1,
            None => self.shard.owns(scenario),
        }
    }
}

impl Shard {
    /// Returns whether the scenario belongs to this part. It depends on the scenario's id alone, so adding a case
    /// moves no other.
    fn owns(self, scenario: &ScenarioId) -> bool {
        // FNV-1a: stable across versions and platforms, which `std`'s hashers do not promise.
        let hash = scenario
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        hash % self.count == self.index - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_has_exactly_one_owner() {
        let shards: Vec<Shard> = (1..=3).map(|i| format!("{i}/3").parse().unwrap()).collect();
        let mut owned = [0; 3];
        for n in 0..300 {
            let id = ScenarioId(format!("case{n}@cpu.gloo.ws4"));
            let owners: Vec<usize> = (0..3).filter(|index| shards[*index].owns(&id)).collect();
            assert_eq!(owners.len(), 1);
            owned[owners[0]] += 1;
        }
        assert!(owned.iter().all(|count| *count > 50), "{owned:?}");
    }

    /// Lengths as they are in a run: a few scenarios take as long as all others together.
    fn times() -> BTreeMap<ScenarioId, u64> {
        let time = |n: u64| match n {
            0..3 => 60_000,
            3..13 => 5_000 + n,
            _ => 100 + n % 7,
        };
        (0..100)
            .map(|n| (ScenarioId(format!("case{n}@cpu.gloo.ws4")), time(n)))
            .collect()
    }

    #[test]
    fn with_times_every_scenario_has_one_owner_and_the_parts_last_alike() {
        let times = times();
        let shards: Vec<Shard> = (1..=4).map(|i| format!("{i}/4").parse().unwrap()).collect();
        let sums = |shares: &[Share]| -> Vec<u64> {
            let sum = |share: &Share| {
                times
                    .iter()
                    .filter(|(id, _)| share.owns(id))
                    .map(|(_, time)| time)
                    .sum()
            };
            shares.iter().map(sum).collect()
        };
        let by_time: Vec<Share> = shards
            .iter()
            .map(|shard| Share::by_time(*shard, &times))
            .collect();
        let by_id: Vec<Share> = shards.iter().map(|shard| Share::by_id(*shard)).collect();
        let spread = |sums: &[u64]| sums.iter().max().unwrap() - sums.iter().min().unwrap();
        let (even, uneven) = (sums(&by_time), sums(&by_id));
        assert_eq!(even.iter().sum::<u64>(), times.values().sum::<u64>());
        assert!(
            spread(&even) < 6_000 && spread(&uneven) > 6_000,
            "{even:?} {uneven:?}"
        );
        let unknown = ScenarioId("new@cpu.gloo.ws2".to_owned());
        for (timed, plain) in by_time.iter().zip(&by_id) {
            assert_eq!(timed.owns(&unknown), plain.owns(&unknown));
        }
    }

    #[test]
    fn more_parts_than_scenarios_leave_some_empty() {
        let times = BTreeMap::from([
            (ScenarioId("a".to_owned()), 5),
            (ScenarioId("never_ran".to_owned()), 0),
        ]);
        let owners = |id: &str| {
            let id = ScenarioId(id.to_owned());
            let shards = (1..=9).map(|i| Share::by_time(format!("{i}/9").parse().unwrap(), &times));
            shards.filter(|share| share.owns(&id)).count()
        };
        assert_eq!((owners("a"), owners("never_ran")), (1, 1));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["0/2", "3/2", "1", "a/b", "1/0", "/"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
