//! Writes the summary of a run for the terminal: failing checks, counts, paths of the reports, meaning of the exit code.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use super::{DIM, style, write_heading, write_line};
use crate::check_set::{Brief, CheckSet};
use crate::details::summary_line;
use crate::past_runs::kind_of;
use crate::recipe::advise_init;
use crate::results::{Results, column_names, evidence_word};
use crate::sides::Sides;
use crate::status_counts::{Headline, StatusCounts, exit_meaning};
use crate::text::{clip, counted, grouped, lasting, one_line};
use allranks_model::status::Status;

/// The number of kinds of failures that are listed.
const LIST_LIMIT: usize = 30;
/// The number of checks that are listed for a kind.
const EXAMPLES: usize = 3;
/// The number of reasons that are listed for checks that did not run.
const REASON_LIMIT: usize = 10;

/// Writes the summary of a run. `reports` are the paths of its reports.
///
/// # Errors
/// The stream could not be written to.
pub fn summarise<C: CheckSet>(
    out: &mut impl Write,
    results: &Results<C>,
    reports: &[&Path],
) -> io::Result<()> {
    write_sides(out, results)?;
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
    for advice in advise_init(&results.checks) {
        let text = format!("{}: {}", advice.subject(), advice.summary_line());
        write_line(out, "init recipe", &text)?;
        for (which, why) in &advice.failing {
            write_line(out, "fails", &format!("{which}: {why}"))?;
        }
    }
    for absence in results.absences() {
        write_line(out, "note", &absence)?;
    }
    for issue in results.issues() {
        write_line(out, "trouble", &clip(&one_line(issue), 500))?;
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

/// Returns a remark on a status that could be misunderstood; empty for others.
fn note(status: Status) -> &'static str {
    match status {
        Status::NotRun => " (no pass: nothing is known)",
        Status::KnownFailure | Status::Waived => " (no pass: it fails, as written down)",
        Status::Refused => " (no pass: a clear error on every rank)",
        Status::Regression | Status::HarnessError | Status::UnexpectedPass | Status::Passed => "",
    }
}

/// Writes failing checks, grouped by kind.
fn write_failing<C: CheckSet>(out: &mut impl Write, results: &Results<C>) -> io::Result<()> {
    let scenarios = results.scenarios_by_check();
    let checks = &results.checks;
    let mut kinds = BTreeMap::<(Status, String), Vec<usize>>::new();
    for index in checks.indices_where(|check| check.status().is_failing()) {
        let check = checks.record(index);
        let kind = kinds.entry((check.status(), kind_of(&check))).or_default();
        kind.push(index);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|((status, _), indices)| (*status, std::cmp::Reverse(indices.len())));
    for ((status, kind), indices) in kinds.iter().take(LIST_LIMIT) {
        if let [index] = indices.as_slice() {
            let check = checks.record(*index);
            let title = scenarios.get(&check).map_or("", |scenario| &scenario.title);
            write_heading(out, &check, title)?;
            continue;
        }
        let columns = indices.iter().map(|index| checks.brief(*index).column);
        let columns: BTreeSet<_> = columns.collect();
        let (style, symbol, word) = (style(*status), status.symbol(), status.word());
        writeln!(
            out,
            "{style}{symbol} {word}{style:#} {} in {}: {kind}",
            counted(indices.len() as u64, "check"),
            counted(columns.len() as u64, "column")
        )?;
        for index in indices.iter().take(EXAMPLES) {
            let check = checks.record(*index);
            writeln!(out, "    {}", one_line(check.id.as_str()))?;
            // The summary says more than the class.
            if check.class.is_some() {
                writeln!(out, "      {}", summary_line(&check))?;
            }
        }
        if indices.len() > EXAMPLES {
            let more = (indices.len() - EXAMPLES) as u64;
            writeln!(out, "    … and {} more", grouped(more))?;
        }
    }
    if kinds.len() > LIST_LIMIT {
        let more = &kinds[LIST_LIMIT..];
        let checks = more.iter().map(|(_, indices)| indices.len() as u64).sum();
        let kinds = counted(more.len() as u64, "more kind");
        writeln!(out, "  … and {} of {kinds}", counted(checks, "check"))?;
    }
    if kinds.is_empty() {
        return Ok(());
    }
    writeln!(out)
}

/// Writes what differs between the backends, versions and drivers of the run.
fn write_sides<C: CheckSet>(out: &mut impl Write, results: &Results<C>) -> io::Result<()> {
    let Some(sides) = Sides::of(results).filter(|sides| !sides.rows.is_empty()) else {
        return Ok(());
    };
    let differing = counted(sides.rows.len() as u64, "requirement");
    writeln!(out, "{differing} not alike on every side:")?;
    for row in sides.rows.iter().take(REASON_LIMIT) {
        writeln!(out, "  {}", one_line(row.requirement.as_str()))?;
        for (name, standing) in sides.names.iter().zip(&row.cells) {
            let Some(one) = standing else { continue };
            let (style, symbol) = (style(one.status), one.status.symbol());
            let (count, of) = (grouped(one.count), grouped(one.of));
            let word = one.status.word();
            writeln!(
                out,
                "    {style}{symbol}{style:#} {name}: {count} of {of} {word}"
            )?;
        }
    }
    if sides.rows.len() > REASON_LIMIT {
        let more = sides.rows.len() - REASON_LIMIT;
        writeln!(out, "  … and {more} more")?;
    }
    writeln!(out)
}

fn write_not_run<C: CheckSet>(out: &mut impl Write, results: &Results<C>) -> io::Result<()> {
    let mut reasons = BTreeMap::<String, u64>::new();
    let not_run = |check: &Brief<'_>| check.status() == Status::NotRun;
    for check in results.checks.records_where(not_run) {
        *reasons.entry(summary_line(&check)).or_default() += 1;
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

fn write_columns<C: CheckSet>(out: &mut impl Write, results: &Results<C>) -> io::Result<()> {
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
