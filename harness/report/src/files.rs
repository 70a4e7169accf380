//! The files of a run's folder that are rendered from its results. Each is written beside its place and then moved into
//! it, so a reader never sees half a file, and an old one stays if a new one cannot be written.

use std::io;
use std::path::{Path, PathBuf};

use super::junit::Dialect;
use super::results::Results;
use super::trend::Trend;
use super::{hangs, html, junit, markdown, metrics};

/// A report: its file in a run's folder, and what renders it.
struct Report {
    name: &'static str,
    render: fn(&Results, Option<&Trend>) -> io::Result<Vec<u8>>,
}

/// Every report, in the order in which their paths are printed; a new one is added here.
const REPORTS: &[Report] = &[
    // The matrix, for people.
    Report {
        name: "report.html",
        render: |results, trend| Ok(html::render_with(results, trend).into_bytes()),
    },
    // JUnit for strict readers.
    Report {
        name: "junit.xml",
        render: |results, _| junit::render(results, Dialect::Strict),
    },
    // JUnit with properties, files and lines.
    Report {
        name: "junit-extended.xml",
        render: |results, _| junit::render(results, Dialect::Extended),
    },
    // For the job page of a CI system.
    Report {
        name: "summary.md",
        render: |results, trend| Ok(markdown::render_with(results, trend).into_bytes()),
    },
    // Numbers for GitLab and Prometheus.
    Report {
        name: "metrics.txt",
        render: |results, _| Ok(metrics::render(results).into_bytes()),
    },
];

/// Renders every report into a folder, which must exist. Returns the paths of the reports.
///
/// # Errors
/// A file could not be written. The others are tried all the same; the error of one is returned.
pub fn write_all(folder: &Path, results: &Results) -> io::Result<Vec<PathBuf>> {
    write_with(folder, results, None)
}

/// Renders every report, as [`write_all`] does; page and summary also show what changed since earlier runs.
///
/// # Errors
/// Those of [`write_all`].
pub fn write_with(
    folder: &Path,
    results: &Results,
    trend: Option<&Trend>,
) -> io::Result<Vec<PathBuf>> {
    // The page, by far the largest, comes last: on a full disk the others are there.
    let last_first = REPORTS.iter().rev();
    let written: Vec<io::Result<PathBuf>> = last_first
        .map(|report| {
            let path = folder.join(report.name);
            write(&path, &(report.render)(results, trend)?)?;
            Ok(path)
        })
        .collect();
    let paths = written.into_iter().rev().collect::<io::Result<_>>()?;
    for (scenario, hangs) in hangs::all(results) {
        let path = folder.join("hangs").join(format!("{scenario}.json"));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut bytes = serde_json::to_vec_pretty(&hangs)?;
        bytes.push(b'\n');
        write(&path, &bytes)?;
    }
    Ok(paths)
}

/// Writes a file as a whole: beside its place first, then into it.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        // Best effort: the error that matters is the one that led here.
        let _ = std::fs::remove_file(&beside);
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    })
}
