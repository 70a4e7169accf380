//! Turns the failure of a world into check results: why it failed, in which step, and where every rank is.

use super::failure::WorldFailure;
use super::phase::Wanted;
use super::state::WorldState;
use crate::check_result::CheckResult;
use crate::check_result::error_text;
use crate::run::pending::Pending;
use crate::run::pending::Purpose;
use allranks_model::diagnosis::Confidence;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::outcome::Outcome;
use allranks_model::record::RankLine;

impl WorldState<'_> {
    /// Ends the world with a failure. If the script under way demands a hang verdict and there is none yet, the host is
    /// asked first.
    pub(super) fn fail(&mut self, failure: WorldFailure) {
        let script = self.pending.front().and_then(Pending::script);
        let wants_verdict = script.is_some_and(|script| script.hang().is_some());
        if wants_verdict && matches!(failure, WorldFailure::Crash(..)) {
            return self.ask_host(Wanted::Failure(failure));
        }
        self.note_failure(&failure, None);
        self.reap();
    }

    /// Turns a failure into the result of the check in flight, of `init`, or of `teardown`. `diagnosis` is the diagnosis of
    /// a world that has not hung, if the script under way demands one.
    pub(super) fn note_failure(&mut self, failure: &WorldFailure, diagnosis: Option<Diagnosis>) {
        let (outcome, class, mut what) = match failure {
            WorldFailure::Hang(diagnosis) => (Outcome::Hang, "hang", hung(diagnosis)),
            WorldFailure::Crash(rank, why) => {
                (Outcome::Crash, "crash", format!("rank {rank}: {why}"))
            }
            WorldFailure::Machine(rank, why) => (
                Outcome::HarnessError,
                "machine",
                format!("rank {rank}: {why}"),
            ),
            WorldFailure::Interrupted => {
                self.result.lost = Some("interrupted".to_owned());
                return;
            }
            WorldFailure::NodeLost(why) => {
                self.result.lost = Some(why.clone());
                return;
            }
            WorldFailure::GivenUp(why) => {
                self.result.lost = Some(why.clone());
                self.result.is_starved = true;
                return;
            }
        };
        let mut check_result = CheckResult::bare(outcome, Some(class), what.clone());
        check_result.ranks = self.positions();
        if let WorldFailure::Hang(diagnosis) = failure {
            check_result.diagnosis = Some(diagnosis.clone());
            self.mark_stuck();
            if let Some(summary) = self.missed_timeout() {
                // The ranks that do not come are meant not to come: none is the culprit.
                what.clone_from(&summary);
                check_result.class = Some("timeout-not-honoured".to_owned());
                check_result.summary.clone_from(&summary);
                check_result.diagnosis = Some(Box::new(Diagnosis {
                    confidence: Confidence::None,
                    culprits: Vec::new(),
                    summary,
                    ..(**diagnosis).clone()
                }));
            }
        }
        if let Some(open) = self.pending.front()
            && let Purpose::Check(..) | Purpose::Script(..) = open.purpose
        {
            check_result = with_errors(check_result, open);
        }
        let diagnosis = match failure {
            WorldFailure::Hang(diagnosis) => Some((**diagnosis).clone()),
            WorldFailure::Crash(..)
            | WorldFailure::Machine(..)
            | WorldFailure::Interrupted
            | WorldFailure::NodeLost(_)
            | WorldFailure::GivenUp(_) => diagnosis,
        };
        if let Some(Purpose::Script(index, compiled)) =
            self.pending.front().map(|pending| &pending.purpose)
            && let (Some(hang), Some(diagnosis)) = (compiled.hang(), diagnosis)
            && outcome != Outcome::HarnessError
        {
            // The script expects this failure: the world counts as given up on purpose, not as lost.
            let check_result = self.hang_result(hang, diagnosis, check_result);
            self.result.checks.insert(*index, check_result);
            return;
        }
        self.result.lost = Some(what);
        self.keep_failure(failure, check_result);
    }

    /// Stores the result of a failure as that of the check in flight, of `init`, or of `teardown`.
    fn keep_failure(&mut self, failure: &WorldFailure, mut check_result: CheckResult) {
        match self.failed_step(failure).map(|pending| &pending.purpose) {
            Some(Purpose::Check(index, _) | Purpose::Script(index, _)) => {
                let index = *index;
                self.result.checks.insert(index, check_result);
            }
            // The result of a group test belongs to its check.
            Some(Purpose::GroupTestAfter(index, _)) => {
                let index = *index;
                if let Some(refused) = self.result.checks.remove(&index) {
                    check_result.summary =
                        format!("{}; afterwards {}", refused.summary, check_result.summary);
                }
                self.result.checks.insert(index, check_result);
            }
            // It is the first call of its check.
            Some(Purpose::GroupTestBefore(index, _)) => {
                let index = *index;
                check_result.summary = format!("in the call before it, {}", check_result.summary);
                self.result.checks.insert(index, check_result);
            }
            Some(Purpose::Imports | Purpose::Opening) => {
                if check_result.outcome != Outcome::HarnessError {
                    check_result.outcome = Outcome::InitFailed;
                }
                self.result.init = Some(check_result);
            }
            Some(Purpose::Closing) => self.result.end = Some(check_result),
            None if self.result.init.is_none() => {
                if check_result.outcome != Outcome::HarnessError {
                    check_result.outcome = Outcome::InitFailed;
                }
                self.result.init = Some(check_result);
            }
            None => self.result.end = Some(check_result),
        }
    }

    /// Says which timeout was not honoured, if the script under way has a rank in a call that must have raised at it. None if
    /// there is no such rank.
    fn missed_timeout(&self) -> Option<String> {
        let open = self.pending.front()?;
        let script = open.script()?;
        let world = self.plan.scenario.case.world.timeout_s;
        let mut ranks = self.size().ranks().zip(&self.result.ranks);
        ranks.find_map(|(rank, rank_run)| {
            let (step, call, since) = rank_run.position?;
            let lasts = (self.now - since).as_secs_f64();
            let missed = script.missed_timeout(rank, call, lasts, world);
            let timeout = missed.filter(|_| step == open.number)?;
            let called = &script.events.get(rank.index())?.get(call)?.what;
            Some(format!(
                "timeout of {timeout} s not honoured: rank {rank} has been in {called} for {lasts:.1} s"
            ))
        })
    }

    /// Returns the step in which the world failed. Steps are sent ahead, so ranks may be in different ones: a rank that
    /// died did so in the first step it has not answered, and a world hangs in the first that not all have answered.
    /// Steps before it that are still open get no result; they are made again in the next world.
    fn failed_step(&self, failure: &WorldFailure) -> Option<&Pending> {
        match failure {
            WorldFailure::Crash(rank, _) | WorldFailure::Machine(rank, _) => self
                .pending
                .iter()
                .find(|pending| !pending.is_answered_by(*rank)),
            WorldFailure::Hang(_)
            | WorldFailure::Interrupted
            | WorldFailure::NodeLost(_)
            | WorldFailure::GivenUp(_) => self.pending.front(),
        }
    }

    /// Adds the call that each rank is in to its timeline, as one that never ends.
    fn mark_stuck(&mut self) {
        for (rank, rank_run) in self.result.ranks.iter_mut().enumerate() {
            let Some((step, call, _)) = rank_run.position else {
                continue;
            };
            let pending = self.pending.iter().find(|pending| pending.number == step);
            if let Some(pending) = pending {
                rank_run.add_unfinished_span(format!(
                    "{} of {}",
                    pending.calls[rank][call], pending.label
                ));
            }
        }
    }

    /// Returns where every rank is, one line for each.
    fn positions(&self) -> Vec<RankLine> {
        let now = self.now;
        let open = self.pending.front();
        self.size()
            .ranks()
            .zip(&self.result.ranks)
            .map(|(rank, rank_run)| {
                let text = if let Some(end) = &rank_run.end {
                    format!("its process ended: {end}")
                } else if rank_run.said_bye.is_some() {
                    "said bye and has not ended".to_owned()
                } else if let Some(why) = &rank_run.broken {
                    why.clone()
                } else if rank_run.hello.is_none() {
                    "has not said hello".to_owned()
                } else if let Some((step, call, since)) = rank_run.position {
                    let named = self
                        .pending
                        .iter()
                        .find(|pending| pending.number == step)
                        .map_or_else(String::new, |pending| {
                            format!("{} of {}", pending.calls[rank.index()][call], pending.label)
                        });
                    format!("in {named} for {:.1} s", (now - since).as_secs_f64())
                } else if open.is_some_and(|pending| pending.is_answered_by(rank)) {
                    "has done its part and waits".to_owned()
                } else {
                    format!(
                        "has answered {} steps and not begun the next",
                        rank_run.answered
                    )
                };
                RankLine { rank, text }
            })
            .collect()
    }
}

