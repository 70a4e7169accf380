//! Renders the reports of a run into its folder. Each is written to a temporary file and then renamed, so a reader never sees
//! half a file, and the old file is kept if the new one cannot be written.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::check_set::CheckSet;
use super::junit::Dialect;
use super::results::Results;
use super::trend::Trend;
use super::{hangs, html, junit, markdown, metrics};

/// A report: its file name, and the function that renders it.
struct Report<C> {
    name: &'static str,
    render: Render<C>,
}

/// A function that renders a report.
type Render<C> = fn(&Results<C>, Option<&Trend>, &mut dyn Write) -> io::Result<()>;

/// Returns all reports, in the order in which their paths are printed. A new report is added here.
fn reports<C: CheckSet>() -> Vec<Report<C>> {
    vec![
        // The matrix, for people.
        Report {
            name: "report.html",
            render: |results, trend, out| {
                out.write_all(html::render_with(results, trend).as_bytes())
            },
        },
        // JUnit for strict readers.
        Report {
            name: "junit.xml",
            render: |results, _, out| junit::write(results, Dialect::Strict, out),
        },
        // JUnit with properties, files and lines.
        Report {
            name: "junit-extended.xml",
            render: |results, _, out| junit::write(results, Dialect::Extended, out),
        },
        // For the job page of a CI system.
        Report {
            name: "summary.md",
            render: |results, trend, out| {
                out.write_all(markdown::render_with(results, trend).as_bytes())
            },
        },
        // Numbers for GitLab and Prometheus.
        Report {
            name: "metrics.txt",
            render: |results, _, out| out.write_all(metrics::render(results).as_bytes()),
        },
    ]
}

/// Renders every report into a folder, which must exist. Returns the paths of the reports.
///
/// # Errors
/// A file could not be written. The other files are written anyway, and the first error is returned.
pub fn write_all<C: CheckSet>(folder: &Path, results: &Results<C>) -> io::Result<Vec<PathBuf>> {
    write_with(folder, results, None)
}

/// Renders all reports, as [`write_all`] does. The page and the summary also show the trend over earlier runs.
///
/// # Errors
/// Those of [`write_all`].
pub fn write_with<C: CheckSet>(
    folder: &Path,
    results: &Results<C>,
    trend: Option<&Trend>,
) -> io::Result<Vec<PathBuf>> {
    // The page is the largest, and is written last, so that on a full disk the others exist.
    let last_first = reports().into_iter().rev();
    let written: Vec<io::Result<PathBuf>> = last_first
        .map(|report| {
            let path = folder.join(report.name);
            write(&path, |out| (report.render)(results, trend, out))?;
            Ok(path)
        })
        .collect();
    let paths = written.into_iter().rev().collect::<io::Result<_>>()?;
    for (scenario, hangs) in hangs::all(results) {
        let path = folder.join("hangs").join(format!("{scenario}.json"));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        write(&path, |out| {
            serde_json::to_writer_pretty(&mut *out, &hangs)?;
            out.write_all(b"\n")
        })?;
    }
    Ok(paths)
}

/// Writes a temporary file, and renames it to `path`.
fn write(path: &Path, render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = File::create(&beside).and_then(|file| {
        let mut file = BufWriter::new(file);
        render(&mut file)?;
        file.flush()?;
        std::fs::rename(&beside, path)
    });
    written.map_err(|error| {
        // Best effort: the error that matters is the one that led here.
        let _ = std::fs::remove_file(&beside);
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    })
}
