//! Merges several result sets into one: the shards of a run, the one-scenario runs of nextest, or the platforms of different
//! machines.
//!
//! The rules, so that a merge can hide nothing:
//! - all sets have the same version of allranks and the same seed, or there is no one command that repeats them;
//! - a check or scenario that several sets hold must be the same in all of them, except that *not run* gives way to a
//!   result (another shard or machine ran it). Two different results are an error: which one counts is not for a
//!   merge to say. Results with different versions of torch, or of different drivers or launchers, are not two results
//!   of one check: they stand side by side. So do those of sets with different labels, and the rounds of a repeated run;
//! - if one set was cut off, so is the merged one;
//! - the exit code is the most serious one.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use thiserror::Error;

use super::check_set::CheckSet;
use super::results::Results;
use allranks_model::names::{CheckId, ScenarioId};
use allranks_model::outcome::Verdict;
use allranks_model::record::{CheckRecord, Column, Counts, EndRecord, ScenarioRecord};

/// Exit codes from the most serious to the least: what nothing was selected for is no result either, but only if no
/// set has one.
const BY_SERIOUSNESS: &[u8] = &[2, 10, 1, 4, 5, 0, 3];

/// The exit code where something was not run, or is not known to have been.
const INCOMPLETE: u8 = 4;

/// Why results could not be merged.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MergeError {
    /// There was nothing to merge.
    #[error("nothing to merge")]
    Empty,
    /// Runs that cannot be repeated by one command.
    #[error("{} has {what} {found}, {} has {wanted}", .second.display(), .first.display())]
    Differ {
        /// `seed`, `allranks version`.
        what: &'static str,
        /// Folder of the first set.
        first: PathBuf,
        /// The value in that set.
        wanted: String,
        /// Folder of the set that differs.
        second: PathBuf,
        /// The value in that set.
        found: String,
    },
    /// Two results for one check.
    #[error("two different results for check {id}; the second is in {}", .folder.display())]
    Check {
        /// The id of the check.
        id: CheckId,
        /// Folder of the second set.
        folder: PathBuf,
    },
    /// Two results for one scenario.
    #[error("two different results for scenario {id}; the second is in {}", .folder.display())]
    Scenario {
        /// The id of the scenario.
        id: ScenarioId,
        /// Folder of the second set.
        folder: PathBuf,
    },
}

/// Merges result sets into one that belongs in the folder `into`, named after it. Paths of logs are rewritten to lead
/// from there; no file is moved.
///
/// # Errors
/// See [`MergeError`] and the rules of this module.
pub fn merge<C: CheckSet>(
    mut sets: Vec<Results<C>>,
    into: &Path,
) -> Result<Results<C>, MergeError> {
    check_alike(&sets)?;
    let first = sets.first().ok_or(MergeError::Empty)?;
    let started = sets.iter().map(|set| set.run.started).min().unwrap_or(0);
    let mut run = first.run.clone();
    run.started = started;
    run.planned = Counts::default();
    // No one command line made it.
    run.origin = None;
    if let Some(name) = into.file_name() {
        run.name = name.to_string_lossy().into_owned();
    }
    let mut merged = Results::<C>::begin(into.to_owned(), run);
    merged.end = merged_end(&sets, started);
    let mut checks = CheckPlaces::default();
    let (mut parts, mut all_names) = (Vec::<C>::new(), Vec::new());
    let mut scenarios = BTreeMap::<(ScenarioId, Ran), ScenarioRecord>::new();
    for (number, set) in sets.iter_mut().enumerate() {
        let names = Names {
            torch: only_torch(set),
            label: std::mem::take(&mut set.label),
        };
        for scenario in &mut set.scenarios {
            names.fill_in(&mut scenario.column);
        }
        let planned = &mut merged.run.planned;
        planned.scenarios += set.run.planned.scenarios;
        planned.checks += set.run.planned.checks;
        let late_ms = late_ms(set, started);
        let mut rounds = BTreeMap::<(ScenarioId, Ran), usize>::new();
        for mut scenario in std::mem::take(&mut set.scenarios) {
            let ran = Ran::of(&scenario.column);
            let round = rounds.entry((scenario.id.clone(), ran)).or_default();
            *round += 1;
            let round = *round;
            scenario.start_ms = scenario.start_ms.saturating_add(late_ms);
            for rank in &mut scenario.ranks {
                if !rank.log.is_empty() {
                    rank.log = rebased(&set.folder, &rank.log, into);
                }
            }
            if !put_scenario(&mut scenarios, scenario, round, &set.folder)? {
                planned.scenarios = planned.scenarios.saturating_sub(1);
            }
        }
        all_names.push(names);
        parts.push(std::mem::take(&mut set.checks));
        let held = Held {
            parts: &parts,
            names: &all_names,
        };
        for place in 0..parts[number].count() {
            if !checks.put((number, place), &held, &set.folder)? {
                planned.checks = planned.checks.saturating_sub(1);
            }
        }
        for remark in &set.remarks {
            let remark = format!("{}: {remark}", set.folder.display());
            merged.remarks.push(remark);
        }
        merged.sources.append(&mut set.sources);
    }
    let held = Held {
        parts: &parts,
        names: &all_names,
    };
    for place in checks.into_places() {
        merged.checks.add(held.record(place));
    }
    merged.scenarios = scenarios.into_values().collect();
    if let Some(end) = &mut merged.end {
        for check in merged.checks.briefs() {
            *end.verdicts.entry(check.verdict.to_string()).or_default() += 1;
            *end.outcomes.entry(check.outcome.to_string()).or_default() += 1;
        }
    }
    Ok(merged)
}

