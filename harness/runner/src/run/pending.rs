//! A step that was sent and that some ranks have not answered, and the form that an answer must have.

use crate::script::{Answer, CompiledScript};
use allranks_model::names::Rank;
use allranks_oracle::{PreparedCheck, RankReply};
use allranks_protocol::{CallStatus, StepResult};

/// What a step of a world is for.
#[derive(Debug)]
pub enum Purpose {
    /// The imports of the platform's modules; the driver imported torch before its hello.
    Imports,
    /// `init_process_group`, and the groups of the case.
    Opening,
    /// The check at this index of the scenario.
    Check(usize, PreparedCheck),
    /// The script at this index of the scenario.
    Script(usize, Box<CompiledScript>),
    /// The group test after the check at this index, which must be refused.
    GroupTestAfter(usize, PreparedCheck),
    /// The group test before the check at this index, the first on its group that must be refused.
    GroupTestBefore(usize, PreparedCheck),
    /// The teardown, `destroy_process_group`.
    Closing,
}

/// A step that was sent and that some ranks have not answered.
#[derive(Debug)]
pub struct Pending {
    /// The step's number in the world, from 0.
    pub number: u32,
    /// The step's label in the timeline.
    pub label: String,
    /// For each rank, the names of its calls.
    pub calls: Vec<Vec<&'static str>>,
    /// For each rank, the lengths of its storages in bytes.
    pub storages: Vec<Vec<u64>>,
    /// What the step is for.
    pub purpose: Purpose,
    /// Total bytes of the storages of the rank that has most.
    pub bytes: usize,
    /// For each rank, its answer; none while it has not answered.
    pub answers: Vec<Option<Answer>>,
}

impl Pending {
    /// Returns true if every rank has answered.
    pub fn is_answered(&self) -> bool {
        self.answers.iter().all(Option::is_some)
    }

    /// Iterates over the replies received so far, in order of rank.
    pub fn replies(&self) -> impl Iterator<Item = &RankReply> {
        self.answers.iter().flatten().filter_map(Answer::reply)
    }

    /// Returns the rank's reply; none if it has sent none.
    pub fn reply_of(&self, rank: Rank) -> Option<&RankReply> {
        self.answers[rank.index()].as_ref()?.reply()
    }

    /// Returns the compiled script; none if the step is no script.
    pub fn script(&self) -> Option<&CompiledScript> {
        match &self.purpose {
            Purpose::Script(_, compiled) => Some(compiled),
            Purpose::Imports
            | Purpose::Opening
            | Purpose::Check(..)
            | Purpose::GroupTestAfter(..)
            | Purpose::GroupTestBefore(..)
            | Purpose::Closing => None,
        }
    }

    /// Returns true if the step is a script that demands a hang verdict.
    pub fn demands_a_verdict(&self) -> bool {
        self.script()
            .is_some_and(|compiled| compiled.hang().is_some())
    }

    /// Returns the index of the check or script in the scenario; none for every other purpose.
    pub fn check(&self) -> Option<usize> {
        match &self.purpose {
            Purpose::Check(index, ..) | Purpose::Script(index, _) => Some(*index),
            Purpose::Imports
            | Purpose::Opening
            | Purpose::GroupTestAfter(..)
            | Purpose::GroupTestBefore(..)
            | Purpose::Closing => None,
        }
    }

    /// Returns true if the rank has sent its reply.
    pub fn is_answered_by(&self, rank: Rank) -> bool {
        self.reply_of(rank).is_some()
    }
}

/// Checks the form of a result against the step it answers, before its content is used. The error says what does not
/// fit.
pub fn check_form(
    result: &StepResult,
    payload: usize,
    pending: &Pending,
    rank: Rank,
    entered: usize,
) -> Result<(), String> {
    let step = result.step;
    let (calls, storages) = (
        pending.calls[rank.index()].len(),
        &pending.storages[rank.index()],
    );
    if result.calls.len() != calls {
        let answered = result.calls.len();
        return Err(format!(
            "it answers {answered} calls of step {step}, which has {calls}"
        ));
    }
    if result.storages != *storages {
        return Err(format!(
            "it returns {} in step {step}; it was given {}",
            lengths(&result.storages),
            lengths(storages)
        ));
    }
    let total: u64 = storages.iter().sum();
    if total != payload as u64 {
        return Err(format!(
            "it announces {total} bytes of storages in step {step} and sends {payload}"
        ));
    }
    let reached = result
        .calls
        .iter()
        .filter(|call| call.status != CallStatus::NotReached)
        .count();
    // Tensors that cannot be made are the error of a first call that was never entered.
    let no_tensors = reached == 1 && entered == 0 && result.calls[0].status == CallStatus::Error;
    if reached != entered && !no_tensors {
        return Err(format!(
            "it made {reached} calls of step {step} and announced {entered} of them"
        ));
    }
    Ok(())
}

/// Formats storage lengths: `storages of 8, 16 bytes`.
fn lengths(storages: &[u64]) -> String {
    let lengths: Vec<String> = storages.iter().map(u64::to_string).collect();
    match lengths.as_slice() {
        [] => "no storages".to_owned(),
        lengths => format!("storages of {} bytes", lengths.join(", ")),
    }
}
