//! Reviews the records of scenarios: whether they match the plan, whether their worlds can have given the recorded passes, and
//! whether the logs of their ranks exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::reason::{Reason, Rejections};
use super::replan::Replan;
use super::run::Run;
use allranks_model::names::ScenarioId;
use allranks_model::outcome::Outcome;
use allranks_model::record::{CheckRecord, ScenarioRecord};
use allranks_suite::plan::{CheckKind, Scenario};

/// The recorded end of a rank that exited normally.
const EXITED: &str = "exit 0";

/// Reviews the records of all scenarios of a run, whose logs are below the folder.
pub fn review(run: &Run, folder: &Path, plan: &Replan, rejections: &mut Rejections) {
    let name = &run.name;
    let mut checks = BTreeMap::<&ScenarioId, Vec<&CheckRecord>>::new();
    for check in &run.results.checks {
        checks.entry(&check.scenario).or_default().push(check);
    }
    let mut records = BTreeMap::new();
    for record in &run.results.scenarios {
        if records.insert(&record.id, record).is_some() {
            let text = format!("{name}: {} is recorded twice", record.id);
            rejections.add(Reason::EditedRecord, text);
        }
    }
    let mut logs = BTreeSet::new();
    for scenario in &plan.scenarios {
        let Some(record) = records.remove(&scenario.id) else {
            let text = format!("{name} has no record of scenario {}", scenario.id);
            rejections.add(Reason::RunPartial, text);
            continue;
        };
        let checks = checks.get(&scenario.id).map_or(&[][..], Vec::as_slice);
        if let Some(field) = differing_field(record, scenario, checks) {
            let text = format!("{name}: {}: `{field}` is not what the plan says", record.id);
            rejections.add(Reason::EditedRecord, text);
        }
        if let Some(why) = implausible_passes(record, scenario, checks) {
            let text = format!("{name}: {}: {why}", record.id);
            rejections.add(Reason::ImplausiblePass, text);
        }
        // A world that could not be started has no ranks; its checks say so.
        if record.worlds == 0 || (record.failure.is_some() && record.ranks.is_empty()) {
            continue;
        }
        if record.ranks.len() != scenario.world_size.0 as usize {
            let text = format!("{name}: {} does not record all of its ranks", scenario.id);
            rejections.add(Reason::EditedRecord, text);
        }
        for log in record.ranks.iter().map(|rank| rank.log.as_str()) {
            if !is_below(folder, log) {
                rejections.add(Reason::MissingLog, format!("{name}: {log} is not there"));
            } else if !logs.insert(log) {
                let text = format!("{name}: {log} is recorded as the log of two ranks");
                rejections.add(Reason::MissingLog, text);
            }
        }
    }
    for id in records.keys() {
        let text = format!("{name}: scenario {id} is not in the plan of the claim");
        rejections.add(Reason::UnplannedCheck, text);
    }
}

/// Returns the name of a field that contradicts the plan or the scenario's checks; `None` if none does.
fn differing_field(
    record: &ScenarioRecord,
    scenario: &Scenario,
    checks: &[&CheckRecord],
) -> Option<&'static str> {
    let is_numbered = (scenario.world_size.ranks())
        .zip(&record.ranks)
        .all(|(rank, of)| rank == of.rank);
    let fields = [
        ("case", record.case == scenario.case.id),
        ("title", record.title == scenario.case.title),
        (
            "column",
            checks.iter().all(|check| check.column == record.column),
        ),
        ("ranks", is_numbered),
    ];
    let differs = fields.into_iter().find(|(_, is_same)| !is_same);
    differs.map(|(name, _)| name)
}

/// Returns why the recorded world cannot have given the passes of the scenario; `None` if it can.
fn implausible_passes(
    record: &ScenarioRecord,
    scenario: &Scenario,
    checks: &[&CheckRecord],
) -> Option<String> {
    let is_pass = |check: &&&CheckRecord| check.outcome == Outcome::Pass;
    if !checks.iter().any(|check| is_pass(&check)) {
        return None;
    }
    if record.worlds == 0 || record.ranks.is_empty() {
        return Some("checks passed, but no world was started".to_owned());
    }
    if let Some(silent) = record.ranks.iter().find(|rank| rank.pid == 0) {
        let rank = silent.rank;
        return Some(format!("checks passed, and rank {rank} never began"));
    }
    let is_right =
        |check: &&CheckRecord| matches!(check.outcome, Outcome::Pass | Outcome::Unsupported);
    if let Some(failure) = &record.failure
        && checks.iter().all(is_right)
    {
        return Some(format!(
            "every check passed, but its world failed: {failure}"
        ));
    }
    // Scripts and programs may end ranks in other ways.
    let is_plain = (scenario.checks.iter())
        .all(|check| matches!(check.kind, CheckKind::Op(_) | CheckKind::Stack(_)));
    let [_, closing] = scenario.frame_checks();
    let has_ended = checks
        .iter()
        .filter(is_pass)
        .any(|check| check.id == closing);
    let mut ranks = record.ranks.iter();
    let lost = ranks.find(|rank| is_plain && has_ended && rank.end != EXITED)?;
    Some(format!(
        "every check passed, but rank {} ended by `{}`",
        lost.rank, lost.end
    ))
}

/// Returns true if the path in a record leads to a file below the run's folder.
fn is_below(folder: &Path, path: &str) -> bool {
    let is_plain = Path::new(path)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)));
    is_plain && folder.join(path).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_below_its_run() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rank0.log"), "").unwrap();
        assert!(is_below(folder.path(), "rank0.log"));
        for path in ["rank1.log", "../rank0.log", "/etc/passwd", ""] {
            assert!(!is_below(folder.path(), path), "{path}");
        }
    }
}
