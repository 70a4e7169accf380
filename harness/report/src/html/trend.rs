//! The data of earlier runs on the page: what broke, when, and what had changed; and the runs of each check that is not steady.

use allranks_model::status::Status;
use serde::Serialize;

use crate::text::{day, one_line};
use crate::trend::text::changed;
use crate::trend::{Course, Group, Trend};

/// Checks whose runs are drawn; the stored runs have all.
const CHECKS_LIMIT: usize = 5_000;

/// A trend as the page draws it.
#[derive(Debug, Serialize)]
pub(super) struct TrendData {
    nights: Vec<NightData>,
    groups: Vec<GroupData>,
    checks: Vec<CheckData>,
    /// How many checks are steady.
    steady: u64,
    turned: NewTurns,
}

/// How many checks turned in the newest run.
#[derive(Debug, Default, Serialize)]
struct NewTurns {
    broken: u64,
    fixed: u64,
    lost: u64,
}

#[derive(Debug, Serialize)]
struct NightData {
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
    course: String,
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
        let steady = trend.courses.iter();
        let steady = steady.filter(|(course, _)| course.is_steady());
        let group = |group: &Group| {
            let (since, changed) = match &group.turn {
                Some(turn) => (trend.since(turn), changed(turn)),
                None => Default::default(),
            };
            GroupData {
                course: group.course.words().to_owned(),
                symbol: group.course.symbol(),
                words: group.words(),
                kind: one_line(&group.kind),
                checks: group.checks,
                since: one_line(&since),
                changed: one_line(&changed),
                columns: lines(&group.columns),
                cases: lines(&group.cases),
                owners: lines(&group.owners),
                example: one_line(group.example.as_str()),
                marks: places(&group.marks),
                failed: group.rate().text(),
            }
        };
        let mut turned = NewTurns::default();
        for check in &trend.checks {
            match check.newly() {
                Some(Course::Broken) => turned.broken += 1,
                Some(Course::Fixed) => turned.fixed += 1,
                Some(Course::Lost) => turned.lost += 1,
                _ => {}
            }
        }
        let checks = trend.checks.iter().filter(|one| !one.course.is_steady());
        let nights = trend.nights.iter().map(|night| NightData {
            name: one_line(&night.name),
            day: day(night.started),
            is_whole: night.is_whole,
            missing: night.missing,
            counts: Status::ALL
                .iter()
                .map(|status| night.counts.get(status).copied().unwrap_or(0))
                .collect(),
            changes: night
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
            nights: nights.collect(),
            turned,
            groups: trend.groups.iter().map(group).collect(),
            steady: steady.map(|(_, count)| count).sum(),
            checks: checks
                .take(CHECKS_LIMIT)
                .map(|check| {
                    let (since, changed) = match &check.turn {
                        Some(turn) => (trend.since(turn), changed(turn)),
                        None => Default::default(),
                    };
                    CheckData {
                        id: one_line(check.id.as_str()),
                        column: one_line(&check.column),
                        words: check.course.words(),
                        marks: places(&check.marks),
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

/// Indices of statuses; −1 where a run has no record.
fn places(marks: &[Option<Status>]) -> Vec<i8> {
    let place = |status: Status| i8::try_from(status.index()).unwrap_or(-1);
    marks.iter().map(|mark| mark.map_or(-1, place)).collect()
}
