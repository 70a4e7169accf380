//! What was seen of backends that no check judges by itself: how they accumulate, whether they repeat themselves.
//!
//! In: checks with observations. Out: for each backend, dtype and name, the values that were seen, and in how many checks.

use std::collections::BTreeMap;

use super::text::{clip, one_line};
use allranks_model::record::CheckRecord;

/// Longest name or value that is shown.
const LIMIT: usize = 60;

/// What is observed, and of what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    /// `cpu/gloo`.
    pub backend: String,
    /// Name of the observation, `accumulates`.
    pub name: String,
    /// Element type; empty if the check has none.
    pub dtype: String,
}

/// How often each value was seen.
pub(super) type Seen = BTreeMap<String, u64>;

/// Everything that was observed.
pub(super) fn observed(checks: &[CheckRecord]) -> BTreeMap<Subject, Seen> {
    let mut all = BTreeMap::<Subject, Seen>::new();
    for check in checks {
        for (name, value) in pairs(check) {
            let column = &check.column;
            let dtype = check.params.get("dtype");
            let subject = Subject {
                backend: one_line(&format!("{}/{}", column.platform, column.backend)),
                name,
                dtype: dtype.map_or_else(String::new, |dtype| clip(&one_line(dtype), LIMIT)),
            };
            *all.entry(subject).or_default().entry(value).or_default() += 1;
        }
    }
    all
}

/// A check's observations, fit to be shown.
pub(super) fn pairs(check: &CheckRecord) -> impl Iterator<Item = (String, String)> {
    let short = |text: &str| clip(&one_line(text), LIMIT);
    let observations = check.observations.iter();
    observations.map(move |(name, value)| (short(name), short(value)))
}

/// `dtype (12 checks)`, or the same of each of several values.
pub(super) fn values_with_counts(seen: &Seen) -> String {
    let values = seen.iter().map(|(value, count)| {
        let noun = if *count == 1 { "check" } else { "checks" };
        format!("{value} ({count} {noun})")
    });
    values.collect::<Vec<_>>().join(", ")
}
