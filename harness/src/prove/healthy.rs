//! The result of the backend without a bug.

use serde::{Deserialize, Serialize};

use super::kill::is_unexpected;
use allranks_model::outcome::Outcome;
use allranks_model::record::{CheckRecord, FORMAT};

/// The result of the backend without a bug, in all checks that any mutant meets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Healthy {
    /// The version of this format: [`FORMAT`].
    pub format: u32,
    /// The number of checks that ran.
    pub checks: u64,
    /// False alarms: the checks that reported a failure, each with its summary.
    pub false_alarms: Vec<String>,
    /// Checks that did not run, and failures of the harness or the machine. In JSON the field is `troubles`.
    #[serde(rename = "troubles")]
    pub issues: Vec<String>,
    /// The version of torch that the ranks reported.
    pub torch: String,
}

impl Healthy {
    /// Returns true if all checks ran and none raised a false alarm.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.false_alarms.is_empty() && self.issues.is_empty()
    }

    /// Sums up the records of a run without a bug.
    pub(super) fn of(checks: &[CheckRecord]) -> Self {
        let seen_text = |test: &dyn Fn(&CheckRecord) -> bool| {
            let seen_text = checks.iter().filter(|check| test(check));
            seen_text
                .map(|check| format!("{}: {} {}", check.id, check.outcome, check.summary))
                .collect()
        };
        let is_issue =
            |check: &CheckRecord| matches!(check.outcome, Outcome::NotRun | Outcome::HarnessError);
        Self {
            format: FORMAT,
            checks: checks.len() as u64,
            false_alarms: seen_text(&|check| is_unexpected(check.verdict) && !is_issue(check)),
            issues: seen_text(&is_issue),
            torch: checks
                .iter()
                .map(|check| check.column.torch.clone())
                .find(|torch| !torch.is_empty())
                .unwrap_or_default(),
        }
    }
}
