//! Makes the result of a script from the answers of every rank.

use std::collections::BTreeMap;

use serde_json::Value;

use super::expectation::{Broken, ExpectationKind, line, steady};
use super::{Answer, CompiledScript, Departure, Expectation, Leaving, MoveRef, Part};
use crate::check_result::{CheckResult, duration_us, error_text};
use crate::world::RankExit;
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;
use allranks_model::record::RankLine;
use allranks_oracle::RankReply;
use allranks_protocol::{CallResult, CallStatus, StepResult};
use allranks_suite::plan::Act;

impl CompiledScript {
    /// Returns the result of a script that every rank has answered or left.
    #[must_use]
    pub fn check_result(&self, answers: &[Answer]) -> CheckResult {
        let check_result = self
            .departed(answers)
            .or_else(|| self.raised(answers))
            .or_else(|| self.promised(answers))
            .or_else(|| self.data(answers))
            .unwrap_or_else(|| CheckResult::passed(self.checked()));
        CheckResult {
            duration_us: duration_us(answers.iter().filter_map(Answer::reply)),
            ..check_result
        }
    }

    /// Returns the failure of ranks that left although they must not, or did not leave as they must; none if there are
    /// none.
    fn departed(&self, answers: &[Answer]) -> Option<CheckResult> {
        let mut wrong = Vec::new();
        for (rank, (departure, answer)) in (0..).zip(self.departures.iter().zip(answers)) {
            let text = match (departure, answer) {
                (None, Answer::Reply(_)) => continue,
                (None, Answer::Left(_, end)) => format!("left: {}", end_text(end.as_ref())),
                (Some(departure), Answer::Reply(_)) => {
                    format!("answered; it was to end by {}", departure.how)
                }
                (Some(departure), Answer::Left(call, end)) => {
                    match departure.fault(*call, end.as_ref()) {
                        None => continue,
                        Some(text) => text,
                    }
                }
            };
            wrong.push(RankLine {
                rank: Rank(rank),
                text,
            });
        }
        let first = wrong.first()?;
        let summary = format!("rank {}: {}", first.rank, first.text);
        Some(CheckResult {
            ranks: wrong,
            ..CheckResult::bare(Outcome::Crash, Some("wrong-end"), summary)
        })
    }

    /// Returns the failure of calls that raised although they must return; none if there are none.
    fn raised(&self, answers: &[Answer]) -> Option<CheckResult> {
        let mut lines = Vec::new();
        for (rank, answer) in (0..).zip(answers) {
            if let Answer::Reply(reply) = answer
                && let Some(text) = error_text(&reply.result.calls)
            {
                let failed = reply
                    .result
                    .calls
                    .iter()
                    .position(|call| call.status == CallStatus::Error);
                let named = failed
                    .and_then(|call| {
                        self.expectations[rank as usize]
                            .iter()
                            .find(|claim| claim.at.call == call)
                    })
                    .map_or("", |claim| self.script.moves[claim.of].label.as_str());
                lines.push(RankLine {
                    rank: Rank(rank),
                    text: format!("in {named}: {text}"),
                });
            }
        }
        let first = lines.first()?;
        let all = answers.len();
        let class = match lines.len() == all {
            true => "raised-on-every-rank",
            false => "raised-on-some-ranks",
        };
        let text = first.text.lines().next().unwrap_or_default();
        let summary = format!("{} of {all} ranks raised {text}", lines.len());
        Some(CheckResult {
            ranks: lines,
            ..CheckResult::bare(Outcome::Error, Some(class), summary)
        })
    }

    /// Returns the failure of promises that were not kept; none if all were.
    fn promised(&self, answers: &[Answer]) -> Option<CheckResult> {
        let mut broken: BTreeMap<usize, Vec<(Rank, Broken)>> = BTreeMap::new();
        let mut kept: BTreeMap<usize, usize> = BTreeMap::new();
        for (rank, (expectations, answer)) in (0..).zip(self.expectations.iter().zip(answers)) {
            let Answer::Reply(reply) = answer else {
                continue;
            };
            for claim in expectations {
                match self.hold(claim, expectations, &reply.result) {
                    Ok(()) => *kept.entry(claim.of).or_default() += 1,
                    Err(fault) => broken
                        .entry(claim.of)
                        .or_default()
                        .push((Rank(rank), fault)),
                }
            }
        }
        let (number, faults) = broken.into_iter().find(|(number, _)| {
            let somewhere = self
                .expectations
                .iter()
                .flatten()
                .any(|claim| claim.of == *number && claim.kind.is_somewhere());
            !(somewhere && kept.contains_key(number))
        })?;
        let (rank, first) = &faults[0];
        let label = &self.script.moves[number].label;
        let text = first.text.lines().next().unwrap_or_default();
        let summary = format!("{label} on rank {rank} {text}");
        let ranks = faults
            .iter()
            .map(|(rank, fault)| line(*rank, &format!("{label} {}", fault.text)))
            .collect();
        Some(CheckResult {
            ranks,
            ..CheckResult::bare(Outcome::Mismatch, Some(&first.class), summary)
        })
    }

