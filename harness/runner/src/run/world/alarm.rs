//! When a world wants to be woken although nothing happens.
//!
//! In: when something moved last, what is under way, which ranks are stopped. Out: the first [`Alarm`], and its time.

use std::time::Duration;

use super::phase::Phase;
use super::state::WorldState;
use allranks_model::outcome::Outcome;
use crate::finding::error_text;
use crate::run::pending::Purpose;
use crate::run::story::RankStory;

/// How long nothing may move while something is under way that is known to hang, or known to fail and has on some rank. If
/// the hang is gone, it ends much sooner; if it merely takes longer than this, it is a known failure for one more run.
const KNOWN_PATIENCE: Duration = Duration::from_secs(5);

/// What is to be done when nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The time of a stopped rank has come.
    Resume,
    /// It is time to look why nothing moves.
    HangCheck,
    /// Nothing has moved for as long as it may.
    Limit,
}

impl WorldState<'_> {
    /// What is due first while ranks are at work, and when.
    pub(super) fn next_alarm(&self) -> (Duration, Alarm) {
        let limit = match &self.phase {
            Phase::HostEntering { until, .. } => *until,
            _ => self.limit(),
        };
        let resume = self.script_events.next_resume();
        let check = self.next_hang_check();
        let mut first = (limit, Alarm::Limit);
        for (when, alarm) in [(check, Alarm::HangCheck), (resume, Alarm::Resume)] {
            if let Some(when) = when
                && when < limit
                && when <= first.0
            {
                first = (when, alarm);
            }
        }
        first
    }

    /// Until when something must move: first until it is to be asked whether what is under way is known to hang.
    fn limit(&self) -> Duration {
        let known = self.progress + self.plan.deadline().min(KNOWN_PATIENCE);
        match self.now < known || self.is_known_to_stay() {
            true => known,
            false => self.progress + self.patience(),
        }
    }

    /// How long nothing may move. Imports take longer than communication, and from a network in a world of many ranks much
    /// longer.
    fn patience(&self) -> Duration {
        match self.result.ranks.iter().all(RankStory::has_imported) {
            true => self.plan.deadline(),
            false => self.plan.deadline().max(self.plan.import_patience),
        }
    }

    /// Whether what is under way is known to come to no end, or to none that matters: it is not waited for as long as
    /// what is not. A rank that has raised what was not asked for has decided it, and the others may wait for that rank.
    fn is_known_to_stay(&self) -> bool {
        let Some(open) = self.pending.front() else {
            return false;
        };
        let is_expected = |outcome| {
            let ranks = &self.result.ranks;
            self.plan.is_expected(ranks, open.check(), outcome)
        };
        match open.purpose {
            Purpose::Imports | Purpose::Opening => is_expected(Outcome::InitFailed),
            Purpose::Check(..) | Purpose::Script(..) => {
                let mut replies = open.replies();
                let has_raised = replies.any(|reply| error_text(&reply.result.calls).is_some());
                is_expected(Outcome::Hang) || has_raised && is_expected(Outcome::Error)
            }
            Purpose::Probe(..) | Purpose::Closing => false,
        }
    }
}
