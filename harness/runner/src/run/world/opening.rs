//! How a world begins: hellos, imports, `init_process_group` and groups.

use std::time::Duration;

use super::phase::Phase;
use super::phase::Stop;
use super::sending::StepFrame;
use super::sending::bare;
use super::state::WorldState;
use crate::check_result::CheckResult;
use crate::check_result::error_text;
use crate::run::pending::Purpose;
use crate::run::setup::Beginning;
use crate::run::setup::disagreement;
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;
use allranks_model::record::RankLine;
use allranks_oracle::RankReply;
use allranks_oracle::RankStep;
use allranks_protocol::CallResult;
use allranks_protocol::Step;

/// From the host's entering `init_process_group` to its listening, a little more than it takes.
pub const HOST_AHEAD: Duration = Duration::from_millis(5);
/// How long the others wait for the host to enter it.
pub const HOST_PATIENCE: Duration = Duration::from_secs(2);

/// What the driver on libtorch calls itself.
const LIBTORCH: &str = "libtorch";

impl WorldState<'_> {
    /// Whether every rank has said hello.
    pub(super) fn is_connected(&self) -> bool {
        let mut ranks = self.result.ranks.iter();
        ranks.all(|rank| rank.hello.is_some())
    }

    /// Sends the imports; or, if the driver cannot show what the scenario is about, shuts down.
    pub(super) fn begin(&mut self) {
        if let Some(why) = self.cannot_begin(&self.plan.beginnings) {
            let finding = CheckResult::bare(Outcome::NotRun, None, why);
            let checks = std::mem::take(&mut self.todo);
            let left_out = checks.into_iter().map(|index| (index, finding.clone()));
            self.result.checks.extend(left_out);
            self.result.init = Some(finding);
            return self.shut_down();
        }
        let imports = self.plan.beginnings.iter();
        let imports = imports.map(|each| bare(each.imports.clone())).collect();
        self.send("import".to_owned(), Purpose::Imports, imports);
        self.phase = Phase::Importing;
    }

    /// Why the ranks' driver cannot show what this scenario is about, before anything is asked of it.
    fn cannot_begin(&self, beginnings: &[Beginning]) -> Option<String> {
        let mut stories = self.result.ranks.iter().zip(beginnings);
        let lacking =
            stories.find_map(|(story, own)| own.steps().find_map(|step| story.lacks(step)));
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

    /// Sends the opening, if there is one: to rank 0, which hosts the store, a little ahead of the rest. A store's client
    /// that dials before the host listens sleeps for half a second and more before it tries again.
    pub(super) fn open(&mut self) {
        let beginnings = std::mem::take(&mut self.plan.beginnings);
        let openings: Option<Vec<Step>> = beginnings.into_iter().map(|own| own.opening).collect();
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
            // A rank that takes long, or never says that it enters, costs time and nothing else.
            false => Phase::HostEntering {
                until: self.now + HOST_PATIENCE,
                answered: self.result.ranks[0].answered,
                held: others,
            },
        };
    }

    /// Whether rank 0, which had answered so many steps before, is in the opening, or through it.
    pub(super) fn has_entered(&self, answered: u32) -> bool {
        let host = &self.result.ranks[0];
        host.position.is_some() || host.answered > answered
    }

    /// Leaves the host the time to listen.
    pub(super) fn pause(&mut self) {
        if let Phase::HostEntering { held, .. } = &mut self.phase {
            self.phase = Phase::HostPause {
                held: std::mem::take(held),
                until: self.now + HOST_AHEAD,
            };
        }
    }

    /// What the imports, or the opening, came to: `fault` is what is wrong with a rank's answers.
    pub(super) fn judge_opening(
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

    /// What is wrong with a rank's answers to the opening.
    pub(super) fn opening_fault(&self, rank: Rank, calls: &[CallResult]) -> Option<String> {
        error_text(calls).or_else(|| disagreement(self.plan.scenario, rank, calls))
    }

    /// Keeps what is found of init, once it is all of it; a failure ends the world.
    pub(super) fn note_init(&mut self, finding: CheckResult, is_all: bool) -> Result<(), Stop> {
        let ok = finding.outcome == Outcome::Pass;
        if is_all || !ok {
            self.result.init = Some(finding);
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
        assert_eq!(world.wake(), HOST_AHEAD);
        assert_eq!(world.calls(1), ["init_process_group"]);
        // Checks come after the fence.
        world.answer(0);
        assert_eq!(world.calls(0), [""; 0]);
        world.answer(1);
        assert_eq!(world.calls(0), ["barrier"]);
    }

    #[test]
    fn the_others_do_not_wait_long_for_a_host_that_enters_nothing() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::new(&scenario, &known);
        world.hello_all();
        world.answer_all();
        let asked = world.now;
        while matches!(world.state.phase, Phase::HostEntering { .. }) {
            world.wake();
            if !world.queries.is_empty() {
                world.tell_host(&[]);
            }
        }
        assert_eq!(world.now - asked, HOST_PATIENCE);
        world.wake();
        assert_eq!(world.calls(1), ["init_process_group"]);
    }

    #[test]
    fn what_happens_in_the_host_s_pause_is_looked_at_after_it() {
        let (scenario, known) = (planned(TWO, BARRIER), Expectations::default());
        let mut world = Simulation::new(&scenario, &known);
        world.hello_all();
        world.answer_all();
        world.enter(0);
        world.tell(Event::Interrupted);
        world.tell(Event::Rank(RankEvent::Refused(Rank(1), "wrong".to_owned())));
        assert!(!world.is_killed());
        world.wake();
        assert_eq!(world.calls(1), ["init_process_group"]);
        // What ranks did comes before the interrupt.
        world.wake_until_killed(ms(5000));
        let result = world.reaped();
        assert_eq!(result.lost.as_deref(), Some("rank 1: wrong"));
    }

    #[test]
    fn a_world_of_one_waits_for_no_host() {
        let scenario = planned("{size: 1, deadline_s: 20}", BARRIER);
        let known = Expectations::default();
        let mut world = Simulation::new(&scenario, &known);
        world.hello_all();
        world.answer_all();
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
        let mut world = Simulation::new(&scenario, &known);
        world.hello_all();
        world.answer_all();
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
        let mut world = Simulation::new(&scenario, &known);
        world.hello_all();
        world.answer_all();
        for rank in 0..2 {
            assert_eq!(world.calls(rank), ["sleep"]);
        }
        // Nor has it a teardown.
        world.answer_all();
        assert_eq!(world.take_done(), ["finish 0", "finish 1"]);
        world.shut_down();
        let result = world.result.unwrap();
        assert_eq!(result.init.unwrap().outcome, Outcome::Pass);
        assert_eq!(result.end.unwrap().outcome, Outcome::Pass);
    }
}
