//! The transitions of the state machine of one world.
//!
//! In: [`Event`]s, each with the time since the world began. Out: [`Action`]s. It reads no clock: time comes in as a
//! plain value.

use std::time::Duration;

use super::alarm::Alarm;
use super::event::Action;
use super::event::Event;
use super::failure::WorldFailure;
use super::phase::Phase;
use super::phase::Stop;
use super::phase::Wait;
use super::phase::Wanted;
use super::state::WorldState;
use crate::world::Event as RankEvent;
use crate::world::HostFacts;
use crate::world::RankExit;
use allranks_diagnose::RankState;
use allranks_model::diagnosis::Diagnosis;
use allranks_protocol::FromRank;

impl WorldState<'_> {
    /// Takes an event and the time since the world began, which never goes back. Returns the actions to perform, in
    /// order.
    pub fn on(&mut self, event: Event, now: Duration) -> Vec<Action> {
        self.now = now;
        let mut moved = self.receive(event).map(|()| true);
        loop {
            match moved {
                Ok(true) => {}
                Ok(false) => return std::mem::take(&mut self.actions),
                Err(stop) => self.stop(stop),
            }
            moved = self.advance();
        }
    }

    /// Returns when [`Event::Deadline`] is to come if no event comes before; `None` if it waits for an answer to an action, or
    /// has finished.
    pub fn deadline(&self) -> Option<Duration> {
        match &self.wait {
            Some(Wait::RankExit { until, .. }) => return Some(*until),
            Some(Wait::Host { .. } | Wait::Memory(_) | Wait::Orphans(_)) => return None,
            None => {}
        }
        match &self.phase {
            Phase::HostPause { until, .. }
            | Phase::LateAnswers { until, .. }
            | Phase::Reaping { until } => Some(*until),
            Phase::Finished => None,
            Phase::Connecting
            | Phase::Importing
            | Phase::HostEntering { .. }
            | Phase::Opening
            | Phase::Checks
            | Phase::Script
            | Phase::Closing
            | Phase::Shutdown { .. } => Some(self.next_alarm().0),
        }
    }

    fn receive(&mut self, event: Event) -> Result<(), Stop> {
        match (event, self.wait.take()) {
            (Event::Host(facts), Some(Wait::Host { states, wanted })) => {
                return self.receive_facts(states, wanted, facts);
            }
            (Event::Memory(available), Some(Wait::Memory(index))) => {
                self.send_large_check(index, available);
            }
            (Event::OrphansReaped(left_behind), Some(Wait::Orphans(wrong))) => {
                self.end_shutdown(wrong, &left_behind);
            }
            (event, wait) => {
                self.wait = wait;
                match event {
                    Event::Rank(event) => return self.receive_rank(event),
                    Event::Deadline => return self.receive_deadline(),
                    Event::Interrupted => self.is_interrupted = true,
                    Event::GivenUp(why) => return Err(Stop::Failed(WorldFailure::GivenUp(why))),
                    // An answer that is not waited for is ignored.
                    Event::Host(_) | Event::Memory(_) | Event::OrphansReaped(_) => {}
                }
            }
        }
        Ok(())
    }

    fn receive_rank(&mut self, event: RankEvent) -> Result<(), Stop> {
        match &self.wait {
            Some(Wait::RankExit { .. }) => self.receive_before_end(event),
            None if !matches!(self.phase, Phase::HostPause { .. }) => self.handle(event),
            Some(Wait::Host { .. } | Wait::Memory(_) | Wait::Orphans(_)) | None => {
                self.deferred.push_back(event);
                Ok(())
            }
        }
    }

    fn receive_deadline(&mut self) -> Result<(), Stop> {
        if let Some(wait) = &self.wait {
            let is_due = matches!(wait, Wait::RankExit { until, .. } if self.now >= *until);
            return match self.wait.take_if(|_| is_due) {
                Some(Wait::RankExit { rank, why, .. }) => self.lose(rank, why),
                Some(_) | None => Ok(()),
            };
        }
        match &mut self.phase {
            Phase::HostPause { until, .. }
            | Phase::LateAnswers { until, .. }
            | Phase::Reaping { until }
                if self.now < *until => {}
            Phase::HostPause { held, .. } => {
                let held = std::mem::take(held);
                self.send_frames(held);
                self.phase = Phase::Opening;
            }
            Phase::LateAnswers { .. } => self.fail_for_crash(),
            Phase::Reaping { .. } => self.finish(),
            Phase::Finished => {}
            Phase::Connecting
            | Phase::Importing
            | Phase::HostEntering { .. }
            | Phase::Opening
            | Phase::Checks
            | Phase::Script
            | Phase::Closing
            | Phase::Shutdown { .. } => match self.next_alarm() {
                (when, _) if self.now < when => {}
                (_, Alarm::Resume) => self.resume(),
                (_, Alarm::HangCheck) => self.ask_host(Wanted::HangCheck),
                (_, Alarm::Limit) if matches!(self.phase, Phase::HostEntering { .. }) => {
                    self.pause();
                }
                (_, Alarm::Limit) => self.ask_host(Wanted::Deadline),
            },
        }
        Ok(())
    }

    /// Takes the host's facts: makes the verdict, and uses it for what it was needed for.
    fn receive_facts(
        &mut self,
        states: Vec<RankState>,
        wanted: Wanted,
        facts: HostFacts,
    ) -> Result<(), Stop> {
        let is_machine_busy = facts.is_machine_busy;
        let diagnosis = self.diagnosis(states, facts);
        let hang =
            |diagnosis: Diagnosis| Err(Stop::Failed(WorldFailure::Hang(Box::new(diagnosis))));
        match wanted {
            Wanted::HangCheck => {
                let verdict = self
                    .hang_checks
                    .accept(diagnosis, self.now, is_machine_busy);
                verdict.map_or(Ok(()), hang)
            }
            Wanted::Deadline => hang(diagnosis),
            Wanted::Failure(failure) => {
                self.note_failure(&failure, Some(diagnosis));
                self.reap();
                Ok(())
            }
            Wanted::Script(pending) => self.conclude_with(*pending, Some(diagnosis)),
        }
    }

    /// Handles one event of a rank. Each is progress, except what a rank reports while it waits.
    fn handle(&mut self, event: RankEvent) -> Result<(), Stop> {
        match &self.phase {
            Phase::LateAnswers { .. } => {
                self.receive_late(event);
                return Ok(());
            }
            Phase::Reaping { .. } => {
                if let RankEvent::Ended(rank, end) = event {
                    self.rank_run(rank).end = Some(end);
                }
                return Ok(());
            }
            Phase::Finished => return Ok(()),
            Phase::Connecting
            | Phase::Importing
            | Phase::HostEntering { .. }
            | Phase::HostPause { .. }
            | Phase::Opening
            | Phase::Checks
            | Phase::Script
            | Phase::Closing
            | Phase::Shutdown { .. } => {}
        }
        let is_waiting = matches!(&event, RankEvent::Frame(_, frame) if matches!(frame.header, FromRank::Recorder { .. }));
        if !is_waiting {
            self.progress = self.now;
            self.hang_checks.reset();
        }
        match event {
            RankEvent::Hello(rank, hello) => {
                self.rank_run(rank).hello = Some(hello.cut());
                Ok(())
            }
            RankEvent::Refused(rank, why) => Err(Stop::crash(rank, why)),
            RankEvent::Frame(rank, frame) => {
                let taken = self.apply_frame(rank, frame);
                taken.map_err(|why| Stop::crash(rank, why))
            }
            RankEvent::Broken(rank, error) => self.receive_broken(rank, error.to_string()),
            RankEvent::Ended(rank, RankExit::MachineFault(why)) => {
                self.rank_run(rank).end = Some(RankExit::MachineFault(why.clone()));
                Err(Stop::Failed(WorldFailure::Machine(rank, why)))
            }
            RankEvent::NodeLost(why) => Err(Stop::Failed(WorldFailure::NodeLost(why))),
            RankEvent::Ended(rank, end) => {
                let rank_run = self.rank_run(rank);
                let why = format!("its process ended: {end}");
                rank_run.end = Some(end);
                // Frames of a connected rank may still be on their way; the end of its connection decides.
                match rank_run.hello {
                    Some(_) => Ok(()),
                    None => Err(Stop::crash(rank, why)),
                }
            }
        }
    }

    /// Makes one transition. Returns true if there was one to make.
    fn advance(&mut self) -> Result<bool, Stop> {
        if self.wait.is_some() || matches!(self.phase, Phase::Finished) {
            return Ok(false);
        }
        match self.phase {
            Phase::LateAnswers { .. } => {
                if self.count_late_answer()? {
                    return Ok(true);
                }
            }
            // No answer counts any more.
            Phase::Reaping { .. } => {}
            _ => {
                if let Some(pending) = self.next_answered() {
                    self.conclude(pending)?;
                    return Ok(true);
                }
            }
        }
        let is_fence = self.pending.is_empty();
        match &self.phase {
            Phase::Connecting if self.is_connected() => self.begin(),
            Phase::Importing if is_fence => self.open(),
            Phase::HostEntering { answered, .. } if self.has_entered(*answered) => self.pause(),
            Phase::Opening | Phase::Script if is_fence => self.phase = Phase::Checks,
            Phase::Checks if self.can_go_on() => self.send_next(),
            Phase::Closing if is_fence => self.shut_down(),
            Phase::Shutdown { leaving, .. } if self.have_left(leaving) => self.note_exit_faults(),
            Phase::Reaping { .. } if self.have_ended() => self.finish(),
            Phase::HostPause { .. } => return Ok(false),
            _ => return self.handle_deferred(),
        }
        Ok(true)
    }

    /// Handles a deferred event, or the interrupt, when there is no transition to make. Returns true if there was one
    /// to handle.
    fn handle_deferred(&mut self) -> Result<bool, Stop> {
        if let Some(event) = self.deferred.pop_front() {
            self.handle(event)?;
            return Ok(true);
        }
        let is_over = matches!(
            self.phase,
            Phase::LateAnswers { .. } | Phase::Reaping { .. }
        );
        match self.is_interrupted && !is_over {
            true => Err(Stop::Failed(WorldFailure::Interrupted)),
            false => Ok(false),
        }
    }

    fn stop(&mut self, stop: Stop) {
        match stop {
            // A late answer has ended the world, so the crash of the lost rank is not reported.
            _ if matches!(self.phase, Phase::LateAnswers { .. }) => self.reap(),
            Stop::Leave(index) => self.leave(index),
            Stop::Failed(WorldFailure::Crash(rank, why)) => self.await_late_answers(rank, why),
            Stop::Failed(failure) => self.fail(failure),
            Stop::Decided => self.reap(),
        }
    }
}