    fn hold(
        &self,
        claim: &Expectation,
        expectations: &[Expectation],
        result: &StepResult,
    ) -> Result<(), Broken> {
        if let ExpectationKind::Steady(spec) = &claim.kind {
            // In a loop, the last census of this name before this move counts.
            let census = |name: &str| {
                expectations
                    .iter()
                    .filter(|other| other.of < claim.of)
                    .rfind(|other| {
                        matches!(&self.script.moves[other.of].act, Act::Census(known) if known == name)
                    })
                    .map_or(&Value::Null, |other| &result.calls[other.at.call].value)
            };
            return steady(spec, census(&spec.from), census(&spec.to));
        }
        claim
            .kind
            .check(&result.calls[claim.at.call], claim.at.attempted)
    }

    /// Returns the failure of data that differ from what the oracle expects; none if none do.
    fn data(&self, answers: &[Answer]) -> Option<CheckResult> {
        let parts = || self.parts.iter().zip(&self.script.checks);
        for (part, check) in parts().filter(|(part, _)| part.judged) {
            let replies = part.replies(answers);
            if let Err(mismatch) = part.prepared.verify(&replies) {
                let others = (1..)
                    .zip(parts())
                    .filter(|(_, (other, _))| !std::ptr::eq(*other, part))
                    .map(|(number, (other, check))| {
                        let op = check.op.name();
                        (
                            format!("to op {number} of the script, {op}"),
                            &other.prepared,
                        )
                    });
                let mismatch = part.prepared.named_by_others(mismatch, &replies, others);
                let check_result = CheckResult::of_mismatch(mismatch);
                return Some(CheckResult {
                    summary: format!("{}: {}", check.op.name(), check_result.summary),
                    ..check_result
                });
            }
        }
        None
    }

    /// Returns for each rank the number of promises and elements that are checked.
    fn checked(&self) -> Vec<u64> {
        let mut checked: Vec<u64> = self
            .expectations
            .iter()
            .map(|expectations| expectations.len() as u64)
            .collect();
        for part in self.parts.iter().filter(|part| part.judged) {
            for (total, elements) in checked.iter_mut().zip(part.prepared.checked()) {
                *total += elements;
            }
        }
        checked
    }
}

impl Part {
    /// Returns the answers to this op alone, as if it had been a step of its own.
    fn replies(&self, answers: &[Answer]) -> Vec<RankReply> {
        let of = |(rank, answer): (usize, &Answer)| {
            let own = &self.prepared.steps()[rank];
            let Answer::Reply(reply) = answer else {
                // The op is judged although a rank has left: its tensors count as unchanged.
                return RankReply {
                    result: StepResult {
                        step: 0,
                        calls: vec![returned(); own.step.calls.len()],
                        storages: own.step.storages.clone(),
                    },
                    payload: own.payload.clone(),
                };
            };
            let calls = self.calls[rank]
                .iter()
                .map(|spot| spot.map_or_else(returned, |spot| spot.result(&reply.result)))
                .collect();
            RankReply {
                result: StepResult {
                    step: 0,
                    calls,
                    storages: own.step.storages.clone(),
                },
                payload: reply.payload[self.bytes[rank].clone()].to_vec(),
            }
        };
        answers.iter().enumerate().map(of).collect()
    }
}

impl MoveRef {
    fn result(self, result: &StepResult) -> CallResult {
        let outer = &result.calls[self.call];
        let Some((thread, at)) = self.inner else {
            let mut call = outer.clone();
            if self.attempted {
                call.value = call.value.get("value").cloned().unwrap_or_default();
            }
            return call;
        };
        outer
            .value
            .get(thread)
            .and_then(|calls| calls.get(at))
            .and_then(|call| serde_json::from_value(call.clone()).ok())
            .unwrap_or_else(returned)
    }
}

impl Departure {
    /// Returns what is wrong with how a rank left; none if nothing is.
    fn fault(self, call: Option<usize>, end: Option<&RankExit>) -> Option<String> {
        if call != Some(self.call) {
            return Some(format!(
                "ended before it was to: {} in call {}",
                end_text(end),
                call.map_or_else(|| "none".to_owned(), |call| call.to_string())
            ));
        }
        let right = match (self.how, end) {
            (Leaving::Frozen, None) => true,
            (Leaving::Signal(signal), Some(RankExit::Signalled(got))) => signal == *got,
            (
                Leaving::Code(code),
                Some(RankExit::Exited {
                    code: got,
                    left_behind: 0,
                }),
            ) => code == *got,
            _ => false,
        };
        (!right).then(|| format!("ended by {}; it was to end by {}", end_text(end), self.how))
    }
}

impl std::fmt::Display for Leaving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Signal(signal) => write!(f, "{}", RankExit::Signalled(*signal)),
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Frozen => f.write_str("nothing: it is stopped"),
        }
    }
}

fn end_text(end: Option<&RankExit>) -> String {
    end.map_or_else(|| "nothing known".to_owned(), RankExit::to_string)
}

fn returned() -> CallResult {
    CallResult {
        status: CallStatus::Ok,
        enter: 0,
        leave: 0,
        value: Value::Null,
        error: None,
    }
}
