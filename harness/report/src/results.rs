//! The records of one run, or of several merged runs: the input of every report. A run that was cut off has no
//! [`end`](Results::end).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use super::check_set::CheckSet;
use super::packed_checks::PackedChecks;
use super::text::{clip, counted, grouped, one_line};
use allranks_model::evidence::Evidence;
use allranks_model::names::ScenarioId;
use allranks_model::record::{CheckRecord, Column, EndRecord, Record, RunRecord, ScenarioRecord};
use allranks_model::version::torch_version;

/// All records of a run. `C` is how those of its checks are stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Results<C = Vec<CheckRecord>> {
    /// The folder of the run; paths of logs are relative to it.
    pub folder: PathBuf,
    /// The record of the run's beginning: what was asked for.
    pub run: RunRecord,
    /// The records of scenarios, in the order in which they ended.
    pub scenarios: Vec<ScenarioRecord>,
    /// The records of checks, in the order in which they were decided; see [`arrange`](Self::arrange).
    pub checks: C,
    /// The record of the run's end; `None` if it was cut off.
    pub end: Option<EndRecord>,
    /// Remarks on the records themselves, from reading or merging them.
    pub remarks: Vec<String>,
    /// The folders whose files reports may quote from: [`folder`](Self::folder), and those that were merged into it.
    pub sources: Vec<PathBuf>,
    /// What a merge calls the run, as the label of its columns; empty: the columns keep theirs.
    pub label: String,
}

/// All records of a run, those of its checks in little memory.
pub type PackedResults = Results<PackedChecks>;

impl Results {
    /// Makes the results of a run that has just begun.
    #[must_use]
    pub fn new(folder: PathBuf, run: RunRecord) -> Self {
        Self::begin(folder, run)
    }
}

impl<C: CheckSet> Results<C> {
    /// Makes the results of a run that has just begun, as [`new`](Results::new) does, with its checks stored in either way.
    #[must_use]
    pub fn begin(folder: PathBuf, run: RunRecord) -> Self {
        Self {
            sources: vec![folder.clone()],
            folder,
            run,
            scenarios: Vec::new(),
            checks: C::default(),
            end: None,
            remarks: Vec::new(),
            label: String::new(),
        }
    }

    /// Returns the records in the order of a results file: the run, checks, scenarios, the end.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let checks = self.checks.records();
        let checks = checks.map(|check| Record::Check(Box::new(check.into_owned())));
        let scenarios = self.scenarios.iter().cloned();
        let scenarios = scenarios.map(|scenario| Record::Scenario(Box::new(scenario)));
        std::iter::once(Record::Run(self.run.clone()))
            .chain(checks)
            .chain(scenarios)
            .chain(self.end.clone().map(Record::End))
    }

    /// Adds a record; a run record replaces the one before.
    pub fn push(&mut self, record: Record) {
        match record {
            Record::Run(run) => self.run = run,
            Record::Scenario(scenario) => self.scenarios.push(*scenario),
            Record::Check(check) => self.checks.add(*check),
            Record::End(end) => self.end = Some(end),
        }
    }

    /// Puts the checks of each scenario together: scenarios in the order they ended and those that were cut off last, in each
    /// of them init first and teardown last. Records are written as they are decided, and init's is among the last, for a later
    /// world may still fail to initialise.
    pub fn arrange(&mut self) {
        let mut groups = HashMap::<(ScenarioId, Option<String>, [String; 4]), usize>::new();
        // For each scenario: true and the index of its last check if it has ended, else false and that of its first.
        let mut indices = Vec::<(bool, usize)>::new();
        let mut keys = Vec::with_capacity(self.checks.count());
        for (index, check) in self.checks.records().enumerate() {
            let round = check.params.get("round").cloned();
            let configuration = run_configuration(&check.column).map(str::to_owned);
            let group = (check.scenario.clone(), round, configuration);
            let group = *groups.entry(group).or_insert_with(|| {
                indices.push((false, index));
                indices.len() - 1
            });
            let phase = Phase::of(&check);
            if phase == Phase::Teardown {
                indices[group] = (true, index);
            }
            keys.push((group, phase));
        }
        let key = |(group, phase): (usize, Phase)| {
            let (has_ended, index) = indices[group];
            (!has_ended, index, phase)
        };
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|index| key(keys[*index]));
        self.checks.reorder(&order);
    }

    /// Returns how many scenarios ran: `104 scenarios`, or `87 of 104 scenarios` if a world was started for only so
    /// many.
    #[must_use]
    pub fn scenarios_run(&self) -> String {
        let started = self.scenarios.iter().filter(|one| one.worlds > 0).count() as u64;
        let all = (self.scenarios.len() as u64).max(self.run.planned.scenarios);
        let words = counted(all, "scenario");
        match started == all {
            true => words,
            false => format!("{} of {words}", grouped(started)),
        }
    }

    /// Returns the number of checks that were planned and have no record.
    #[must_use]
    pub fn missing(&self) -> u64 {
        let recorded = self.checks.count() as u64;
        self.run.planned.checks.saturating_sub(recorded)
    }

    /// Returns the columns of the matrix, each once: the world sizes of one backend with one torch are side by side,
    /// and versions of torch are in their own order.
    #[must_use]
    pub fn columns(&self) -> Vec<Column> {
        let checks = self.checks.briefs().map(|check| check.column);
        let scenarios = self.scenarios.iter().map(|scenario| &scenario.column);
        let columns: BTreeSet<&Column> = checks.chain(scenarios).collect();
        let mut columns: Vec<Column> = columns.into_iter().cloned().collect();
        columns.sort_by_cached_key(|column| {
            let backend = (column.platform.clone(), column.backend.clone());
            let driver = (column.driver.clone(), column.launcher.clone());
            let torch = (torch_version(&column.torch), column.torch.clone());
            (
                backend,
                driver,
                column.evidence,
                torch,
                column.label.clone(),
                (column.world_size, column.nodes),
            )
        });
        columns
    }

    /// Returns the versions of torch that the ranks reported, each once, the oldest first.
    #[must_use]
    pub fn torch_versions(&self) -> Vec<&str> {
        let known = |column: &&Column| !column.torch.is_empty();
        let checks = self.checks.briefs().map(|check| check.column);
        let scenarios = self.scenarios.iter().map(|scenario| &scenario.column);
        let columns = checks.chain(scenarios).filter(known);
        let versions: BTreeSet<&str> = columns.map(|column| column.torch.as_str()).collect();
        let mut versions: Vec<&str> = versions.into_iter().collect();
        versions.sort_by_key(|version| torch_version(version));
        versions
    }

    /// Returns an index of scenarios by their checks. A scenario that was cut off is not in it, though some of its
    /// checks may be recorded.
    #[must_use]
    pub fn scenarios_by_check(&self) -> ScenariosByCheck<'_> {
        let scenarios = self.scenarios.iter().enumerate();
        let keyed =
            scenarios.map(|(index, one)| ((&one.id, run_configuration(&one.column)), (index, one)));
        ScenariosByCheck(keyed.collect())
    }

    /// Returns one line for each platform that was probed and not found.
    #[must_use]
    pub fn absences(&self) -> Vec<String> {
        let absent = self.run.absent.iter();
        absent
            .map(|absent| {
                let (platform, reason) = (one_line(&absent.platform), one_line(&absent.reason));
                clip(&format!("platform {platform} was not run: {reason}"), 500)
            })
            .collect()
    }

    /// Returns true if nothing is known to be missing: the run ended, and every line of its file is a
    /// record.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.end.is_some() && self.remarks.is_empty()
    }

    /// Returns the remarks on the records, then the issues that the run itself reported.
    #[must_use]
    pub fn issues(&self) -> Vec<&str> {
        let of_run = self.end.iter().flat_map(|end| &end.issues);
        self.remarks
            .iter()
            .chain(of_run)
            .map(String::as_str)
            .collect()
    }
}

