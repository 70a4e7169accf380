//! A finding: what happened in one check, worked out from every rank's answer.
//!
//! In: the check, what the oracle prepared, what the ranks answered. Out: an [`Outcome`] with everything a person
//! needs to act on it. What it *means* is a verdict's business.

use allranks_model::capability::Declared;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::record::{Difference, RankLine};
use allranks_oracle::{Mismatch, Observations, PreparedCheck, RankReply};
use allranks_protocol::{Call, CallResult, CallStatus};
use allranks_suite::plan::Check;

use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;

/// The class of a mismatch without a name.
const UNCLASSIFIED: &str = "unclassified";

/// What happened in one check.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckResult {
    /// What happened.
    pub outcome: Outcome,
    /// One line for people; empty for a pass.
    pub summary: String,
    /// Stable name of what went wrong: a mismatch's class, or `raised-on-some-ranks` and the like.
    pub class: Option<String>,
    /// The first wrong element.
    pub difference: Option<Difference>,
    /// What ranks have to say, where it differs or matters.
    pub ranks: Vec<RankLine>,
    /// Elements checked on each rank.
    pub checked: Vec<u64>,
    /// What the answers show of the backend's arithmetic.
    pub observations: Observations,
    /// Microseconds from the first rank's entering to the last one's leaving.
    pub duration_us: u64,
    /// The verdict on a world that hung, or on ranks that contradicted each other.
    pub diagnosis: Option<Box<Diagnosis>>,
}

impl CheckResult {
    /// A finding with nothing but an outcome and a reason.
    #[must_use]
    pub fn bare(outcome: Outcome, class: Option<&str>, summary: impl Into<String>) -> Self {
        Self {
            outcome,
            summary: summary.into(),
            class: class.map(str::to_owned),
            difference: None,
            ranks: Vec::new(),
            checked: Vec::new(),
            observations: Observations::new(),
            duration_us: 0,
            diagnosis: None,
        }
    }

    /// A check that was not made, and why.
    #[must_use]
    pub fn not_run(why: &str) -> Self {
        Self::bare(Outcome::NotRun, None, why)
    }

    /// A pass, with what was checked on each rank.
    #[must_use]
    pub fn passed(checked: Vec<u64>) -> Self {
        Self {
            checked,
            ..Self::bare(Outcome::Pass, None, "")
        }
    }

    /// Judges the answers of every rank of the world to one exchange. `others` makes the exchanges around it ready, each with words
    /// for it: data without a name are looked for there.
    #[must_use]
    pub fn of_answers(
        check: &Check,
        prepared: &PreparedCheck,
        replies: &[RankReply],
        others: impl FnOnce() -> Vec<(String, PreparedCheck)>,
    ) -> Self {
        let raised = raised(replies);
        let finding = if raised.is_empty() {
            let observations = prepared.observe(replies);
            let finding = match prepared.verify(replies) {
                Ok(checked) => Self::passed(checked),
                Err(mismatch) if mismatch.class == UNCLASSIFIED => {
                    let others = others();
                    let others = others.iter().map(|(words, other)| (words.clone(), other));
                    Self::of_mismatch(prepared.named_by_others(mismatch, replies, others))
                }
                Err(mismatch) => Self::of_mismatch(mismatch),
            };
            Self {
                observations,
                ..finding
            }
        } else {
            let finding = Self::of_errors(check, raised);
            match finding.outcome {
                Outcome::Unsupported | Outcome::Error if is_refusal(prepared, replies) => {
                    finding.unless_written(prepared, replies)
                }
                _ => finding,
            }
        };
        Self {
            duration_us: duration_us(replies.iter()),
            ..finding
        }
    }

    /// Bytes that are not as they must be.
    #[must_use]
    pub fn of_mismatch(mismatch: Mismatch) -> Self {
        let Mismatch {
            class,
            sentence,
            difference,
        } = mismatch;
        Self {
            difference,
            ..Self::bare(Outcome::Mismatch, Some(&class), sentence)
        }
    }

