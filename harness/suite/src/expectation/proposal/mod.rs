//! Proposes the entries that a run asks for: one for each kind of failure that nothing expects yet, which matches the checks that failed so
//! and no other planned one. What no new entry can settle is a remark.

mod cover;
mod field;
mod kind;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use self::cover::{Region, cover};
use self::field::{Cell, FIELDS, cell};
use self::kind::FailureKind;
use crate::expectation::{Expectations, Point};
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::CheckRecord;

/// A check of a run: its point of the plan, and its record with the verdict that it has by the expectations of today.
#[derive(Clone, Copy, Debug)]
pub struct CheckAtPoint<'a> {
    /// The point.
    pub point: Point<'a>,
    /// The record.
    pub record: &'a CheckRecord,
    /// The id of the check without the round of a repeated run.
    pub id: &'a str,
    /// Whether it is the check of init.
    pub is_init: bool,
}

/// What a run asks of the files of expectations, for one backend with one torch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposal {
    /// New entries.
    pub entries: Vec<NewEntry>,
    /// What a new entry cannot settle.
    pub remarks: BTreeMap<Remark, Examples>,
}

/// A new entry, complete except for `reason` and `url`, which people write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The fields of `match:` with their values as they are written in YAML.
    pub matches: Vec<(&'static str, Vec<String>)>,
    /// The version of torch that it is about, such as `2.11.0`. `None`: the run says nothing of others.
    pub torch: Option<String>,
    /// How the checks fail.
    pub outcomes: Vec<Outcome>,
    /// The classes; empty if not every failure has one.
    pub classes: Vec<String>,
    /// Parts of the summaries; empty if not every failure has one.
    pub messages: Vec<String>,
    /// Whether a check of it failed in one round of the run and passed in another.
    pub is_intermittent: bool,
    /// Whether checks that `match:` cannot tell from those that failed have passed.
    pub also_passes: bool,
    /// The failures that it is made of.
    pub of: Examples,
}

/// Results that are alike: how many, and the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examples {
    /// Number of results.
    pub count: u64,
    /// The id of the first check.
    pub id: String,
    /// What happened there, in one line.
    pub summary: String,
}

/// Something unexpected for which a new entry is no remedy. The texts are places of entries: `fixtures/expectations/gloo.yaml:12`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remark {
    /// Checks pass of which the entry at this place says that they fail.
    OutOfDate(String),
    /// Checks fail otherwise than the entry at this place says.
    FailsOtherwise(String),
    /// The waiver at this place has expired.
    Expired(String),
    /// Checks work that the platform file does not declare.
    Undeclared,
    /// Failures of init or of the end of a world that are no `init-failed`.
    OfTheWorld,
    /// Failures of the harness or of the machine.
    OfTheHarness,
    /// Results of checks that the suite does not have any more, or of cases that were not named.
    Unplanned,
    /// Failures that the fields of `match:` do not tell from checks that did not fail so.
    Inseparable,
}

/// What is known of all checks with the same fields.
#[derive(Debug, Default)]
struct State {
    kinds: BTreeSet<FailureKind>,
    of: Examples,
    /// For each check of it: whether some round failed unexpectedly, and whether some passed.
    checks: BTreeMap<String, (bool, bool)>,
}

/// What all cells of one entry have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct SharedFailure {
    kinds: BTreeSet<FailureKind>,
    is_intermittent: bool,
    also_passes: bool,
}

impl Examples {
    /// Adds a result.
    pub fn add(&mut self, record: &CheckRecord) {
        if self.count == 0 {
            self.id = record.id.to_string();
            self.summary.clone_from(&record.summary);
        }
        self.count += 1;
    }
}

