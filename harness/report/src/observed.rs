//! Collects observations: behaviour of backends that is neither right nor wrong, such as how they accumulate and whether they are
//! deterministic.
//!
//! In: checks with observations. Out: for each backend, dtype and name, the observed values with the number of checks.

use std::collections::BTreeMap;

use super::check_set::CheckSet;
use super::text::{clip, one_line};
use allranks_model::record::CheckRecord;

/// The longest name or value that is shown, in bytes.
const LIMIT: usize = 60;

/// What is observed: a backend, the name of the observation, and the dtype.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    /// The platform and the backend: `cpu/gloo`.
    pub backend: String,
    /// The name of the observation: `accumulates`.
    pub name: String,
    /// The element type; empty if the check has none.
    pub dtype: String,
}

/// The values that were observed, each with the number of checks.
pub(super) type ValueCounts = BTreeMap<String, u64>;

/// Collects the observations of these checks.
pub(super) fn observed(checks: &impl CheckSet) -> BTreeMap<Subject, ValueCounts> {
    let mut all = BTreeMap::<Subject, ValueCounts>::new();
    for check in checks.records() {
        for (name, value) in pairs(&check) {
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

/// Returns the observations of a check as pairs of name and value, without control characters.
pub(super) fn pairs(check: &CheckRecord) -> impl Iterator<Item = (String, String)> {
    let short = |text: &str| clip(&one_line(text), LIMIT);
    let observations = check.observations.iter();
    observations.map(move |(name, value)| (short(name), short(value)))
}

/// Returns the values with their counts as text: `dtype (12 checks)`.
pub(super) fn values_with_counts(seen: &ValueCounts) -> String {
    let values = seen.iter().map(|(value, count)| {
        let noun = if *count == 1 { "check" } else { "checks" };
        format!("{value} ({count} {noun})")
    });
    values.collect::<Vec<_>>().join(", ")
}
