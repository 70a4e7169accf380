//! Decides which check is sent next, and whether it can be sent.
//!
//! Checks are sent ahead of the answers, as far as the limits allow; a script is sent alone.

use std::sync::Arc;

use super::event::Action;
use super::phase::Phase;
use super::phase::Wait;
use super::state::WorldState;
use super::step_frame::bare;
use crate::check_result::CheckResult;
use crate::run::group_test::{group_test_after, group_test_before};
use crate::run::pending::Purpose;
use crate::run::setup::closing;
use crate::run::steps::prepare;
use allranks_model::op_check::OpCheck;
use allranks_model::outcome::Outcome;
use allranks_oracle::RankStep;
use allranks_suite::case::Starts;
use allranks_suite::plan::Check;

/// Number of steps that a rank may be ahead of the slowest rank.
pub const MAX_STEPS_AHEAD: usize = 16;
/// Most bytes of storages in flight for one rank; a single step may be larger.
pub const MAX_BYTES_AHEAD: usize = 32 << 20;

impl WorldState<'_> {
    /// Returns true if the next check can be sent, or, after the last check, the teardown. Before a script and after
    /// the last check there is a fence.
    pub(super) fn can_go_on(&self) -> bool {
        let Some(index) = self.todo.front() else {
            return self.pending.is_empty();
        };
        let bytes: usize = self.pending.iter().map(|pending| pending.bytes).sum();
        let is_script = self.plan.scenario.checks[*index].script().is_some();
        let has_room =
            !is_script && self.pending.len() < MAX_STEPS_AHEAD && bytes < MAX_BYTES_AHEAD;
        self.pending.is_empty() || has_room
    }

    /// Sends the next check, or, after the last one, the teardown.
    pub(super) fn send_next(&mut self) {
        let Some(index) = self.todo.pop_front() else {
            return self.close();
        };
        let check = &self.plan.scenario.checks[index];
        if let Some(script) = check.script() {
            let script = Arc::clone(script);
            self.send_script(index, &script);
        } else if check.op().is_some_and(OpCheck::is_large) {
            self.wait = Some(Wait::Memory(index));
            self.act(Action::AskMemory);
        } else {
            self.send_check(index);
        }
    }

    /// Sends a check with large tensors, if the available memory is enough.
    pub(super) fn send_large_check(&mut self, index: usize, available: Option<u64>) {
        match lacks_memory(&self.plan.scenario.checks[index], available) {
            Some(why) => self.leave_out(index, Outcome::NotRun, why),
            None => self.send_check(index),
        }
    }

    fn send_check(&mut self, index: usize) {
        let check = &self.plan.scenario.checks[index];
        let label = short(check).to_owned();
        let prepared = match prepare(check, self.size(), self.plan.seed) {
            Ok(prepared) => prepared,
            // The plan refuses such checks before a run, so this is an error of the harness.
            Err(error) => {
                return self.leave_out(index, Outcome::HarnessError, error.to_string());
            }
        };
        let steps = prepared.steps().to_vec();
        if let Some(why) = self.lacking(&steps) {
            return self.leave_out(index, Outcome::NotRun, why);
        }
        self.send_group_test_before(index);
        self.send(label.clone(), Purpose::Check(index, prepared), steps);
        if let Some(test) = group_test_after(check)
            && let Ok(prepared) = prepare(&test, self.size(), self.plan.seed)
        {
            let steps = prepared.steps().to_vec();
            let label = format!("{label} (group test)");
            self.send(label, Purpose::GroupTestAfter(index, prepared), steps);
        }
    }

    /// Sends the group test before the first check on a group that must be refused.
    fn send_group_test_before(&mut self, index: usize) {
        let check = &self.plan.scenario.checks[index];
        if self.tested_groups.contains_key(&*check.group.name) {
            return;
        }
        if let Some(test) = group_test_before(check)
            && let Ok(prepared) = prepare(&test, self.size(), self.plan.seed)
        {
            let steps = prepared.steps().to_vec();
            if self.lacking(&steps).is_some() {
                return;
            }
            self.tested_groups
                .insert(check.group.name.to_string(), None);
            let label = format!("{} (group test before)", short(check));
            self.send(label, Purpose::GroupTestBefore(index, prepared), steps);
        }
    }

    /// Records why a check is not made.
    pub(super) fn leave_out(&mut self, index: usize, outcome: Outcome, why: String) {
        let check_result = CheckResult::bare(outcome, None, why);
        self.result.checks.insert(index, check_result);
    }

    /// Returns why some rank's driver cannot make these steps; none if all can.
    pub(super) fn lacking(&self, steps: &[RankStep]) -> Option<String> {
        let mut rank_runs = self.result.ranks.iter().zip(steps);
        rank_runs.find_map(|(rank_run, own)| rank_run.lacks(&own.step))
    }

    /// Every check has been made: sends the teardown.
    fn close(&mut self) {
        let count = self.size().count();
        if self.plan.scenario.case.world.starts == Starts::Bare {
            // Nothing is left to destroy.
            self.result.end = Some(CheckResult::passed(vec![1; count]));
            return self.shut_down();
        }
        let steps = vec![bare(closing()); count];
        self.send("teardown".to_owned(), Purpose::Closing, steps);
        self.phase = Phase::Closing;
    }
}

