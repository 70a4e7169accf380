//! What the backend without a bug did.

use serde::{Deserialize, Serialize};

use super::kill::is_unexpected;
use allranks_model::outcome::Outcome;
use allranks_model::record::{CheckRecord, FORMAT};

/// The backend without a bug, in every check that any mutant meets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Healthy {
    /// [`FORMAT`].
    pub format: u32,
    /// Checks that ran.
    pub checks: u64,
    /// What did not end as it must, with what was said: false alarms.
    pub false_alarms: Vec<String>,
    /// What did not run, or failed for a reason of the harness or the machine.
    pub troubles: Vec<String>,
    /// Version of torch, as the ranks said.
    pub torch: String,
}

impl Healthy {
    /// No check raised a false alarm, and all of them ran.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.false_alarms.is_empty() && self.troubles.is_empty()
    }

    /// What the checks of a run without a bug amount to.
    pub(super) fn of(checks: &[CheckRecord]) -> Self {
        let seen_text = |test: &dyn Fn(&CheckRecord) -> bool| {
            let seen_text = checks.iter().filter(|check| test(check));
            seen_text
                .map(|check| format!("{}: {} {}", check.id, check.outcome, check.summary))
                .collect()
        };
        let is_trouble =
            |check: &CheckRecord| matches!(check.outcome, Outcome::NotRun | Outcome::HarnessError);
        Self {
            format: FORMAT,
            checks: checks.len() as u64,
            false_alarms: seen_text(&|check| is_unexpected(check.verdict) && !is_trouble(check)),
            troubles: seen_text(&is_trouble),
            torch: checks
                .iter()
                .map(|check| check.column.torch.clone())
                .find(|torch| !torch.is_empty())
                .unwrap_or_default(),
        }
    }
}
