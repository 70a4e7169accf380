//! Renders `hangs/<scenario>.json`: the hang verdicts of a scenario, for programs. A scenario without a verdict has no file.

use std::collections::BTreeMap;

use serde::Serialize;

use super::check_set::CheckSet;
use super::results::Results;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::{CheckId, ScenarioId};
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::FORMAT;

/// The content of one file below `hangs/`: the hang verdicts of one scenario.
#[derive(Debug, Serialize)]
pub struct Hangs {
    format: u32,
    scenario: ScenarioId,
    hangs: Vec<Hang>,
}

/// The hang verdict on one check.
#[derive(Debug, Serialize)]
struct Hang {
    check: CheckId,
    outcome: Outcome,
    verdict: Verdict,
    diagnosis: Box<Diagnosis>,
}

/// Returns the content of every file, by scenario.
#[must_use]
pub fn all<C: CheckSet>(results: &Results<C>) -> BTreeMap<ScenarioId, Hangs> {
    let mut files = BTreeMap::new();
    for check in results.checks.records() {
        let Some(diagnosis) = check.diagnosis.clone() else {
            continue;
        };
        let check = check.into_owned();
        let file = files
            .entry(check.scenario.clone())
            .or_insert_with(|| Hangs {
                format: FORMAT,
                scenario: check.scenario,
                hangs: Vec::new(),
            });
        file.hangs.push(Hang {
            check: check.id,
            outcome: check.outcome,
            verdict: check.verdict,
            diagnosis,
        });
    }
    files
}
