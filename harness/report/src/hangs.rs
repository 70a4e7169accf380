//! `hangs/<scenario>.json`: the verdicts given on the worlds of a scenario, for programs. A scenario without one has no
//! file.

use std::collections::BTreeMap;

use serde::Serialize;

use super::results::Results;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::{CheckId, ScenarioId};
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::FORMAT;

/// The content of one file below `hangs/`: the hang verdicts of one scenario.
#[derive(Debug, Serialize)]
pub struct Hangs<'a> {
    format: u32,
    scenario: &'a ScenarioId,
    hangs: Vec<Hang<'a>>,
}

/// The hang verdict on one check.
#[derive(Debug, Serialize)]
struct Hang<'a> {
    check: &'a CheckId,
    outcome: Outcome,
    verdict: Verdict,
    diagnosis: &'a Diagnosis,
}

/// Returns the content of every file, by scenario.
#[must_use]
pub fn all(results: &Results) -> BTreeMap<&ScenarioId, Hangs<'_>> {
    let mut files = BTreeMap::new();
    for check in &results.checks {
        let Some(diagnosis) = &check.diagnosis else {
            continue;
        };
        let file = files.entry(&check.scenario).or_insert_with(|| Hangs {
            format: FORMAT,
            scenario: &check.scenario,
            hangs: Vec::new(),
        });
        file.hangs.push(Hang {
            check: &check.id,
            outcome: check.outcome,
            verdict: check.verdict,
            diagnosis,
        });
    }
    files
}
