//! The checks of a run, however they are stored: as they are ([`Vec`]), or packed ([`PackedChecks`](crate::PackedChecks)), which
//! takes a fraction of the memory. Every report is written from either, with the same bytes.

use std::borrow::Cow;
use std::fmt;

use allranks_model::names::ScenarioId;
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{CheckRecord, Column};
use allranks_model::status::Status;

/// What is known of a check without unpacking its record.
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

    /// Returns what is known of the check at a place without its record.
    ///
    /// # Panics
    /// There is no such place.
    fn brief(&self, place: usize) -> Brief<'_>;

    /// Returns the record of the check at a place.
    ///
    /// # Panics
    /// There is no such place.
    fn record(&self, place: usize) -> Cow<'_, CheckRecord>;

    /// Adds a check behind the others.
    fn add(&mut self, check: CheckRecord);

    /// Puts the checks into another order: the places where they are now, each once.
    fn reorder(&mut self, order: &[usize]);

    /// Iterates over what is known without the records.
    fn briefs(&self) -> impl Iterator<Item = Brief<'_>> {
        (0..self.count()).map(|place| self.brief(place))
    }

    /// Iterates over the records.
    fn records(&self) -> impl Iterator<Item = Cow<'_, CheckRecord>> {
        (0..self.count()).map(|place| self.record(place))
    }

    /// Iterates over the records of the checks that pass a test.
    fn records_where(
        &self,
        test: impl Fn(&Brief<'_>) -> bool,
    ) -> impl Iterator<Item = Cow<'_, CheckRecord>> {
        let places = self.places_where(test);
        places.map(|place| self.record(place))
    }

    /// Iterates over the places of the checks that pass a test.
    fn places_where(&self, test: impl Fn(&Brief<'_>) -> bool) -> impl Iterator<Item = usize> {
        (0..self.count()).filter(move |place| test(&self.brief(*place)))
    }
}

impl CheckSet for Vec<CheckRecord> {
    fn count(&self) -> usize {
        self.len()
    }

    fn brief(&self, place: usize) -> Brief<'_> {
        let check = &self[place];
        Brief {
            scenario: &check.scenario,
            column: &check.column,
            outcome: check.outcome,
            verdict: check.verdict,
            duration_us: check.duration_us,
        }
    }

    fn record(&self, place: usize) -> Cow<'_, CheckRecord> {
        Cow::Borrowed(&self[place])
    }

    fn add(&mut self, check: CheckRecord) {
        self.push(check);
    }

    fn reorder(&mut self, order: &[usize]) {
        let mut checks: Vec<Option<CheckRecord>> =
            std::mem::take(self).into_iter().map(Some).collect();
        let take = |place: &usize| checks[*place].take();
        self.extend(order.iter().filter_map(take));
    }
}