/// Proposes entries for what is unexpected among the results of one backend with one torch. `planned` are all points of the suite on
/// that backend: what was not run is not known to fail, and no entry is to match it.
#[must_use]
pub fn propose<'a>(
    expectations: &Expectations,
    planned: impl IntoIterator<Item = Point<'a>>,
    seen: &[CheckAtPoint<'_>],
) -> Proposal {
    // Worlds that do not initialise have entries of their own.
    let mut worlds = BTreeMap::<Cell, State>::new();
    let mut checks = BTreeMap::<Cell, State>::new();
    let mut proposal = Proposal::default();
    for point in planned {
        let of = match point.check {
            Some(_) => &mut checks,
            None => &mut worlds,
        };
        of.entry(cell(&point)).or_default();
    }
    for seen in seen {
        if let Some(remark) = remark(expectations, seen) {
            proposal.remarks.entry(remark).or_default().add(seen.record);
            continue;
        }
        let of = match seen.point.check {
            Some(_) => &mut checks,
            None if seen.is_init => &mut worlds,
            None => continue,
        };
        let state = of.entry(cell(&seen.point)).or_default();
        let (has_failed, has_passed) = state.checks.entry(seen.id.to_owned()).or_default();
        match seen.record.verdict {
            Verdict::Regression => {
                *has_failed = true;
                state.kinds.insert(FailureKind::of(seen.record));
                state.of.add(seen.record);
            }
            Verdict::Expected => *has_passed = true,
            Verdict::KnownFailure | Verdict::Waived | Verdict::UnexpectedPass | Verdict::NotRun => {
            }
        }
    }
    let place = seen.first().map(|seen| seen.point);
    for cells in [worlds, checks] {
        proposal.add(cells, place.as_ref());
    }
    proposal
}

/// Returns why a new entry does not settle a result; `None` if it does, or if there is nothing to settle.
fn remark(expectations: &Expectations, seen: &CheckAtPoint<'_>) -> Option<Remark> {
    let entry = expectations.find(&seen.point);
    match (seen.record.verdict, entry) {
        (Verdict::Regression, _) if seen.record.outcome == Outcome::HarnessError => {
            Some(Remark::OfTheHarness)
        }
        (Verdict::Regression, Some(entry)) if entry.is_expired() => {
            Some(Remark::Expired(entry.at.clone()))
        }
        (Verdict::Regression, Some(entry)) => Some(Remark::FailsOtherwise(entry.at.clone())),
        (Verdict::Regression, None) => {
            let is_entry_s =
                seen.point.check.is_some() == (seen.record.outcome != Outcome::InitFailed);
            (!is_entry_s).then_some(Remark::OfTheWorld)
        }
        (Verdict::UnexpectedPass, Some(entry)) => Some(Remark::OutOfDate(entry.at.clone())),
        (Verdict::UnexpectedPass, None) => Some(Remark::Undeclared),
        (Verdict::Expected | Verdict::KnownFailure | Verdict::Waived | Verdict::NotRun, _) => None,
    }
}

impl State {
    /// Returns what has become of its checks; `None` if none of them failed unexpectedly.
    fn failure(&self) -> Option<SharedFailure> {
        if self.kinds.is_empty() {
            return None;
        }
        let mut ends = self.checks.values();
        let is_intermittent = ends.any(|(failed, passed)| *failed && *passed);
        let mut ends = self.checks.values();
        let also_passes = ends.any(|(failed, passed)| *passed && !failed);
        Some(SharedFailure {
            kinds: self.kinds.clone(),
            is_intermittent,
            also_passes: also_passes && !is_intermittent,
        })
    }
}

impl Proposal {
    fn add(&mut self, cells: BTreeMap<Cell, State>, place: Option<&Point<'_>>) {
        let Some(place) = place else { return };
        let failures: BTreeSet<SharedFailure> = cells.values().filter_map(State::failure).collect();
        let kept: Vec<usize> = (0..FIELDS.len())
            .filter(|field| matches!(FIELDS[*field].name, "op" | "case"))
            .collect();
        for failure in failures {
            let is_of = |state: &State| state.failure().as_ref() == Some(&failure);
            let (mut wanted, mut others) = (Vec::new(), Vec::new());
            for (cell, state) in &cells {
                match is_of(state) {
                    true => wanted.push(cell),
                    false => others.push(cell),
                }
            }
            let found = cover(&wanted, &others, &kept);
            let mut left = wanted.clone();
            for region in &found.regions {
                let mut of = Examples::default();
                left.retain(|cell| {
                    let is_in = region.has(cell);
                    if is_in {
                        of.take(&cells[*cell].of);
                    }
                    !is_in
                });
                self.entries
                    .push(failure.entry(matches(region, &cells, place), of));
            }
            for cell in &found.inseparable {
                let of = self.remarks.entry(Remark::Inseparable).or_default();
                of.take(&cells[cell].of);
            }
        }
    }
}

