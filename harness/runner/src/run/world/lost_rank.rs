//! A rank whose connection breaks before its `bye`: how its process ended, and, if it crashed, which answers of the others
//! still count.

use std::time::Duration;

use super::failure::WorldFailure;
use super::phase::Phase;
use super::phase::Stop;
use super::phase::Wait;
use super::state::WorldState;
use crate::finding::error_text;
use allranks_model::names::Rank;
use allranks_model::capability::Declared;
use crate::run::pending::Pending;
use crate::run::pending::Purpose;
use crate::world::Event as RankEvent;

/// How long the end of a process may come after the end of its connection.
pub const END_PATIENCE: Duration = Duration::from_secs(1);
/// How long the others may take to answer what a lost rank had answered before.
pub const LATE_PATIENCE: Duration = Duration::from_secs(2);

impl WorldState<'_> {
    /// A rank's connection has broken.
    pub(super) fn receive_broken(&mut self, rank: Rank, why: String) -> Result<(), Stop> {
        let story = self.story(rank);
        story.broken = Some(why.clone());
        if story.said_bye.is_some() {
            return Ok(());
        }
        if story.end.is_some() {
            return self.lose(rank, why);
        }
        // It is often a death whose report is on its way. Of a rank that a script sends away, how it ends is what is judged.
        let patience = match self.is_to_leave(rank) {
            true => self.plan.deadline(),
            false => END_PATIENCE,
        };
        let until = self.now + patience;
        self.wait = Some(Wait::End { rank, why, until });
        Ok(())
    }

    /// An event while the end of a process is waited for.
    pub(super) fn receive_before_end(&mut self, event: RankEvent) -> Result<(), Stop> {
        match event {
            RankEvent::Ended(rank, end) => {
                self.story(rank).end = Some(end);
                let is_it =
                    |wait: &mut Wait| matches!(wait, Wait::End { rank: of, .. } if *of == rank);
                match self.wait.take_if(is_it) {
                    Some(Wait::End { why, .. }) => self.lose(rank, why),
                    Some(_) | None => Ok(()),
                }
            }
            RankEvent::Frame(rank, frame) => {
                // A late answer of another rank still counts; a broken protocol is reported by the failure.
                let _ = self.take(rank, frame);
                Ok(())
            }
            // Several ranks may leave at once.
            event @ RankEvent::Broken(..) => {
                self.deferred.push_back(event);
                Ok(())
            }
            RankEvent::Hello(..) | RankEvent::Refused(..) => Ok(()),
        }
    }

    /// A rank's connection has broken, and how its process ended is known, or will not be: it has left, if the script under
    /// way sends it away, and otherwise crashed.
    pub(super) fn lose(&mut self, rank: Rank, why: String) -> Result<(), Stop> {
        let story = &self.result.ranks[rank.index()];
        let end = story.end.clone();
        if self.is_to_leave(rank) {
            let call = story.entered.checked_sub(1);
            self.note_left(rank, call, end);
            return Ok(());
        }
        let why = end.map_or(why, |end| format!("its process ended: {end}"));
        Err(Stop::crash(rank, why))
    }

    /// After a rank is lost: the step it was lost in is the one it has not answered. Steps before that, which it has
    /// answered, are the other ranks' to answer, and what they come to counts, unless it is an error, which may well
    /// come of the death: such a step is left open and made again in the next world.
    pub(super) fn await_late_answers(&mut self, lost: Rank, why: String) {
        self.deferred.clear();
        self.phase = Phase::LateAnswers {
            lost,
            why,
            until: self.now + LATE_PATIENCE.min(self.plan.deadline()),
        };
    }

    /// An event while late answers are waited for.
    pub(super) fn receive_late(&mut self, event: RankEvent) {
        match event {
            RankEvent::Frame(rank, frame) => {
                if self.take(rank, frame).is_err() {
                    self.fail_for_crash();
                }
            }
            RankEvent::Ended(rank, end) => self.story(rank).end = Some(end),
            // The rank that the step waits for is lost as well.
            RankEvent::Broken(rank, _) if !self.has_answered_first(rank) => self.fail_for_crash(),
            RankEvent::Broken(..) | RankEvent::Hello(..) | RankEvent::Refused(..) => {}
        }
    }

    /// Judges the first step if every rank has answered it and it counts. If there is no more to wait for, the world fails.
    /// Whether either was so.
    pub(super) fn count_late_answer(&mut self) -> Result<bool, Stop> {
        let Phase::LateAnswers { lost, .. } = self.phase else {
            return Ok(false);
        };
        if let Some(pending) = self.next_answered() {
            if !self.is_harmed(&pending) {
                self.conclude(pending)?;
                return Ok(true);
            }
            if let Purpose::Probe(index, _) = pending.purpose {
                // The refusal is judged with its probe: both are made again.
                self.result.checks.remove(&index);
            }
            self.pending.push_front(pending);
        } else if self.has_answered_first(lost) {
            return Ok(false);
        }
        self.fail_for_crash();
        Ok(true)
    }

    /// No more late answers: the rank that was lost is what the world fails for.
    pub(super) fn fail_for_crash(&mut self) {
        if let Phase::LateAnswers { lost, why, .. } = &mut self.phase {
            let failure = WorldFailure::Crash(*lost, std::mem::take(why));
            self.fail(failure);
        }
    }

    /// Whether the rank has answered the first step that is open.
    fn has_answered_first(&self, rank: Rank) -> bool {
        let first = self.pending.front();
        first.is_some_and(|one| one.is_answered_by(rank))
    }

    /// Whether something raised in a step that should not have.
    fn is_harmed(&self, pending: &Pending) -> bool {
        let raised = pending.replies();
        let raised = raised.filter(|reply| error_text(&reply.result.calls).is_some());
        let allowed = match &pending.purpose {
            Purpose::Check(index, _) => {
                let check = &self.plan.scenario.checks[*index];
                match check.declared {
                    Declared::Supported => 0,
                    Declared::Unsupported(_) => check.group.size(),
                }
            }
            Purpose::Probe(..) | Purpose::Script(..) => 0,
            // No check to make again: what they come to counts.
            Purpose::Imports | Purpose::Opening | Purpose::Closing => return false,
        };
        let count = raised.count();
        count != 0 && count != allowed
    }
}
