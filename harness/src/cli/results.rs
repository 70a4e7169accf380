//! Commands that work on result files only: `report`, `merge`, `diff`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::args::{DiffArguments, MergeArguments, ReportArguments};
use super::read_run::read_packed;
use super::{Exit, Failure, environment, history, run_folder, side};
use allranks_model::status::Status;
use allranks_report as report;
use allranks_report::check_set::{Brief, CheckSet};
use allranks_report::trend::Trend;
use allranks_report::{PackedResults, Results};

/// The folder of unpacked packages, in that of merged results.
const PACKAGES: &str = "packages";

/// Renders a run's reports again.
pub fn report(arguments: &ReportArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let results = read_packed(&arguments.run)?;
    let trend = history::trend(&arguments.history, &results)?;
    let folder = results.folder.clone();
    render_with(&folder, &results, trend.as_ref(), out)?;
    Ok(completeness(&results))
}

/// Returns the exit code that says whether the results are complete.
fn completeness<C: CheckSet>(results: &Results<C>) -> Exit {
    match results.is_whole() && results.missing() == 0 {
        true => Exit::AsExpected,
        false => Exit::Incomplete,
    }
}

/// Merges runs into one.
pub fn merge(arguments: &MergeArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let folder = run_folder::make_run_folder(Some(&arguments.out))?;
    let merged = merge_into(&folder, &arguments.runs).inspect_err(|_| {
        // Removes only an empty folder, because one with files existed before.
        let _ = std::fs::remove_dir_all(folder.join(PACKAGES));
        let _ = std::fs::remove_dir(&folder);
    })?;
    write(&merged, out)?;
    let lacks = |check: Brief<'_>| check.status() == Status::NotRun;
    Ok(match merged.checks.briefs().any(lacks) {
        true => Exit::Incomplete,
        false => completeness(&merged),
    })
}

/// Reads runs and merges them; packages are unpacked below the folder, where their logs stay.
fn merge_into(folder: &Path, runs: &[OsString]) -> Result<PackedResults, Failure> {
    let numbered = runs.iter().enumerate();
    let parts: Vec<PackedResults> = numbered
        .map(|(number, run)| {
            let unpacked = folder.join(PACKAGES).join((number + 1).to_string());
            side::read(run, &unpacked)
        })
        .collect::<Result<_, _>>()?;
    let folders: Vec<PathBuf> = parts.iter().map(|part| part.folder.clone()).collect();
    let merged = report::merge::merge(parts, folder).map_err(|error| {
        let hint = "name every run once; runs that differ in nothing that is recorded need labels: old=RUN new=RUN";
        Failure::Usage(error.to_string(), hint.to_owned())
    })?;
    environment::write_merged(folder, &folders)?;
    Ok(merged)
}

/// Compares two runs.
pub fn diff(arguments: &DiffArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let scratch = tempfile::tempdir()?;
    let [old, new] = [("old", &arguments.old), ("new", &arguments.new)].map(|(name, run)| {
        let mut results = side::read(run.as_os_str(), &scratch.path().join(name))?;
        // Versions of the same check are compared anyway.
        results.label.clear();
        Ok::<_, Failure>(results)
    });
    let diff = report::diff::diff(&old?, &new?);
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
                end.exit_code = Exit::HarnessFailed as u8;
                end.issues
                    .push(format!("a report could not be written: {error}"));
            }
            // Best effort, because the first error is reported. The reports that can be written must not say that all is well.
            let _ = report::write_all(folder, &failed);
            report::console::summarise(out, &failed, &[])?;
            return Err(error.into());
        }
    }
    Ok(())
}
