//! Judges a step that every rank has answered, or left in, and decides what that means for the world.

use super::checks::short;
use super::phase::Stop;
use super::phase::Wanted;
use super::shutdown::closing_result;
use super::state::WorldState;
use crate::check_result::CheckResult;
use crate::check_result::error_text;
use crate::run::group_test::{group_test_after, group_test_before};
use crate::run::pending::Pending;
use crate::run::pending::Purpose;
use crate::run::steps::prepare;
use crate::script::Answer;
use crate::script::CompiledScript;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::outcome::Outcome;
use allranks_oracle::{PreparedCheck, RankReply};
use allranks_suite::case::Starts;

/// Why a world is given up although every rank answered: later checks may be affected.
const POISONED: &str = "a check failed in a way that may poison the group";

/// Number of checks before and after a check whose data are searched for in its output.
const NEIGHBOURS: usize = 8;

impl WorldState<'_> {
    /// Returns the ops around a check, prepared, with their ids: those of the same dtype whose tensors are not large.
    fn neighbours(&self, index: usize) -> Vec<(String, PreparedCheck)> {
        let checks = &self.plan.scenario.checks;
        let dtype = checks[index].op().map(|op| op.dtype);
        let around = index.saturating_sub(NEIGHBOURS)..(index + NEIGHBOURS + 1).min(checks.len());
        around
            .filter(|other| *other != index)
            .filter(|other| {
                let op = checks[*other].op();
                op.is_some_and(|op| Some(op.dtype) == dtype && !op.is_large())
            })
            .filter_map(|other| {
                let check = &checks[other];
                let prepared = prepare(check, self.size(), self.plan.seed).ok()?;
                Some((format!("to {}", short(check)), prepared))
            })
            .collect()
    }

    /// Judges a step; for a script that demands a hang verdict the host is asked first.
    pub(super) fn conclude(&mut self, pending: Pending) -> Result<(), Stop> {
        match pending.script().and_then(CompiledScript::hang) {
            Some(_) => {
                self.ask_host(Wanted::Script(Box::new(pending)));
                Ok(())
            }
            None => self.conclude_with(pending, None),
        }
    }

    /// Judges a step. `diagnosis` is the hang verdict on the world, if a script demands one.
    pub(super) fn conclude_with(
        &mut self,
        pending: Pending,
        diagnosis: Option<Diagnosis>,
    ) -> Result<(), Stop> {
        let answers: Vec<Answer> = pending.answers.into_iter().flatten().collect();
        match pending.purpose {
            Purpose::Imports => {
                let check_result =
                    self.opening_result(&replies(answers), |_, calls| error_text(calls));
                let opens = self.plan.scenario.case.world.starts == Starts::Initialised;
                self.note_init(check_result, !opens)
            }
            Purpose::Opening => {
                let fault = |rank, calls: &[_]| self.opening_fault(rank, calls);
                let check_result = self.opening_result(&replies(answers), fault);
                self.note_init(check_result, true)
            }
            Purpose::Check(index, prepared) => {
                let check = &self.plan.scenario.checks[index];
                let others = || self.neighbours(index);
                let check_result =
                    CheckResult::of_answers(check, &prepared, &replies(answers), others);
                let poisons = check_result.outcome == Outcome::Error;
                self.decide(index, check_result, poisons)
            }
            Purpose::GroupTestAfter(index, prepared) => {
                let Some(check) = group_test_after(&self.plan.scenario.checks[index]) else {
                    return Ok(());
                };
                let test_result =
                    CheckResult::of_answers(&check, &prepared, &replies(answers), Vec::new);
                match self.result.checks.remove(&index) {
                    Some(refused) => {
                        let before = self.tested_groups.get(&*check.group.name);
                        let before = before.and_then(Option::as_deref);
                        let check_result = refused.with_group_test(&test_result, before);
                        let works = test_result.outcome == Outcome::Pass || before.is_some();
                        let poisons = check_result.outcome == Outcome::Error || !works;
                        self.decide(index, check_result, poisons)
                    }
                    None => Ok(()),
                }
            }
            Purpose::GroupTestBefore(index, prepared) => {
                let check = &self.plan.scenario.checks[index];
                if let Some(test) = group_test_before(check) {
                    let test_result =
                        CheckResult::of_answers(&test, &prepared, &replies(answers), Vec::new);
                    let failure =
                        (test_result.outcome != Outcome::Pass).then_some(test_result.summary);
                    self.tested_groups
                        .insert(check.group.name.to_string(), failure);
                }
                Ok(())
            }
            Purpose::Closing => {
                self.result.end = Some(closing_result(&replies(answers)));
                Ok(())
            }
            Purpose::Script(index, compiled) => {
                let check_result = compiled.check_result(&answers);
                let check_result = match (compiled.hang(), diagnosis) {
                    (Some(hang), Some(diagnosis)) => {
                        self.hang_result(hang, diagnosis, check_result)
                    }
                    (_, _) => check_result,
                };
                self.end_script(index, check_result)
            }
        }
    }

    /// Records a check result. `poisons`: the check may have left the group unusable, which ends the world.
    fn decide(
        &mut self,
        index: usize,
        check_result: CheckResult,
        poisons: bool,
    ) -> Result<(), Stop> {
        self.result.checks.insert(index, check_result);
        if poisons {
            self.result.is_given_up = true;
            self.result.lost = Some(POISONED.to_owned());
            Err(Stop::Decided)
        } else {
            Ok(())
        }
    }
}

/// Returns the ranks' replies. Only in scripts does a rank leave without one.
fn replies(answers: Vec<Answer>) -> Vec<RankReply> {
    let reply = |answer| match answer {
        Answer::Reply(reply) => Some(reply),
        Answer::Left(..) => None,
    };
    answers.into_iter().filter_map(reply).collect()
}