/// Adds the errors of ranks to a failure of their step. If the others then wait for ever, the errors are the cause, and
/// the outcome becomes `error`. If a rank died, either may have caused the other: the outcome stays `crash`, and the
/// errors are listed.
fn with_errors(failed: CheckResult, open: &Pending) -> CheckResult {
    let mut first = None;
    let mut count = 0;
    let ranks = failed
        .ranks
        .iter()
        .map(|line| {
            let reply = open.reply_of(line.rank);
            let Some(error) = reply.and_then(|reply| error_text(&reply.result.calls)) else {
                return line.clone();
            };
            count += 1;
            let text = format!("raised {error}");
            first.get_or_insert(error);
            RankLine {
                text,
                ..line.clone()
            }
        })
        .collect();
    let Some(first) = first else {
        return failed;
    };
    let first = first.lines().next().unwrap_or_default();
    let all = open.answers.len();
    let raised = format!("{count} of {all} ranks raised {first}");
    let result = match failed.outcome {
        Outcome::Hang => CheckResult::bare(
            Outcome::Error,
            Some("raised-on-some-ranks"),
            format!("{raised}; then {}", failed.summary),
        ),
        _ => CheckResult {
            summary: format!("{}; {raised}", failed.summary),
            ..failed
        },
    };
    CheckResult { ranks, ..result }
}

/// Returns the summary of a world in which nothing moves.
fn hung(diagnosis: &Diagnosis) -> String {
    let still = format!("no rank moved for {:.1} s", diagnosis.after_s);
    match diagnosis.confidence {
        Confidence::Proved | Confidence::Likely => {
            format!("{}: {} ({still})", diagnosis.kind, diagnosis.summary)
        }
        Confidence::None => still,
    }
}
