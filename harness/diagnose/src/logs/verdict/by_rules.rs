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
        let timed_out = || {
            self.evidence
                .ranks
                .iter()
                .any(|state| !state.errors.is_empty())
        };
        let is_stuck = || {
            let mut all = self.job.ranks.values();
            timed_out() || all.any(|logged| logged.step().is_some_and(|step| step.nature.waits()))
        };
        match rule.kind {
            HangKind::PortMismatch
            | HangKind::PlaceMismatch
            | HangKind::SplitWorld
            | HangKind::DuplicateRank
            | HangKind::WorldSizeDisagreement
            | HangKind::PeerDead
            | HangKind::PeerRaised => true,
            HangKind::GroupOrder | HangKind::GroupSkipped | HangKind::GroupMembersDiffer => {
                is_stuck()
            }
            // Without a majority for one call, ranks may well have different things to do.
            HangKind::CollectiveSkipped | HangKind::CollectiveMismatch => {
                is_stuck() && (few || self.job.ranks.len() == 2)
            }
            // Ranks that wait for each other: only if it is known of every rank where it waits.
            HangKind::CyclicWait | HangKind::MessageUnmatched => self.all_are_seen_to_wait(),
            // A phase in which groups are made may be many calls, and a rank wait in it for one that others left out.
            HangKind::StuckInCall => {
                few && rule
                    .culprits
                    .iter()
                    .all(|rank| self.is_in_collective(*rank))
            }
            // Logs do not show enough for any other kind; a new one comes in above if they do.
            _ => false,
        }
    }

    /// Returns true if a stack of each rank, or the traceback of its timeout, shows the call in which it waits.
    fn all_are_seen_to_wait(&self) -> bool {
        let waits = |logged: &Logged| logged.step().is_some_and(|step| step.nature.waits());
        let is_seen = |logged: &Logged| {
            let mut errors = logged.log.final_errors();
            logged.log.has_stack || errors.any(|error| error.contains("imed out"))
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
        let (culprits, victims) = match is_tie {
            true => (Vec::new(), rule.culprits),
            false => (rule.culprits, rule.victims),
        };
        Diagnosis {
            confidence: Confidence::Likely,
            culprits,
            victims,
            ..rule
        }
    }
}

/// Returns true for kinds of verdicts whose cause an error names.
pub(super) fn says_itself(rule: &Diagnosis) -> bool {
    matches!(
        rule.kind,
        HangKind::EnvironmentMissing
            | HangKind::BackendMissing
            | HangKind::DeviceBinding
            | HangKind::MasterUnreachable
    )
}
