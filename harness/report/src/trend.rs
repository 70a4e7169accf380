//! Trends over many runs: which checks broke, when, and what had changed by then; which are not steady; which were fixed. In:
//! [`Nights`]. Out: [`Trend`], which the console and the page show.
//!
//! What changed between the last good run and the first bad one is listed, all of it and without a judgement: it may be the cause.
//! A check that was not run, or that the harness failed in, says nothing, neither good nor bad.

mod course;
pub(crate) mod text;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use allranks_model::names::CheckId;
use allranks_model::status::Status;
use serde::Serialize;

pub use course::Course;

use crate::nights::{Facts, Mark, Night, Nights, Series};
use crate::owners::Owners;
use crate::results::short_name;
use crate::text::one_line;
use crate::wilson::Rate;

/// What the runs of one pipeline say.
#[derive(Clone, Debug, Serialize)]
pub struct Trend {
    /// Name of the pipeline.
    pub pipeline: String,
    /// The runs, the oldest first.
    pub nights: Vec<NightCounts>,
    /// Checks that are not steady, put together where they took the same course with the same words; the most urgent first.
    pub groups: Vec<Group>,
    /// Every check that is in a group, and where it was asked for also those that are steady; in the order of ids.
    pub checks: Vec<CheckTrend>,
    /// How many checks took which course, those that are steady too.
    pub courses: BTreeMap<Course, u64>,
}

/// One run, and how its checks stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NightCounts {
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
    pub changes: Vec<Change>,
}

/// A fact that is not the same in two runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Change {
    /// Name of the fact.
    pub name: String,
    /// What it was; `None` if that is not known.
    pub old: Option<String>,
    /// What it is; `None` if that is not known.
    pub new: Option<String>,
}

/// Where a check turned: the run before, the run after, and what differs between their environments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Turn {
    /// The last run before, as a place in [`Trend::nights`]; `None` if no run is known before.
    pub before: Option<usize>,
    /// The first run after.
    pub after: usize,
    /// What differs between the two.
    pub changes: Vec<Change>,
    /// Whether the environments of both are known; if not, no change says nothing.
    pub is_known: bool,
}

/// Checks that took the same course in the same runs, and fail with the same words.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// The course.
    pub course: Course,
    /// Whether it turned in the newest run.
    pub is_new: bool,
    /// Where it turned; `None` for a course without one turn.
    pub turn: Option<Turn>,
    /// What goes or went wrong, of the last failure.
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
    /// How the example stood in each run.
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
    /// The course it took.
    pub course: Course,
    /// Where it turned; `None` for a course without one turn.
    pub turn: Option<Turn>,
    /// How it stood in each run; `None` where the run has no record of it.
    pub marks: Vec<Option<Status>>,
    /// In how many runs it failed, of those in which it passed or failed.
    pub failed: u64,
    /// The number of those runs.
    pub ran: u64,
    /// The 95 % interval of that rate, by Wilson.
    pub interval: (f64, f64),
    /// What went wrong, of the last failure; empty if nothing did.
    pub kind: String,
    /// The owners of the check, by the owners file.
    pub owners: Vec<String>,
}

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct TrendQuery {
    /// Words that id, column or a requirement of a check must contain, each of them; empty: every check.
    pub words: Vec<String>,
    /// Whether checks that are steady are listed too.
    pub with_steady: bool,
    /// Owners of checks.
    pub owners: Owners,
}

impl CheckTrend {
    /// Returns what happened to the check between the last two runs: broken, fixed, or lost; `None` if nothing did.
    #[must_use]
    pub fn newly(&self) -> Option<Course> {
        let [.., before, now] = self.marks.as_slice() else {
            return None;
        };
        let is_good = |mark: &Option<Status>| mark.and_then(course::is_good);
        match (is_good(before), is_good(now)) {
            (Some(true), Some(false)) => Some(Course::Broken),
            (Some(false), Some(true)) => Some(Course::Fixed),
            (Some(_), None) => Some(Course::Lost),
            (None, _) | (Some(true), Some(true)) | (Some(false), Some(false)) => None,
        }
    }
}

