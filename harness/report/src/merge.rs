//! Merges several result sets into one: the shards of a run, the one-scenario runs of nextest, or the platforms of different
//! machines.
//!
//! A merge must hide nothing. So:
//! - all sets must have the same version of allranks and the same seed, so that one command can repeat each check;
//! - a check or scenario that several sets hold must be the same in all of them, except that a result replaces *not run*
//!   (another shard or machine ran it). Two different results are an error. Results with different versions of torch,
//!   drivers, launchers or labels are kept side by side, and so are the rounds of a repeated run;
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

/// Exit codes from the most serious to the least. 3 (nothing selected) comes last: it stands only if all sets have it.
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
    let mut checks = MergedChecks::default();
    let (mut parts, mut all_names) = (Vec::<C>::new(), Vec::new());
    let mut scenarios = BTreeMap::<(ScenarioId, Configuration), ScenarioRecord>::new();
    for (number, set) in sets.iter_mut().enumerate() {
        let names = ColumnNames {
            torch: only_torch(set),
            label: std::mem::take(&mut set.label),
        };
        for scenario in &mut set.scenarios {
            names.fill_in(&mut scenario.column);
        }
        let planned = &mut merged.run.planned;
        planned.scenarios += set.run.planned.scenarios;
        planned.checks += set.run.planned.checks;
        let start_offset_ms = start_offset_ms(set, started);
        let mut rounds = BTreeMap::<(ScenarioId, Configuration), usize>::new();
        for mut scenario in std::mem::take(&mut set.scenarios) {
            let configuration = Configuration::of(&scenario.column);
            let round = rounds
                .entry((scenario.id.clone(), configuration))
                .or_default();
            *round += 1;
            let round = *round;
            scenario.start_ms = scenario.start_ms.saturating_add(start_offset_ms);
            for rank in &mut scenario.ranks {
                if !rank.log.is_empty() {
                    rank.log = rebased(&set.folder, &rank.log, into);
                }
            }
            if !insert_scenario(&mut scenarios, scenario, round, &set.folder)? {
                planned.scenarios = planned.scenarios.saturating_sub(1);
            }
        }
        all_names.push(names);
        parts.push(std::mem::take(&mut set.checks));
        let input = MergeInput {
            parts: &parts,
            names: &all_names,
        };
        for index in 0..parts[number].count() {
            if !checks.insert((number, index), &input, &set.folder)? {
                planned.checks = planned.checks.saturating_sub(1);
            }
        }
        for remark in &set.remarks {
            let remark = format!("{}: {remark}", set.folder.display());
            merged.remarks.push(remark);
        }
        merged.sources.append(&mut set.sources);
    }
    let input = MergeInput {
        parts: &parts,
        names: &all_names,
    };
    for index in checks.into_indices() {
        merged.checks.add(input.record(index));
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
pub fn relocated<C>(mut set: Results<C>, into: &Path) -> Results<C> {
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

/// Returns the version of torch that the ranks of a set reported; `None` if there is none, or several. Checks that never ran
/// would have had the same.
fn only_torch<C: CheckSet>(set: &Results<C>) -> Option<String> {
    match *set.torch_versions() {
        [torch] => Some(torch.to_owned()),
        _ => None,
    }
}

/// What a merge adds to the columns of a set.
struct ColumnNames {
    /// The version of torch for columns that have none; `None`: they stay without.
    torch: Option<String>,
    /// The label; if it is empty, columns keep theirs.
    label: String,
}

impl ColumnNames {
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

/// The checks of the sets, and the names that their columns are given.
struct MergeInput<'a, C> {
    parts: &'a [C],
    names: &'a [ColumnNames],
}

/// The index of a set, and of a check in it.
type CheckIndex = (usize, usize);

impl<C: CheckSet> MergeInput<'_, C> {
    fn record(&self, (set, index): CheckIndex) -> CheckRecord {
        let mut check = self.parts[set].record(index).into_owned();
        self.names[set].fill_in(&mut check.column);
        check
    }
}

/// The checks of the merged results, by id and configuration, as indices of the input.
#[derive(Default)]
struct MergedChecks {
    /// The configurations of checks, each once.
    configurations: Vec<Configuration>,
    indices: BTreeMap<(CheckId, usize), CheckIndex>,
}

impl MergedChecks {
    /// Inserts a check. Returns false if one with this id and configuration was there; the one that was run is kept.
    fn insert<C: CheckSet>(
        &mut self,
        index: CheckIndex,
        input: &MergeInput<'_, C>,
        folder: &Path,
    ) -> Result<bool, MergeError> {
        let check = input.record(index);
        let configuration = Configuration::of(&check.column);
        let of_id = (check.id.clone(), 0)..=(check.id.clone(), usize::MAX);
        let of_id = self.indices.range(of_id).map(|((_, number), _)| *number);
        let mut of_id: Vec<usize> = of_id.collect();
        of_id.sort_by_key(|number| &self.configurations[*number]);
        let matching_key =
            |number: &usize| self.configurations[*number].is_compatible_with(&configuration);
        let known = of_id.into_iter().find(matching_key);
        let number = match self
            .configurations
            .iter()
            .position(|known| *known == configuration)
        {
            Some(number) => number,
            None => {
                self.configurations.push(configuration);
                self.configurations.len() - 1
            }
        };
        let key = (check.id.clone(), number);
        let Some(known) = known else {
            self.indices.insert(key, index);
            return Ok(true);
        };
        let known = (check.id.clone(), known);
        let existing = input.record(self.indices[&known]);
        if existing.verdict == Verdict::NotRun && check.verdict != Verdict::NotRun {
            self.indices.remove(&known);
            self.indices.insert(key, index);
        } else if check.verdict != Verdict::NotRun && existing != check {
            return Err(MergeError::Check {
                id: check.id,
                folder: folder.to_owned(),
            });
        }
        Ok(false)
    }

    /// Returns the indices ordered by id, then by configuration.
    fn into_indices(self) -> impl Iterator<Item = CheckIndex> {
        let mut order: Vec<usize> = (0..self.configurations.len()).collect();
        order.sort_by_key(|number| &self.configurations[*number]);
        let mut positions = vec![0; order.len()];
        for (position, number) in order.into_iter().enumerate() {
            positions[number] = position;
        }
        let mut keyed: Vec<(CheckId, usize, CheckIndex)> = self
            .indices
            .into_iter()
            .map(|((id, number), index)| (id, positions[number], index))
            .collect();
        keyed.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
        keyed.into_iter().map(|(_, _, index)| index)
    }
}

/// What a record was made with. Records of one id with different configurations are not merged, but kept side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    /// The round of a repeated run, from 1: the records of a scenario have the same id in each round. 0 for checks, whose ids
    /// name the round.
    round: usize,
    driver: String,
    launcher: String,
    label: String,
    torch: String,
}

