//! A step that was sent and has not been answered by all, and what an answer to it must look like.

use crate::script::{Answer, CompiledScript};
use allranks_model::names::Rank;
use allranks_oracle::{PreparedCheck, RankReply};
use allranks_protocol::{CallStatus, StepResult};

/// What a step of a world is for.
#[derive(Debug)]
pub enum Purpose {
    /// Torch's own import is over; the platform's.
    Imports,
    /// Init, groups.
    Opening,
    /// The check at that place of the scenario.
    Check(usize, PreparedCheck),
    /// The script at that place of the scenario.
    Script(usize, Box<CompiledScript>),
    /// After a refusal: is the group still usable?
    Probe(usize, PreparedCheck),
    /// Teardown.
    Closing,
}

/// A step sent and not yet answered by all.
#[derive(Debug)]
pub struct Pending {
    /// The step's number.
    pub number: u32,
    /// What the timeline calls it.
    pub label: String,
    /// Names of each rank's calls.
    pub calls: Vec<Vec<&'static str>>,
    /// Lengths of each rank's storages.
    pub storages: Vec<Vec<u64>>,
    /// What it is for.
    pub purpose: Purpose,
    /// Bytes of the largest rank's storages.
    pub bytes: usize,
    /// What came of each rank, once that is known.
    pub answers: Vec<Option<Answer>>,
}

impl Pending {
    /// Whether every rank has answered.
    pub fn is_answered(&self) -> bool {
        self.answers.iter().all(Option::is_some)
    }

    /// Every reply that is there, in order of rank.
    pub fn replies(&self) -> impl Iterator<Item = &RankReply> {
        self.answers.iter().flatten().filter_map(Answer::reply)
    }

    /// A rank's reply, if it has sent one.
    pub fn reply_of(&self, rank: Rank) -> Option<&RankReply> {
        self.answers[rank.index()].as_ref()?.reply()
    }

    /// The script the ranks play, if it is one.
    pub fn script(&self) -> Option<&CompiledScript> {
        match &self.purpose {
            Purpose::Script(_, staged) => Some(staged),
            Purpose::Imports
            | Purpose::Opening
            | Purpose::Check(..)
            | Purpose::Probe(..)
            | Purpose::Closing => None,
        }
    }

    /// The check it is, by its place in the scenario, if it is one.
    pub fn check(&self) -> Option<usize> {
        match &self.purpose {
            Purpose::Check(index, ..) | Purpose::Script(index, _) => Some(*index),
            Purpose::Imports | Purpose::Opening | Purpose::Probe(..) | Purpose::Closing => None,
        }
    }

    /// Whether the rank has.
    pub fn is_answered_by(&self, rank: Rank) -> bool {
        self.reply_of(rank).is_some()
    }
}

/// What a result must look like before anybody looks at what it says.
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

/// `storages of 8, 16 bytes`.
fn lengths(storages: &[u64]) -> String {
    let lengths: Vec<String> = storages.iter().map(u64::to_string).collect();
    match lengths.as_slice() {
        [] => "no storages".to_owned(),
        lengths => format!("storages of {} bytes", lengths.join(", ")),
    }
}
