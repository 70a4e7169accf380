//! Trends over many runs: which checks broke, when, and what had changed by then; which are not steady; which were fixed. In:
//! [`PastRuns`]. Out: [`Trend`], which the console and the page show.
//!
//! Everything that changed between the last good run and the first bad one is listed: any of it may be the cause. A run in which
//! a check was not run, or in which the harness failed, does not count for that check.

mod state;
pub(crate) mod text;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use allranks_model::names::CheckId;
use allranks_model::status::Status;
use serde::Serialize;

pub use state::TrendState;

use crate::owners::Owners;
use crate::past_runs::{Facts, Mark, PastRun, PastRuns, Series};
use crate::results::short_name;
use crate::text::one_line;
use crate::wilson::Rate;

/// What the runs of one pipeline say.
#[derive(Clone, Debug, Serialize)]
pub struct Trend {
    /// Name of the pipeline.
    pub pipeline: String,
    /// The runs, the oldest first. In JSON the field is `nights`.
    #[serde(rename = "nights")]
    pub runs: Vec<RunCounts>,
    /// The checks that are not steady, grouped by state, transition and failure; the most urgent first.
    pub groups: Vec<CheckGroup>,
    /// Every check that is in a group and, with [`TrendQuery::with_steady`], those that are steady; in the order of ids.
    pub checks: Vec<CheckTrend>,
    /// The number of checks in each state, including steady ones. In JSON the field is `courses`.
    #[serde(rename = "courses")]
    pub states: BTreeMap<TrendState, u64>,
}

/// One run, and its number of checks by status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunCounts {
    /// Name of the run.
    pub name: String,
    /// When it began, in seconds since the Unix epoch.
    pub started: u64,
    /// True if it ended with a record of every planned check.
    pub is_whole: bool,
    /// Number of planned checks that left no record.
    pub missing: u64,
    /// Number of checks by status.
    pub counts: BTreeMap<Status, u64>,
    /// What is known of its environment.
    pub facts: Facts,
    /// What differs from the environment of the run before it.
    pub changes: Vec<FactChange>,
}

/// A fact of the environment that differs between two runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FactChange {
    /// Name of the fact.
    pub name: String,
    /// The value in the older run; `None` if it is not known.
    pub old: Option<String>,
    /// The value in the newer run; `None` if it is not known.
    pub new: Option<String>,
}

/// Where the result of a check changed: the run before, the run after, and what differs between their environments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Transition {
    /// Index of the last run before, in [`Trend::runs`]; `None` if no earlier run is known.
    pub before: Option<usize>,
    /// Index of the first run after.
    pub after: usize,
    /// What differs between the two.
    pub changes: Vec<FactChange>,
    /// True if the environments of both runs are known. If not, an empty list of changes proves nothing.
    pub is_known: bool,
}

/// Checks of the same state that changed in the same runs and fail in the same way.
#[derive(Clone, Debug, Serialize)]
pub struct CheckGroup {
    /// The state of the checks. In JSON the field is `course`.
    #[serde(rename = "course")]
    pub state: TrendState,
    /// True if the result changed in the newest run.
    pub is_new: bool,
    /// Where the result changed last; `None` for a state that no single change explains. In JSON the field is `turn`.
    #[serde(rename = "turn")]
    pub transition: Option<Transition>,
    /// What went wrong in the last failure.
    pub kind: String,
    /// The number of checks.
    pub checks: u64,
    /// The columns they are in.
    pub columns: Vec<String>,
    /// The cases they are of.
    pub cases: Vec<String>,
    /// The owners of the checks, by the owners file.
    pub owners: Vec<String>,
    /// The id of one of the checks.
    pub example: CheckId,
    /// The status of the example in each run.
    pub marks: Vec<Option<Status>>,
    /// In how many runs the example failed, of those in which it passed or failed.
    pub failed: u64,
    /// The number of those runs.
    pub ran: u64,
    /// The 95 % interval of that rate, by Wilson.
    pub interval: (f64, f64),
}

/// One check over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct CheckTrend {
    /// Id of the check.
    pub id: CheckId,
    /// Name of its column.
    pub column: String,
    /// Its state. In JSON the field is `course`.
    #[serde(rename = "course")]
    pub state: TrendState,
    /// Where the result changed last; `None` for a state that no single change explains. In JSON the field is `turn`.
    #[serde(rename = "turn")]
    pub transition: Option<Transition>,
    /// Its status in each run; `None` where the run has no record of it.
    pub marks: Vec<Option<Status>>,
    /// In how many runs it failed, of those in which it passed or failed.
    pub failed: u64,
    /// The number of those runs.
    pub ran: u64,
    /// The 95 % interval of that rate, by Wilson.
    pub interval: (f64, f64),
    /// What went wrong in the last failure; empty if it never failed.
    pub kind: String,
    /// The owners of the check, by the owners file.
    pub owners: Vec<String>,
}

