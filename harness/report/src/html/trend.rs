//! The data of the page's trend over earlier runs.

use allranks_model::status::Status;
use serde::Serialize;

use crate::text::{day, one_line};
use crate::trend::text::changed;
use crate::trend::{CheckGroup, Trend, TrendState};

/// The number of checks whose runs are drawn.
const CHECKS_LIMIT: usize = 5_000;

/// A trend as the page draws it.
#[derive(Debug, Serialize)]
pub(super) struct TrendData {
    #[serde(rename = "nights")]
    runs: Vec<RunData>,
    groups: Vec<GroupData>,
    checks: Vec<CheckData>,
    /// The number of steady checks.
    steady: u64,
    turned: NewTurns,
}

/// The number of checks whose result changed in the newest run, by state.
#[derive(Debug, Default, Serialize)]
struct NewTurns {
    broken: u64,
    fixed: u64,
    lost: u64,
}

#[derive(Debug, Serialize)]
struct RunData {
    name: String,
    day: String,
    is_whole: bool,
    missing: u64,
    /// Number of checks by index of the status.
    counts: Vec<u64>,
    /// What differs from the environment of the run before, one line each.
    changes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct GroupData {
    #[serde(rename = "course")]
    state: String,
    symbol: &'static str,
    words: String,
    kind: String,
    checks: u64,
    since: String,
    changed: String,
    columns: Vec<String>,
    cases: Vec<String>,
    owners: Vec<String>,
    example: String,
    marks: Vec<i8>,
    failed: String,
}

#[derive(Debug, Serialize)]
struct CheckData {
    id: String,
    column: String,
    words: &'static str,
    marks: Vec<i8>,
    failed: String,
    owners: Vec<String>,
    since: String,
    changed: String,
}

impl TrendData {
    pub(super) fn of(trend: &Trend) -> Self {
        let steady = trend.states.iter();
        let steady = steady.filter(|(state, _)| state.is_steady());
        let group = |group: &CheckGroup| {
            let (since, changed) = match &group.transition {
                Some(transition) => (trend.since(transition), changed(transition)),
                None => Default::default(),
            };
            GroupData {
                state: group.state.label().to_owned(),
                symbol: group.state.symbol(),
                words: group.label(),
                kind: one_line(&group.kind),
                checks: group.checks,
                since: one_line(&since),
                changed: one_line(&changed),
                columns: lines(&group.columns),
                cases: lines(&group.cases),
                owners: lines(&group.owners),
                example: one_line(group.example.as_str()),
                marks: status_indices(&group.marks),
                failed: group.rate().text(),
            }
        };
        let mut turned = NewTurns::default();
        for check in &trend.checks {
            match check.newly() {
                Some(TrendState::Broken) => turned.broken += 1,
                Some(TrendState::Fixed) => turned.fixed += 1,
                Some(TrendState::Lost) => turned.lost += 1,
                _ => {}
            }
        }
        let checks = trend.checks.iter().filter(|one| !one.state.is_steady());
        let past_runs = trend.runs.iter().map(|past_run| RunData {
            name: one_line(&past_run.name),
            day: day(past_run.started),
            is_whole: past_run.is_whole,
            missing: past_run.missing,
            counts: Status::ALL
                .iter()
                .map(|status| past_run.counts.get(status).copied().unwrap_or(0))
                .collect(),
            changes: past_run
                .changes
                .iter()
                .map(|change| {
                    let side =
                        |value: &Option<String>| value.clone().unwrap_or_else(|| "none".into());
                    let (old, new) = (side(&change.old), side(&change.new));
                    one_line(&format!("{} {old} → {new}", change.name))
                })
                .collect(),
        });
        Self {
            runs: past_runs.collect(),
            turned,
            groups: trend.groups.iter().map(group).collect(),
            steady: steady.map(|(_, count)| count).sum(),
            checks: checks
                .take(CHECKS_LIMIT)
                .map(|check| {
                    let (since, changed) = match &check.transition {
                        Some(transition) => (trend.since(transition), changed(transition)),
                        None => Default::default(),
                    };
                    CheckData {
                        id: one_line(check.id.as_str()),
                        column: one_line(&check.column),
                        words: check.state.label(),
                        marks: status_indices(&check.marks),
                        failed: check.rate().text(),
                        owners: lines(&check.owners),
                        since: one_line(&since),
                        changed: one_line(&changed),
                    }
                })
                .collect(),
        }
    }
}

fn lines(list: &[String]) -> Vec<String> {
    list.iter().map(|text| one_line(text)).collect()
}

/// Returns the index of each status; −1 where a run has no record.
fn status_indices(marks: &[Option<Status>]) -> Vec<i8> {
    let index_of = |status: Status| i8::try_from(status.index()).unwrap_or(-1);
    marks.iter().map(|mark| mark.map_or(-1, index_of)).collect()
}
