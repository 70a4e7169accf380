//! The data of the page, as compact as possible: names are stored once and referred to by index, passing checks are
//! counted, and only failing, waived and known-failing checks are stored in full. Field names are those of `report.js`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::timeline::{Scenario, drawn};
use super::trend::TrendData;

use crate::check_set::CheckSet;
use crate::command_line::command_line;
use crate::details::{details, summary_line};
use crate::index::Index;
use crate::observed::pairs;
use crate::recipe::{InitAdvice, advise_init};
use crate::results::{Results, ScenariosByCheck, column_names, evidence_word};
use crate::sides::Sides;
use crate::status_counts::{Headline, StatusCounts, exit_meaning};
use crate::text::{clip, one_line};
use crate::trend::Trend;
use crate::versions;
use crate::versions::Versions;
use allranks_model::names::RequirementId;
use allranks_model::record::{CheckRecord, Column};
use allranks_model::status::Status;

/// The number of checks that are shown in full; more failures than that have one cause, not thousands.
const FINDINGS_LIMIT: usize = 3_000;
/// The number of values that are listed of a parameter.
const VALUES_LIMIT: usize = 12;
/// The number of reasons that are listed in a cell.
const REASONS_LIMIT: usize = 100;

/// Returns the recommended init recipes, as the page shows them.
fn recipes<C: CheckSet>(results: &Results<C>) -> Vec<Recipe> {
    let detailed = |advice: InitAdvice| Recipe {
        backend: advice.subject(),
        recipe: advice.summary_line(),
        torch: advice.torch,
        failing: advice.failing,
    };
    advise_init(&results.checks)
        .into_iter()
        .map(detailed)
        .collect()
}

/// The data that the page's script reads.
#[derive(Debug, Serialize)]
pub(super) struct Data {
    run: Run,
    statuses: Vec<StatusInfo>,
    columns: Vec<ColumnInfo>,
    cases: Vec<CaseInfo>,
    requirements: Vec<String>,
    /// The sentence of each requirement, where the run has it.
    sentences: Vec<String>,
    /// Texts that cells share: values of parameters, reasons.
    texts: Vec<String>,
    units: Vec<Unit>,
    findings: Vec<CheckDetail>,
    /// The number of checks that are left out because there is no room.
    omitted: usize,
    scenarios: Vec<Scenario>,
    /// What differs between versions of torch; `None` if there is only one.
    versions: Option<VersionTable>,
    /// What differs between backends, versions and drivers; `None` if there is only one of each.
    sides: Option<SideTable>,
    /// Recommended init recipes, for backends that tried several.
    recipes: Vec<Recipe>,
    /// The trend over earlier runs; `None` if it was not asked for.
    trend: Option<TrendData>,
}

#[derive(Debug, Serialize)]
struct Recipe {
    backend: String,
    torch: String,
    recipe: String,
    /// The recipes that fail, each with its reason.
    failing: Vec<(String, String)>,
}

/// The checks whose status differs between versions of torch.
#[derive(Debug, Serialize)]
struct VersionTable {
    torch: Vec<String>,
    /// The number of checks that have the same status with all of them.
    alike: u64,
    rows: Vec<VersionRow>,
}

/// The requirements whose worst status differs between sides.
#[derive(Debug, Serialize)]
struct SideTable {
    names: Vec<String>,
    /// The number of requirements that have the same worst status on all of them.
    alike: u64,
    rows: Vec<SideRowData>,
}

#[derive(Debug, Serialize)]
struct SideRowData {
    requirement: String,
    sentence: String,
    /// For each side: index of the worst status, number of checks with it, number of checks; `None` if there is no check.
    cells: Vec<Option<(usize, u64, u64)>>,
}

#[derive(Debug, Serialize)]
struct VersionRow {
    what: String,
    checks: u64,
    /// For each version the index of a status; `None` if it has no such check.
    cells: Vec<Option<usize>>,
    why: String,
}

