//! Compares versions of torch in merged results.
//!
//! In: results. Out: for each kind of check (its case and its call) whose status differs between versions, a row with a cell
//! for each version. Checks with the same status everywhere are counted. Backends that ran with only one version are left
//! out.

use std::collections::{BTreeMap, BTreeSet};

use super::check_set::CheckSet;
use super::details::summary_line;
use super::results::Results;
use allranks_model::names::CheckId;
use allranks_model::record::Column;
use allranks_model::status::Status;

/// The results with several versions of torch, compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The versions of torch, the oldest first.
    pub torch: Vec<String>,
    /// The number of checks that have the same status with all versions.
    pub alike: u64,
    /// The checks whose status differs, by kind.
    pub rows: Vec<Row>,
}

/// Checks of one case and one call whose statuses differ in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The case and the call.
    pub what: String,
    /// The number of checks.
    pub checks: u64,
    /// The status with each version; `None` if that version has no such check.
    pub cells: Vec<Option<Status>>,
    /// The summary of the first of these checks with its worst status; empty if it has none.
    pub why: String,
}

impl Versions {
    /// Compares the versions of torch in some results; `None` if nothing ran with more than one.
    #[must_use]
    pub fn of<C: CheckSet>(results: &Results<C>) -> Option<Self> {
        let mut ran = BTreeMap::<[&str; 3], BTreeSet<&str>>::new();
        for column in results.checks.briefs().map(|check| check.column) {
            if !column.torch.is_empty() {
                ran.entry(target(column)).or_default().insert(&column.torch);
            }
        }
        ran.retain(|_, versions| versions.len() > 1);
        let mut torch = results.torch_versions();
        torch.retain(|version| ran.values().any(|versions| versions.contains(version)));
        if torch.is_empty() {
            return None;
        }
        // A check that ran with several drivers counts once for each.
        let all = &results.checks;
        let mut checks = BTreeMap::<(CheckId, &str), Vec<Option<usize>>>::new();
        for index in all.indices_where(|check| ran.contains_key(&target(check.column))) {
            let column = all.brief(index).column;
            // A check that never ran has no version; it is in the list of checks that were not run.
            if let Some(version) = torch.iter().position(|torch| *torch == column.torch) {
                let id = all.record(index).id.clone();
                let row = checks
                    .entry((id, column.driver.as_str()))
                    .or_insert_with(|| vec![None; torch.len()]);
                row[version] = Some(index);
            }
        }
        let status = |index: &usize| all.brief(*index).status();
        let mut alike = 0;
        let mut rows = BTreeMap::<(String, Vec<Option<Status>>), (u64, String)>::new();
        for versions in checks.values() {
            let cells: Vec<Option<Status>> = versions
                .iter()
                .map(|index| index.as_ref().map(status))
                .collect();
            if cells.iter().all(|cell| *cell == cells[0]) {
                alike += 1;
                continue;
            }
            let worst = versions.iter().flatten().min_by_key(|index| status(index));
            let worst = worst.expect("a check is there because some version has it");
            let worst = all.record(*worst);
            let call = worst.params.get("call").map_or("world", String::as_str);
            let what = format!("{}: {call}", worst.case);
            let row = rows
                .entry((what, cells))
                .or_insert_with(|| (0, summary_line(&worst)));
            row.0 += 1;
        }
        let rows = rows.into_iter().map(|((what, cells), (checks, why))| Row {
            what,
            checks,
            cells,
            why,
        });
        Some(Self {
            torch: torch.into_iter().map(str::to_owned).collect(),
            alike,
            rows: rows.collect(),
        })
    }
}

/// Returns what is the same with every version: platform, backend and driver.
fn target(column: &Column) -> [&str; 3] {
    [&column.platform, &column.backend, &column.driver].map(String::as_str)
}
