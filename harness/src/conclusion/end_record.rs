//! The last record of a run, and the exit code.

use std::collections::BTreeMap;

use super::{Exit, RunIssue};
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{EndRecord, FORMAT};
use allranks_report::Results;
use allranks_report::check_set::{Brief, CheckSet};

/// Makes the last record of a run: counts, the issues that belong to no check, and the exit code.
#[must_use]
pub fn end_record<C: CheckSet>(results: &Results<C>, issues: &[RunIssue]) -> EndRecord {
    let mut verdicts = BTreeMap::new();
    let mut outcomes = BTreeMap::new();
    for check in results.checks.briefs() {
        *verdicts.entry(check.verdict.name().to_owned()).or_default() += 1;
        *outcomes.entry(check.outcome.name().to_owned()).or_default() += 1;
    }
    EndRecord {
        format: FORMAT,
        duration_ms: results
            .scenarios
            .iter()
            .map(|scenario| scenario.start_ms + scenario.duration_ms)
            .max()
            .unwrap_or(0),
        verdicts,
        outcomes,
        issues: issues.iter().map(RunIssue::text).collect(),
        exit_code: exit(results, issues) as u8,
    }
}

/// Returns the exit code of a run: that of its worst result or issue. A failure of the harness is worse than an unexpected
/// result, because it makes results untrustworthy; an unexpected result is worse than a missing one.
#[must_use]
pub fn exit<C: CheckSet>(results: &Results<C>, issues: &[RunIssue]) -> Exit {
    let any = |test: fn(&Brief<'_>) -> bool| results.checks.briefs().any(|check| test(&check));
    let leads_to = |exit| issues.iter().any(|issue| issue.exit() == exit);
    if leads_to(Exit::HarnessFailed) || any(|check| check.outcome == Outcome::HarnessError) {
        return Exit::HarnessFailed;
    }
    let unexpected = any(|check| match check.verdict {
        Verdict::Regression | Verdict::UnexpectedPass => true,
        Verdict::Expected | Verdict::KnownFailure | Verdict::Waived | Verdict::NotRun => false,
    });
    if unexpected || leads_to(Exit::Unexpected) {
        return Exit::Unexpected;
    }
    let missing = results.missing() > 0 || any(|check| check.verdict == Verdict::NotRun);
    if missing || leads_to(Exit::Incomplete) {
        return Exit::Incomplete;
    }
    Exit::AsExpected
}
