//! Handles a rank whose connection breaks before its `bye`: how its process ended, and, if it crashed, which answers of
//! the other ranks still count.

use std::time::Duration;

use super::failure::WorldFailure;
use super::phase::Phase;
use super::phase::Stop;
use super::phase::Wait;
use super::state::WorldState;
use crate::check_result::error_text;
use crate::run::pending::Pending;
use crate::run::pending::Purpose;
use crate::world::Event as RankEvent;
use crate::world::RankExit;
use allranks_model::capability::Declared;
use allranks_model::names::Rank;

/// How long a process may take to end after its connection has ended.
pub const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the other ranks may take to answer the steps that a lost rank had answered.
pub const LATE_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

impl WorldState<'_> {
    /// Handles the end of a rank's connection.
    pub(super) fn receive_broken(&mut self, rank: Rank, why: String) -> Result<(), Stop> {
        let rank_run = self.rank_run(rank);
        rank_run.broken = Some(why.clone());
        if rank_run.said_bye.is_some() {
            return Ok(());
        }
        if rank_run.end.is_some() {
            return self.lose(rank, why);
        }
        // A broken connection often means that the process died and its exit is not reported yet.
        let until = self.now + self.end_patience(rank);
        self.wait = Some(Wait::RankExit { rank, why, until });
        Ok(())
    }

    /// Returns how long a rank's process may take to end after its connection has ended: the whole deadline if a script makes
    /// the rank leave, because its exit is then judged.
    fn end_patience(&self, rank: Rank) -> Duration {
        match self.is_to_leave(rank) {
            true => self.plan.deadline(),
            false => END_TIMEOUT,
        }
    }

    /// Returns the rank whose process is to end, and how long that may take; none if no end is waited for.
    pub(super) fn awaited_end(&self) -> Option<(Rank, Duration)> {
        match &self.wait {
            Some(Wait::RankExit { rank, .. }) => Some((*rank, self.end_patience(*rank))),
            Some(_) | None => None,
        }
    }

    /// Handles an event while the end of a process is waited for.
    pub(super) fn receive_before_end(&mut self, event: RankEvent) -> Result<(), Stop> {
        match event {
            RankEvent::Ended(rank, end) => {
                self.rank_run(rank).end = Some(end);
                let is_it = |wait: &mut Wait| matches!(wait, Wait::RankExit { rank: of, .. } if *of == rank);
                match self.wait.take_if(is_it) {
                    Some(Wait::RankExit { why, .. }) => self.lose(rank, why),
                    Some(_) | None => Ok(()),
                }
            }
            RankEvent::Frame(rank, frame) => {
                // A late answer of another rank still counts; a frame that breaks the protocol is ignored, as the
                // failure is known already.
                let _ = self.apply_frame(rank, frame);
                Ok(())
            }
            // Several ranks may leave at the same time.
            event @ RankEvent::Broken(..) => {
                self.deferred.push_back(event);
                Ok(())
            }
            RankEvent::Hello(..) | RankEvent::Refused(..) => Ok(()),
            RankEvent::NodeLost(why) => {
                self.wait = None;
                Err(Stop::Failed(WorldFailure::NodeLost(why)))
            }
        }
    }

    /// Handles the loss of a rank whose exit is known, or will not become known: it has left if the script under way
    /// makes it leave, and has crashed otherwise.
    pub(super) fn lose(&mut self, rank: Rank, why: String) -> Result<(), Stop> {
        let rank_run = &self.result.ranks[rank.index()];
        let end = rank_run.end.clone();
        if self.is_to_leave(rank) {
            let call = rank_run.entered.checked_sub(1);
            self.note_left(rank, call, end);
            return Ok(());
        }
        if let Some(RankExit::MachineFault(why)) = end {
            return Err(Stop::Failed(WorldFailure::Machine(rank, why)));
        }
        let why = end.map_or(why, |end| format!("its process ended: {end}"));
        Err(Stop::crash(rank, why))
    }

    /// Waits for late answers after a rank crashed. The crash belongs to the first step that the rank has not answered.
    /// The steps before it are for the other ranks to answer, and their results count, unless they are errors, which
    /// the crash may have caused: such a step is left open and made again in the next world.
    pub(super) fn await_late_answers(&mut self, lost: Rank, why: String) {
        self.deferred.clear();
        self.phase = Phase::LateAnswers {
            lost,
            why,
            until: self.now + LATE_ANSWER_TIMEOUT.min(self.plan.deadline()),
        };
    }

    /// Handles an event while late answers are waited for.
    pub(super) fn receive_late(&mut self, event: RankEvent) {
        match event {
            RankEvent::Frame(rank, frame) => {
                if self.apply_frame(rank, frame).is_err() {
                    self.fail_for_crash();
                }
            }
            RankEvent::Ended(rank, end) => self.rank_run(rank).end = Some(end),
            // The step waits for this rank, which is lost as well.
            RankEvent::Broken(rank, _) if !self.has_answered_first(rank) => self.fail_for_crash(),
            RankEvent::Broken(..) | RankEvent::Hello(..) | RankEvent::Refused(..) => {}
            // The failure is explained: late answers are not needed any more.
            RankEvent::NodeLost(why) => {
                self.note_failure(&WorldFailure::NodeLost(why), None);
                self.reap();
            }
        }
    }

    /// Judges the first open step if every rank has answered it and the result counts. If there is nothing more to wait
    /// for, the world fails. Returns true if either happened.
    pub(super) fn count_late_answer(&mut self) -> Result<bool, Stop> {
        let Phase::LateAnswers { lost, .. } = self.phase else {
            return Ok(false);
        };
        if let Some(pending) = self.next_answered() {
            if !self.is_harmed(&pending) {
                self.conclude(pending)?;
                return Ok(true);
            }
            if let Purpose::GroupTestAfter(index, _) = pending.purpose {
                // A refusal is judged together with its group test: both are made again.
                self.result.checks.remove(&index);
            }
            self.pending.push_front(pending);
        } else if self.has_answered_first(lost) {
            return Ok(false);
        }
        self.fail_for_crash();
        Ok(true)
    }

    /// Stops waiting for late answers: the world fails with the crash of the lost rank.
    pub(super) fn fail_for_crash(&mut self) {
        if let Phase::LateAnswers { lost, why, .. } = &mut self.phase {
            let failure = WorldFailure::Crash(*lost, std::mem::take(why));
            self.fail(failure);
        }
    }

    /// Returns true if the rank has answered the first open step.
    fn has_answered_first(&self, rank: Rank) -> bool {
        let first = self.pending.front();
        first.is_some_and(|one| one.is_answered_by(rank))
    }

    /// Returns true if a rank raised in a step in which it must not.
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
            Purpose::GroupTestAfter(..) | Purpose::GroupTestBefore(..) | Purpose::Script(..) => 0,
            // There is no check to make again, so their result counts.
            Purpose::Imports | Purpose::Opening | Purpose::Closing => return false,
        };
        let count = raised.count();
        count != 0 && count != allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::world::event::Event;
    use crate::run::world::fixture::exit;
    use crate::run::world::fixture::ms;
    use crate::run::world::fixture::outcomes;
    use crate::run::world::fixture::planned;
    use crate::run::world::simulation::Simulation;
    use allranks_model::outcome::Outcome;
    use allranks_suite::expectation::Expectations;

    const TWO: &str = "{size: 2, deadline_s: 20}";
    const BARRIER: &str = "  - barrier: {}\n";

    #[test]
    fn a_rank_that_dies_is_blamed_and_how_it_ended_is_told() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.close(1);
        assert!(!world.is_killed());
        world.pass(ms(300));
        world.end(1, RankExit::Signalled(9));
        assert_eq!(world.take_done(), ["kill 0"]);
        let result = world.reaped();
        assert_eq!(outcomes(&result), [(0, Outcome::Crash)]);
        let why = "rank 1: its process ended: signal 9 (SIGKILL)";
        assert_eq!(result.lost.as_deref(), Some(why));
        assert_eq!(result.checks[&0].summary, why);
        assert!(result.ranks[0].killed && !result.ranks[1].killed);
    }

    #[test]
    fn an_end_that_comes_before_the_connection_s_is_no_crash_yet() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.end(1, exit(3));
        assert!(!world.is_killed());
        world.close(1);
        assert!(world.is_killed());
        let result = world.reaped();
        assert_eq!(
            result.lost.as_deref(),
            Some("rank 1: its process ended: exit 3")
        );
    }

    #[test]
    fn a_process_that_ends_before_its_hello_has_crashed() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::new(&scenario, &known);
        world.hello(0);
        world.end(1, exit(1));
        let result = world.reaped();
        let init = result.init.unwrap();
        assert_eq!(init.outcome, Outcome::InitFailed);
        assert_eq!(init.summary, "rank 1: its process ended: exit 1");
        assert_eq!(init.class.as_deref(), Some("crash"));
    }

    #[test]
    fn a_world_may_end_while_its_host_is_waited_for() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::imported(&scenario, &known);
        assert!(matches!(world.state.phase, Phase::HostEntering { .. }));
        world.die(0, 9);
        assert!(world.is_killed());
        let init = world.reaped().init.unwrap();
        assert_eq!(init.outcome, Outcome::InitFailed);
        assert_eq!(
            init.summary,
            "rank 0: its process ended: signal 9 (SIGKILL)"
        );

        let mut world = Simulation::imported(&scenario, &known);
        assert!(matches!(world.state.phase, Phase::HostEntering { .. }));
        world.handle(Event::Interrupted);
        assert!(matches!(world.state.phase, Phase::Reaping { .. }));
        assert_eq!(world.reaped().lost.as_deref(), Some("interrupted"));
    }

    #[test]
    fn in_the_opening_and_in_the_teardown_the_others_may_answer_late() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::imported(&scenario, &known);
        world.enter(0);
        world.wake();
        assert!(matches!(world.state.phase, Phase::Opening));
        world.answer(1);
        world.die(1, 9);
        assert!(matches!(world.state.phase, Phase::LateAnswers { .. }));
        // The opening is done, and the rank was lost after it.
        world.answer(0);
        assert!(world.is_killed());
        let result = world.reaped();
        assert_eq!(result.init.unwrap().outcome, Outcome::Pass);
        assert!(result.lost.is_some());

        let mut world = Simulation::opened(&scenario, &known);
        world.answer_all();
        assert!(matches!(world.state.phase, Phase::Closing));
        world.answer(1);
        world.die(1, 9);
        assert!(matches!(world.state.phase, Phase::LateAnswers { .. }));
        assert_eq!(world.wake(), LATE_ANSWER_TIMEOUT);
        let result = world.reaped();
        assert_eq!(outcomes(&result), [(0, Outcome::Pass)]);
        assert_eq!(result.end.unwrap().outcome, Outcome::Crash);
    }

    #[test]
    fn the_end_of_a_process_is_not_waited_for_long() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.close(1);
        // Events of other ranks do not change that.
        world.pass(ms(400));
        world.enter(0);
        world.handle(Event::Interrupted);
        let awaited = world.state.awaited_end();
        assert_eq!(awaited, Some((Rank(1), END_TIMEOUT)));
        assert_eq!(world.wake(), END_TIMEOUT - ms(400));
        assert_eq!(world.state.awaited_end(), None);
        assert_eq!(world.take_done(), ["kill 0", "kill 1"]);
        let result = world.reaped();
        assert_eq!(result.lost.as_deref(), Some("rank 1: connection closed"));
    }

    #[test]
    fn a_limit_that_begins_anew_is_as_long_as_before() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        let limit =
            |world: &Simulation| world.state.quiet_limit().map(|(since, long)| since + long);
        let later = world.state.now + ms(19_900);
        world.state.restart_limit(later);
        assert_eq!(limit(&world), Some(later + ms(20_000)));
        world.close(1);
        let later = world.state.now + ms(9_900);
        world.state.restart_limit(later);
        assert_eq!(world.state.deadline(), Some(later + END_TIMEOUT));
    }

    #[test]
    fn the_loss_of_a_node_is_no_result_of_any_check_whatever_is_under_way() {
        let (scenario, known) = (
            planned(TWO, "  - barrier: {}\n  - barrier: {}\n"),
            Expectations::default(),
        );
        let why = "node b was lost: connection closed";
        for preparation in [
            "none",
            "a rank is in a call",
            "a rank's end is waited for",
            "late answers",
        ] {
            let mut world = Simulation::opened(&scenario, &known);
            match preparation {
                "a rank is in a call" => world.enter(0),
                "a rank's end is waited for" => world.close(1),
                "late answers" => {
                    world.answer(1);
                    world.close(1);
                    world.end(1, RankExit::Signalled(9));
                }
                _ => {}
            }
            world.handle(Event::Rank(RankEvent::NodeLost(why.to_owned())));
            assert!(world.is_killed(), "{preparation}");
            let result = world.reaped();
            assert_eq!(result.lost.as_deref(), Some(why), "{preparation}");
            assert_eq!(outcomes(&result), [], "{preparation}");
            assert!(result.end.is_none(), "{preparation}");
            assert!(!result.is_starved, "{preparation}");
        }
    }

    #[test]
    fn a_world_that_the_machine_does_not_let_run_is_given_up_and_blames_no_rank() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        world.handle(Event::GivenUp("too busy".to_owned()));
        assert!(world.is_killed());
        let result = world.reaped();
        assert_eq!(
            (result.lost.as_deref(), result.is_starved),
            (Some("too busy"), true)
        );
        assert_eq!(outcomes(&result), []);
    }

    #[test]
    fn errors_of_others_that_come_before_the_end_is_known_are_told_and_do_not_decide() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.close(1);
        world.raise(0, "peer closed");
        world.end(1, RankExit::Signalled(11));
        let result = world.reaped();
        let check_result = &result.checks[&0];
        assert_eq!(check_result.outcome, Outcome::Crash);
        assert_eq!(
            check_result.summary,
            "rank 1: its process ended: signal 11 (SIGSEGV); 1 of 2 ranks raised RuntimeError: peer closed"
        );
        assert_eq!(
            check_result.ranks[0].text,
            "raised RuntimeError: peer closed"
        );
    }

    #[test]
    fn a_rank_is_lost_in_the_step_that_it_has_not_answered_and_late_answers_to_others_count() {
        let scenario = planned(TWO, &BARRIER.repeat(3));
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.answer(1);
        world.enter(1);
        world.die(1, 9);
        assert!(!world.is_killed(), "rank 0 may still answer the first");
        world.answer(0);
        assert!(world.is_killed());
        let result = world.reaped();
        assert_eq!(outcomes(&result), [(0, Outcome::Pass), (1, Outcome::Crash)]);
    }

    #[test]
    fn a_late_error_may_come_of_the_death_and_leaves_its_step_open() {
        let scenario = planned(TWO, &BARRIER.repeat(3));
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.answer(1);
        world.die(1, 9);
        world.raise(0, "peer closed");
        assert!(world.is_killed());
        let result = world.reaped();
        assert_eq!(outcomes(&result), [(1, Outcome::Crash)]);
    }

    #[test]
    fn late_answers_are_not_waited_for_long() {
        let scenario = planned(TWO, &BARRIER.repeat(2));
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.answer(1);
        world.die(1, 9);
        world.pass(ms(500));
        world.enter(0);
        assert_eq!(world.wake(), LATE_ANSWER_TIMEOUT - ms(500));
        assert!(world.is_killed());
        assert_eq!(outcomes(&world.reaped()), [(1, Outcome::Crash)]);
    }

    #[test]
    fn no_answer_is_waited_for_of_a_rank_that_is_lost_as_well() {
        let scenario = planned(TWO, &BARRIER.repeat(2));
        let known = Expectations::default();
        for is_breach in [false, true] {
            let mut world = Simulation::opened(&scenario, &known);
            world.answer(1);
            world.die(1, 9);
            match is_breach {
                true => world.header(
                    0,
                    allranks_protocol::FromRank::Enter {
                        step: 9,
                        call: 0,
                        ns: 1,
                    },
                ),
                false => world.close(0),
            }
            assert!(world.is_killed());
            let result = world.reaped();
            assert_eq!(outcomes(&result), [(1, Outcome::Crash)]);
            assert_eq!(
                result.lost.as_deref(),
                Some("rank 1: its process ended: signal 9 (SIGKILL)")
            );
        }
    }

    #[test]
    fn an_opening_that_failed_says_more_than_the_death_after_it() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::new(&scenario, &known);
        world.hello_all();
        world.answer(1);
        world.die(1, 9);
        world.raise(0, "no such module");
        let result = world.reaped();
        let init = result.init.unwrap();
        assert_eq!(init.class.as_deref(), Some("init-failed"));
        assert_eq!(result.lost, None);
    }

    #[test]
    fn a_refusal_whose_group_test_died_is_made_again_with_it() {
        let steps = "  - all_gather: {numel: 3}\n  - barrier: {}\n";
        let (scenario, known) = (planned(TWO, steps), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.answer_sum();
        world.raise(0, "not supported");
        world.raise(1, "not supported");
        assert_eq!(world.state.result.checks[&0].outcome, Outcome::Unsupported);
        // Rank 1 has answered the group test and dies in the barrier; rank 0 raises in the group test.
        world.answer(1);
        world.die(1, 9);
        world.raise(0, "peer closed");
        assert_eq!(outcomes(&world.reaped()), [(1, Outcome::Crash)]);
    }

    #[test]
    fn a_death_in_the_group_test_is_the_check_s() {
        let steps = "  - all_gather: {numel: 3}\n";
        let (scenario, known) = (planned(TWO, steps), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.answer_sum();
        world.raise(0, "not supported");
        world.raise(1, "not supported");
        world.die(1, 9);
        let result = world.reaped();
        assert_eq!(
            result.checks[&0].summary,
            "refused: RuntimeError: not supported; afterwards rank 1: its process ended: signal 9 (SIGKILL)"
        );
        assert_eq!(result.checks[&0].outcome, Outcome::Crash);
    }
}
