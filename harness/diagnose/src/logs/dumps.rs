//! Collects the flight recorder dumps of a running job, and finds where they contradict each other.

use std::collections::BTreeMap;

use super::dump_contradiction;
use super::recorder_dump::{Dump, RecordedGroup};
use crate::{HangEvidence, conclude};
use allranks_model::diagnosis::{Confidence, Diagnosis};
use allranks_model::names::Rank;

/// The dumps of ranks of one world.
#[derive(Clone, Debug, Default)]
pub struct Dumps {
    by_rank: BTreeMap<u32, Dump>,
}

impl Dumps {
    /// Takes a rank's dump: JSON, or the pickle that torch writes.
    ///
    /// # Errors
    /// Says what is wrong with it: it is no dump, or not whole.
    pub fn add(&mut self, rank: Rank, bytes: &[u8]) -> Result<(), String> {
        self.by_rank.insert(rank.0, Dump::read(bytes)?);
        Ok(())
    }

    /// Returns true if this rank's dump is here.
    #[must_use]
    pub fn has(&self, rank: Rank) -> bool {
        self.by_rank.contains_key(&rank.0)
    }

    /// Returns true if nothing has been issued, and nothing has ended, on any rank since an earlier time, and something is under way.
    #[must_use]
    pub fn is_still_since(&self, earlier: &Self) -> bool {
        let counts = |dumps: &Self| -> BTreeMap<(u32, String), (u64, u64)> {
            let of_rank = |(rank, dump): (&u32, &Dump)| {
                let groups = dump.groups.iter();
                let counts =
                    groups.map(|(name, one)| ((*rank, name.clone()), (one.issued, one.over)));
                counts.collect::<Vec<_>>()
            };
            dumps.by_rank.iter().flat_map(of_rank).collect()
        };
        let mut groups = self.by_rank.values().flat_map(|dump| dump.groups.values());
        groups.any(RecordedGroup::waits) && counts(self) == counts(earlier)
    }

    /// Returns the first contradiction between them as a verdict, likely at most; `None` if there is none. `evidence` says where the
    /// ranks are.
    #[must_use]
    pub fn diagnose(&self, evidence: &HangEvidence) -> Option<Diagnosis> {
        let found = dump_contradiction::contradiction(&self.by_rank)?;
        let verdict = conclude(
            evidence,
            found.kind,
            Confidence::Likely,
            found.culprits,
            found.summary,
        );
        let victims = found.victims;
        Some(Diagnosis { victims, ..verdict }.because(found.facts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(issued: u64, over: u64) -> Dump {
        let group = RecordedGroup {
            issued,
            over,
            ..RecordedGroup::default()
        };
        Dump {
            groups: [("0".to_owned(), group)].into(),
        }
    }

    fn dumps(counts: &[(u64, u64)]) -> Dumps {
        let all = (0..)
            .zip(counts)
            .map(|(rank, (issued, over))| (rank, dump(*issued, *over)));
        Dumps {
            by_rank: all.collect(),
        }
    }

    #[test]
    fn what_has_not_changed_on_any_rank_and_is_under_way_is_still() {
        let hung = dumps(&[(5, 4), (4, 4)]);
        assert!(hung.is_still_since(&hung));
        // Another rank goes on, or has ended one, or nothing is under way.
        assert!(!hung.is_still_since(&dumps(&[(5, 4), (3, 3)])));
        assert!(!hung.is_still_since(&dumps(&[(5, 3), (4, 4)])));
        let idle = dumps(&[(4, 4), (4, 4)]);
        assert!(!idle.is_still_since(&idle));
    }
}