    /// A refusal is clear if every member raised and each says something; whether the group survived it is for the
    /// probe that follows to say.
    fn of_errors(check: &Check, raised: Vec<RankLine>) -> Self {
        let members = check.group.ranks.len();
        let first = raised[0].text.lines().next().unwrap_or_default().to_owned();
        let everyone = raised.len() == members
            && raised
                .iter()
                .all(|line| check.group.ranks.contains(&line.rank));
        let silent = raised.iter().any(|line| line.text.ends_with(": "));
        let (outcome, class, summary) = match (&check.declared, everyone, silent) {
            (Declared::Unsupported(_), true, false) => {
                (Outcome::Unsupported, "refused", format!("refused: {first}"))
            }
            (_, true, false) => (
                Outcome::Error,
                "raised-on-every-rank",
                format!("every rank raised {first}"),
            ),
            (_, _, true) => (
                Outcome::Error,
                "raised-without-a-reason",
                "an error without a message says nothing to the user".to_owned(),
            ),
            (_, false, false) => (
                Outcome::Error,
                "raised-on-some-ranks",
                format!("{} of {members} ranks raised {first}", raised.len()),
            ),
        };
        Self {
            ranks: raised,
            ..Self::bare(outcome, Some(class), summary)
        }
    }

    /// A refusal after which a tensor of some rank is not as it was is no refusal; another error on every rank is named so.
    fn unless_written(self, prepared: &PreparedCheck, replies: &[RankReply]) -> Self {
        let Some(written) = prepared.written(replies) else {
            return self;
        };
        let summary = format!("{}; {}", self.summary, written.sentence);
        if self.outcome == Outcome::Unsupported {
            return Self {
                ranks: self.ranks,
                summary,
                ..Self::of_mismatch(written)
            };
        }
        Self {
            class: Some("raised-and-written".to_owned()),
            difference: written.difference,
            summary,
            ..self
        }
    }

    /// What a verified refusal becomes if the group did not survive it.
    #[must_use]
    pub fn after_probe(self, probe: &Self) -> Self {
        match (self.outcome, probe.outcome) {
            (Outcome::Unsupported, Outcome::Pass) => Self {
                checked: probe.checked.clone(),
                ..self
            },
            (Outcome::Unsupported, _) => Self {
                outcome: Outcome::Error,
                class: Some("group-unusable-after-refusal".to_owned()),
                summary: format!(
                    "{}; afterwards the group is unusable: {}",
                    self.summary, probe.summary
                ),
                ..self
            },
            _ => self,
        }
    }
}

/// Whether every rank with calls raised in the first one that has tensors, or in the wait for its work: nothing that was
/// carried out before may have written to them.
fn is_refusal(prepared: &PreparedCheck, replies: &[RankReply]) -> bool {
    prepared.steps().iter().zip(replies).all(|(sent, reply)| {
        let calls = &sent.step.calls;
        let results = &reply.result.calls;
        let failed = results
            .iter()
            .position(|call| call.status != CallStatus::Ok);
        let has_tensors = |call: &Call| !call.clone().tensors_mut().is_empty();
        let Some(failed) = failed.filter(|failed| *failed < calls.len()) else {
            return !calls.iter().any(has_tensors);
        };
        let mut before = calls[..failed].iter().enumerate();
        before.all(|(index, call)| {
            let awaited = matches!(&calls[failed], Call::Wait { work, .. } if *work == index);
            awaited || !has_tensors(call)
        })
    })
}

/// One line for each rank on which a call raised.
fn raised(replies: &[RankReply]) -> Vec<RankLine> {
    replies
        .iter()
        .enumerate()
        .filter_map(|(rank, reply)| {
            let text = error_text(&reply.result.calls)?;
            Some(RankLine {
                rank: Rank(rank as u32),
                text,
            })
        })
        .collect()
}

/// `RuntimeError: message` of the first call that did not return, if one did not.
#[must_use]
pub fn error_text(calls: &[CallResult]) -> Option<String> {
    calls
        .iter()
        .find(|call| call.status != CallStatus::Ok)
        .map(|call| match &call.error {
            Some(error) => format!("{}: {}", error.kind, error.message),
            None => "Error: ".to_owned(),
        })
}

/// Microseconds from the first rank's entering to the last one's leaving.
#[must_use]
pub fn duration_us<'a>(replies: impl Iterator<Item = &'a RankReply> + Clone) -> u64 {
    let calls = || replies.clone().flat_map(|reply| &reply.result.calls);
    let enter = calls().map(|call| call.enter).filter(|ns| *ns > 0).min();
    let leave = calls().map(|call| call.leave).max();
    match (enter, leave) {
        (Some(enter), Some(leave)) => leave.saturating_sub(enter) / 1000,
        _ => 0,
    }
}
