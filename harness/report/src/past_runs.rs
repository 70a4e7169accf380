//! The status of each check in many runs: the input of [`Trend`](crate::trend::Trend). A run that was cut off is marked as such,
//! and a check without a record has no mark: it is never taken for a pass.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use allranks_model::names::{CaseId, CheckId, RequirementId};
use allranks_model::record::{CheckRecord, Column};
use allranks_model::status::Status;

use crate::check_set::CheckSet;
use crate::details::summary_line;
use crate::results::Results;
use crate::text::{clip, one_line};

/// The longest [`Mark::kind`], in bytes.
const KIND_LIMIT: usize = 200;

/// The environment of a run, as far as it is known: `torch` → `2.11.0`, `kernel` → `Linux 6.1.0`.
pub type Facts = BTreeMap<String, String>;

/// One stored run, with the facts of its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastRun {
    /// Name of the run.
    pub name: String,
    /// When it began, in seconds since the Unix epoch.
    pub started: u64,
    /// True if it ended with a record of every planned check.
    pub is_whole: bool,
    /// Number of planned checks that left no record.
    pub missing: u64,
    /// The facts of the run's environment.
    pub facts: Facts,
}

/// The result of one check in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The status of the check.
    pub status: Status,
    /// The version of torch that its ranks reported, as an index of [`PastRuns::texts`].
    pub torch: usize,
    /// What went wrong, as an index of [`PastRuns::texts`]; that of the empty text for a pass.
    pub kind: usize,
}

/// One check of one column over all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Id of the check.
    pub id: CheckId,
    /// Id of its case.
    pub case: CaseId,
    /// Its column. `torch` is empty, so that a series goes on when torch is replaced; it is given where one run holds results of
    /// several versions.
    pub column: Column,
    /// Requirements that it covers.
    pub covers: Vec<RequirementId>,
    /// One for each run, the oldest first; `None` where the run has no record of it.
    pub marks: Vec<Option<Mark>>,
}

/// The runs of one pipeline, the oldest first, and the marks of their checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastRuns {
    /// Name of the pipeline.
    pub pipeline: String,
    /// The runs.
    pub runs: Vec<PastRun>,
    /// The checks.
    pub series: Vec<Series>,
    /// Texts that marks share.
    pub texts: Vec<String>,
    indices: HashMap<(CheckId, Column), usize>,
    text_indices: HashMap<String, usize>,
}

impl PastRuns {
    /// Makes an empty list of runs for a pipeline.
    #[must_use]
    pub fn new(pipeline: impl Into<String>) -> Self {
        Self {
            pipeline: pipeline.into(),
            ..Self::default()
        }
    }

    /// Adds a run, which must be newer than all others.
    pub fn push<C: CheckSet>(&mut self, results: &Results<C>, facts: Facts) {
        self.begin(PastRun::of(results, facts));
        for (column, check) in series_of(results) {
            let mark = self.mark(
                check.status(),
                &one_line(&check.column.torch),
                &kind_of(&check),
            );
            self.put(&check.id, &check.case, column, &check.covers, mark);
        }
    }

    /// Adds a run without marks; [`put`](Self::put) adds those.
    pub fn begin(&mut self, past_run: PastRun) {
        self.runs.push(past_run);
        for series in &mut self.series {
            series.marks.push(None);
        }
    }

    /// Makes a mark. Equal texts are stored once.
    pub fn mark(&mut self, status: Status, torch: &str, kind: &str) -> Mark {
        Mark {
            status,
            torch: self.text(torch),
            kind: self.text(kind),
        }
    }

    /// Adds a mark to the newest run. If it has one of this check already, as in a run that repeats its checks, the worse one
    /// stays.
    ///
    /// # Panics
    /// No run was begun.
    pub fn put(
        &mut self,
        id: &CheckId,
        case: &CaseId,
        column: Column,
        covers: &[RequirementId],
        mark: Mark,
    ) {
        let count = self.runs.len();
        let key = (id.clone(), column);
        let index = match self.indices.get(&key) {
            Some(index) => *index,
            None => {
                self.series.push(Series {
                    id: id.clone(),
                    case: case.clone(),
                    column: key.1.clone(),
                    covers: covers.to_vec(),
                    marks: vec![None; count],
                });
                self.indices.insert(key, self.series.len() - 1);
                self.series.len() - 1
            }
        };
        let last = self.series[index].marks.last_mut();
        let last = last.expect("a run was begun");
        if last.is_none_or(|known| mark.status < known.status) {
            *last = Some(mark);
        }
    }

    fn text(&mut self, text: &str) -> usize {
        if let Some(index) = self.text_indices.get(text) {
            return *index;
        }
        self.texts.push(text.to_owned());
        self.text_indices
            .insert(text.to_owned(), self.texts.len() - 1);
        self.texts.len() - 1
    }
}

impl PastRun {
    /// Takes name, start and completeness of a run from its results.
    #[must_use]
    pub fn of<C: CheckSet>(results: &Results<C>, facts: Facts) -> Self {
        Self {
            name: one_line(&results.run.name),
            started: results.run.started,
            is_whole: results.is_whole() && results.missing() == 0,
            missing: results.missing(),
            facts,
        }
    }
}

/// Iterates over the checks of a run, each with the column of its [`Series`].
pub fn series_of<C: CheckSet>(
    results: &Results<C>,
) -> impl Iterator<Item = (Column, Cow<'_, CheckRecord>)> {
    let mut versions = HashMap::<_, BTreeSet<String>>::new();
    let ran = |check: &'_ CheckRecord| {
        let column = &check.column;
        (
            check.id.clone(),
            column.driver.clone(),
            column.launcher.clone(),
        )
    };
    // Most runs have one version, and nothing to tell apart.
    let torches = results.checks.briefs().map(|check| &check.column.torch);
    let has_several = torches.collect::<BTreeSet<_>>().len() > 1;
    let several = results.checks.records().take_while(|_| has_several);
    for check in several {
        let torch = check.column.torch.clone();
        versions.entry(ran(&check)).or_default().insert(torch);
    }
    results.checks.records().map(move |check| {
        let mut column = check.column.clone();
        if versions.get(&ran(&check)).is_none_or(|one| one.len() < 2) {
            column.torch.clear();
        }
        (column, check)
    })
}

/// Returns what checks that fail alike have in common: the class, or outcome and summary; empty for a pass.
#[must_use]
pub fn kind_of(check: &CheckRecord) -> String {
    let kind = match (&check.class, check.status()) {
        (_, Status::Passed) => String::new(),
        (Some(class), _) => one_line(class),
        (None, _) => format!("{}: {}", check.outcome, summary_line(check)),
    };
    clip(&kind, KIND_LIMIT)
}