/// Returns the results as if they belonged to the folder `into`, named after it: paths of logs lead from there. No
/// file is moved.
#[must_use]
pub fn moved<C>(mut set: Results<C>, into: &Path) -> Results<C> {
    let logs = set.scenarios.iter_mut().flat_map(|one| &mut one.ranks);
    for rank in logs.filter(|rank| !rank.log.is_empty()) {
        rank.log = rebased(&set.folder, &rank.log, into);
    }
    if let Some(name) = into.file_name() {
        set.run.name = name.to_string_lossy().into_owned();
    }
    set.sources.push(into.to_owned());
    set.folder = into.to_owned();
    set
}

fn check_alike<C>(sets: &[Results<C>]) -> Result<(), MergeError> {
    let Some((first, rest)) = sets.split_first() else {
        return Err(MergeError::Empty);
    };
    for set in rest {
        let pairs = [
            (
                "allranks version",
                first.run.allranks.clone(),
                set.run.allranks.clone(),
            ),
            ("seed", first.run.seed.to_string(), set.run.seed.to_string()),
        ];
        for (what, wanted, found) in pairs {
            if wanted != found {
                return Err(MergeError::Differ {
                    what,
                    first: first.folder.clone(),
                    wanted,
                    second: set.folder.clone(),
                    found,
                });
            }
        }
    }
    Ok(())
}

/// Returns the version of torch that all ranks of a set had, as far as it is known; `None` if there is none, or several. What never
/// ran would have had it.
fn only_torch<C: CheckSet>(set: &Results<C>) -> Option<String> {
    match *set.torch_versions() {
        [torch] => Some(torch.to_owned()),
        _ => None,
    }
}

/// What the columns of a set are called besides what its records say.
struct Names {
    /// The version of torch where it is unknown; `None`: it stays so.
    torch: Option<String>,
    /// The label; empty: columns keep theirs.
    label: String,
}

impl Names {
    fn fill_in(&self, column: &mut Column) {
        if column.torch.is_empty()
            && let Some(torch) = &self.torch
        {
            torch.clone_into(&mut column.torch);
        }
        if !self.label.is_empty() {
            self.label.clone_into(&mut column.label);
        }
    }
}

/// The checks of the sets, and what the columns of each set are called.
struct Held<'a, C> {
    parts: &'a [C],
    names: &'a [Names],
}

/// A set, and the place of a check in it.
type PlaceOfCheck = (usize, usize);

impl<C: CheckSet> Held<'_, C> {
    fn record(&self, (set, place): PlaceOfCheck) -> CheckRecord {
        let mut check = self.parts[set].record(place).into_owned();
        self.names[set].fill_in(&mut check.column);
        check
    }
}

/// Where the merged checks are, by id and by what they were run with.
#[derive(Default)]
struct CheckPlaces {
    /// What checks were run with, each once.
    rans: Vec<Ran>,
    places: BTreeMap<(CheckId, usize), PlaceOfCheck>,
}