/// Selects the checks of a trend.
#[derive(Clone, Debug, Default)]
pub struct TrendQuery {
    /// Words that id, column or a requirement of a check must contain, each of them; empty: every check.
    pub words: Vec<String>,
    /// True if steady checks are listed too.
    pub with_steady: bool,
    /// Owners of checks.
    pub owners: Owners,
}

impl CheckTrend {
    /// Returns what happened to the check between the last two runs: broken, fixed, or lost; `None` if nothing did.
    #[must_use]
    pub fn newly(&self) -> Option<TrendState> {
        let [.., before, now] = self.marks.as_slice() else {
            return None;
        };
        let is_good = |mark: &Option<Status>| mark.and_then(state::is_good);
        match (is_good(before), is_good(now)) {
            (Some(true), Some(false)) => Some(TrendState::Broken),
            (Some(false), Some(true)) => Some(TrendState::Fixed),
            (Some(_), None) => Some(TrendState::Lost),
            (None, _) | (Some(true), Some(true)) | (Some(false), Some(false)) => None,
        }
    }
}

impl TrendQuery {
    /// Returns true if the check of this series is selected.
    fn selects(&self, series: &Series) -> bool {
        if self.words.is_empty() {
            return true;
        }
        let column = short_name(&series.column);
        let covers = series.covers.iter().map(|one| one.as_str());
        let mut text = format!("{} {column}", series.id.as_str());
        for one in covers {
            text.push(' ');
            text.push_str(one);
        }
        let text = text.to_lowercase();
        self.words
            .iter()
            .all(|word| text.contains(&word.to_lowercase()))
    }
}

impl Trend {
    /// Works out the trend of the selected checks. Without a run, everything is empty.
    #[must_use]
    pub fn of(past_runs: &PastRuns, query: &TrendQuery) -> Self {
        let mut changes = Changes::new(past_runs);
        let mut states = BTreeMap::<TrendState, u64>::new();
        let mut checks = Vec::new();
        let mut groups = BTreeMap::<_, CheckGroup>::new();
        let mut counts = vec![BTreeMap::<Status, u64>::new(); past_runs.runs.len()];
        for series in past_runs.series.iter().filter(|one| query.selects(one)) {
            for (counts, mark) in counts.iter_mut().zip(&series.marks) {
                if let Some(mark) = mark {
                    *counts.entry(mark.status).or_default() += 1;
                }
            }
            let (state, transition) = state::of(series, &past_runs.runs, &mut changes);
            *states.entry(state).or_default() += 1;
            if state.is_steady() && !query.with_steady {
                continue;
            }
            let check = check_trend(series, past_runs, state, transition, query);
            if !state.is_steady() {
                add_to_group(&mut groups, &check, series, past_runs.runs.len());
            }
            checks.push(check);
        }
        checks.sort_by(|one, other| (&one.id, &one.column).cmp(&(&other.id, &other.column)));
        let mut groups: Vec<CheckGroup> = groups.into_values().collect();
        groups.sort_by_key(|group| {
            let turned = group
                .transition
                .as_ref()
                .map_or(0, |transition| transition.after);
            (
                !group.is_new || group.state != TrendState::Broken,
                group.state,
                std::cmp::Reverse(turned),
                std::cmp::Reverse(group.checks),
            )
        });
        Self {
            pipeline: past_runs.pipeline.clone(),
            runs: run_counts(past_runs, counts),
            groups,
            checks,
            states,
        }
    }
}

fn run_counts(past_runs: &PastRuns, counts: Vec<BTreeMap<Status, u64>>) -> Vec<RunCounts> {
    let mut before: Option<&PastRun> = None;
    let counted = past_runs.runs.iter().zip(counts).map(|(past_run, counts)| {
        let changes = before.map_or_else(Vec::new, |before| {
            differences(&before.facts, &past_run.facts)
        });
        before = Some(past_run);
        RunCounts {
            name: past_run.name.clone(),
            started: past_run.started,
            is_whole: past_run.is_whole,
            missing: past_run.missing,
            counts,
            facts: past_run.facts.clone(),
            changes,
        }
    });
    counted.collect()
}

