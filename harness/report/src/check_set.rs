//! The checks of a run, stored as records ([`Vec`]) or packed ([`PackedChecks`](crate::PackedChecks)), which takes a fraction of
//! the memory. Every report can be written from either, with the same bytes.

use std::borrow::Cow;
use std::fmt;

use allranks_model::names::ScenarioId;
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{CheckRecord, Column};
use allranks_model::status::Status;

/// The fields of a check that can be read without unpacking its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief<'a> {
    /// Id of the check's scenario.
    pub scenario: &'a ScenarioId,
    /// Where it ran: its column of the matrix.
    pub column: &'a Column,
    /// What happened in the check.
    pub outcome: Outcome,
    /// What the outcome means against platform file and expectations.
    pub verdict: Verdict,
    /// Microseconds from the start of the check's first rank to the end of its last.
    pub duration_us: u64,
}

impl Brief<'_> {
    /// Returns the status of the check.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(self.outcome, self.verdict)
    }
}

/// The checks of a run, in order.
pub trait CheckSet: Clone + Default + fmt::Debug + PartialEq {
    /// Returns the number of checks.
    fn count(&self) -> usize;

    /// Returns the brief of the check with this index.
    ///
    /// # Panics
    /// The index is not below [`count`](Self::count).
    fn brief(&self, index: usize) -> Brief<'_>;

    /// Returns the record of the check with this index.
    ///
    /// # Panics
    /// The index is not below [`count`](Self::count).
    fn record(&self, index: usize) -> Cow<'_, CheckRecord>;

    /// Adds a check at the end.
    fn add(&mut self, check: CheckRecord);

    /// Puts the checks into another order. `order` has the present index of each check once.
    fn reorder(&mut self, order: &[usize]);

    /// Iterates over the briefs of all checks.
    fn briefs(&self) -> impl Iterator<Item = Brief<'_>> {
        (0..self.count()).map(|index| self.brief(index))
    }

    /// Iterates over the records of all checks.
    fn records(&self) -> impl Iterator<Item = Cow<'_, CheckRecord>> {
        (0..self.count()).map(|index| self.record(index))
    }

    /// Iterates over the records of the checks whose brief passes a test.
    fn records_where(
        &self,
        test: impl Fn(&Brief<'_>) -> bool,
    ) -> impl Iterator<Item = Cow<'_, CheckRecord>> {
        let indices = self.indices_where(test);
        indices.map(|index| self.record(index))
    }

    /// Iterates over the indices of the checks whose brief passes a test.
    fn indices_where(&self, test: impl Fn(&Brief<'_>) -> bool) -> impl Iterator<Item = usize> {
        (0..self.count()).filter(move |index| test(&self.brief(*index)))
    }
}

impl CheckSet for Vec<CheckRecord> {
    fn count(&self) -> usize {
        self.len()
    }

    fn brief(&self, index: usize) -> Brief<'_> {
        let check = &self[index];
        Brief {
            scenario: &check.scenario,
            column: &check.column,
            outcome: check.outcome,
            verdict: check.verdict,
            duration_us: check.duration_us,
        }
    }

    fn record(&self, index: usize) -> Cow<'_, CheckRecord> {
        Cow::Borrowed(&self[index])
    }

    fn add(&mut self, check: CheckRecord) {
        self.push(check);
    }

    fn reorder(&mut self, order: &[usize]) {
        let mut checks: Vec<Option<CheckRecord>> =
            std::mem::take(self).into_iter().map(Some).collect();
        let take = |index: &usize| checks[*index].take();
        self.extend(order.iter().filter_map(take));
    }
}