impl CheckPlaces {
    /// Puts a check among the others; false if it was there already.
    fn put<C: CheckSet>(
        &mut self,
        place: PlaceOfCheck,
        held: &Held<'_, C>,
        folder: &Path,
    ) -> Result<bool, MergeError> {
        let check = held.record(place);
        let ran = Ran::of(&check.column);
        let of_id = (check.id.clone(), 0)..=(check.id.clone(), usize::MAX);
        let of_id = self.places.range(of_id).map(|((_, number), _)| *number);
        let mut of_id: Vec<usize> = of_id.collect();
        of_id.sort_by_key(|number| &self.rans[*number]);
        let same = |number: &usize| self.rans[*number].may_be(&ran);
        let known = of_id.into_iter().find(same);
        let number = match self.rans.iter().position(|known| *known == ran) {
            Some(number) => number,
            None => {
                self.rans.push(ran);
                self.rans.len() - 1
            }
        };
        let key = (check.id.clone(), number);
        let Some(known) = known else {
            self.places.insert(key, place);
            return Ok(true);
        };
        let known = (check.id.clone(), known);
        let there = held.record(self.places[&known]);
        if there.verdict == Verdict::NotRun && check.verdict != Verdict::NotRun {
            self.places.remove(&known);
            self.places.insert(key, place);
        } else if check.verdict != Verdict::NotRun && there != check {
            return Err(MergeError::Check {
                id: check.id,
                folder: folder.to_owned(),
            });
        }
        Ok(false)
    }

    /// Returns the places in the order of ids, and for each id in the order of what its checks were run with.
    fn into_places(self) -> impl Iterator<Item = PlaceOfCheck> {
        let mut order: Vec<usize> = (0..self.rans.len()).collect();
        order.sort_by_key(|number| &self.rans[*number]);
        let mut ranks = vec![0; order.len()];
        for (rank, number) in order.into_iter().enumerate() {
            ranks[number] = rank;
        }
        let mut keyed: Vec<(CheckId, usize, PlaceOfCheck)> = self
            .places
            .into_iter()
            .map(|((id, number), place)| (id, ranks[number], place))
            .collect();
        keyed.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
        keyed.into_iter().map(|(_, _, place)| place)
    }
}

/// With what a record of some id came about; others of that id, with something else, stand beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Ran {
    /// The how manieth record of this scenario it is in its set, from 1: a repeated run has one for each round, under one id. 0 for
    /// checks, whose ids name the round.
    round: usize,
    driver: String,
    launcher: String,
    label: String,
    torch: String,
}

impl Ran {
    fn of(column: &Column) -> Self {
        Self {
            round: 0,
            driver: column.driver.clone(),
            launcher: column.launcher.clone(),
            label: column.label.clone(),
            torch: column.torch.clone(),
        }
    }

    /// Returns true if the two may be the same: torch is unknown where nothing ran.
    fn may_be(&self, other: &Self) -> bool {
        let is_torch = self.torch == other.torch || self.torch.is_empty() || other.torch.is_empty();
        let what = |ran: &Self| {
            let Self {
                round,
                driver,
                launcher,
                label,
                torch: _,
            } = ran.clone();
            (round, driver, launcher, label)
        };
        is_torch && what(self) == what(other)
    }
}

/// Returns the key of a record of the same check or scenario; `None` if there is none.
fn same<Id: Ord + Clone, Record>(
    records: &BTreeMap<(Id, Ran), Record>,
    id: &Id,
    ran: &Ran,
) -> Option<(Id, Ran)> {
    let of_id = records.range((id.clone(), Ran::default())..);
    of_id
        .map(|(key, _)| key)
        .take_while(|(other, _)| other == id)
        .find(|(_, other)| other.may_be(ran))
        .cloned()
}

/// Puts a scenario among the others; false if it was there already. One without worlds was never started.
fn put_scenario(
    scenarios: &mut BTreeMap<(ScenarioId, Ran), ScenarioRecord>,
    scenario: ScenarioRecord,
    round: usize,
    folder: &Path,
) -> Result<bool, MergeError> {
    let ran = Ran {
        round,
        ..Ran::of(&scenario.column)
    };
    let key = (scenario.id.clone(), ran);
    let Some(known) = same(scenarios, &key.0, &key.1) else {
        scenarios.insert(key, scenario);
        return Ok(true);
    };
    let there = &scenarios[&known];
    if there.worlds == 0 && scenario.worlds > 0 {
        scenarios.remove(&known);
        scenarios.insert(key, scenario);
    } else if scenario.worlds > 0 && !is_same_scenario(there, &scenario) {
        return Err(MergeError::Scenario {
            id: scenario.id,
            folder: folder.to_owned(),
        });
    }
    Ok(false)
}

