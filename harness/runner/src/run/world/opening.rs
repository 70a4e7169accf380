//! Begins a world: hellos, imports, `init_process_group` and groups.

use std::time::Duration;

use super::phase::Phase;
use super::phase::Stop;
use super::state::WorldState;
use super::step_frame::StepFrame;
use super::step_frame::bare;
use crate::check_result::CheckResult;
use crate::check_result::error_text;
use crate::run::pending::Purpose;
use crate::run::setup::OpeningSteps;
use crate::run::setup::disagreement;
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;
use allranks_model::record::RankLine;
use allranks_oracle::RankReply;
use allranks_oracle::RankStep;
use allranks_protocol::CallResult;
use allranks_protocol::Step;

/// Time from when rank 0 enters `init_process_group` until the others get the opening: a little more than the store needs until
/// it listens.
pub const HOST_HEAD_START: Duration = Duration::from_millis(5);
/// How long the others wait for rank 0 to enter `init_process_group`.
pub const HOST_ENTRY_TIMEOUT: Duration = Duration::from_secs(2);

/// The name that the libtorch driver reports.
const LIBTORCH: &str = "libtorch";

impl WorldState<'_> {
    /// Returns true if every rank has said hello.
    pub(super) fn is_connected(&self) -> bool {
        let mut ranks = self.result.ranks.iter();
        ranks.all(|rank| rank.hello.is_some())
    }

    /// Sends the imports; if the driver cannot run this scenario, shuts the world down.
    pub(super) fn begin(&mut self) {
        if let Some(why) = self.cannot_begin(&self.plan.opening_steps) {
            let check_result = CheckResult::bare(Outcome::NotRun, None, why);
            let checks = std::mem::take(&mut self.todo);
            let left_out = checks
                .into_iter()
                .map(|index| (index, check_result.clone()));
            self.result.checks.extend(left_out);
            self.result.init = Some(check_result);
            return self.shut_down();
        }
        let imports = self.plan.opening_steps.iter();
        let imports = imports.map(|each| bare(each.imports.clone())).collect();
        self.send("import".to_owned(), Purpose::Imports, imports);
        self.phase = Phase::Importing;
    }

    /// Returns why the ranks' driver cannot run this scenario; none if it can.
    fn cannot_begin(&self, opening_steps: &[OpeningSteps]) -> Option<String> {
        let mut rank_runs = self.result.ranks.iter().zip(opening_steps);
        let lacking =
            rank_runs.find_map(|(rank_run, own)| own.steps().find_map(|step| rank_run.lacks(step)));
        let hello = self.result.ranks[0].hello.as_ref()?;
        match lacking {
            Some(why) => Some(why),
            None if self.plan.scenario.refused.is_some() && hello.driver == LIBTORCH => {
                Some(format!(
                    "what must be refused here is refused by torch's Python layer, which the {LIBTORCH} driver does without"
                ))
            }
            None => None,
        }
    }

    /// Sends the opening, if there is one: to rank 0, which hosts the store, a little ahead of the others. A store
    /// client that connects before rank 0 listens sleeps half a second or more before it tries again.
    pub(super) fn open(&mut self) {
        let opening_steps = std::mem::take(&mut self.plan.opening_steps);
        let openings: Option<Vec<Step>> =
            opening_steps.into_iter().map(|own| own.opening).collect();
        let Some(openings) = openings else {
            self.phase = Phase::Checks;
            return;
        };
        let steps: Vec<RankStep> = openings.into_iter().map(bare).collect();
        let mut held = self.prepare("init".to_owned(), Purpose::Opening, steps);
        let others: Vec<StepFrame> = held.split_off(1);
        self.send_frames(held);
        self.phase = match others.is_empty() {
            true => Phase::Opening,
            // If rank 0 is slow, or never reports that it enters, that only delays the others.
            false => Phase::HostEntering {
                until: self.now + HOST_ENTRY_TIMEOUT,
                answered: self.result.ranks[0].answered,
                held: others,
            },
        };
    }

    /// Returns true if rank 0, which had answered this number of steps before, has entered the opening or answered it.
    pub(super) fn has_entered(&self, answered: u32) -> bool {
        let host = &self.result.ranks[0];
        host.position.is_some() || host.answered > answered
    }

    /// Gives rank 0 the time to listen.
    pub(super) fn pause(&mut self) {
        if let Phase::HostEntering { held, .. } = &mut self.phase {
            self.phase = Phase::HostPause {
                held: std::mem::take(held),
                until: self.now + HOST_HEAD_START,
            };
        }
    }

    /// Returns the result of the imports or the opening. `fault` returns what is wrong with a rank's answers.
    pub(super) fn opening_result(
        &self,
        replies: &[RankReply],
        fault: impl Fn(Rank, &[CallResult]) -> Option<String>,
    ) -> CheckResult {
        let mut ranks = Vec::new();
        for (rank, reply) in self.size().ranks().zip(replies) {
            let text = fault(rank, &reply.result.calls);
            ranks.extend(text.map(|text| RankLine { rank, text }));
        }
        match ranks.first() {
            None => CheckResult::passed(vec![1; replies.len()]),
            Some(first) => {
                let summary = format!("rank {} did not initialise: {}", first.rank, first.text);
                CheckResult {
                    ranks,
                    ..CheckResult::bare(Outcome::InitFailed, Some("init-failed"), summary)
                }
            }
        }
    }

    /// Returns what is wrong with a rank's answers to the opening; none if nothing is.
    pub(super) fn opening_fault(&self, rank: Rank, calls: &[CallResult]) -> Option<String> {
        error_text(calls).or_else(|| disagreement(self.plan.scenario, rank, calls))
    }

    /// Records the result of `init` if it is a failure, or if `is_all`. A failure ends the world.
    pub(super) fn note_init(
        &mut self,
        check_result: CheckResult,
        is_all: bool,
    ) -> Result<(), Stop> {
        let ok = check_result.outcome == Outcome::Pass;
        if is_all || !ok {
            self.result.init = Some(check_result);
        }
        if ok { Ok(()) } else { Err(Stop::Decided) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::world::event::Event;
    use crate::run::world::fixture::ms;
    use crate::run::world::fixture::outcomes;
    use crate::run::world::fixture::planned;
    use crate::run::world::simulation::Simulation;
    use crate::world::Event as RankEvent;
    use allranks_suite::expectation::Expectations;

    const TWO: &str = "{size: 2, deadline_s: 20}";
    const BARRIER: &str = "  - barrier: {}\n";

    #[test]
    fn nothing_is_sent_before_every_rank_has_said_hello() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::new(&scenario, &known);
        world.hello(1);
        assert_eq!(world.calls(1), [""; 0]);
        world.hello(0);
        for rank in 0..2 {
            assert_eq!(world.calls(rank), ["prepare"]);
        }
    }

    #[test]
    fn the_opening_is_sent_when_every_rank_has_imported_and_the_host_gets_it_first() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::new(&scenario, &known);
        world.hello_all();
        world.answer(0);
        assert_eq!(world.calls(0), [""; 0]);
        world.answer(1);
        assert_eq!(world.calls(0), ["init_process_group"]);
        assert_eq!(world.calls(1), [""; 0]);
        world.pass(ms(10));
        world.enter(0);
        assert_eq!(world.calls(1), [""; 0]);
        assert_eq!(world.wake(), HOST_HEAD_START);
        assert_eq!(world.calls(1), ["init_process_group"]);
        // Checks are sent after the fence.
        world.answer(0);
        assert_eq!(world.calls(0), [""; 0]);
        world.answer(1);
        assert_eq!(world.calls(0), ["barrier"]);
    }

    #[test]
    fn the_others_do_not_wait_long_for_a_host_that_enters_nothing() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::imported(&scenario, &known);
        let asked = world.now;
        while matches!(world.state.phase, Phase::HostEntering { .. }) {
            world.wake();
            if !world.queries.is_empty() {
                world.tell_host(&[]);
            }
        }
        assert_eq!(world.now - asked, HOST_ENTRY_TIMEOUT);
        world.wake();
        assert_eq!(world.calls(1), ["init_process_group"]);
    }

    #[test]
    fn what_happens_in_the_host_s_pause_is_looked_at_after_it() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::imported(&scenario, &known);
        world.enter(0);
        world.handle(Event::Interrupted);
        world.handle(Event::Rank(RankEvent::Refused(Rank(1), "wrong".to_owned())));
        assert!(!world.is_killed());
        world.wake();
        assert_eq!(world.calls(1), ["init_process_group"]);
        // The ranks' frames are handled before the interrupt.
        world.wake_until_killed(ms(5000));
        let result = world.reaped();
        assert_eq!(result.lost.as_deref(), Some("rank 1: wrong"));
    }

    #[test]
    fn a_world_of_one_waits_for_no_host() {
        let scenario = planned("{size: 1, deadline_s: 20}", BARRIER);
        let known = Expectations::default();
        let mut world = Simulation::imported(&scenario, &known);
        assert!(matches!(world.state.phase, Phase::Opening));
        world.answer_all();
        assert_eq!(world.calls(0), ["barrier"]);
    }

    #[test]
    fn without_a_call_of_the_opening_nothing_is_run() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::new(&scenario, &known);
        world.hello(0);
        world.hello_of(1, "other", &["prepare"]);
        assert_eq!(world.calls(0), [""; 0]);
        assert_eq!(world.take_done(), ["finish 0", "finish 1"]);
        world.shut_down();
        let result = world.result.unwrap();
        assert_eq!(outcomes(&result), [(0, Outcome::NotRun)]);
        let init = result.init.unwrap();
        assert_eq!(init.outcome, Outcome::NotRun);
        assert_eq!(
            init.summary,
            "the other driver has no call `init_process_group`"
        );
        assert_eq!(result.lost, None);
    }

    #[test]
    fn imports_that_raise_end_the_world() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::new(&scenario, &known);
        world.hello_all();
        world.raise(1, "no such module");
        assert!(!world.is_killed());
        world.answer(0);
        assert_eq!(world.take_done(), ["kill 0", "kill 1"]);
        let result = world.reaped();
        let init = result.init.unwrap();
        assert_eq!(init.outcome, Outcome::InitFailed);
        assert_eq!(
            init.summary,
            "rank 1 did not initialise: RuntimeError: no such module"
        );
        assert!(result.checks.is_empty() && result.end.is_none());
    }

    #[test]
    fn a_rank_that_disagrees_with_the_plan_has_not_initialised() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::imported(&scenario, &known);
        world.enter(0);
        world.wake();
        world.answer(0);
        world.answer_as(1, 0);
        let result = world.reaped();
        let init = result.init.unwrap();
        assert_eq!(init.outcome, Outcome::InitFailed);
        assert!(init.summary.contains("get_rank() is 0"), "{}", init.summary);
    }

    #[test]
    fn a_world_whose_scripts_initialise_has_no_opening() {
        let script = "  - script: {name: s, moves: [{sleep: {ms: 1}}]}\n";
        let scenario = planned("{size: 2, starts: bare, deadline_s: 20}", script);
        let known = Expectations::default();
        let mut world = Simulation::imported(&scenario, &known);
        for rank in 0..2 {
            assert_eq!(world.calls(rank), ["sleep"]);
        }
        // It has no teardown either.
        world.answer_all();
        assert_eq!(world.take_done(), ["finish 0", "finish 1"]);
        world.shut_down();
        let result = world.result.unwrap();
        assert_eq!(result.init.unwrap().outcome, Outcome::Pass);
        assert_eq!(result.end.unwrap().outcome, Outcome::Pass);
    }
}