#[derive(Debug, Serialize)]
struct Run {
    name: String,
    allranks: String,
    started: u64,
    seed: String,
    profile: Option<String>,
    command: String,
    headline: String,
    good: bool,
    ended: bool,
    missing: u64,
    duration_ms: Option<u64>,
    exit: Option<String>,
    issues: Vec<String>,
    absent: Vec<String>,
    counts: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct StatusInfo {
    key: Status,
    word: &'static str,
    symbol: &'static str,
    failing: bool,
}

#[derive(Debug, Serialize)]
struct ColumnInfo {
    name: String,
    platform: String,
    backend: String,
    size: u32,
    driver: String,
    launcher: String,
    evidence: &'static str,
    torch: String,
}

#[derive(Debug, Serialize)]
struct CaseInfo {
    id: String,
    title: String,
}

/// The checks of one case that cover the same requirements.
#[derive(Debug, Serialize)]
struct Unit {
    case: usize,
    covers: Vec<usize>,
    cells: Vec<Cell>,
}

/// A unit's checks in one column.
#[derive(Debug, Serialize)]
struct Cell {
    column: usize,
    /// Pairs of status and count.
    counts: Vec<(usize, u64)>,
    /// Parameters of the checks that passed: name, values (indices of texts), number of values that are left out.
    passed: Vec<(usize, Vec<usize>, usize)>,
    /// The number of elements that were compared in checks that passed, over all ranks.
    elements: u64,
    /// Observations: name, value, number of checks.
    observed: Vec<(usize, usize, u64)>,
    /// Why checks were refused or did not run: status, reason, count.
    reasons: Vec<(usize, usize, u64)>,
}

/// A check with all its details.
#[derive(Debug, Serialize)]
struct CheckDetail {
    id: String,
    case: usize,
    column: usize,
    status: usize,
    covers: Vec<usize>,
    scenario: Option<usize>,
    /// What checks that fail alike have in common: the class of a mismatch, or outcome and summary.
    kind: String,
    /// The span of its scenario's timeline that is this check.
    span: String,
    lines: Vec<(String, String)>,
}

impl Data {
    pub(super) fn of<C: CheckSet>(results: &Results<C>, trend: Option<&Trend>) -> Self {
        let mut data = Collector::new(results).collect();
        data.trend = trend.map(TrendData::of);
        data
    }
}

/// The content of a cell before its texts are replaced by indices.
#[derive(Default)]
struct Gathered {
    counts: StatusCounts,
    /// For each parameter its values, as indices of the list of values.
    params: BTreeMap<String, BTreeSet<u32>>,
    elements: u64,
    observed: BTreeMap<(String, String), u64>,
    reasons: BTreeMap<(Status, String), u64>,
}

struct Collector<'a, C> {
    results: &'a Results<C>,
    columns: Vec<Column>,
    scenarios: ScenariosByCheck<'a>,
    /// True if there are results with several versions of torch, so that an id alone does not identify one.
    has_versions: bool,
    cases: Index<String>,
    requirements: Index<String>,
    texts: Index<String>,
}

impl<'a, C: CheckSet> Collector<'a, C> {
    fn new(results: &'a Results<C>) -> Self {
        Self {
            results,
            columns: results.columns(),
            scenarios: results.scenarios_by_check(),
            has_versions: results.torch_versions().len() > 1,
            cases: Index::new(),
            requirements: Index::new(),
            texts: Index::new(),
        }
    }

    fn collect(mut self) -> Data {
        let units = self.units();
        let (findings, omitted) = self.findings();
        let scenarios = self.scenario_list(&findings);
        let titles = self.titles();
        let cases = self.cases.into_values().into_iter();
        let requirements = self.requirements.into_values();
        let known = &self.results.run.requirements;
        Data {
            sentences: requirements
                .iter()
                .map(|id| known.get(&RequirementId::from(id.as_str())))
                .map(|sentence| sentence.map_or_else(String::new, |text| one_line(text)))
                .collect(),
            run: run(self.results),
            statuses: Status::ALL.iter().copied().map(status_info).collect(),
            columns: column_list(&self.columns),
            cases: cases
                .map(|id| CaseInfo {
                    title: titles.get(&id).cloned().unwrap_or_default(),
                    id,
                })
                .collect(),
            requirements,
            texts: self.texts.into_values(),
            units,
            findings,
            omitted,
            scenarios,
            versions: versions(self.results),
            sides: sides(self.results),
            recipes: recipes(self.results),
            trend: None,
        }
    }

    fn column(&self, column: &Column) -> usize {
        // Every column of a record is in the list.
        let index = self.columns.iter().position(|one| one == column);
        index.unwrap_or(0)
    }

    fn covers(&mut self, check: &CheckRecord) -> Vec<usize> {
        let covers = check.covers.iter();
        let covers = covers.map(|one| self.requirements.of(&one_line(one.as_str())));
        covers.collect()
    }

    fn units(&mut self) -> Vec<Unit> {
        let mut units = BTreeMap::<(usize, Vec<usize>), BTreeMap<usize, Gathered>>::new();
        // Of a million checks, each cell may have a thousand values: they are stored once.
        let mut values = Index::new();
        for check in self.results.checks.records() {
            let case = self.cases.of(&one_line(check.case.as_str()));
            let key = (case, self.covers(&check));
            let column = self.column(&check.column);
            let cell = units.entry(key).or_default().entry(column).or_default();
            cell.add(&check, &mut values);
        }
        let values = values.into_values();
        let units = units.into_iter();
        units
            .map(|((case, covers), cells)| Unit {
                case,
                covers,
                cells: cells
                    .into_iter()
                    .map(|(column, gathered)| self.cell(column, gathered, &values))
                    .collect(),
            })
            .collect()
    }

