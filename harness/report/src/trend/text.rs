//! A trend as lines for the terminal: what needs attention first, each with its runs and what changed; then the runs.

use std::io::{self, Write};

use allranks_model::status::Status;

use super::{Change, CheckTrend, Group, NightCounts, Trend, Turn};
use crate::text::{clip, counted, day, grouped};
use crate::trend::Course;
use crate::wilson::Rate;

/// Groups told in full; the others are counted.
const GROUP_LIMIT: usize = 12;
/// Columns and changes listed of a group.
const LIST_LIMIT: usize = 6;
/// Checks listed one by one.
const CHECK_LIMIT: usize = 50;

impl Trend {
    /// Writes the trend; with `with_checks` each check that is not steady is listed too.
    ///
    /// # Errors
    /// The stream could not be written to.
    pub fn write(&self, out: &mut impl Write, with_checks: bool) -> io::Result<()> {
        let (Some(first), Some(last)) = (self.nights.first(), self.nights.last()) else {
            return writeln!(out, "no runs are stored of pipeline {}", self.pipeline);
        };
        writeln!(
            out,
            "{} of pipeline {}, {} to {}\n",
            counted(self.nights.len() as u64, "run"),
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
            .nights
            .iter()
            .map(|night| night.name.chars().count())
            .max()
            .unwrap_or(0)
            .min(24);
        for night in &self.nights {
            write_night(out, night, width)?;
        }
        let courses = self.courses.iter();
        let courses: Vec<String> = courses
            .map(|(course, count)| format!("{} {}", grouped(*count), course.words()))
            .collect();
        writeln!(out, "\nchecks: {}", courses.join(", "))
    }

    fn write_group(&self, out: &mut impl Write, group: &Group) -> io::Result<()> {
        let course = group.words();
        let kind = match group.kind.is_empty() {
            true => String::new(),
            false => format!("  {}", group.kind),
        };
        writeln!(
            out,
            "{} {course}  {}{kind}",
            group.course.symbol(),
            counted(group.checks, "check")
        )?;
        if let Some(turn) = &group.turn {
            line(out, "since", &self.since(turn))?;
            line(out, "changed", &changed(turn))?;
        }
        if group.marks.last() == Some(&Some(Status::UnexpectedPass)) {
            line(
                out,
                "to do",
                "it passes: its entry in the expectations has to go",
            )?;
        }
        line(out, "columns", &listed(&group.columns))?;
        line(out, "cases", &listed(&group.cases))?;
        line(out, "example", group.example.as_str())?;
        line(out, "runs", &strip(&group.marks))?;
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
            strip(&check.marks),
            check.rate().text(),
            check.course.words()
        )
    }

    /// `n12 (2026-11-12)`, and which run was the last before where those between say nothing.
    pub(crate) fn since(&self, turn: &Turn) -> String {
        let name = |place: usize| {
            let night = &self.nights[place];
            format!("{} ({})", night.name, day(night.started))
        };
        let after = name(turn.after);
        match turn.before {
            Some(before) if before + 1 < turn.after => format!(
                "{after}; the last before was {}, with nothing known of {} between",
                name(before),
                counted((turn.after - before - 1) as u64, "run")
            ),
            Some(_) | None => after,
        }
    }
}

impl Group {
    /// Returns what happened to the checks, in words: `newly broken`, `flaky`.
    pub(crate) fn words(&self) -> String {
        match (self.is_new, self.course) {
            (true, Course::Broken | Course::Fixed) => format!("newly {}", self.course.words()),
            _ => self.course.words().to_owned(),
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

/// Returns what changed where the outcome of a check changed, in one line.
#[must_use]
pub(crate) fn changed(turn: &Turn) -> String {
    if !turn.is_known {
        return match turn.changes.is_empty() {
            true => "not known: the environment of one of the runs was not stored".to_owned(),
            false => format!("{} (and more is not known)", changes(&turn.changes)),
        };
    }
    match turn.changes.is_empty() {
        true => "nothing that is recorded of the environment".to_owned(),
        false => changes(&turn.changes),
    }
}

/// `torch 2.10.0 → 2.11.0; driver 580.1 → 580.2`.
fn changes(changes: &[Change]) -> String {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    let told = changes.iter().take(LIST_LIMIT);
    let told: Vec<String> = told
        .map(|change| {
            format!(
                "{} {} → {}",
                change.name,
                side(&change.old),
                side(&change.new)
            )
        })
        .collect();
    let told = told.join("; ");
    match changes.len().checked_sub(LIST_LIMIT) {
        None | Some(0) => told,
        Some(more) => format!("{told}; and {more} more"),
    }
}

pub(crate) fn listed(list: &[String]) -> String {
    let told = list.iter().take(LIST_LIMIT).cloned().collect::<Vec<_>>();
    let told = told.join(", ");
    match list.len().checked_sub(LIST_LIMIT) {
        None | Some(0) => told,
        Some(more) => format!("{told}, and {more} more"),
    }
}

/// Returns one character for each run, the oldest first; `·` where a run has no record.
pub(crate) fn strip(marks: &[Option<Status>]) -> String {
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

fn write_night(out: &mut impl Write, night: &NightCounts, width: usize) -> io::Result<()> {
    let name = clip(&night.name, 24);
    let counts = night.counts.iter();
    let mut counts: Vec<String> = counts
        .map(|(status, count)| format!("{} {}", grouped(*count), status.word()))
        .collect();
    if night.missing > 0 {
        counts.push(format!("{} without a record", grouped(night.missing)));
    }
    if !night.is_whole {
        counts.push("not whole".to_owned());
    }
    let told = match night.changes.is_empty() {
        true => String::new(),
        false => format!("  [{}]", changes(&night.changes)),
    };
    writeln!(
        out,
        "{}  {name:<width$}  {}{told}",
        day(night.started),
        counts.join(", ")
    )
}
