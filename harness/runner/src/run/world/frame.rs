//! What a frame of a rank changes, and which frames break the protocol.

use super::state::WorldState;
use allranks_model::names::Rank;
use allranks_oracle::RankReply;
use allranks_model::capability::Declared;
use allranks_protocol::CallResult;
use allranks_protocol::CallStatus;
use allranks_protocol::Frame;
use allranks_protocol::FromRank;
use crate::run::pending::Purpose;
use crate::run::pending::check_form;
use crate::script::Answer;

impl WorldState<'_> {
    /// Takes a frame; the error says how it breaks the protocol.
    pub(super) fn take(&mut self, rank: Rank, frame: Frame<FromRank>) -> Result<(), String> {
        let story = &mut self.result.ranks[rank.index()];
        let due = self
            .pending
            .iter_mut()
            .find(|pending| !pending.is_answered_by(rank));
        match frame.header {
            FromRank::Hello(_) => Err("it said hello twice".to_owned()),
            FromRank::Recorder { step, ops } => {
                story.recorded = Some((step, ops));
                Ok(())
            }
            FromRank::Enter { step, call, ns } => {
                let is_next = due.is_some_and(|due| {
                    due.number == step
                        && story.entered == call
                        && call < due.calls[rank.index()].len()
                });
                if !is_next {
                    return Err(format!(
                        "it enters call {call} of step {step}, which is not its next"
                    ));
                }
                story.entered += 1;
                story.position = Some((step, call, self.now));
                story.entered_at = ns;
                self.cue(rank, call);
                Ok(())
            }
            FromRank::Result(result) => {
                let number = result.step;
                let Some(pending) = due.filter(|due| due.number == number) else {
                    return Err(format!("it answers step {number}, which is not its next"));
                };
                check_form(&result, frame.payload.len(), pending, rank, story.entered)?;
                story.position = None;
                story.entered = 0;
                story.answered += 1;
                let is_refusal = match &pending.purpose {
                    Purpose::Check(index, _) => {
                        self.plan.scenario.checks[*index].declared != Declared::Supported
                    }
                    Purpose::Imports
                    | Purpose::Opening
                    | Purpose::Probe(..)
                    | Purpose::Script(..)
                    | Purpose::Closing => false,
                };
                let returned = |call: &CallResult| call.status == CallStatus::Ok;
                let ok = is_refusal || result.calls.iter().all(returned);
                story.tell(&pending.label, &result, ok);
                pending.answers[rank.index()] = Some(Answer::Reply(RankReply {
                    result,
                    payload: frame.payload,
                }));
                Ok(())
            }
            FromRank::Bye { steps, token } => {
                story.said_bye = Some((steps, token));
                Ok(())
            }
        }
    }
}