    fn cell(&mut self, column: usize, gathered: Gathered, values: &[NaturalOrder]) -> Cell {
        let counts = Status::ALL.iter().copied().enumerate();
        let counts = counts.map(|(index, status)| (index, gathered.counts.count(status)));
        let texts = &mut self.texts;
        let passed = gathered.params.into_iter().map(|(name, indices)| {
            let left_out = indices.len().saturating_sub(VALUES_LIMIT);
            let seen = indices
                .iter()
                .filter_map(|index| values.get(*index as usize));
            let mut seen: Vec<&NaturalOrder> = seen.collect();
            seen.sort_unstable();
            let seen = seen.into_iter().take(VALUES_LIMIT);
            let seen = seen.map(|value| texts.of(&value.text)).collect();
            (texts.of(&name), seen, left_out)
        });
        let passed = passed.collect();
        let observed = gathered.observed.into_iter().take(VALUES_LIMIT);
        let observed = observed
            .map(|((name, value), count)| (texts.of(&name), texts.of(&value), count))
            .collect();
        let mut reasons: Vec<_> = gathered.reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let reasons = reasons.into_iter().take(REASONS_LIMIT);
        Cell {
            column,
            counts: counts.filter(|(_, count)| *count > 0).collect(),
            passed,
            elements: gathered.elements,
            observed,
            reasons: reasons
                .map(|((status, text), count)| (status.index(), self.texts.of(&text), count))
                .collect(),
        }
    }

    /// Returns the checks that are shown in full, failing ones first, and the number of those beyond the limit.
    fn findings(&mut self) -> (Vec<CheckDetail>, usize) {
        let results = self.results;
        let checks = &results.checks;
        let detailed = checks.indices_where(|check| is_detailed(check.status()));
        let mut detailed: Vec<usize> = detailed.collect();
        detailed.sort_by_key(|index| checks.brief(*index).status());
        let omitted = detailed.len().saturating_sub(FINDINGS_LIMIT);
        detailed.truncate(FINDINGS_LIMIT);
        let detailed = detailed.into_iter().map(|index| checks.record(index));
        let findings = detailed.map(|check| self.finding(&check));
        (findings.collect(), omitted)
    }

    fn finding(&mut self, check: &CheckRecord) -> CheckDetail {
        let scenario = self.scenarios.get(check);
        let lines = details(&self.results.run, scenario, check);
        let id = one_line(check.id.as_str());
        let kind = match &check.class {
            Some(class) => one_line(class),
            None => format!("{}: {}", check.outcome, summary_line(check)),
        };
        CheckDetail {
            case: self.cases.of(&one_line(check.case.as_str())),
            column: self.column(&check.column),
            status: check.status().index(),
            covers: self.covers(check),
            scenario: self.scenarios.index(check),
            kind: clip(&kind, 200),
            span: id
                .split_once('#')
                .map_or_else(|| id.clone(), |(_, span)| span.to_owned()),
            lines: lines
                .into_iter()
                .map(|line| (line.label, line.text))
                .collect(),
            id: self.unique(id, &check.column),
        }
    }

    /// Appends label and torch to an id, if results of the same id may differ in them.
    fn unique(&self, id: String, column: &Column) -> String {
        let id = match column.label.is_empty() {
            true => id,
            false => format!("{id} ({})", one_line(&column.label)),
        };
        if self.has_versions {
            let torch = one_line(&column.torch);
            format!(
                "{id} (torch {})",
                if torch.is_empty() { "unknown" } else { &torch }
            )
        } else {
            id
        }
    }

    fn scenario_list(&mut self, findings: &[CheckDetail]) -> Vec<Scenario> {
        let with_findings: BTreeSet<usize> = findings
            .iter()
            .filter_map(|finding| finding.scenario)
            .collect();
        let drawn = drawn(&self.results.scenarios, &with_findings);
        let scenarios = self.results.scenarios.iter().enumerate();
        scenarios
            .map(|(index, scenario)| {
                let case = self.cases.of(&one_line(scenario.case.as_str()));
                let column = self.column(&scenario.column);
                let id = self.unique(one_line(scenario.id.as_str()), &scenario.column);
                Scenario::of(scenario, id, case, column, drawn.contains(&index))
            })
            .collect()
    }

