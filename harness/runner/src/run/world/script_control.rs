//! Handles what happens in a script besides calls: marks that are waited for, ranks that are stopped for a while, ranks
//! that leave on purpose, and what becomes of the world afterwards.

use std::sync::Arc;

use super::checks::short;
use super::event::Action;
use super::hang_checks::HangChecks;
use super::phase::Phase;
use super::phase::Stop;
use super::script_events::ScriptEvents;
use super::state::WorldState;
use crate::check_result::CheckResult;
use crate::run::pending::Purpose;
use crate::script::Answer;
use crate::script::CompiledScript;
use crate::script::OnEnter;
use crate::world::RankExit;
use allranks_model::diagnosis::HangKind;
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;
use allranks_protocol::ToRank;
use allranks_suite::case::Afterwards;
use allranks_suite::plan::Hang;
use allranks_suite::plan::Script;

impl WorldState<'_> {
    /// Sends a script. Nothing else is under way meanwhile.
    pub(super) fn send_script(&mut self, index: usize, script: &Arc<Script>) {
        let check = &self.plan.scenario.checks[index];
        let label = short(check).to_owned();
        let compiled = CompiledScript::new(
            self.plan.scenario,
            check,
            script,
            &self.plan.points,
            self.plan.seed,
        );
        let mut compiled = match compiled {
            Ok(compiled) => compiled,
            // The suite's tests compile every script, so this is an error of the harness.
            Err(why) => return self.leave_out(index, Outcome::HarnessError, why),
        };
        self.script_events = ScriptEvents::default();
        self.hang_checks = HangChecks::default();
        let steps = std::mem::take(&mut compiled.steps);
        if let Some(why) = self.lacking(&steps) {
            return self.leave_out(index, Outcome::NotRun, why);
        }
        self.send(label, Purpose::Script(index, Box::new(compiled)), steps);
        self.phase = Phase::Script;
    }

    /// Records the result of a script, and decides whether the world goes on.
    pub(super) fn end_script(
        &mut self,
        index: usize,
        check_result: CheckResult,
    ) -> Result<(), Stop> {
        let passed = check_result.outcome == Outcome::Pass;
        let check = &self.plan.scenario.checks[index];
        let check_result = check_result.as_declared(&check.declared);
        let afterwards = check
            .script()
            .map_or(Afterwards::GoOn, |script| match &script.hang {
                // The rank is only late, so the script ends.
                Some(Hang {
                    kind: HangKind::Slow,
                    ..
                })
                | None => script.afterwards,
                Some(_) => Afterwards::Abandon,
            });
        self.result.checks.insert(index, check_result);
        match afterwards {
            Afterwards::GoOn if passed => Ok(()),
            Afterwards::GoOn => {
                self.result.lost = Some("a script did not go as it must".to_owned());
                Err(Stop::Decided)
            }
            Afterwards::Abandon => Err(Stop::Decided),
            Afterwards::Leave => Err(Stop::Leave(index)),
        }
    }

    /// Does what the script demands when a rank enters a call.
    pub(super) fn on_enter(&mut self, rank: Rank, call: usize) {
        let events = &mut self.script_events;
        events.enter(rank);
        let Some(script) = self.pending.front().and_then(|pending| pending.script()) else {
            return;
        };
        let Some(on_enter) = script.on_enter(rank, call) else {
            return;
        };
        let mut has_left = false;
        match on_enter {
            OnEnter::Mark(name) => events.mark(rank, name),
            OnEnter::Hold(name) => events.hold(rank, name),
            OnEnter::Pause(time) => events.pause(rank, self.now + *time),
            OnEnter::Freeze => has_left = true,
        }
        for free in events.released(script) {
            self.act(Action::Send(free, ToRank::Go, Vec::new()));
        }
        if has_left {
            self.note_left(rank, Some(call), None);
        }
    }

    /// Lets every stopped rank go on whose time is over.
    pub(super) fn resume(&mut self) {
        for rank in self.script_events.ranks_to_resume(self.now) {
            self.act(Action::Resume(rank));
        }
    }

    /// Returns true if the script under way makes this rank leave.
    pub(super) fn is_to_leave(&self, rank: Rank) -> bool {
        self.pending
            .front()
            .filter(|pending| !pending.is_answered_by(rank))
            .and_then(|pending| pending.script())
            .is_some_and(|script| script.departure(rank).is_some())
    }

    /// Records that a rank has left in the middle of a script: in which call, and its exit, if known.
    pub(super) fn note_left(&mut self, rank: Rank, call: Option<usize>, end: Option<RankExit>) {
        if let Some(pending) = self.pending.front_mut() {
            pending.answers[rank.index()] = Some(Answer::Left(call, end));
        }
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
    use crate::run::world::script_events::RESUME_AGAIN;
    use crate::run::world::simulation::Simulation;
    use crate::world::RankExit;
    use allranks_suite::expectation::Expectations;
    use allranks_suite::plan::Scenario;

    /// A script in a world of two, and a barrier after it.
    fn of_two(afterwards: &str, moves: &str) -> Scenario {
        let script =
            format!("  - script: {{name: s, afterwards: {afterwards}, moves: [{moves}]}}\n");
        planned(
            "{size: 2, deadline_s: 20}",
            &format!("{script}  - barrier: {{}}\n"),
        )
    }

    #[test]
    fn a_rank_that_holds_goes_on_when_every_mark_has_been_made() {
        let moves = "{mark: {name: m}}, {hold: {name: m}, on: first}, {sleep: {ms: 1}}";
        let (scenario, known) = (of_two("go_on", moves), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        assert_eq!(world.calls(0), ["mark hold sleep"]);
        world.enter(0);
        world.enter(0);
        assert_eq!(world.take_done(), [""; 0]);
        world.enter(1);
        assert_eq!(world.take_done(), ["go 0"]);
        // It is told only once.
        world.enter(1);
        world.answer(0);
        assert_eq!(world.take_done(), [""; 0]);
        world.answer(1);
        assert_eq!(world.state.result.checks[&0].outcome, Outcome::Pass);
        assert_eq!(world.calls(0), ["barrier"]);
    }

    #[test]
    fn a_stopped_rank_is_told_to_go_on_until_it_does() {
        let moves = "{pause: {ms: 1500}, on: last}, {sleep: {ms: 1}}";
        let (scenario, known) = (of_two("go_on", moves), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(1);
        assert_eq!(world.wake(), ms(1500));
        assert_eq!(world.take_done(), ["resume 1"]);
        assert_eq!(world.wake(), RESUME_AGAIN);
        assert_eq!(world.take_done(), ["resume 1"]);
        world.enter(1);
        assert_eq!(world.wake_until_killed(ms(3000)), ms(5000));
        assert_eq!(world.take_done(), [""; 0]);
    }

    #[test]
    fn a_rank_that_a_script_kills_has_left() {
        let moves = "{die: {}, on: last}, {sleep: {ms: 1}, on: first}";
        let (scenario, known) = (of_two("abandon", moves), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(1);
        world.close(1);
        // Its exit is judged, so it is waited for; other ranks may answer meanwhile.
        world.answer(0);
        assert_eq!(world.state.deadline(), Some(world.now + ms(20_000)));
        world.end(1, RankExit::Signalled(9));
        assert_eq!(world.take_done(), ["kill 0"]);
        let result = world.reaped();
        assert_eq!(outcomes(&result), [(0, Outcome::Pass)]);
        assert_eq!(result.lost, None);
    }

    #[test]
    fn a_rank_that_leaves_otherwise_than_it_is_to_has_not_kept_to_the_script() {
        let moves = "{exit: {code: 3}, on: last}, {sleep: {ms: 1}, on: first}";
        let (scenario, known) = (of_two("abandon", moves), Expectations::default());
        for (end, why) in [
            (Some(exit(3)), None),
            (Some(exit(0)), Some("exit 0")),
            (Some(RankExit::Signalled(9)), Some("signal 9")),
            (None, Some("")),
        ] {
            let mut world = Simulation::opened(&scenario, &known);
            world.answer(0);
            world.enter(1);
            world.close(1);
            match end {
                Some(end) => world.end(1, end),
                None => assert_eq!(world.wake(), ms(20_000)),
            }
            let check_result = &world.reaped().checks[&0];
            match why {
                None => assert_eq!(check_result.outcome, Outcome::Pass, "{check_result:?}"),
                Some(why) => {
                    assert_eq!(check_result.class.as_deref(), Some("wrong-end"));
                    assert!(
                        check_result.summary.contains(why),
                        "{}",
                        check_result.summary
                    );
                }
            }
        }
    }

    #[test]
    fn several_ranks_may_leave_at_once() {
        let (scenario, known) = (of_two("abandon", "{die: {}}"), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        world.enter(1);
        world.close(0);
        world.close(1);
        world.end(1, RankExit::Signalled(9));
        world.end(0, RankExit::Signalled(9));
        let result = world.result.unwrap();
        assert_eq!(outcomes(&result), [(0, Outcome::Pass)]);
    }

    #[test]
    fn a_rank_that_the_script_does_not_send_away_crashes_in_it() {
        let moves = "{die: {}, on: last}, {sleep: {ms: 1}, on: first}";
        let (scenario, known) = (of_two("abandon", moves), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.die(0, 6);
        let result = world.reaped();
        assert_eq!(outcomes(&result), [(0, Outcome::Crash)]);
        assert_eq!(
            result.lost.as_deref(),
            Some("rank 0: its process ended: signal 6 (SIGABRT)")
        );
    }

    #[test]
    fn a_frozen_rank_has_left_as_soon_as_it_enters_that() {
        let moves = "{freeze: {}, on: last}, {sleep: {ms: 1}, on: first}";
        let (scenario, known) = (of_two("abandon", moves), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.answer(0);
        assert!(!world.is_killed());
        world.enter(1);
        assert_eq!(world.take_done(), ["kill 0", "kill 1"]);
        assert_eq!(outcomes(&world.reaped()), [(0, Outcome::Pass)]);
    }

    #[test]
    fn calls_that_raise_as_they_are_to_pass_and_others_fail_the_script() {
        let moves = "{barrier: {}, expect: {raises: closed}}";
        let (scenario, known) = (of_two("go_on", moves), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        assert_eq!(world.calls(0), ["attempt"]);
        world.attempt(0, "connection closed");
        world.attempt(1, "connection closed");
        assert_eq!(world.state.result.checks[&0].outcome, Outcome::Pass);
        assert_eq!(world.calls(0), ["barrier"]);
        let mut world = Simulation::opened(&scenario, &known);
        world.attempt(0, "connection closed");
        world.attempt(1, "something else");
        assert_eq!(world.take_done(), ["kill 0", "kill 1"]);
        let result = world.reaped();
        assert_ne!(result.checks[&0].outcome, Outcome::Pass);
        assert_eq!(
            result.lost.as_deref(),
            Some("a script did not go as it must")
        );
    }

    #[test]
    fn after_a_script_the_world_goes_on_or_is_abandoned_or_every_rank_leaves() {
        let known = Expectations::default();
        for (afterwards, done) in [
            ("go_on", &[][..]),
            ("abandon", &["kill 0", "kill 1"]),
            ("leave", &["finish 0", "finish 1"]),
        ] {
            let scenario = of_two(afterwards, "{sleep: {ms: 1}}");
            let mut world = Simulation::opened(&scenario, &known);
            world.answer_all();
            assert_eq!(world.take_done(), done);
            let next = world.calls(0);
            assert_eq!(!next.is_empty(), afterwards == "go_on", "{next:?}");
        }
    }

    #[test]
    fn what_one_script_leaves_over_does_not_reach_the_next() {
        let script = "  - script: {name: NAME, moves: [{mark: {name: m}, on: first}, {hold: {name: m}, on: last}]}\n";
        let steps = script.replace("NAME", "a") + &script.replace("NAME", "b");
        let scenario = planned("{size: 2, deadline_s: 20}", &steps);
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.answer_all();
        assert_eq!(world.take_done(), ["go 1"]);
        world.enter(1);
        assert_eq!(
            world.take_done(),
            [""; 0],
            "the mark is of the script before"
        );
        world.enter(0);
        assert_eq!(world.take_done(), ["go 1"]);
        world.handle(Event::Interrupted);
        assert!(world.is_killed());
    }
}
