//! Judges outcomes: gives each a verdict with its words, and judges records again by other expectations.

use super::verdict::judge;
use crate::expectation::{Entry, Expectations, Point, is_forbidden};
use allranks_model::capability::Declared;
use allranks_model::names::RequirementId;
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{CheckRecord, Reason};

/// The verdict on a check's outcome, and what the record says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// What the outcome means.
    pub verdict: Verdict,
    /// What happened, and the remark, in one line.
    pub summary: String,
    /// The part of the summary that is about the verdict. `None`: the outcome explains it, or the expectation's own
    /// words do.
    pub remark: Option<String>,
    /// The expectation that matched. `None`: there is none.
    pub expectation: Option<Reason>,
}

impl Expectations {
    /// Judges the outcome at a point. `summary` says in one line what happened; it may be empty.
    #[must_use]
    pub fn judge(
        &self,
        point: &Point<'_>,
        outcome: Outcome,
        class: Option<&str>,
        summary: String,
    ) -> Judgement {
        let entry = self.find(point);
        let declared = point.check.map(|check| &check.declared);
        let declared = declared.unwrap_or(&Declared::Supported);
        let (verdict, remark) = match forbidding(point, entry, outcome) {
            Some(id) => {
                let remark = format!("no waiver excuses a {outcome} of {id}");
                (Verdict::Regression, Some(remark))
            }
            None => judge(outcome, class, &summary, entry, declared),
        };
        let remark = remark.filter(|_| match verdict {
            // The expectation stands in the record with its own words.
            Verdict::KnownFailure | Verdict::Waived => false,
            Verdict::Expected | Verdict::Regression | Verdict::UnexpectedPass | Verdict::NotRun => {
                true
            }
        });
        Judgement {
            verdict,
            summary: match &remark {
                Some(remark) if summary.is_empty() => remark.clone(),
                Some(remark) => format!("{summary} ({remark})"),
                None => summary,
            },
            remark,
            expectation: entry.map(Entry::reason),
        }
    }

    /// Judges a record again, by what is expected at its point now. Returns false, and changes nothing, if its summary may
    /// contain a remark on the verdict that cannot be told apart from what happened, as in files of old versions.
    pub fn judge_again(&self, record: &mut CheckRecord, point: &Point<'_>) -> bool {
        let Some(summary) = happened(record) else {
            return false;
        };
        let (outcome, class) = (record.outcome, record.class.as_deref());
        let judged = self.judge(point, outcome, class, summary.to_owned());
        record.verdict = judged.verdict;
        record.summary = judged.summary;
        record.remark = judged.remark;
        record.expectation = judged.expectation;
        true
    }
}

/// Returns the requirement of the check of which no waiver may excuse this outcome, if a waiver would: one that names another
/// requirement of the check must not.
fn forbidding<'a>(
    point: &Point<'a>,
    entry: Option<&Entry>,
    outcome: Outcome,
) -> Option<&'a RequirementId> {
    let entry = entry.filter(|entry| entry.waiver().is_some())?;
    let mut covers = point.check?.covers.iter();
    covers.find(|id| entry.outcomes.contains(&outcome) && is_forbidden(id, outcome))
}

/// Returns a record's summary without the remark on its verdict; `None` if the two cannot be told apart. Old versions
/// of allranks wrote remarks into the summary only.
fn happened(record: &CheckRecord) -> Option<&str> {
    let summary = record.summary.as_str();
    if record.outcome == Outcome::Pass {
        return Some("");
    }
    if let Some(remark) = &record.remark {
        let before = summary.strip_suffix(&format!(" ({remark})"));
        return Some(before.unwrap_or_default());
    }
    let has_remark = match record.verdict {
        Verdict::Regression | Verdict::UnexpectedPass => {
            let by_itself = matches!(record.outcome, Outcome::Unsupported | Outcome::HarnessError);
            by_itself || record.expectation.is_some()
        }
        Verdict::Expected | Verdict::KnownFailure | Verdict::Waived | Verdict::NotRun => false,
    };
    (!has_remark).then_some(summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Check;
    use crate::plan::example_check;
    use allranks_model::dtype::{DType, ReduceOp};
    use allranks_model::names::{CaseId, WorldSize};
    use allranks_model::op::Op;
    use allranks_model::recipe::DeviceId;
    use allranks_yaml::Source;

    const ERROR: &str = "raised: Timed out";

    fn known(fields: &str) -> Expectations {
        let text = format!(
            "- {{match: {{op: all_reduce}}, reason: It fails., url: \"https://example.org/1\", {fields}}}"
        );
        Expectations::parse(Source::new("e.yaml", text))
            .unwrap_or_else(|problems| panic!("{}", problems[0]))
    }

    fn check() -> Check {
        example_check(Op::AllReduce, DType::Int8, Some(ReduceOp::Max), 3)
    }

    fn point<'a>(check: &'a Check, case: &'a CaseId) -> Point<'a> {
        Point {
            platform: "cpu",
            backend: "gloo",
            made_of: None,
            torch: "2.11.0",
            case,
            world_size: WorldSize(3),
            device_id: DeviceId::Absent,
            check: Some(check),
        }
    }

    fn record(outcome: Outcome, judged: Judgement) -> CheckRecord {
        let line = serde_json::json!({
            "format": 1, "id": "a@cpu.gloo.ws3#0", "scenario": "a@cpu.gloo.ws3", "case": "a",
            "column": {"platform": "cpu", "backend": "gloo", "world_size": 3, "driver": "python",
                "launcher": "local", "evidence": "host", "torch": "2.11.0"},
            "covers": [], "params": {}, "at": "a.yaml:1", "outcome": outcome, "verdict": judged.verdict,
            "summary": judged.summary, "remark": judged.remark, "expectation": judged.expectation,
            "checked": [], "duration_us": 0,
        });
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn whatever_was_expected_before_says_nothing_of_what_is_now() {
        let (check, case) = (check(), CaseId::from("a"));
        let point = point(&check, &case);
        let lists = [
            Expectations::default(),
            known("outcome: error, message: Timed out"),
            known("outcome: error, message: closed"),
            known("outcome: [error, mismatch], intermittent: true"),
        ];
        for outcome in [Outcome::Pass, Outcome::Error, Outcome::Unsupported] {
            let summary = if outcome == Outcome::Pass { "" } else { ERROR };
            let judge = |list: &Expectations| list.judge(&point, outcome, None, summary.to_owned());
            for before in &lists {
                for now in &lists {
                    let mut again = record(outcome, judge(before));
                    assert!(now.judge_again(&mut again, &point));
                    assert_eq!(again, record(outcome, judge(now)));
                }
            }
        }
    }

    #[test]
    fn a_summary_that_quotes_an_expectation_is_not_taken_for_what_happened() {
        let (check, case) = (check(), CaseId::from("a"));
        let point = point(&check, &case);
        let list = known("outcome: error, message: closed");
        let judged = list.judge(&point, Outcome::Error, None, ERROR.to_owned());
        assert!(judged.summary.contains("closed"), "{}", judged.summary);
        let mut old = record(Outcome::Error, judged);
        old.remark = None;
        let before = old.clone();
        assert!(!list.judge_again(&mut old, &point));
        assert_eq!(old, before);
    }
}
