//! Applies a rank's frame to the world, and detects frames that break the protocol.

use super::state::WorldState;
use crate::run::pending::Purpose;
use crate::run::pending::check_form;
use crate::script::Answer;
use crate::world::Frame;
use allranks_model::capability::Declared;
use allranks_model::flight_recorder::RecordedOp;
use allranks_model::names::Rank;
use allranks_oracle::RankReply;
use allranks_protocol::CallResult;
use allranks_protocol::CallStatus;
use allranks_protocol::FromRank;

/// Most ops that are kept of what a rank's flight recorder has under way: the oldest of them.
const MOST_RECORDED: usize = 64;

impl WorldState<'_> {
    /// Applies a frame of a rank. The error says how the frame breaks the protocol.
    pub(super) fn apply_frame(&mut self, rank: Rank, frame: Frame<FromRank>) -> Result<(), String> {
        let rank_run = &mut self.result.ranks[rank.index()];
        let open = self
            .pending
            .iter_mut()
            .find(|pending| !pending.is_answered_by(rank));
        match frame.header {
            FromRank::Hello(_) => Err("it said hello twice".to_owned()),
            FromRank::Recorder { step, ops } => {
                let ops = ops.into_iter().take(MOST_RECORDED);
                rank_run.recorded = Some((step, ops.map(RecordedOp::cut).collect()));
                Ok(())
            }
            FromRank::Enter { step, call, ns } => {
                let is_next = open.is_some_and(|open| {
                    open.number == step
                        && rank_run.entered == call
                        && call < open.calls[rank.index()].len()
                });
                if !is_next {
                    return Err(format!(
                        "it enters call {call} of step {step}, which is not its next"
                    ));
                }
                rank_run.entered += 1;
                rank_run.position = Some((step, call, self.now));
                rank_run.entered_at = ns;
                self.on_enter(rank, call);
                Ok(())
            }
            FromRank::Result(mut result) => {
                result.cut_errors();
                let number = result.step;
                let Some(pending) = open.filter(|open| open.number == number) else {
                    return Err(format!("it answers step {number}, which is not its next"));
                };
                check_form(
                    &result,
                    frame.payload.len(),
                    pending,
                    rank,
                    rank_run.entered,
                )?;
                rank_run.position = None;
                rank_run.entered = 0;
                rank_run.answered += 1;
                let is_refusal = match &pending.purpose {
                    Purpose::Check(index, _) => {
                        self.plan.scenario.checks[*index].declared != Declared::Supported
                    }
                    Purpose::Imports
                    | Purpose::Opening
                    | Purpose::GroupTestAfter(..)
                    | Purpose::GroupTestBefore(..)
                    | Purpose::Script(..)
                    | Purpose::Closing => false,
                };
                let returned = |call: &CallResult| call.status == CallStatus::Ok;
                let ok = is_refusal || result.calls.iter().all(returned);
                rank_run.add_span(&pending.label, &result, ok);
                pending.answers[rank.index()] = Some(Answer::Reply(RankReply {
                    result,
                    payload: frame.payload,
                }));
                Ok(())
            }
            FromRank::Bye { steps, token } => {
                rank_run.said_bye = Some((steps, token));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::run::world::fixture::ms;
    use crate::run::world::fixture::outcomes;
    use crate::run::world::fixture::planned;
    use crate::run::world::phase::Phase;
    use crate::run::world::simulation::Simulation;
    use allranks_model::outcome::Outcome;
    use allranks_protocol::FromRank;
    use allranks_suite::expectation::Expectations;

    #[test]
    fn a_frame_that_breaks_the_protocol_is_the_crash_of_its_rank() {
        let scenario = planned("{size: 2, deadline_s: 20}", "  - barrier: {}\n");
        let known = Expectations::default();
        // The imports were step 0, the opening step 1.
        let enter = |step, call| FromRank::Enter { step, call, ns: 1 };
        let breaches = [
            (
                enter(2, 1),
                "it enters call 1 of step 2, which is not its next",
            ),
            (
                enter(3, 0),
                "it enters call 0 of step 3, which is not its next",
            ),
            (result(7), "it answers step 7, which is not its next"),
            (
                result(2),
                "it made 1 calls of step 2 and announced 0 of them",
            ),
        ];
        for (header, why) in breaches {
            let mut world = Simulation::opened(&scenario, &known);
            world.header(1, header);
            assert!(matches!(world.state.phase, Phase::Reaping { .. }));
            let result = world.reaped();
            assert_eq!(outcomes(&result), [(0, Outcome::Crash)]);
            assert_eq!(result.lost, Some(format!("rank 1: {why}")));
        }
    }

    fn result(step: u32) -> FromRank {
        FromRank::Result(allranks_protocol::StepResult {
            step,
            calls: vec![allranks_protocol::CallResult {
                status: allranks_protocol::CallStatus::Ok,
                enter: 1,
                leave: 2,
                value: serde_json::Value::Null,
                error: None,
            }],
            storages: Vec::new(),
        })
    }

    #[test]
    fn each_call_is_entered_once() {
        let scenario = planned("{size: 2, deadline_s: 20}", "  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        assert!(!world.is_killed());
        let (step, call, ns) = (2, 0, 1);
        world.header(0, FromRank::Enter { step, call, ns });
        assert!(world.is_killed());
    }

    #[test]
    fn what_a_rank_tells_of_its_waiting_is_no_progress() {
        let scenario = planned("{size: 2, deadline_s: 20}", "  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        let before = world.state.progress;
        world.pass(ms(100));
        let (step, ops) = (2, Vec::new());
        world.header(0, FromRank::Recorder { step, ops });
        assert_eq!(world.state.progress, before);
        world.enter(0);
        assert_eq!(world.state.progress, world.now);
    }
}
