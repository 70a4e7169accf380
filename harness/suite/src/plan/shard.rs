//! `--shard I/N`: selects a stable part of the scenarios, so that a run can be split over machines.

use std::str::FromStr;

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

impl Shard {
    /// Returns whether the scenario belongs to this part. It depends on the scenario's id alone, so adding a case
    /// moves no other.
    #[must_use]
    pub fn owns(self, scenario: &ScenarioId) -> bool {
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

    #[test]
    fn nonsense_is_refused() {
        for text in ["0/2", "3/2", "1", "a/b", "1/0", "/"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
