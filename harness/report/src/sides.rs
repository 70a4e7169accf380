//! Compares backends, versions and drivers requirement by requirement.
//!
//! A side is a platform and a backend with one driver, launcher and torch, at all world sizes. A requirement whose worst status
//! is the same on all sides that check it is counted; every other requirement has a row.

use std::collections::{BTreeMap, BTreeSet};

use allranks_model::names::RequirementId;
use allranks_model::record::Column;
use allranks_model::status::Status;
use allranks_model::version::torch_version;

use crate::check_set::CheckSet;
use crate::results::{Results, evidence_word};
use crate::status_counts::StatusCounts;
use crate::text::one_line;

/// The driver of cases that run a program of their own.
const PROGRAM: &str = "program";

/// Several sides, side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    /// The sides, named by what tells them apart.
    pub names: Vec<String>,
    /// The number of requirements with the same worst status on every side that checks them.
    pub alike: u64,
    /// The other requirements; those that fail somewhere come first.
    pub rows: Vec<SideRow>,
}

/// One requirement on each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideRow {
    /// The requirement.
    pub requirement: RequirementId,
    /// Its sentence; empty if the results do not have it.
    pub sentence: String,
    /// The worst status on each side; `None` where there is no check.
    pub cells: Vec<Option<WorstStatus>>,
}

/// The worst status of a requirement on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorstStatus {
    /// The status.
    pub status: Status,
    /// Number of checks with that status.
    pub count: u64,
    /// The number of checks in all.
    pub of: u64,
}

impl Sides {
    /// Compares the sides of some results; `None` if there is one side only, beside the programs that cases run on it.
    #[must_use]
    pub fn of<C: CheckSet>(results: &Results<C>) -> Option<Self> {
        let columns = results.checks.briefs().map(|check| check.column);
        let columns: BTreeSet<&Column> = columns.collect();
        let sides: BTreeSet<Side> = columns.into_iter().map(Side::of).collect();
        let mut sides: Vec<Side> = sides.into_iter().collect();
        let backends = sides
            .iter()
            .map(Side::platform_backend_torch)
            .collect::<BTreeSet<_>>();
        let compared = sides.iter().filter(|side| side.driver != PROGRAM);
        if backends.len() < 2 && compared.count() < 2 {
            return None;
        }
        sides.sort_by_cached_key(key);
        let mut rows = BTreeMap::<RequirementId, Vec<StatusCounts>>::new();
        for check in results.checks.records() {
            let index = sides.binary_search_by_key(&key(&Side::of(&check.column)), key);
            let Ok(index) = index else { continue };
            for requirement in &check.covers {
                let counts = rows
                    .entry(requirement.clone())
                    .or_insert_with(|| vec![StatusCounts::default(); sides.len()]);
                counts[index].add(check.status());
            }
        }
        let mut alike = 0;
        let mut differing = Vec::new();
        for (requirement, counts) in rows {
            let cells: Vec<Option<WorstStatus>> = counts.iter().map(worst_status).collect();
            let statuses: BTreeSet<Status> = cells.iter().flatten().map(|one| one.status).collect();
            if statuses.len() < 2 {
                alike += 1;
                continue;
            }
            let sentence = results.run.requirements.get(&requirement);
            differing.push(SideRow {
                requirement,
                sentence: sentence.map_or_else(String::new, |text| one_line(text)),
                cells,
            });
        }
        differing.sort_by_key(|row| row.cells.iter().flatten().map(|one| one.status).min());
        Some(Self {
            names: names(&sides),
            alike,
            rows: differing,
        })
    }
}

fn worst_status(counts: &StatusCounts) -> Option<WorstStatus> {
    let status = Status::ALL
        .iter()
        .copied()
        .find(|one| counts.count(*one) > 0)?;
    Some(WorstStatus {
        status,
        count: counts.count(status),
        of: counts.total(),
    })
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Side {
    platform: String,
    backend: String,
    torch: String,
    driver: String,
    launcher: String,
    label: String,
    evidence: &'static str,
}

impl Side {
    fn of(column: &Column) -> Self {
        Self {
            platform: one_line(&column.platform),
            backend: one_line(&column.backend),
            torch: one_line(&column.torch),
            driver: one_line(&column.driver),
            launcher: one_line(&column.launcher),
            label: one_line(&column.label),
            evidence: evidence_word(column.evidence),
        }
    }
}

impl Side {
    /// Returns platform, backend and torch.
    fn platform_backend_torch(&self) -> [&str; 3] {
        [&self.platform, &self.backend, &self.torch]
    }
}

/// Returns the sort key of a side: the order of the matrix, with versions of torch by number. The few cases that run a program of
/// their own are in every run, and come last.
fn key(side: &Side) -> impl Ord + use<> {
    let torch = torch_version(&side.torch);
    (
        side.driver == PROGRAM,
        [side.platform.clone(), side.backend.clone()],
        torch,
        side.clone(),
    )
}

/// Returns the names of sides: platform, backend, and whatever is not the same on every side.
fn names(sides: &[Side]) -> Vec<String> {
    let parts = |side: &Side| {
        [
            format!("torch {}", or_unknown(&side.torch)),
            or_unknown(&side.driver).to_owned(),
            or_unknown(&side.launcher).to_owned(),
            side.label.clone(),
            side.evidence.to_owned(),
        ]
    };
    let all: Vec<_> = sides.iter().map(parts).collect();
    let differs = |index: usize| all.iter().any(|one| one[index] != all[0][index]);
    let name = |(side, parts): (&Side, &[String; 5])| {
        let mut name = format!("{}/{}", side.platform, side.backend);
        for (index, part) in parts.iter().enumerate() {
            if differs(index) {
                name.push(' ');
                name += part;
            }
        }
        name
    };
    sides.iter().zip(&all).map(name).collect()
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}
