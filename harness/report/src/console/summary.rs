//! The last page of a run on the terminal: failing checks first, then counts, then where the reports are and what the
//! exit code says.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use super::{DIM, style, write_heading, write_line};
use crate::details::summary_line;
use crate::recipe::advise;
use crate::results::{Results, column_names, evidence_word};
use crate::status_counts::{Headline, StatusCounts, exit_meaning};
use crate::text::{clip, counted, grouped, lasting, one_line};
use allranks_model::status::Status;

/// Failing checks listed; the files have all.
const LIST_LIMIT: usize = 50;
/// Reasons listed for checks that did not run.
const REASON_LIMIT: usize = 10;

/// Writes the summary of a run; `reports` are the files to point at.
///
/// # Errors
/// The stream could not be written to.
pub fn summarise(out: &mut impl Write, results: &Results, reports: &[&Path]) -> io::Result<()> {
    write_failing(out, results)?;
    write_not_run(out, results)?;
    write_columns(out, results)?;
    let counts = StatusCounts::of(&results.checks);
    for status in Status::ALL.iter().copied() {
        let count = counts.count(status);
        if count > 0 {
            let (style, symbol) = (style(status), status.symbol());
            let (count, word) = (grouped(count), status.word());
            writeln!(
                out,
                "  {style}{symbol} {count:>7}{style:#} {word}{}",
                note(status)
            )?;
        }
    }
    if results.end.is_none() && results.missing() > 0 {
        writeln!(
            out,
            "  ? {:>7} planned, never recorded",
            grouped(results.missing())
        )?;
    }
    for advice in advise(&results.checks) {
        let text = format!("{}: {}", advice.subject(), advice.summary_line());
        write_line(out, "init recipe", &text)?;
        for (which, why) in &advice.failing {
            write_line(out, "fails", &format!("{which}: {why}"))?;
        }
    }
    for absence in results.absences() {
        write_line(out, "note", &absence)?;
    }
    for trouble in results.troubles() {
        write_line(out, "trouble", &clip(&one_line(trouble), 500))?;
    }
    for report in reports {
        write_line(out, "report", &report.display().to_string())?;
    }
    let headline = Headline::of(results);
    let verdict = style(if headline.good {
        Status::Passed
    } else {
        Status::Regression
    });
    writeln!(out, "\n{verdict}{}{verdict:#}", headline.sentence)?;
    if let Some(end) = &results.end {
        writeln!(
            out,
            "{DIM}{} in {}; exit code {}: {}{DIM:#}",
            results.scenarios_run(),
            lasting(end.duration_ms),
            end.exit_code,
            exit_meaning(end.exit_code)
        )?;
    }
    out.flush()
}

/// Says what a status must not be taken for; empty if it needs no warning.
fn note(status: Status) -> &'static str {
    match status {
        Status::NotRun => " (no pass: nothing is known)",
        Status::KnownFailure | Status::Waived => " (no pass: it fails, as written down)",
        Status::Refused => " (no pass: a clear error on every rank)",
        Status::Regression | Status::Trouble | Status::UnexpectedPass | Status::Passed => "",
    }
}

fn write_failing(out: &mut impl Write, results: &Results) -> io::Result<()> {
    let scenarios = results.scenarios_by_check();
    let mut failing: Vec<_> = results
        .checks
        .iter()
        .filter(|check| check.status().is_failing())
        .collect();
    failing.sort_by_key(|check| check.status());
    for check in failing.iter().take(LIST_LIMIT) {
        let title = scenarios.get(check).map_or("", |scenario| &scenario.title);
        write_heading(out, check, title)?;
    }
    if failing.len() > LIST_LIMIT {
        writeln!(
            out,
            "  … and {} more",
            grouped((failing.len() - LIST_LIMIT) as u64)
        )?;
    }
    if failing.is_empty() {
        return Ok(());
    }
    writeln!(out)
}

fn write_not_run(out: &mut impl Write, results: &Results) -> io::Result<()> {
    let mut reasons = BTreeMap::<String, u64>::new();
    for check in &results.checks {
        if check.status() == Status::NotRun {
            *reasons.entry(summary_line(check)).or_default() += 1;
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (reason, count) in reasons.iter().take(REASON_LIMIT) {
        let style = style(Status::NotRun);
        writeln!(
            out,
            "{style}{} not run{style:#} {}: {reason}",
            Status::NotRun.symbol(),
            counted(*count, "check")
        )?;
    }
    if reasons.len() > REASON_LIMIT {
        writeln!(
            out,
            "  … and for {} more reasons",
            reasons.len() - REASON_LIMIT
        )?;
    }
    if reasons.is_empty() {
        return Ok(());
    }
    writeln!(out)
}

fn write_columns(out: &mut impl Write, results: &Results) -> io::Result<()> {
    let columns = results.columns();
    let by_column = StatusCounts::by_column(&results.checks);
    for (column, name) in columns.iter().zip(column_names(&columns)) {
        let name = one_line(&name);
        let counts = by_column
            .get(column)
            .map_or_else(|| "no checks".to_owned(), StatusCounts::line);
        writeln!(
            out,
            "  {name} ({}): {counts}",
            evidence_word(column.evidence)
        )?;
    }
    writeln!(out)
}
