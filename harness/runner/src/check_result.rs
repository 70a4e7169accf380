//! The result of one check, computed from the answers of every rank.
//!
//! In: the check, what the oracle prepared, what the ranks answered. Out: an [`Outcome`] with everything that a report
//! says about it. What the outcome means is decided later, by the verdict.

use allranks_model::capability::Declared;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::record::{Difference, RankLine};
use allranks_oracle::{Mismatch, Observations, PreparedCheck, RankReply};
use allranks_protocol::{Call, CallResult, CallStatus};
use allranks_suite::plan::Check;

use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;

/// The class of a mismatch that no bug model explains.
const UNCLASSIFIED: &str = "unclassified";

/// What happened in one check.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckResult {
    /// The outcome over all ranks.
    pub outcome: Outcome,
    /// One sentence for reports; empty for a pass.
    pub summary: String,
    /// Stable name of what went wrong: a mismatch's class, or for instance `raised-on-some-ranks`. None for a pass.
    pub class: Option<String>,
    /// The first wrong element; none if no bytes are wrong.
    pub difference: Option<Difference>,
    /// A line for each rank that the result is about: what it raised, or how it ended.
    pub ranks: Vec<RankLine>,
    /// For each rank, the number of elements that were compared.
    pub checked: Vec<u64>,
    /// What the answers show of the backend's arithmetic.
    pub observations: Observations,
    /// Microseconds from the first rank's entry into the check's calls to the last rank's return.
    pub duration_us: u64,
    /// The hang verdict on a world that hung, or on ranks that contradicted each other; none otherwise.
    pub diagnosis: Option<Box<Diagnosis>>,
}

impl CheckResult {
    /// Makes a result with an outcome and a reason only.
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

    /// Returns a check that was not made, and why.
    #[must_use]
    pub fn not_run(why: &str) -> Self {
        Self::bare(Outcome::NotRun, None, why)
    }

    /// Returns a pass, with what was checked on each rank.
    #[must_use]
    pub fn passed(checked: Vec<u64>) -> Self {
        Self {
            checked,
            ..Self::bare(Outcome::Pass, None, "")
        }
    }

    /// Makes the result of one check from the answers of every rank of the world. `others` prepares the checks around it, each
    /// with its name: wrong data that no bug model explains are searched for in the data of these checks.
    #[must_use]
    pub fn of_answers(
        check: &Check,
        prepared: &PreparedCheck,
        replies: &[RankReply],
        others: impl FnOnce() -> Vec<(String, PreparedCheck)>,
    ) -> Self {
        let raised = raised(replies);
        let result = if raised.is_empty() {
            let observations = prepared.observe(replies);
            let result = match prepared.verify(replies) {
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
                ..result
            }
        } else {
            let result = Self::of_errors(check, raised);
            match result.outcome {
                Outcome::Unsupported | Outcome::Error if is_refusal(prepared, replies) => {
                    result.unless_written(prepared, replies)
                }
                _ => result,
            }
        };
        Self {
            duration_us: duration_us(replies.iter()),
            ..result
        }
    }

    /// Makes the result of wrong bytes.
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

    /// Makes the result of a check in which some ranks raised. It is a refusal if every member raised an exception of the same
    /// type with a message in words, other than that of a timeout. Whether the group still works is left to the group test.
    fn of_errors(check: &Check, raised: Vec<RankLine>) -> Self {
        let members = check.group.ranks.len();
        let first = raised[0].text.lines().next().unwrap_or_default().to_owned();
        let everyone = raised.len() == members
            && raised
                .iter()
                .all(|line| check.group.ranks.contains(&line.rank));
        let silent = raised.iter().any(|line| !has_words(message(line)));
        let (outcome, class, summary) = match (&check.declared, everyone, silent) {
            (Declared::Unsupported(_), true, false) => match no_refusal(&raised) {
                Some((class, why)) => (Outcome::Error, class, format!("{why}: {first}")),
                None => (Outcome::Unsupported, "refused", format!("refused: {first}")),
            },
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

    /// Turns the pass of a script that is declared unsupported into the outcome `unsupported`, because such a script passes if
    /// the call is refused. Any other result stays as it is.
    #[must_use]
    pub fn as_declared(self, declared: &Declared) -> Self {
        match (self.outcome, declared) {
            (Outcome::Pass, Declared::Unsupported(what)) => Self {
                outcome: Outcome::Unsupported,
                class: Some("refused".to_owned()),
                summary: format!("refused: {what}"),
                ..self
            },
            (_, _) => self,
        }
    }

    /// Turns a refusal that changed a tensor of some rank into a mismatch; another error on every rank that did gets a
    /// class of its own.
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

    /// Combines a check that must be refused with the result of its group test. A refusal becomes an error if the
    /// group does not work any more; any other outcome stays and its summary says so. `before` says how the group test
    /// before the refusal failed; none if it was right. A refusal did not break what was broken before.
    #[must_use]
    pub fn with_group_test(self, test: &Self, before: Option<&str>) -> Self {
        match (self.outcome, test.outcome) {
            (Outcome::Unsupported, outcome) if before.is_some() && outcome != Outcome::Pass => {
                Self {
                    summary: format!(
                        "{}; whether the group works afterwards cannot be told, because the group test failed before, too: {}",
                        self.summary,
                        before.unwrap_or_default()
                    ),
                    ..self
                }
            }
            (Outcome::Unsupported, Outcome::Pass) => Self {
                checked: test.checked.clone(),
                ..self
            },
            (Outcome::Unsupported, _) => Self {
                outcome: Outcome::Error,
                class: Some("group-unusable-after-refusal".to_owned()),
                summary: format!(
                    "{}; afterwards the group is unusable: {}",
                    self.summary, test.summary
                ),
                ..self
            },
            (_, Outcome::Pass) => self,
            (_, _) => Self {
                summary: format!(
                    "{}; afterwards the group is unusable: {}",
                    self.summary, test.summary
                ),
                ..self
            },
        }
    }
}

/// Returns the message of an exception, without its type.
fn message(line: &RankLine) -> &str {
    line.text
        .split_once(": ")
        .map_or("", |(_, message)| message)
}

/// Returns true if a message has a word of at least three letters.
fn has_words(message: &str) -> bool {
    let mut parts = message.split(|letter: char| !letter.is_alphabetic());
    parts.any(|part| part.chars().count() >= 3)
}

/// Returns why errors on every rank are no refusal, with its class; none if they are one.
fn no_refusal(raised: &[RankLine]) -> Option<(&'static str, &'static str)> {
    let kind = |line: &RankLine| line.text.split(':').next().map(str::to_owned);
    let timed_out = |line: &RankLine| {
        let text = line.text.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|words| text.contains(words));
        says(&["timed out", "timeout", "time out", "deadline exceeded"])
            && !says(&["support", "implement"])
    };
    if raised.iter().any(timed_out) {
        let why = "what is not supported was not refused, but waited for until a timeout";
        return Some(("timed-out-instead-of-refused", why));
    }
    let differ = raised.iter().any(|line| kind(line) != kind(&raised[0]));
    differ.then_some((
        "raised-differently",
        "what is not supported raised exceptions of different types on the ranks",
    ))
}

/// Returns true if every rank with calls raised in its first call with tensors, or in the wait for its work. No call
/// that was carried out before can then have written to the tensors.
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

/// Returns one line for each rank on which a call raised.
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

/// Returns `RuntimeError: message` of the first call that did not return; none if all returned.
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

/// Returns the microseconds from the first rank's entry to the last rank's return; 0 if no rank entered.
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