impl TrendQuery {
    fn admits(&self, series: &Series) -> bool {
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
    /// Looks at runs. Without a run, everything is empty.
    #[must_use]
    pub fn of(nights: &Nights, question: &TrendQuery) -> Self {
        let mut changes = Changes::new(nights);
        let mut courses = BTreeMap::<Course, u64>::new();
        let mut checks = Vec::new();
        let mut groups = BTreeMap::<_, Group>::new();
        let mut counts = vec![BTreeMap::<Status, u64>::new(); nights.nights.len()];
        for series in nights.series.iter().filter(|one| question.admits(one)) {
            for (counts, mark) in counts.iter_mut().zip(&series.marks) {
                if let Some(mark) = mark {
                    *counts.entry(mark.status).or_default() += 1;
                }
            }
            let (course, turn) = course::of(series, &nights.nights, &mut changes);
            *courses.entry(course).or_default() += 1;
            if course.is_steady() && !question.with_steady {
                continue;
            }
            let check = check_trend(series, nights, course, turn, question);
            if !course.is_steady() {
                add(&mut groups, &check, series, nights.nights.len());
            }
            checks.push(check);
        }
        checks.sort_by(|one, other| (&one.id, &one.column).cmp(&(&other.id, &other.column)));
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.sort_by_key(|group| {
            let turned = group.turn.as_ref().map_or(0, |turn| turn.after);
            (
                !group.is_new || group.course != Course::Broken,
                group.course,
                std::cmp::Reverse(turned),
                std::cmp::Reverse(group.checks),
            )
        });
        Self {
            pipeline: nights.pipeline.clone(),
            nights: night_counts(nights, counts),
            groups,
            checks,
            courses,
        }
    }
}

fn night_counts(nights: &Nights, counts: Vec<BTreeMap<Status, u64>>) -> Vec<NightCounts> {
    let mut before: Option<&Night> = None;
    let told = nights.nights.iter().zip(counts).map(|(night, counts)| {
        let changes =
            before.map_or_else(Vec::new, |before| differences(&before.facts, &night.facts));
        before = Some(night);
        NightCounts {
            name: night.name.clone(),
            started: night.started,
            is_whole: night.is_whole,
            missing: night.missing,
            counts,
            facts: night.facts.clone(),
            changes,
        }
    });
    told.collect()
}

fn check_trend(
    series: &Series,
    nights: &Nights,
    course: Course,
    turn: Option<Turn>,
    question: &TrendQuery,
) -> CheckTrend {
    let rate = rate(&series.marks);
    let column = short_name(&series.column);
    let mut failures = series.marks.iter().rev().flatten();
    let failure = failures.find(|mark| course::has_failed(mark.status));
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
        course,
        turn,
        marks: series
            .marks
            .iter()
            .map(|mark| mark.map(|mark| mark.status))
            .collect(),
        failed: rate.seen,
        ran: rate.of,
        interval: rate.interval(),
        kind: failure.map_or_else(String::new, |mark| nights.texts[mark.kind].clone()),
        owners: question.owners.of(names.iter().copied()).to_vec(),
    }
}

/// Returns how often a check failed, of the runs in which it passed or failed.
fn rate(marks: &[Option<Mark>]) -> Rate {
    let known = marks.iter().flatten().map(|mark| mark.status);
    let ran = known.filter(|status| course::has_failed(*status) || course::has_passed(*status));
    let (failed, passed): (Vec<_>, Vec<_>) = ran.partition(|status| course::has_failed(*status));
    Rate {
        seen: failed.len() as u64,
        of: (failed.len() + passed.len()) as u64,
    }
}

type GroupKey = (Course, Option<(Option<usize>, usize)>, String, Vec<String>);

fn add(groups: &mut BTreeMap<GroupKey, Group>, check: &CheckTrend, series: &Series, nights: usize) {
    let turned = check.turn.as_ref().map(|turn| (turn.before, turn.after));
    let key = (
        check.course,
        turned,
        check.kind.clone(),
        check.owners.clone(),
    );
    let group = groups.entry(key).or_insert_with(|| Group {
        course: check.course,
        is_new: turned.is_some_and(|(_, after)| after + 1 == nights),
        turn: check.turn.clone(),
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
        if let Err(place) = list.binary_search(one) {
            list.insert(place, one.clone());
        }
    }
    // The check that failed most often says most of a group that is not steady.
    if check.failed > group.failed {
        group.example = check.id.clone();
        group.marks.clone_from(&check.marks);
        (group.failed, group.ran) = (check.failed, check.ran);
        group.interval = check.interval;
    }
}

/// Returns what differs between two environments; a fact that only one has differs. Those that matter most to a collective come first.
#[must_use]
pub fn differences(old: &Facts, new: &Facts) -> Vec<Change> {
    /// Facts named first; a prefix stands for all that begin with it.
    const FIRST: &[&str] = &[
        "torch", "driver", "backend", "platform", "kernel", "devices",
    ];
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name));
    let mut changes: Vec<Change> = changed
        .map(|name| Change {
            name: name.clone(),
            old: old.get(name).cloned(),
            new: new.get(name).cloned(),
        })
        .collect();
    let place = |change: &Change| {
        FIRST
            .iter()
            .position(|first| change.name.starts_with(first))
    };
    changes.sort_by_key(|change| (place(change).unwrap_or(FIRST.len()), change.name.clone()));
    changes
}

/// The environments of runs as a check saw them: torch is what its ranks reported.
struct Changes<'a> {
    nights: &'a Nights,
    known: HashMap<(usize, usize, usize, usize), Vec<Change>>,
}

impl<'a> Changes<'a> {
    fn new(nights: &'a Nights) -> Self {
        Self {
            nights,
            known: HashMap::new(),
        }
    }

    /// Returns what differs between two runs for a check with these marks in them.
    fn between(&mut self, old: (usize, Mark), new: (usize, Mark)) -> &[Change] {
        let nights = self.nights;
        let key = (old.0, new.0, old.1.torch, new.1.torch);
        self.known.entry(key).or_insert_with(|| {
            let facts = |(night, mark): (usize, Mark)| {
                let mut facts = nights.nights[night].facts.clone();
                let torch = &nights.texts[mark.torch];
                if !torch.is_empty() {
                    facts.insert("torch".to_owned(), torch.clone());
                }
                facts
            };
            differences(&facts(old), &facts(new))
        })
    }
}