fn check_trend(
    series: &Series,
    past_runs: &PastRuns,
    state: TrendState,
    transition: Option<Transition>,
    query: &TrendQuery,
) -> CheckTrend {
    let rate = rate(&series.marks);
    let column = short_name(&series.column);
    let mut failures = series.marks.iter().rev().flatten();
    let failure = failures.find(|mark| state::has_failed(mark.status));
    let covers = series.covers.iter().map(|one| one.as_str());
    let names: Vec<&str> = [series.case.as_str(), column.as_str()]
        .into_iter()
        .chain(covers)
        .collect();
    CheckTrend {
        id: series.id.clone(),
        column: match series.column.torch.is_empty() {
            true => one_line(&column),
            false => one_line(&format!("{column}/torch-{}", series.column.torch)),
        },
        state,
        transition,
        marks: series
            .marks
            .iter()
            .map(|mark| mark.map(|mark| mark.status))
            .collect(),
        failed: rate.seen,
        ran: rate.of,
        interval: rate.interval(),
        kind: failure.map_or_else(String::new, |mark| past_runs.texts[mark.kind].clone()),
        owners: query.owners.of(names.iter().copied()).to_vec(),
    }
}

/// Returns how often a check failed, of the runs in which it passed or failed.
fn rate(marks: &[Option<Mark>]) -> Rate {
    let known = marks.iter().flatten().map(|mark| mark.status);
    let ran = known.filter(|status| state::has_failed(*status) || state::has_passed(*status));
    let (failed, passed): (Vec<_>, Vec<_>) = ran.partition(|status| state::has_failed(*status));
    Rate {
        seen: failed.len() as u64,
        of: (failed.len() + passed.len()) as u64,
    }
}

type GroupKey = (
    TrendState,
    Option<(Option<usize>, usize)>,
    String,
    Vec<String>,
);

/// Adds a check to its group, which is made if there is none.
fn add_to_group(
    groups: &mut BTreeMap<GroupKey, CheckGroup>,
    check: &CheckTrend,
    series: &Series,
    past_runs: usize,
) {
    let turned = check
        .transition
        .as_ref()
        .map(|transition| (transition.before, transition.after));
    let key = (
        check.state,
        turned,
        check.kind.clone(),
        check.owners.clone(),
    );
    let group = groups.entry(key).or_insert_with(|| CheckGroup {
        state: check.state,
        is_new: turned.is_some_and(|(_, after)| after + 1 == past_runs),
        transition: check.transition.clone(),
        kind: check.kind.clone(),
        checks: 0,
        columns: Vec::new(),
        cases: Vec::new(),
        owners: check.owners.clone(),
        example: check.id.clone(),
        marks: check.marks.clone(),
        failed: check.failed,
        ran: check.ran,
        interval: check.interval,
    });
    group.checks += 1;
    let case = one_line(series.case.as_str());
    for (list, one) in [
        (&mut group.columns, &check.column),
        (&mut group.cases, &case),
    ] {
        if let Err(index) = list.binary_search(one) {
            list.insert(index, one.clone());
        }
    }
    // The example of a group is the check that failed most often.
    if check.failed > group.failed {
        group.example = check.id.clone();
        group.marks.clone_from(&check.marks);
        (group.failed, group.ran) = (check.failed, check.ran);
        group.interval = check.interval;
    }
}

/// Returns the facts that differ between two environments, or that only one has. Those that matter most to a collective come
/// first.
#[must_use]
pub fn differences(old: &Facts, new: &Facts) -> Vec<FactChange> {
    /// Facts named first; a prefix stands for all that begin with it.
    const FIRST: &[&str] = &[
        "torch", "driver", "backend", "platform", "kernel", "devices",
    ];
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name));
    let mut changes: Vec<FactChange> = changed
        .map(|name| FactChange {
            name: name.clone(),
            old: old.get(name).cloned(),
            new: new.get(name).cloned(),
        })
        .collect();
    let priority = |change: &FactChange| {
        FIRST
            .iter()
            .position(|first| change.name.starts_with(first))
    };
    changes.sort_by_key(|change| (priority(change).unwrap_or(FIRST.len()), change.name.clone()));
    changes
}

/// What differs between runs for a check, computed once for each pair. The version of torch is what its ranks reported.
struct Changes<'a> {
    past_runs: &'a PastRuns,
    known: HashMap<(usize, usize, usize, usize), Vec<FactChange>>,
}

impl<'a> Changes<'a> {
    fn new(past_runs: &'a PastRuns) -> Self {
        Self {
            past_runs,
            known: HashMap::new(),
        }
    }

    /// Returns what differs between two runs for a check with these marks in them.
    fn between(&mut self, old: (usize, Mark), new: (usize, Mark)) -> &[FactChange] {
        let past_runs = self.past_runs;
        let key = (old.0, new.0, old.1.torch, new.1.torch);
        self.known.entry(key).or_insert_with(|| {
            let facts = |(past_run, mark): (usize, Mark)| {
                let mut facts = past_runs.runs[past_run].facts.clone();
                let torch = &past_runs.texts[mark.torch];
                if !torch.is_empty() {
                    facts.insert("torch".to_owned(), torch.clone());
                }
                facts
            };
            differences(&facts(old), &facts(new))
        })
    }
}
