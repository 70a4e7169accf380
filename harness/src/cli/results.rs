//! Commands that work on result files only: `report`, `merge`, `diff`.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::args::{DiffArguments, MergeArguments, ReportArguments};
use super::read_run::read_packed;
use super::{Exit, Failure, environment, history, planning};
use allranks_model::status::Status;
use allranks_report as report;
use allranks_report::check_set::{Brief, CheckSet};
use allranks_report::trend::Trend;
use allranks_report::{PackedResults, Results};

/// Renders a run's reports again.
pub fn report(arguments: &ReportArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let results = read_packed(&arguments.run)?;
    let trend = history::trend(&arguments.history, &results)?;
    let folder = results.folder.clone();
    render_with(&folder, &results, trend.as_ref(), out)?;
    Ok(completeness(&results))
}

/// Returns whether reports of these results show everything that was run, as an exit code.
fn completeness<C: CheckSet>(results: &Results<C>) -> Exit {
    match results.is_whole() && results.missing() == 0 {
        true => Exit::AsExpected,
        false => Exit::Incomplete,
    }
}

/// Merges runs into one.
pub fn merge(arguments: &MergeArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let parts: Vec<PackedResults> = arguments
        .runs
        .iter()
        .map(|run| read_packed(run))
        .collect::<Result<_, _>>()?;
    let folders: Vec<PathBuf> = parts.iter().map(|part| part.folder.clone()).collect();
    let folder = planning::make_out(Some(&arguments.out))?;
    let merged = report::merge::merge(parts, &folder)
        .map_err(|error| Failure::Usage(error.to_string(), "name every run once".to_owned()))?;
    environment::write_merged(&folder, &folders)?;
    write(&merged, out)?;
    let lacks = |check: Brief<'_>| check.status() == Status::NotRun;
    Ok(match merged.checks.briefs().any(lacks) {
        true => Exit::Incomplete,
        false => completeness(&merged),
    })
}

/// Compares two runs.
pub fn diff(arguments: &DiffArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let diff = report::diff::diff(&read_packed(&arguments.old)?, &read_packed(&arguments.new)?);
    diff.write(out)?;
    Ok(match (diff.is_worse(), diff.is_complete()) {
        (true, _) => Exit::Unexpected,
        (false, false) => Exit::Incomplete,
        (false, true) => Exit::AsExpected,
    })
}

/// Writes results that no run has written yet, and their reports, into their folder.
pub fn write<C: CheckSet>(results: &Results<C>, out: &mut impl Write) -> Result<(), Failure> {
    let mut writer = report::jsonl::Writer::create(&results.folder)?;
    for record in results.records() {
        writer.append(&record)?;
    }
    render(&results.folder, results, out)
}

/// Writes the reports and prints their paths; if they cannot be written, prints the summary of the run at least.
pub fn render<C: CheckSet>(
    folder: &Path,
    results: &Results<C>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    render_with(folder, results, None, out)
}

fn render_with<C: CheckSet>(
    folder: &Path,
    results: &Results<C>,
    trend: Option<&Trend>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    match report::write_with(folder, results, trend) {
        Ok(paths) => {
            let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
            report::console::summarise(out, results, &paths)?;
        }
        Err(error) => {
            let mut failed = results.clone();
            if let Some(end) = &mut failed.end {
                end.exit_code = Exit::RunIssue as u8;
                end.troubles
                    .push(format!("a report could not be written: {error}"));
            }
            // Best effort: the error that matters is the first. Those that can be written must not say that all is well.
            let _ = report::write_all(folder, &failed);
            report::console::summarise(out, &failed, &[])?;
            return Err(error.into());
        }
    }
    Ok(())
}