    /// Returns the titles of cases, taken from their scenarios.
    fn titles(&self) -> BTreeMap<String, String> {
        let scenarios = self.results.scenarios.iter();
        let titles = scenarios.map(|one| (one_line(one.case.as_str()), one_line(&one.title)));
        titles.collect()
    }
}

impl Gathered {
    fn add(&mut self, check: &CheckRecord, known: &mut Index<NaturalOrder>) {
        let status = check.status();
        self.counts.add(status);
        for pair in pairs(check) {
            *self.observed.entry(pair).or_default() += 1;
        }
        if status == Status::Passed {
            self.elements += check.checked.iter().sum::<u64>();
            for (name, value) in &check.params {
                let values = self.params.entry(clip(&one_line(name), 60)).or_default();
                let value = known.of(&NaturalOrder::new(clip(&one_line(value), 60)));
                values.insert(u32::try_from(value).unwrap_or(u32::MAX));
            }
        } else if !is_detailed(status) {
            let reason = summary_line(check);
            *self.reasons.entry((status, reason)).or_default() += 1;
        }
    }
}

/// A value of a parameter. Numbers are ordered by size.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct NaturalOrder {
    number: Option<u64>,
    text: String,
}

impl NaturalOrder {
    fn new(text: String) -> Self {
        let number = text.parse().ok();
        Self { number, text }
    }
}

/// Returns true if a check is shown in full; the rest is counted, with reasons where there are any.
fn is_detailed(status: Status) -> bool {
    match status {
        Status::Regression
        | Status::HarnessError
        | Status::UnexpectedPass
        | Status::Waived
        | Status::KnownFailure => true,
        Status::NotRun | Status::Refused | Status::Passed => false,
    }
}

fn status_info(status: Status) -> StatusInfo {
    StatusInfo {
        key: status,
        word: status.word(),
        symbol: status.symbol(),
        failing: status.is_failing(),
    }
}

fn run<C: CheckSet>(results: &Results<C>) -> Run {
    let record = &results.run;
    let headline = Headline::of(results);
    let counts = StatusCounts::of(&results.checks);
    let issues = results.issues().into_iter();
    Run {
        name: one_line(&record.name),
        allranks: one_line(&record.allranks),
        started: record.started,
        // As text: JavaScript's numbers have 53 bits.
        seed: record.seed.to_string(),
        profile: record.profile.as_deref().map(one_line),
        command: one_line(&format!("allranks {}", command_line(&record.arguments))),
        headline: headline.sentence,
        good: headline.good,
        ended: results.end.is_some(),
        missing: results.missing(),
        duration_ms: results.end.as_ref().map(|end| end.duration_ms),
        exit: results
            .end
            .as_ref()
            .map(|end| format!("{} ({})", end.exit_code, exit_meaning(end.exit_code))),
        issues: issues.map(|text| clip(&one_line(text), 2_000)).collect(),
        absent: results.absences(),
        counts: Status::ALL
            .iter()
            .map(|status| counts.count(*status))
            .collect(),
    }
}

fn sides<C: CheckSet>(results: &Results<C>) -> Option<SideTable> {
    let sides = Sides::of(results)?;
    let rows = sides.rows.into_iter();
    Some(SideTable {
        names: sides.names,
        alike: sides.alike,
        rows: rows
            .map(|row| SideRowData {
                requirement: one_line(row.requirement.as_str()),
                sentence: row.sentence,
                cells: row
                    .cells
                    .iter()
                    .map(|cell| cell.map(|one| (one.status.index(), one.count, one.of)))
                    .collect(),
            })
            .collect(),
    })
}

fn versions<C: CheckSet>(results: &Results<C>) -> Option<VersionTable> {
    let versions = Versions::of(results)?;
    let row = |row: versions::Row| VersionRow {
        what: one_line(&row.what),
        checks: row.checks,
        cells: row
            .cells
            .iter()
            .map(|cell| cell.map(Status::index))
            .collect(),
        why: clip(&row.why, 500),
    };
    Some(VersionTable {
        torch: versions.torch.iter().map(|torch| one_line(torch)).collect(),
        alike: versions.alike,
        rows: versions.rows.into_iter().map(row).collect(),
    })
}

fn column_list(columns: &[Column]) -> Vec<ColumnInfo> {
    let named = columns.iter().zip(column_names(columns));
    named
        .map(|(column, name)| ColumnInfo {
            name: one_line(&name),
            platform: one_line(&column.platform),
            backend: one_line(&column.backend),
            size: column.world_size.0,
            driver: one_line(&column.driver),
            launcher: one_line(&column.launcher),
            evidence: evidence_word(column.evidence),
            torch: one_line(&column.torch),
        })
        .collect()
}
