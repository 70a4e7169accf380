//! The files of a run's folder that are rendered from its results. Each is written beside its place and then moved into
//! it, so a reader never sees half a file, and an old one stays if a new one cannot be written.

use std::io;
use std::path::{Path, PathBuf};

use super::junit::Dialect;
use super::results::Results;
use super::trend::Trend;
use super::{hangs, html, junit, markdown, metrics};

/// The paths of the rendered files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// `report.html`, the matrix for people.
    pub html: PathBuf,
    /// `junit.xml`, JUnit for strict readers.
    pub junit: PathBuf,
    /// `junit-extended.xml`, JUnit with properties, files and lines.
    pub junit_extended: PathBuf,
    /// `summary.md`, for the job page of a CI system.
    pub markdown: PathBuf,
    /// `metrics.txt`, numbers for GitLab and Prometheus.
    pub metrics: PathBuf,
}

impl Paths {
    /// Returns the paths of the files in a run's folder.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            html: folder.join("report.html"),
            junit: folder.join("junit.xml"),
            junit_extended: folder.join("junit-extended.xml"),
            markdown: folder.join("summary.md"),
            metrics: folder.join("metrics.txt"),
        }
    }

    /// Returns all paths, the HTML report first.
    #[must_use]
    pub fn all(&self) -> [&Path; 5] {
        [
            &self.html,
            &self.junit,
            &self.junit_extended,
            &self.markdown,
            &self.metrics,
        ]
    }
}

/// Renders every report into a folder, which must exist.
///
/// # Errors
/// A file could not be written. The others are tried all the same; the first error is returned.
pub fn write_all(folder: &Path, results: &Results) -> io::Result<Paths> {
    write_with(folder, results, None)
}

/// Renders every report, as [`write_all`] does; page and summary also show what changed since earlier runs.
///
/// # Errors
/// Those of [`write_all`].
pub fn write_with(folder: &Path, results: &Results, trend: Option<&Trend>) -> io::Result<Paths> {
    let paths = Paths::in_folder(folder);
    let junit = |path: &Path, dialect| write(path, &junit::render(results, dialect)?);
    let written = [
        junit(&paths.junit, Dialect::Strict),
        junit(&paths.junit_extended, Dialect::Extended),
        write(
            &paths.markdown,
            markdown::render_with(results, trend).as_bytes(),
        ),
        write(&paths.metrics, metrics::render(results).as_bytes()),
        write(&paths.html, html::render_with(results, trend).as_bytes()),
    ];
    written.into_iter().collect::<io::Result<()>>()?;
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
