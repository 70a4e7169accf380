//! Computes the steps that the ranks of a scenario are sent if nothing goes wrong, before anything runs.

use std::collections::BTreeSet;

use super::group_test::{group_test_after, group_test_before};
use super::setup::{Endpoint, OpeningSteps, closing, device};
use crate::script::CompiledScript;
use allranks_model::names::WorldSize;
use allranks_oracle::{Prepared, PreparedCheck, StackPrepared, Unpreparable};
use allranks_protocol::Step;
use allranks_suite::case::Starts;
use allranks_suite::plan::{Check, CheckKind, Scenario};

/// Why a scenario or check has no steps.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StepsError {
    /// A check has no expected value, or contradicts itself or the world.
    #[error(transparent)]
    Check(#[from] Unpreparable),
    /// A script has no data of its own, or cannot be compiled; the text says why.
    #[error("{0}")]
    Script(String),
    /// The scenario runs a program, whose ranks take no steps.
    #[error("a program has no data that the harness knows")]
    Program,
}

/// Returns the steps of each rank in order: the imports, the opening, one for each check (with a group test after each that
/// must be refused, and one before the first such check on each group), the closing. The endpoint is port 0 and the empty path; device names carry no index.
///
/// # Errors
/// A check has no expected value, or contradicts itself or the world.
pub fn steps(scenario: &Scenario, seed: u64) -> Result<Vec<Vec<Step>>, StepsError> {
    let size = scenario.world_size;
    let nowhere = Endpoint::nowhere();
    let mut ranks: Vec<Vec<Step>> = size
        .ranks()
        .map(|rank| {
            let device = device(scenario, &[], rank);
            let beginning = OpeningSteps::new(scenario, &nowhere, &device, rank);
            beginning.steps().cloned().collect()
        })
        .collect();
    let mut tested = BTreeSet::new();
    for check in &scenario.checks {
        let before = group_test_before(check).filter(|_| tested.insert(&*check.group.name));
        let checks = before.iter().chain(std::iter::once(check));
        for check in checks.chain(&group_test_after(check)) {
            for (steps, step) in ranks.iter_mut().zip(steps_of(scenario, check, seed)?) {
                steps.push(step);
            }
        }
    }
    for steps in &mut ranks {
        if scenario.case.world.starts == Starts::Initialised {
            steps.push(closing());
        }
        for (number, step) in (0..).zip(steps) {
            step.step = number;
        }
    }
    Ok(ranks)
}

/// Returns the step of each rank for one check.
///
/// # Errors
/// It has no expected value, or contradicts itself or the world.
pub fn steps_of(scenario: &Scenario, check: &Check, seed: u64) -> Result<Vec<Step>, StepsError> {
    let steps = match &check.kind {
        CheckKind::Op(_) | CheckKind::Stack(_) | CheckKind::Program(_) => {
            prepare(check, scenario.world_size, seed)?.steps().to_vec()
        }
        CheckKind::Script(script) => {
            let points = Endpoint::nowhere().points();
            CompiledScript::new(scenario, check, script, &points, seed)
                .map_err(StepsError::Script)?
                .steps
        }
    };
    Ok(steps.into_iter().map(|step| step.step).collect())
}

/// Computes the inputs and expected values of a check of an op or of a layer above c10d.
///
/// # Errors
/// It has no expected value, or contradicts itself or the world; it is a script or a program.
pub fn prepare(check: &Check, size: WorldSize, seed: u64) -> Result<PreparedCheck, StepsError> {
    match &check.kind {
        CheckKind::Op(op) => Ok(PreparedCheck::Op(Prepared::new(op, size, seed)?)),
        CheckKind::Stack(stack) => {
            let prepared = StackPrepared::new(stack, size, seed)?;
            Ok(PreparedCheck::Stack(prepared))
        }
        CheckKind::Script(_) => Err(StepsError::Script(
            "a script has no data of its own".to_owned(),
        )),
        CheckKind::Program(_) => Err(StepsError::Program),
    }
}