/// Returns the check's id without the scenario.
pub fn short(check: &Check) -> &str {
    check
        .id
        .as_str()
        .split_once('#')
        .map_or("", |(_, rest)| rest)
}

/// Returns why a check with large tensors cannot be made now; none if it can. It may use half of the `available` bytes.
fn lacks_memory(check: &Check, available: Option<u64>) -> Option<String> {
    let (needed, usable) = (check.op()?.memory(), available? / 2);
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    (needed > usable).then(|| {
        format!(
            "it needs {:.1} GiB of memory, and {:.1} GiB can be used",
            gib(needed),
            gib(usable)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::world::event::Event;
    use crate::run::world::fixture::outcomes;
    use crate::run::world::fixture::planned;
    use crate::run::world::simulation::Simulation;
    use allranks_suite::expectation::Expectations;

    const TWO: &str = "{size: 2, deadline_s: 20}";

    #[test]
    fn a_rank_is_sent_no_more_than_it_may_be_ahead() {
        let scenario = planned(TWO, &"  - barrier: {}\n".repeat(MAX_STEPS_AHEAD + 4));
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        assert_eq!(world.inbox[0].len(), MAX_STEPS_AHEAD);
        // What counts is the slowest rank, however far the other one is.
        for _ in 0..MAX_STEPS_AHEAD {
            world.answer(0);
        }
        assert!(world.inbox[0].is_empty());
        world.answer(1);
        assert_eq!(world.inbox[0].len(), 1);
        assert_eq!(world.inbox[1].len(), MAX_STEPS_AHEAD);
    }

    #[test]
    fn few_bytes_are_in_flight_unless_a_single_step_has_more() {
        // 16 MiB each.
        let step = "  - all_reduce: {numel: 4194304}\n";
        let scenario = planned("{size: 1, deadline_s: 20}", &step.repeat(4));
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        assert_eq!(world.inbox[0].len(), MAX_BYTES_AHEAD / (16 << 20));
        world.answer(0);
        assert_eq!(world.inbox[0].len(), 2);
        let large = "  - all_reduce: {numel: 16777216}\n  - barrier: {}\n";
        let scenario = planned("{size: 1, deadline_s: 20}", large);
        let mut world = Simulation::opened(&scenario, &known);
        assert_eq!(world.calls(0), ["all_reduce"]);
        world.answer(0);
        assert_eq!(world.calls(0), ["barrier"]);
    }

    #[test]
    fn a_refusal_is_followed_by_its_group_test_and_judged_with_it() {
        let scenario = planned(TWO, "  - all_gather: {numel: 3}\n  - barrier: {}\n");
        let known = Expectations::default();
        for (tested, outcome) in [
            ("right", Outcome::Unsupported),
            ("wrong", Outcome::Error),
            ("raises", Outcome::Error),
        ] {
            let mut world = Simulation::opened(&scenario, &known);
            let calls = ["all_reduce", "all_gather", "all_reduce", "barrier"];
            assert_eq!(world.calls(0), calls);
            world.answer_sum();
            (0..2).for_each(|rank| world.raise(rank, "not supported"));
            match tested {
                "right" => world.answer_sum(),
                // The ranks of this test do not add anything.
                "wrong" => world.answer_all(),
                _ => (0..2).for_each(|rank| world.raise(rank, "it is broken")),
            }
            let is_usable = outcome == Outcome::Unsupported;
            assert_eq!(world.is_killed(), !is_usable);
            if is_usable {
                world.answer_all();
                assert_eq!(world.calls(0), ["destroy_process_group"]);
            }
            let check_result = &world.state.result.checks[&0];
            assert_eq!(check_result.outcome, outcome, "{check_result:?}");
            let names_group_test = check_result
                .summary
                .contains("afterwards the group is unusable");
            assert_eq!(names_group_test, !is_usable, "{}", check_result.summary);
        }
    }

    /// The group test is an all_reduce: where that is wrong, a refusal of another op is not what broke the group.
    #[test]
    fn a_call_that_failed_before_the_refusal_is_not_held_against_it() {
        let scenario = planned(TWO, "  - all_gather: {numel: [3, 4]}\n  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        let calls = [
            "all_reduce",
            "all_gather",
            "all_reduce",
            "all_gather",
            "all_reduce",
            "barrier",
        ];
        assert_eq!(world.calls(0), calls);
        // The ranks of this test do not add anything.
        world.answer_all();
        for refused in 0..2 {
            (0..2).for_each(|rank| world.raise(rank, "not supported"));
            world.answer_all();
            let check_result = &world.state.result.checks[&refused];
            assert_eq!(
                check_result.outcome,
                Outcome::Unsupported,
                "{check_result:?}"
            );
            assert!(
                check_result.summary.contains("failed before, too"),
                "{check_result:?}"
            );
        }
        world.answer_all();
        assert_eq!(world.calls(0), ["destroy_process_group"]);
    }

    #[test]
    fn what_is_no_clear_refusal_is_none() {
        let scenario = planned(TWO, "  - all_gather: {numel: 3}\n  - barrier: {}\n");
        let known = Expectations::default();
        for (messages, class) in [
            (
                ["Timed out waiting 7000ms", "Timed out waiting 7000ms"],
                "timed-out-instead-of-refused",
            ),
            (
                ["not supported", "operation timeout"],
                "timed-out-instead-of-refused",
            ),
            ([".", "."], "raised-without-a-reason"),
            (["not supported", "0x2f: 17"], "raised-without-a-reason"),
        ] {
            let mut world = Simulation::opened(&scenario, &known);
            world.answer_sum();
            (0..)
                .zip(messages)
                .for_each(|(rank, message)| world.raise(rank, message));
            let check_result = &world.state.result.checks[&0];
            assert_eq!(check_result.outcome, Outcome::Error, "{messages:?}");
            assert_eq!(check_result.class.as_deref(), Some(class), "{messages:?}");
        }
        let mut world = Simulation::opened(&scenario, &known);
        world.answer_sum();
        world.raise(0, "not supported");
        world.raise_as(1, "AssertionError", "not supported");
        let check_result = &world.state.result.checks[&0];
        assert_eq!(check_result.outcome, Outcome::Error);
        assert_eq!(check_result.class.as_deref(), Some("raised-differently"));
    }

    #[test]
    fn a_check_result_is_settled_once_it_is_decided_and_a_refusal_with_its_group_test() {
        let scenario = planned(
            TWO,
            "  - barrier: {}\n  - all_gather: {numel: 3}\n  - barrier: {}\n",
        );
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        let settled = |world: &mut Simulation<'_>| {
            let settled = world.state.take_settled().into_iter();
            settled
                .map(|(index, check_result)| (index, check_result.outcome))
                .collect::<Vec<_>>()
        };
        assert_eq!(settled(&mut world), []);
        world.answer_all();
        assert_eq!(settled(&mut world), [(0, Outcome::Pass)]);
        assert_eq!(settled(&mut world), [], "each is taken once");
        world.answer_sum();
        (0..2).for_each(|rank| world.raise(rank, "not supported"));
        assert_eq!(settled(&mut world), [], "its group test is not answered");
        world.answer_sum();
        assert_eq!(settled(&mut world), [(1, Outcome::Unsupported)]);
        assert_eq!(world.state.result.farthest, Some((1, Outcome::Unsupported)));
    }

    #[test]
    fn a_refusal_that_wrote_to_a_tensor_is_a_mismatch_and_an_error_that_did_is_named_so() {
        let scenario = planned(
            TWO,
            "  - all_gather: {numel: 3}\n  - all_reduce: {numel: 3}\n",
        );
        let known = Expectations::default();
        for (refused, outcome, class) in [
            (0, Outcome::Mismatch, "refused-and-written"),
            (1, Outcome::Error, "raised-and-written"),
        ] {
            let mut world = Simulation::opened(&scenario, &known);
            world.answer_sum();
            if refused == 1 {
                (0..2).for_each(|rank| world.raise(rank, "not supported"));
                world.answer_sum();
            }
            world.spoil(1);
            (0..2).for_each(|rank| world.raise(rank, "not supported"));
            if refused == 0 {
                world.answer_sum();
            }
            let check_result = &world.state.result.checks[&refused];
            assert_eq!(check_result.outcome, outcome, "{check_result:?}");
            assert_eq!(
                check_result.class.as_deref(),
                Some(class),
                "{check_result:?}"
            );
            assert_eq!(check_result.difference.as_ref().unwrap().rank.0, 1);
        }
    }

    #[test]
    fn a_refusal_that_wrote_and_left_the_group_unusable_ends_the_world() {
        let scenario = planned(TWO, "  - all_gather: {numel: 3}\n  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.answer_sum();
        world.spoil(1);
        (0..2).for_each(|rank| world.raise(rank, "not supported"));
        // The ranks of this test do not add anything.
        world.answer_all();
        assert!(world.is_killed());
        let check_result = &world.state.result.checks[&0];
        assert_eq!(check_result.outcome, Outcome::Mismatch, "{check_result:?}");
        assert_eq!(check_result.class.as_deref(), Some("refused-and-written"));
        let names_group_test = check_result
            .summary
            .contains("afterwards the group is unusable");
        assert!(names_group_test, "{}", check_result.summary);
        assert!(!world.state.result.checks.contains_key(&1));
    }

    #[test]
    fn large_tensors_are_sent_only_if_there_is_memory_for_them() {
        let large = OpCheck::LARGE;
        let steps = format!("  - all_reduce: {{numel: {large}}}\n  - barrier: {{}}\n");
        let scenario = planned(TWO, &steps);
        let known = Expectations::default();
        let needed = scenario.checks[0].op().unwrap().memory();
        for (available, fits) in [
            (Some(needed * 2), true),
            (None, true),
            (Some(needed * 2 - 1), false),
        ] {
            let mut world = Simulation::opened(&scenario, &known);
            assert_eq!(world.take_done(), ["memory"]);
            assert_eq!(world.calls(0), [""; 0]);
            assert_eq!(world.state.deadline(), None);
            world.handle(Event::Memory(available));
            match fits {
                true => {
                    let calls = world.calls(0);
                    assert!(calls[0].contains("all_reduce"), "{calls:?}");
                    assert_eq!(calls[1..], ["barrier"]);
                }
                false => {
                    assert_eq!(world.calls(0), ["barrier"]);
                    let check_result = &world.state.result.checks[&0];
                    assert_eq!(check_result.outcome, Outcome::NotRun);
                    assert!(
                        check_result.summary.contains("GiB"),
                        "{}",
                        check_result.summary
                    );
                }
            }
        }
    }

    #[test]
    fn a_call_that_a_driver_lacks_leaves_its_check_out() {
        let scenario = planned(TWO, "  - all_reduce: {numel: 3}\n  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::new(&scenario, &known);
        let calls = [
            "prepare",
            "init_process_group",
            "destroy_process_group",
            "barrier",
        ];
        (0..2).for_each(|rank| world.hello_of(rank, "small", &calls));
        world.open();
        assert_eq!(world.calls(0), ["barrier"]);
        assert_eq!(
            world.state.result.checks[&0].summary,
            "the small driver has no call `all_reduce`"
        );
    }

    #[test]
    fn a_driver_without_layers_says_why_and_passes_none() {
        let scenario = planned(TWO, "  - ddp: {steps: 1}\n  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::new(&scenario, &known);
        let calls = [
            "prepare",
            "init_process_group",
            "destroy_process_group",
            "barrier",
        ];
        (0..2).for_each(|rank| world.hello_of(rank, "libtorch", &calls));
        world.open();
        assert_eq!(world.calls(0), ["barrier"]);
        let check_result = &world.state.result.checks[&0];
        assert_eq!(check_result.outcome, Outcome::NotRun);
        assert_eq!(
            check_result.summary,
            "the libtorch driver has no call `stack`: what runs above c10d is PyTorch's Python code"
        );
    }

    #[test]
    fn a_script_is_alone() {
        let script = "  - script: {name: s, moves: [{sleep: {ms: 1}}]}\n";
        let steps = format!("  - barrier: {{}}\n{script}  - barrier: {{}}\n");
        let scenario = planned(TWO, &steps);
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        assert_eq!(world.calls(0), ["barrier"]);
        world.answer(0);
        assert_eq!(world.calls(0), [""; 0]);
        world.answer(1);
        assert_eq!(world.calls(0), ["sleep"]);
        world.answer(1);
        assert_eq!(world.calls(1), [""; 0]);
        world.answer(0);
        assert_eq!(world.calls(1), ["barrier"]);
    }

    #[test]
    fn teardown_comes_after_the_last_answer_and_finish_after_teardown() {
        let scenario = planned(TWO, "  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.answer(0);
        assert_eq!(world.calls(0), [""; 0]);
        world.answer(1);
        assert_eq!(world.calls(0), ["destroy_process_group"]);
        world.answer(0);
        assert_eq!(world.take_done(), [""; 0]);
        world.answer(1);
        assert_eq!(world.take_done(), ["finish 0", "finish 1"]);
        world.shut_down();
        let result = world.result.unwrap();
        assert_eq!(outcomes(&result), [(0, Outcome::Pass)]);
        assert_eq!(result.init.unwrap().outcome, Outcome::Pass);
        assert_eq!(result.end.unwrap().outcome, Outcome::Pass);
        assert_eq!(result.lost, None);
    }

    #[test]
    fn what_comes_after_a_check_that_raised_is_left_to_another_world() {
        let scenario = planned(TWO, &"  - barrier: {}\n".repeat(3));
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.answer_all();
        world.raise(0, "oops");
        assert!(!world.is_killed());
        world.answer(1);
        assert_eq!(world.take_done(), ["kill 0", "kill 1"]);
        let result = world.reaped();
        assert_eq!(outcomes(&result), [(0, Outcome::Pass), (1, Outcome::Error)]);
        assert_eq!(
            result.lost.as_deref(),
            Some("a check failed in a way that may poison the group")
        );
        assert_eq!(result.end, None);
    }
}
