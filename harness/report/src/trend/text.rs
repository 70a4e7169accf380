//! A trend as lines for the terminal: what needs attention first, each with its runs and what changed; then the runs.

use std::io::{self, Write};

use allranks_model::status::Status;

use super::{CheckGroup, CheckTrend, FactChange, RunCounts, Transition, Trend};
use crate::text::{clip, counted, day, grouped};
use crate::trend::TrendState;
use crate::wilson::Rate;

/// The number of groups that are written in full; the others are counted.
const GROUP_LIMIT: usize = 12;
/// The number of columns, cases or changes that are listed of a group.
const LIST_LIMIT: usize = 6;
/// The number of checks that are listed one by one.
const CHECK_LIMIT: usize = 50;

impl Trend {
    /// Writes the trend; with `with_checks` each check that is not steady is listed too.
    ///
    /// # Errors
    /// The stream could not be written to.
    pub fn write(&self, out: &mut impl Write, with_checks: bool) -> io::Result<()> {
        let (Some(first), Some(last)) = (self.runs.first(), self.runs.last()) else {
            return writeln!(out, "no runs are stored of pipeline {}", self.pipeline);
        };
        writeln!(
            out,
            "{} of pipeline {}, {} to {}\n",
            counted(self.runs.len() as u64, "run"),
            self.pipeline,
            day(first.started),
            day(last.started)
        )?;
        for group in self.groups.iter().take(GROUP_LIMIT) {
            self.write_group(out, group)?;
        }
        if self.groups.len() > GROUP_LIMIT {
            let more = &self.groups[GROUP_LIMIT..];
            let checks = more.iter().map(|group| group.checks).sum();
            let groups = grouped(more.len() as u64);
            writeln!(
                out,
                "… and {groups} more groups with {}\n",
                counted(checks, "check")
            )?;
        }
        if with_checks {
            for check in self.checks.iter().take(CHECK_LIMIT) {
                self.write_check(out, check)?;
            }
            if self.checks.len() > CHECK_LIMIT {
                let more = (self.checks.len() - CHECK_LIMIT) as u64;
                writeln!(out, "… and {}; --json has all", counted(more, "more check"))?;
            }
            writeln!(out)?;
        }
        let width = self
            .runs
            .iter()
            .map(|past_run| past_run.name.chars().count())
            .max()
            .unwrap_or(0)
            .min(24);
        for past_run in &self.runs {
            write_run(out, past_run, width)?;
        }
        let states = self.states.iter();
        let states: Vec<String> = states
            .map(|(state, count)| format!("{} {}", grouped(*count), state.label()))
            .collect();
        writeln!(out, "\nchecks: {}", states.join(", "))
    }

    fn write_group(&self, out: &mut impl Write, group: &CheckGroup) -> io::Result<()> {
        let state = group.label();
        let kind = match group.kind.is_empty() {
            true => String::new(),
            false => format!("  {}", group.kind),
        };
        writeln!(
            out,
            "{} {state}  {}{kind}",
            group.state.symbol(),
            counted(group.checks, "check")
        )?;
        if let Some(transition) = &group.transition {
            line(out, "since", &self.since(transition))?;
            line(out, "changed", &changed(transition))?;
        }
        if group.marks.last() == Some(&Some(Status::UnexpectedPass)) {
            line(
                out,
                "to do",
                "it passes: its entry in the expectations has to go",
            )?;
        }
        line(out, "columns", &list_text(&group.columns))?;
        line(out, "cases", &list_text(&group.cases))?;
        line(out, "example", group.example.as_str())?;
        line(out, "runs", &symbols(&group.marks))?;
        line(out, "failed", &format!("in {}", group.rate().text()))?;
        line(out, "owners", &group.owners.join(" "))?;
        writeln!(out)
    }

    fn write_check(&self, out: &mut impl Write, check: &CheckTrend) -> io::Result<()> {
        writeln!(
            out,
            "{}  {}\n  {}  failed in {}, {}",
            check.id,
            check.column,
            symbols(&check.marks),
            check.rate().text(),
            check.state.label()
        )
    }