/// The part of a scenario that a check belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// The initialisation.
    Init,
    /// A step.
    Step,
    /// The teardown.
    Teardown,
}

impl Phase {
    fn of(check: &CheckRecord) -> Self {
        let (_, name) = check.id.as_str().split_once('#').unwrap_or_default();
        match name.split('.').next() {
            Some("init") => Self::Init,
            Some("end") => Self::Teardown,
            Some(_) | None => Self::Step,
        }
    }
}

/// An index of scenarios by their checks: see [`Results::scenarios_by_check`]. An id alone is not enough if runs with
/// several versions of torch, or several drivers, were merged.
#[derive(Debug)]
pub struct ScenariosByCheck<'a>(
    BTreeMap<(&'a ScenarioId, [&'a str; 4]), (usize, &'a ScenarioRecord)>,
);

/// Returns the configuration of a run that distinguishes records of the same id: driver, launcher, torch, label.
fn run_configuration(column: &Column) -> [&str; 4] {
    [
        &column.driver,
        &column.launcher,
        &column.torch,
        &column.label,
    ]
}

impl<'a> ScenariosByCheck<'a> {
    /// Returns the scenario of a check; `None` if it has no record.
    #[must_use]
    pub fn get(&self, check: &CheckRecord) -> Option<&'a ScenarioRecord> {
        let key = (&check.scenario, run_configuration(&check.column));
        self.0.get(&key).map(|(_, scenario)| *scenario)
    }

    /// Returns the index of a check's scenario among the scenarios of the results; `None` if it has no record.
    #[must_use]
    pub fn index(&self, check: &CheckRecord) -> Option<usize> {
        let key = (&check.scenario, run_configuration(&check.column));
        self.0.get(&key).map(|(index, _)| *index)
    }
}

/// Names for columns, in the same order and each different: `platform/backend/wsN`, followed by the driver if it is not `python`,
/// the launcher if it is not `local` and the label of a merge; where that is not enough, by torch version and evidence.
///
/// A column's name does not change because an ordinary one joins it, so CI systems can follow it from run to run.
#[must_use]
pub fn column_names(columns: &[Column]) -> Vec<String> {
    let short: Vec<String> = columns.iter().map(short_name).collect();
    let mut seen = BTreeMap::<&str, usize>::new();
    for name in &short {
        *seen.entry(name).or_default() += 1;
    }
    columns
        .iter()
        .zip(&short)
        .map(|(column, name)| {
            if seen[name.as_str()] == 1 {
                return name.clone();
            }
            let torch = if column.torch.is_empty() {
                "unknown"
            } else {
                &column.torch
            };
            format!("{name}/torch-{torch}/{}", evidence_word(column.evidence))
        })
        .collect()
}

/// `platform/backend/wsN`, followed by the driver if it is not `python`, the launcher if it is not `local` and the label, if any.
pub(crate) fn short_name(column: &Column) -> String {
    let mut name = format!(
        "{}/{}/ws{}",
        column.platform, column.backend, column.world_size
    );
    if column.nodes > 1 {
        name.push_str(&format!("/{}n", column.nodes));
    }
    let parts = [
        (&column.driver, "python"),
        (&column.launcher, "local"),
        (&column.label, ""),
    ];
    for (value, usual) in parts {
        if value != usual {
            name.push('/');
            name.push_str(value);
        }
    }
    name
}

/// Returns the word for what a result on a platform proves; it is shown with every column.
pub(crate) fn evidence_word(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Hardware => "hardware",
        Evidence::Host => "host",
        Evidence::Simulated => "simulated",
    }
}
