//! Decides when to check a world without progress for a hang, and whether the verdict is the one that a script demands.

use std::time::Duration;

use super::event::Action;
use super::phase::Wait;
use super::phase::Wanted;
use super::state::WorldState;
use crate::check_result::CheckResult;
use crate::run::pending::Pending;
use allranks_diagnose::list;
use allranks_model::diagnosis::Confidence;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::diagnosis::HangKind;
use allranks_model::outcome::Outcome;
use allranks_suite::plan::{Hang, HangSymptom};

/// How long nothing moves before the first hang check.
pub const FIRST_CHECK_AFTER: Duration = Duration::from_millis(600);
impl WorldState<'_> {
    /// Returns when the next hang check is; none if no verdict may end this world before its deadline. None in a script that
    /// demands no verdict, because its ranks may be meant to run into a timeout.
    pub(super) fn next_hang_check(&self) -> Option<Duration> {
        let is_allowed = |open: &Pending| open.script().is_none() || open.demands_a_verdict();
        let may = self.pending.front().is_some_and(is_allowed);
        let first = self.progress + FIRST_CHECK_AFTER;
        may.then(|| self.hang_checks.next_check(first))
    }

    /// Queries the host for the rest of the hang evidence.
    pub(super) fn ask_host(&mut self, wanted: Wanted) {
        let step = match &wanted {
            Wanted::Script(pending) => Some(&**pending),
            Wanted::HangCheck | Wanted::Deadline | Wanted::Failure(_) => self.pending.front(),
        };
        let states = self.states(step);
        self.act(Action::AskHost(self.query(&states)));
        self.wait = Some(Wait::Host { states, wanted });
    }

    /// Returns the result of a script that demands a hang verdict: whether the verdict is the one it demands.
    pub(super) fn hang_result(
        &self,
        hang: &Hang,
        diagnosis: Diagnosis,
        script: CheckResult,
    ) -> CheckResult {
        if hang.kind == HangKind::Slow && diagnosis.confidence != Confidence::Proved {
            return self.slow_result(hang, script);
        }
        let hung = script.outcome == Outcome::Hang;
        let within = hang.within.as_secs_f64();
        let fault = if diagnosis.kind != hang.kind || diagnosis.culprits != hang.culprits {
            let blamed = list(&hang.culprits);
            Some(format!(
                "the verdict is {} ({}); it must be {} of rank {blamed}",
                diagnosis.kind, diagnosis.summary, hang.kind
            ))
        } else if hang.symptom == HangSymptom::Silent && script.outcome != Outcome::Pass {
            Some(format!("it was to go on in silence: {}", script.summary))
        } else if hang.symptom == HangSymptom::Shown && script.outcome == Outcome::Pass {
            Some("it was to hang or to fail, and it went on in silence".to_owned())
        } else if hung && diagnosis.after_s > within {
            Some(format!(
                "the verdict took {:.1} s; it must come within {within:.1} s",
                diagnosis.after_s
            ))
        } else {
            None
        };
        let check_result = match fault {
            None => CheckResult::passed(vec![1; self.size().count()]),
            Some(text) => CheckResult {
                ranks: diagnosis.places.clone(),
                ..CheckResult::bare(Outcome::Hang, Some("wrong-verdict"), text)
            },
        };
        CheckResult {
            diagnosis: Some(Box::new(diagnosis)),
            ..check_result
        }
    }

    /// Returns the result of a script that demands a late rank: the script must pass, and that rank must have been seen to be
    /// late.
    fn slow_result(&self, hang: &Hang, script: CheckResult) -> CheckResult {
        let late = self.hang_checks.late().cloned();
        let seen = late.as_ref().map_or(&[][..], |late| &late.culprits);
        if script.outcome == Outcome::Pass && seen != hang.culprits {
            let text = format!(
                "rank {} was seen to be late; it must be {}",
                list(seen),
                list(&hang.culprits)
            );
            return CheckResult::bare(Outcome::Hang, Some("wrong-verdict"), text);
        }
        CheckResult {
            diagnosis: late.map(Box::new),
            ..script
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::world::event::Event;
    use crate::run::world::fixture::ms;
    use crate::run::world::fixture::outcomes;
    use crate::run::world::fixture::planned;
    use crate::run::world::hang_checks::HANG_CHECK_PERIOD;
    use crate::run::world::simulation::Simulation;
    use crate::world::RankExit;
    use allranks_suite::expectation::Expectations;
    use allranks_suite::plan::Scenario;

    const TWO: &str = "{size: 2, deadline_s: 20}";

    #[test]
    fn what_is_proved_twice_in_a_row_ends_the_world() {
        let scenario = planned(TWO, "  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        assert_eq!(world.wake(), FIRST_CHECK_AFTER);
        world.tell_host(&[1]);
        assert!(!world.is_killed(), "it is seen once");
        assert_eq!(world.wake(), HANG_CHECK_PERIOD);
        world.tell_host(&[1]);
        assert!(world.is_killed());
        let result = world.reaped();
        assert_eq!(outcomes(&result), [(0, Outcome::Hang)]);
        let diagnosis = result.checks[&0].diagnosis.as_ref().unwrap();
        assert_eq!(diagnosis.kind, HangKind::PeerStopped);
        assert_eq!(diagnosis.culprits, [allranks_model::names::Rank(1)]);
    }

    #[test]
    fn a_verdict_that_does_not_come_again_does_not_count() {
        let scenario = planned(TWO, "  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        for stopped in [&[1][..], &[], &[1], &[]] {
            world.wake();
            world.tell_host(stopped);
            assert!(!world.is_killed());
        }
    }

    #[test]
    fn what_moves_begins_the_looking_anew() {
        let scenario = planned(TWO, "  - barrier: {}\n  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        world.wake();
        world.tell_host(&[1]);
        world.pass(ms(100));
        world.enter(1);
        world.answer(1);
        assert_eq!(world.wake(), FIRST_CHECK_AFTER);
        world.tell_host(&[1]);
        assert!(!world.is_killed(), "what was seen before has moved since");
    }

    #[test]
    fn what_ranks_do_while_the_host_is_asked_comes_after_its_answer() {
        let scenario = planned(TWO, "  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        world.wake();
        assert_eq!(world.state.deadline(), None);
        world.answer(0);
        assert!(world.state.pending[0].answers[0].is_none());
        world.tell_host(&[]);
        assert!(world.state.pending[0].answers[0].is_some());
    }

    #[test]
    fn the_host_is_asked_for_each_process_whose_end_is_not_known() {
        let scenario = planned("{size: 3, deadline_s: 20}", "  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.end(1, RankExit::Signalled(9));
        world.wake();
        let query = &world.queries[0];
        assert_eq!(query.processes, [Some(1000), None, Some(1002)]);
        assert_eq!(query.ranks, [1000, 1001, 1002]);
        assert!(query.ports.is_empty() && query.hosts.is_empty());
    }

    fn script(hang: &str, moves: &str) -> Scenario {
        let hang = match hang {
            "" => String::new(),
            hang => format!("hang: {hang}, "),
        };
        let text = format!("  - script: {{name: s, {hang}moves: [{moves}]}}\n");
        planned(TWO, &text)
    }

    const SKIPPED: &str = "{kind: collective-skipped, culprit: last, within: 10s, silent: false}";
    const MOVES: &str = "{all_reduce: {judged: false}, on: first}, {sleep: {ms: 20000}, on: last}";

    #[test]
    fn in_a_script_nothing_is_looked_at_unless_it_says_which_verdict_must_come() {
        let known = Expectations::default();
        let with = script(SKIPPED, MOVES);
        let without = script("", "{barrier: {}}");
        let mut world = Simulation::opened(&without, &known);
        world.enter(0);
        assert_eq!(world.state.next_hang_check(), None);
        while world.now < ms(19_000) {
            world.wake();
            assert!(world.queries.is_empty() || world.now > ms(19_000));
        }
        let mut world = Simulation::opened(&with, &known);
        world.enter(0);
        assert_eq!(world.wake(), FIRST_CHECK_AFTER);
        assert_eq!(world.queries.len(), 1);
    }

    #[test]
    fn a_script_passes_if_the_verdict_that_must_come_does() {
        let (scenario, known) = (script(SKIPPED, MOVES), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        world.enter(1);
        assert_eq!(
            world.wake_until_killed(ms(60_000)),
            FIRST_CHECK_AFTER + HANG_CHECK_PERIOD
        );
        let result = world.reaped();
        let check_result = &result.checks[&0];
        assert_eq!(check_result.outcome, Outcome::Pass, "{check_result:?}");
        let kind = check_result.diagnosis.as_ref().unwrap().kind;
        assert_eq!(kind, HangKind::CollectiveSkipped);
        assert_eq!(result.lost, None);
    }

    #[test]
    fn another_verdict_fails_the_script_whichever_way_the_world_ends() {
        let (scenario, known) = (script(SKIPPED, MOVES), Expectations::default());
        // A rank is stopped.
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        for _ in 0..2 {
            world.wake();
            world.tell_host(&[1]);
        }
        assert_wrong(world);
        // A rank dies: the host is asked once more.
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        world.die(1, 9);
        assert_eq!(world.queries.len(), 1);
        assert!(!world.is_killed());
        world.tell_host(&[]);
        assert_wrong(world);
        // All ranks answer as if nothing were wrong.
        let mut world = Simulation::opened(&scenario, &known);
        world.answer(0);
        world.answer(1);
        assert_eq!(world.queries.len(), 1);
        world.tell_host(&[]);
        let check_result = &world.reaped().checks[&0];
        assert_eq!(check_result.outcome, Outcome::Hang);
        assert_eq!(
            check_result.summary,
            "it was to hang or to fail, and it went on in silence"
        );
    }

    fn assert_wrong(world: Simulation<'_>) {
        assert!(world.is_killed());
        let result = world.reaped();
        let check_result = &result.checks[&0];
        assert_eq!(check_result.class.as_deref(), Some("wrong-verdict"));
        let end = "it must be collective-skipped of rank 1";
        assert!(
            check_result.summary.ends_with(end),
            "{}",
            check_result.summary
        );
        assert_eq!(result.lost, None);
    }

    #[test]
    fn a_verdict_that_comes_too_late_fails_the_script() {
        let late = SKIPPED.replace("10s", "800ms");
        let (scenario, known) = (script(&late, MOVES), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        world.enter(1);
        world.wake_until_killed(ms(60_000));
        let check_result = &world.reaped().checks[&0];
        assert_eq!(
            check_result.summary,
            "the verdict took 1.0 s; it must come within 0.8 s"
        );
    }

    #[test]
    fn a_rank_that_is_to_be_late_must_have_been_seen_and_must_come() {
        let slow = "{kind: slow, culprit: last}";
        let moves = "{sleep: {ms: 2500}, on: last}, {barrier: {}}";
        let (scenario, known) = (script(slow, moves), Expectations::default());
        for is_late in [true, false] {
            let mut world = Simulation::opened(&scenario, &known);
            world.enter(0);
            world.enter(1);
            if is_late {
                assert_eq!(
                    world.wake_until_killed(ms(2000)),
                    FIRST_CHECK_AFTER + HANG_CHECK_PERIOD * 4
                );
            }
            assert!(!world.is_killed());
            world.answer_all();
            world.tell_host(&[]);
            let check_result = &world.state.result.checks[&0];
            match is_late {
                true => {
                    assert_eq!(check_result.outcome, Outcome::Pass, "{check_result:?}");
                    let kind = check_result.diagnosis.as_ref().unwrap().kind;
                    assert_eq!(kind, HangKind::Slow);
                    // The world goes on.
                    assert_eq!(world.calls(0), ["destroy_process_group"]);
                }
                false => {
                    assert_eq!(check_result.class.as_deref(), Some("wrong-verdict"));
                    assert!(world.is_killed());
                }
            }
        }
    }

    #[test]
    fn what_was_not_asked_for_changes_nothing() {
        let scenario = planned(TWO, "  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.handle(Event::OrphansReaped(Vec::new()));
        world.handle(Event::Memory(Some(0)));
        world.handle(Event::Host(crate::world::HostFacts::default()));
        world.answer_all();
        world.answer_all();
        world.shut_down();
        let result = world.result.unwrap();
        assert_eq!(outcomes(&result), [(0, Outcome::Pass)]);
        assert_eq!(result.end.unwrap().outcome, Outcome::Pass);
    }
}
