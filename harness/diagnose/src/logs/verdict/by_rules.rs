//! The verdict of the rules on hanging jobs, as far as it is likely when all evidence is from logs.

use super::Rules;
use crate::logs::logged::Logged;
use crate::logs::phase::Nature;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Returns true if a verdict by the rules is likely when all evidence is from logs.
    pub(super) fn is_likely(&self, rule: &Diagnosis) -> bool {
        let few = rule.culprits.len() * 2 < self.job.ranks.len();
        let has_error = || {
            let mut all = self.evidence.ranks.iter();
            all.any(|state| !state.errors.is_empty())
        };
        let is_stuck = || {
            let mut all = self.job.ranks.values();
            has_error() || all.any(|logged| logged.step().is_some_and(|step| step.nature.waits()))
        };
        match basis(rule.kind) {
            Basis::Named | Basis::Places => true,
            Basis::StuckRanks => is_stuck(),
            Basis::Minority => is_stuck() && (few || self.job.ranks.len() == 2),
            Basis::AllSeen => self.all_are_seen_to_wait(),
            // A phase in which groups are made may be many calls, and a rank wait in it for one that others left out.
            Basis::InCollective => {
                let mut culprits = rule.culprits.iter();
                few && culprits.all(|rank| self.is_in_collective(*rank))
            }
            Basis::Never => false,
        }
    }

    /// Returns true if a stack of each rank, or the traceback of its timeout, shows the call in which it waits.
    fn all_are_seen_to_wait(&self) -> bool {
        let waits = |logged: &Logged| logged.step().is_some_and(|step| step.nature.waits());
        let is_seen = |logged: &Logged| {
            let mut errors = logged.log.final_errors();
            logged.log.has_call_stack || errors.any(|error| error.contains("imed out"))
        };
        let mut all = self.job.ranks.values();
        self.job.absent().is_empty() && all.all(|logged| waits(logged) && is_seen(logged))
    }

    fn is_in_collective(&self, rank: Rank) -> bool {
        let step = self.job.ranks.get(&rank.0).and_then(Logged::step);
        step.is_some_and(|step| matches!(step.nature, Nature::Collective(_)))
    }

    /// Returns a verdict of the rules, as far as logs allow it: where ranks contradict each other and none has a majority, none
    /// is named.
    pub(super) fn likely(&self, rule: Diagnosis) -> Diagnosis {
        let is_tie = rule.culprits.len() == self.job.ranks.len()
            && matches!(
                rule.kind,
                HangKind::CollectiveMismatch
                    | HangKind::CollectiveSkipped
                    | HangKind::GroupMembersDiffer
                    | HangKind::GroupOrder
                    | HangKind::GroupSkipped
            );
        // Of ranks that meet at different places, those that are not seen may agree with either side.
        let differ = rule.culprits.len();
        let agree = self.job.ranks.len().saturating_sub(differ);
        let is_majority = agree * 2 > self.job.least_size() as usize || agree >= 3 * differ;
        let is_open = matches!(rule.kind, HangKind::PortMismatch | HangKind::PlaceMismatch)
            && !self.job.absent().is_empty()
            && !is_majority;
        let (culprits, victims) = match is_tie || is_open {
            true => (Vec::new(), rule.culprits),
            false => (rule.culprits, rule.victims),
        };
        let summary = match is_open {
            true => "ranks do not all meet at the same place, and too few are in these logs to tell which of them are wrong".to_owned(),
            false => rule.summary,
        };
        Diagnosis {
            confidence: Confidence::Likely,
            summary,
            culprits,
            victims,
            ..rule
        }
    }
}

/// Returns true for kinds of verdicts whose cause an error names.
pub(super) fn says_itself(rule: &Diagnosis) -> bool {
    basis(rule.kind) == Basis::Named
}

/// What logs must show for a verdict of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basis {
    /// An error that names its cause.
    Named,
    /// Only what ranks have logged of themselves.
    Places,
    /// A rank that waits, or that raised an error.
    StuckRanks,
    /// Likewise, and culprits that are fewer than the others: without a majority for one call, ranks may well have different
    /// things to do.
    Minority,
    /// The call in which each rank waits: where ranks wait for each other, it must be known of all.
    AllSeen,
    /// Few culprits, each in a collective.
    InCollective,
    /// Logs do not show enough; the rules of logs themselves may say it.
    Never,
}

/// Returns what logs must show for a verdict of this kind by the rules.
const fn basis(kind: HangKind) -> Basis {
    match kind {
        HangKind::EnvironmentMissing
        | HangKind::BackendMissing
        | HangKind::DeviceBinding
        | HangKind::MasterUnreachable => Basis::Named,
        HangKind::PortMismatch
        | HangKind::PlaceMismatch
        | HangKind::SplitWorld
        | HangKind::DuplicateRank
        | HangKind::WorldSizeDisagreement
        | HangKind::PeerDead
        | HangKind::PeerRaised => Basis::Places,
        HangKind::GroupOrder | HangKind::GroupSkipped | HangKind::GroupMembersDiffer => {
            Basis::StuckRanks
        }
        HangKind::CollectiveSkipped | HangKind::CollectiveMismatch => Basis::Minority,
        HangKind::CyclicWait | HangKind::MessageUnmatched => Basis::AllSeen,
        HangKind::StuckInCall => Basis::InCollective,
        HangKind::PortInUse
        | HangKind::SilentListener
        | HangKind::MissingRank
        | HangKind::PeerStopped
        | HangKind::TeardownStuck
        | HangKind::Behind
        | HangKind::Slow
        | HangKind::Unknown => Basis::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn a_port_that_differs_is_nobodys_fault_where_a_majority_is_not_seen() {
        let line = |rank: u32, port: u16, size: u32| {
            format!(
                "[rank{rank}]: MASTER_ADDR=node0 MASTER_PORT={port} WORLD_SIZE={size}\n[rank{rank}]: Before init_process_group\n"
            )
        };
        let pair = |size| format!("{}{}", line(0, 29500, size), line(1, 29501, size));
        assert_eq!(said(&pair(3)), (HangKind::PortMismatch, vec![]));
        let all = format!("{}{}", pair(3), line(2, 29500, 3));
        assert_eq!(said(&all), (HangKind::PortMismatch, vec![1]));
    }
}