impl Examples {
    /// Adds others to it.
    pub fn take(&mut self, others: &Self) {
        if self.count == 0 {
            self.id.clone_from(&others.id);
            self.summary.clone_from(&others.summary);
        }
        self.count += others.count;
    }
}

impl SharedFailure {
    fn entry(&self, matches: Vec<(&'static str, Vec<String>)>, of: Examples) -> NewEntry {
        // A list pins all failures of the entry, so it is left out where one of them has nothing to be pinned by.
        let all = |text: fn(&FailureKind) -> Option<&String>| {
            let texts: Option<BTreeSet<&String>> = self.kinds.iter().map(text).collect();
            texts.unwrap_or_default().into_iter().cloned().collect()
        };
        let outcomes: BTreeSet<Outcome> = self.kinds.iter().map(|kind| kind.outcome).collect();
        let has_class =
            |kind: &FailureKind| matches!(kind.outcome, Outcome::Mismatch | Outcome::Error);
        let classed: Option<BTreeSet<&String>> = self
            .kinds
            .iter()
            .filter(|kind| has_class(kind))
            .map(|kind| kind.class.as_ref())
            .collect();
        NewEntry {
            matches,
            torch: None,
            outcomes: outcomes.into_iter().collect(),
            classes: classed.unwrap_or_default().into_iter().cloned().collect(),
            messages: all(|kind| kind.message.as_ref()),
            is_intermittent: self.is_intermittent,
            also_passes: self.also_passes,
            of,
        }
    }
}

/// Returns the fields of a region as an entry writes them: numbers that lie together on the plan become a range.
fn matches(
    region: &Region,
    cells: &BTreeMap<Cell, State>,
    place: &Point<'_>,
) -> Vec<(&'static str, Vec<String>)> {
    let mut fields = vec![
        ("platform", vec![place.platform.to_owned()]),
        ("backend", vec![place.backend.to_owned()]),
    ];
    for (index, (field, values)) in FIELDS.iter().zip(&region.values).enumerate() {
        let Some(values) = values else { continue };
        let written: Vec<String> = match field.is_number && can_be_range(field.name) {
            true => {
                let there = cells.keys().filter_map(|cell| cell[index].as_deref());
                ranges(values, &there.collect())
            }
            false => values.iter().cloned().collect(),
        };
        fields.push((field.name, written));
    }
    fields
}

fn can_be_range(field: &str) -> bool {
    matches!(field, "numel" | "group_size" | "world_size")
}

/// Sizes in order, with a range where three or more follow each other among all there are, open if it goes to the largest.
fn ranges(values: &BTreeSet<String>, there: &BTreeSet<&str>) -> Vec<String> {
    let number = |text: &str| text.parse::<u64>().ok();
    let mut all: Vec<u64> = there.iter().filter_map(|text| number(text)).collect();
    all.sort_unstable();
    let mut written: Vec<String> = Vec::new();
    // `scalar`, which is in no range.
    written.extend(
        values
            .iter()
            .filter(|value| number(value).is_none())
            .cloned(),
    );
    let is_in = |size: &u64| values.contains(&size.to_string());
    for run in all.chunk_by(|one, other| is_in(one) == is_in(other)) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        if !is_in(first) {
            continue;
        }
        let is_open = Some(last) == all.last() && run.len() > 1;
        match (is_open, run.len()) {
            (true, _) => written.push(format!("{first}..")),
            (false, 0..3) => written.extend(run.iter().map(u64::to_string)),
            (false, _) => written.push(format!("{first}..{last}")),
        }
    }
    written
}

#[cfg(test)]
mod tests;