impl Configuration {
    fn of(column: &Column) -> Self {
        Self {
            round: 0,
            driver: column.driver.clone(),
            launcher: column.launcher.clone(),
            label: column.label.clone(),
            torch: column.torch.clone(),
        }
    }

    /// Returns true if the two do not contradict each other. Torch is unknown where nothing ran.
    fn is_compatible_with(&self, other: &Self) -> bool {
        let is_torch = self.torch == other.torch || self.torch.is_empty() || other.torch.is_empty();
        let what = |configuration: &Self| {
            let Self {
                round,
                driver,
                launcher,
                label,
                torch: _,
            } = configuration.clone();
            (round, driver, launcher, label)
        };
        is_torch && what(self) == what(other)
    }
}

/// Returns the key of the record with this id and a compatible configuration; `None` if there is none.
fn matching_key<Id: Ord + Clone, Record>(
    records: &BTreeMap<(Id, Configuration), Record>,
    id: &Id,
    configuration: &Configuration,
) -> Option<(Id, Configuration)> {
    let of_id = records.range((id.clone(), Configuration::default())..);
    of_id
        .map(|(key, _)| key)
        .take_while(|(other, _)| other == id)
        .find(|(_, other)| other.is_compatible_with(configuration))
        .cloned()
}

/// Inserts a scenario. Returns false if one with this id and configuration was there; the one that was started is kept.
fn insert_scenario(
    scenarios: &mut BTreeMap<(ScenarioId, Configuration), ScenarioRecord>,
    scenario: ScenarioRecord,
    round: usize,
    folder: &Path,
) -> Result<bool, MergeError> {
    let configuration = Configuration {
        round,
        ..Configuration::of(&scenario.column)
    };
    let key = (scenario.id.clone(), configuration);
    let Some(known) = matching_key(scenarios, &key.0, &key.1) else {
        scenarios.insert(key, scenario);
        return Ok(true);
    };
    let existing = &scenarios[&known];
    if existing.worlds == 0 && scenario.worlds > 0 {
        scenarios.remove(&known);
        scenarios.insert(key, scenario);
    } else if scenario.worlds > 0 && !is_same_scenario(existing, &scenario) {
        return Err(MergeError::Scenario {
            id: scenario.id,
            folder: folder.to_owned(),
        });
    }
    Ok(false)
}

/// Returns true if two records of a scenario are the same, except for the paths of the logs, which differs between copies of one
/// folder.
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
        let began = start_offset_ms(set, started);
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
    merged.duration_ms = covered_ms(spans);
    Some(merged)
}

/// Returns the length of the union of spans, in milliseconds: time between two runs does not count.
fn covered_ms(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let mut until = 0;
    let lasted = spans.into_iter().map(|(began, ended)| {
        let more = ended.saturating_sub(began.max(until));
        until = until.max(ended);
        more
    });
    lasted.sum()
}

/// Returns how long after the first set this one started, in milliseconds.
fn start_offset_ms<C>(set: &Results<C>, started: u64) -> u64 {
    (set.run.started - started).saturating_mul(1_000)
}

/// Returns the more serious of two exit codes. An unknown code is more serious than any known one.
fn more_serious(one: u8, other: u8) -> u8 {
    let rank_of = |code: u8| BY_SERIOUSNESS.iter().position(|known| *known == code);
    if rank_of(other) < rank_of(one) {
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
        assert_eq!(covered_ms(vec![(0, 10), (5, 30), (7, 8)]), 30);
        assert_eq!(covered_ms(vec![(1000, 1010), (0, 10)]), 20);
        assert_eq!(covered_ms(Vec::new()), 0);
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