/// Returns true if two records of a scenario are the same, except for the place of the logs, which differs between copies of one folder.
fn is_same_scenario(one: &ScenarioRecord, other: &ScenarioRecord) -> bool {
    let without_logs = |scenario: &ScenarioRecord| {
        let mut scenario = scenario.clone();
        for rank in &mut scenario.ranks {
            rank.log.clear();
        }
        scenario
    };
    without_logs(one) == without_logs(other)
}

/// Returns the end of a merged run, its counts still empty; none if one set has none.
fn merged_end<C: CheckSet>(sets: &[Results<C>], started: u64) -> Option<EndRecord> {
    let mut merged = EndRecord {
        format: allranks_model::record::FORMAT,
        duration_ms: 0,
        verdicts: BTreeMap::new(),
        outcomes: BTreeMap::new(),
        issues: Vec::new(),
        exit_code: 3,
    };
    let mut spans = Vec::new();
    for set in sets {
        let end = set.end.as_ref()?;
        let began = late_ms(set, started);
        spans.push((began, began.saturating_add(end.duration_ms)));
        merged.exit_code = more_serious(merged.exit_code, end.exit_code);
        if !set.is_whole() {
            merged.exit_code = more_serious(merged.exit_code, INCOMPLETE);
        }
        for issue in &end.issues {
            if !merged.issues.contains(issue) {
                merged.issues.push(issue.clone());
            }
        }
    }
    merged.duration_ms = covered(spans);
    Some(merged)
}

/// Returns for how long at least one of the spans lasted: of runs side by side the whole span, of runs days apart not the days
/// between.
fn covered(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let mut until = 0;
    let lasted = spans.into_iter().map(|(began, ended)| {
        let more = ended.saturating_sub(began.max(until));
        until = until.max(ended);
        more
    });
    lasted.sum()
}

/// Returns how many milliseconds after the first set this one started.
fn late_ms<C>(set: &Results<C>, started: u64) -> u64 {
    (set.run.started - started).saturating_mul(1_000)
}

/// Returns the more serious of two exit codes. An unknown code is more serious than any known one.
fn more_serious(one: u8, other: u8) -> u8 {
    let place = |code: u8| BY_SERIOUSNESS.iter().position(|known| *known == code);
    if place(other) < place(one) {
        other
    } else {
        one
    }
}

/// Returns a path relative to one folder as a path relative to another; absolute if the folders have no common beginning.
fn rebased(from: &Path, path: &str, to: &Path) -> String {
    let (Ok(from), Ok(to)) = (std::path::absolute(from), std::path::absolute(to)) else {
        return path.to_owned();
    };
    let target = from.join(path);
    let is_shared = |(one, other): &(Component<'_>, Component<'_>)| one == other;
    let shared = target
        .components()
        .zip(to.components())
        .take_while(is_shared)
        .count();
    if shared <= 1 {
        return target.display().to_string();
    }
    let up = to.components().skip(shared).map(|_| Component::ParentDir);
    let down = target.components().skip(shared);
    let relative: PathBuf = up.chain(down).collect();
    relative.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_between_runs_does_not_count() {
        assert_eq!(covered(vec![(0, 10), (5, 30), (7, 8)]), 30);
        assert_eq!(covered(vec![(1000, 1010), (0, 10)]), 20);
        assert_eq!(covered(Vec::new()), 0);
    }

    #[test]
    fn logs_are_found_from_the_new_folder() {
        let rebased =
            |from: &str, to: &str| rebased(Path::new(from), "logs/a/rank0.log", Path::new(to));
        assert_eq!(rebased("/r/all/one", "/r/all"), "one/logs/a/rank0.log");
        assert_eq!(rebased("/r/one", "/r/all"), "../one/logs/a/rank0.log");
        assert_eq!(rebased("/r/all", "/r/all"), "logs/a/rank0.log");
        assert_eq!(rebased("/x/one", "/r/all"), "/x/one/logs/a/rank0.log");
    }

    #[test]
    fn the_most_serious_exit_code_wins() {
        assert_eq!(more_serious(0, 1), 1);
        assert_eq!(more_serious(3, 0), 0);
        assert_eq!(more_serious(10, 1), 10);
        assert_eq!(more_serious(4, 1), 1);
        assert_eq!(more_serious(1, 77), 77);
    }
}
