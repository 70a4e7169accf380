//! Reviews one record of a check: whether it matches the plan, whether its outcome is possible, and whether its verdict follows.

use std::collections::BTreeMap;

use super::coverage::is_must;
use super::reason::{Reason, Rejections};
use super::replan::Planned;
use crate::suite::Suite;
use allranks_model::names::RequirementId;
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{CheckRecord, REFUSED};
use allranks_runner::run;
use allranks_suite::expectation::{Entry, Point};
use allranks_suite::plan::CheckKind;

/// The observation of a check that was run again because it had failed.
const BEFORE: &str = "before";

/// Reviews one record of a run with this seed. `is_own` returns true for an expectation of the suite itself.
pub fn review(
    record: &CheckRecord,
    planned: &Planned<'_>,
    seed: u64,
    suite: &Suite,
    is_own: &dyn Fn(&Entry) -> bool,
    rejections: &mut Rejections,
) {
    let id = &record.id;
    if let Some(field) = differing_field(record, planned) {
        let text = format!("{id}: `{field}` is not what the plan says");
        rejections.add(Reason::EditedRecord, text);
    }
    if record.observations.contains_key(BEFORE) {
        let text = format!("{id} failed first, and was run again until it passed");
        rejections.add(Reason::RunRetried, text);
    }
    if let Some(why) = implausible_pass(record, planned, seed) {
        rejections.add(Reason::ImplausiblePass, format!("{id}: {why}"));
    }
    let point = Point::of(planned.scenario, &record.column.torch, planned.check);
    let mut again = record.clone();
    if !suite.expectations.judge_again(&mut again, &point) {
        let text = format!(
            "{id}: its verdict cannot be checked: the record does not show the outcome behind it"
        );
        rejections.add(Reason::EditedVerdict, text);
    } else if again.verdict != record.verdict {
        let text = format!(
            "{id}: recorded is {}, it is {}",
            record.verdict, again.verdict
        );
        rejections.add(Reason::EditedVerdict, text);
    } else if expectation_of(&again) != expectation_of(record) {
        let text = format!("{id}: the recorded expectation is not the one that matches");
        rejections.add(Reason::EditedVerdict, text);
    }
    let entry = suite.expectations.find(&point);
    check_verdict(&again, entry, suite, is_own, rejections);
}

/// Returns text and URL of the expectation that matched, without its path, which differs between folders.
fn expectation_of(record: &CheckRecord) -> Option<(&str, Option<&str>)> {
    let reason = record.expectation.as_ref()?;
    Some((reason.text.as_str(), reason.url.as_deref()))
}

/// Adds the reasons why a package with a record of this verdict is rejected.
fn check_verdict(
    record: &CheckRecord,
    entry: Option<&Entry>,
    suite: &Suite,
    is_own: &dyn Fn(&Entry) -> bool,
    rejections: &mut Rejections,
) {
    let is_must = is_must(&suite.requirements, &record.covers);
    let (id, summary) = (&record.id, &record.summary);
    if record.outcome == Outcome::HarnessError {
        rejections.add(Reason::HarnessFailed, format!("{id}: {summary}"));
        return;
    }
    match record.verdict {
        Verdict::Expected | Verdict::Waived => {}
        Verdict::Regression if is_must => {
            rejections.add(
                Reason::MustFailed,
                format!("{id}: {}: {summary}", record.outcome),
            );
        }
        Verdict::NotRun if is_must => {
            rejections.add(Reason::MustNotRun, format!("{id}: {summary}"));
        }
        Verdict::UnexpectedPass => {
            rejections.add(Reason::UndeclaredSupport, format!("{id}: {summary}"));
        }
        Verdict::KnownFailure if is_must && !entry.is_some_and(is_own) => {
            let text =
                format!("{id}: a failure of a MUST needs a waiver, which names who approves of it");
            rejections.add(Reason::ExcusedByExpectation, text);
        }
        Verdict::Regression | Verdict::NotRun | Verdict::KnownFailure => {}
    }
}

/// Returns the name of a field that contradicts the plan; `None` if none does.
fn differing_field(record: &CheckRecord, planned: &Planned<'_>) -> Option<&'static str> {
    let Planned {
        scenario,
        check,
        frame,
    } = planned;
    let column = &record.column;
    let covers: Vec<RequirementId> = match check {
        Some(check) => check.covers.to_vec(),
        None => {
            let [opening, closing] = scenario.frame_covers();
            if *frame == 0 { opening } else { closing }
        }
    };
    let mut params: BTreeMap<String, String> = match check {
        Some(check) => check.params.iter().cloned().collect(),
        None => {
            let call = if *frame == 0 { "init" } else { "teardown" };
            let refused = scenario.refused.as_ref();
            let refused = refused.map(|fail| (REFUSED.to_owned(), fail.at.as_slice().join(", ")));
            let call = ("call".to_owned(), call.to_owned());
            std::iter::once(call).chain(refused).collect()
        }
    };
    params.extend(scenario.init.swept.clone());
    let is_program = scenario.case.program.is_some();
    let fields = [
        ("scenario", record.scenario == scenario.id),
        ("case", record.case == scenario.case.id),
        ("covers", record.covers == covers),
        ("params", record.params == params),
        ("column.platform", column.platform == scenario.platform.name),
        ("column.backend", column.backend == scenario.backend),
        (
            "column.world_size",
            column.world_size == scenario.world_size,
        ),
        (
            "column.launcher",
            column.launcher == scenario.launcher.name(),
        ),
        ("column.driver", (column.driver == "program") == is_program),
        (
            "column.evidence",
            column.evidence == scenario.platform.evidence,
        ),
    ];
    let differs = fields.into_iter().find(|(_, is_same)| !is_same);
    differs.map(|(name, _)| name)
}

/// Returns why no run can have recorded this pass; `None` if one can. A pass has the number of compared elements of every rank,
/// and no sign of an error. For an op or a layer above c10d it compares every element that the oracle expects.
fn implausible_pass(record: &CheckRecord, planned: &Planned<'_>, seed: u64) -> Option<String> {
    if record.outcome != Outcome::Pass {
        return None;
    }
    if record.class.is_some() || record.difference.is_some() {
        return Some("a pass with a class or a wrong element".to_owned());
    }
    let size = planned.scenario.world_size;
    let op = planned
        .check
        .filter(|check| matches!(check.kind, CheckKind::Op(_) | CheckKind::Stack(_)));
    if op.is_some() && record.duration_us == 0 {
        return Some("a pass that took no time".to_owned());
    }
    let ranks = record.checked.len();
    if ranks != size.count() {
        return Some(format!(
            "a pass in a world of {size} ranks with element counts of {ranks}"
        ));
    }
    let total: u64 = record
        .checked
        .iter()
        .fold(0, |total, count| total.saturating_add(*count));
    if total == 0 {
        return Some("a pass that compared nothing".to_owned());
    }
    let expected = run::prepare(op?, size, seed).ok()?.checked();
    (record.checked != expected).then(|| {
        let expected: u64 = expected.iter().sum();
        format!("a pass with {total} compared elements on all ranks; the plan has {expected}")
    })
}