    /// Returns the run after a transition, `n12 (2026-11-12)`, and the run before it if runs between them do not count.
    pub(crate) fn since(&self, transition: &Transition) -> String {
        let name = |place: usize| {
            let past_run = &self.runs[place];
            format!("{} ({})", past_run.name, day(past_run.started))
        };
        let after = name(transition.after);
        match transition.before {
            Some(before) if before + 1 < transition.after => format!(
                "{after}; the last before was {}, with nothing known of {} between",
                name(before),
                counted((transition.after - before - 1) as u64, "run")
            ),
            Some(_) | None => after,
        }
    }
}

impl CheckGroup {
    /// Returns the state of the checks: `newly broken`, `flaky`.
    pub(crate) fn label(&self) -> String {
        match (self.is_new, self.state) {
            (true, TrendState::Broken | TrendState::Fixed) => {
                format!("newly {}", self.state.label())
            }
            _ => self.state.label().to_owned(),
        }
    }

    /// Returns how often the example failed.
    pub(crate) const fn rate(&self) -> Rate {
        Rate {
            seen: self.failed,
            of: self.ran,
        }
    }
}

impl CheckTrend {
    /// Returns how often the check failed.
    pub(crate) const fn rate(&self) -> Rate {
        Rate {
            seen: self.failed,
            of: self.ran,
        }
    }
}

/// Returns in one line what differs between the environments before and after a transition.
#[must_use]
pub(crate) fn changed(transition: &Transition) -> String {
    if !transition.is_known {
        return match transition.changes.is_empty() {
            true => "not known: the environment of one of the runs was not stored".to_owned(),
            false => format!("{} (and more is not known)", changes(&transition.changes)),
        };
    }
    match transition.changes.is_empty() {
        true => "nothing that is recorded of the environment".to_owned(),
        false => changes(&transition.changes),
    }
}

/// Returns changes as text: `torch 2.10.0 → 2.11.0; driver 580.1 → 580.2`.
fn changes(changes: &[FactChange]) -> String {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    let text = changes.iter().take(LIST_LIMIT);
    let text: Vec<String> = text
        .map(|change| {
            format!(
                "{} {} → {}",
                change.name,
                side(&change.old),
                side(&change.new)
            )
        })
        .collect();
    let text = text.join("; ");
    match changes.len().checked_sub(LIST_LIMIT) {
        None | Some(0) => text,
        Some(more) => format!("{text}; and {more} more"),
    }
}

/// Returns the first items of a list, and the number of the others.
pub(crate) fn list_text(list: &[String]) -> String {
    let text = list.iter().take(LIST_LIMIT).cloned().collect::<Vec<_>>();
    let text = text.join(", ");
    match list.len().checked_sub(LIST_LIMIT) {
        None | Some(0) => text,
        Some(more) => format!("{text}, and {more} more"),
    }
}

/// Returns one character for each run, the oldest first; `·` where a run has no record.
pub(crate) fn symbols(marks: &[Option<Status>]) -> String {
    marks
        .iter()
        .map(|mark| mark.map_or("·", Status::symbol))
        .collect()
}

fn line(out: &mut impl Write, label: &str, text: &str) -> io::Result<()> {
    match text.is_empty() {
        true => Ok(()),
        false => writeln!(out, "  {label:>8}  {text}"),
    }
}

fn write_run(out: &mut impl Write, past_run: &RunCounts, width: usize) -> io::Result<()> {
    let name = clip(&past_run.name, 24);
    let counts = past_run.counts.iter();
    let mut counts: Vec<String> = counts
        .map(|(status, count)| format!("{} {}", grouped(*count), status.word()))
        .collect();
    if past_run.missing > 0 {
        counts.push(format!("{} without a record", grouped(past_run.missing)));
    }
    if !past_run.is_whole {
        counts.push("not whole".to_owned());
    }
    let text = match past_run.changes.is_empty() {
        true => String::new(),
        false => format!("  [{}]", changes(&past_run.changes)),
    };
    writeln!(
        out,
        "{}  {name:<width$}  {}{text}",
        day(past_run.started),
        counts.join(", ")
    )
}
