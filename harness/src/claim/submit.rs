//! `allranks submit`: packs two runs and their inputs into a package that [`verify`](super::verify) accepts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::archive;
use super::manifest::{FORMAT, FileDigest, MANIFEST, Manifest};
use super::product::Product;
use super::verify::{INPUTS, PRODUCT, Review, verify};
use super::waivers::first_problem;
use allranks_report::jsonl;
use allranks_yaml::Source;

/// Folders of a run that are not packed: suite and driver, of which the digests are recorded, and the input files, which a
/// package holds once.
const LEFT_OUT: &[&str] = &["suite", "driver", "inputs"];

/// What a package is made from.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The folders of two complete runs.
    pub runs: [PathBuf; 2],
    /// The product file.
    pub product: PathBuf,
    /// A folder of reproducers; `None` if there are none.
    pub repro: Option<PathBuf>,
}

/// Why no package was written.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// A file or folder to pack is invalid or missing.
    #[error("{0}")]
    Wrong(String),
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes a package, and verifies it. Only an accepted package is moved to `out`, where it replaces an older file.
///
/// # Errors
/// The product file or a run is invalid or missing, or a file cannot be read or written.
pub fn submit(submission: &Submission, out: &Path, now: SystemTime) -> Result<Review, SubmitError> {
    let source = Source::read(&submission.product).and_then(Product::parse);
    source.map_err(|problems| SubmitError::Wrong(first_problem(&problems)))?;
    let mut files = BTreeMap::new();
    files.insert(PRODUCT.to_owned(), submission.product.clone());
    let mut suite = None;
    for (number, run) in (1..).zip(&submission.runs) {
        let results = jsonl::read(run).map_err(|error| SubmitError::Wrong(error.to_string()))?;
        let origin = results.run.origin.ok_or_else(|| {
            let text = "does not record its origin: its results were merged or judged again, or are of an older version";
            SubmitError::Wrong(format!("{} {text}", run.display()))
        })?;
        suite = suite.or(origin.identity);
        for kind in std::fs::read_dir(run)?.flatten() {
            let name = kind.file_name().to_string_lossy().into_owned();
            if !LEFT_OUT.contains(&name.as_str()) {
                collect(&kind.path(), &format!("runs/{number}/{name}"), &mut files)?;
            }
        }
        if number == 1 {
            for kind in INPUTS {
                collect(&run.join("inputs").join(kind), kind, &mut files)?;
            }
        }
    }
    if let Some(repro) = &submission.repro {
        collect(repro, "repro", &mut files)?;
    }
    let Some(suite) = suite else {
        let run = submission.runs[0].display();
        return Err(SubmitError::Wrong(format!(
            "{run} was made by an older version of allranks"
        )));
    };
    let created = now.duration_since(SystemTime::UNIX_EPOCH);
    let mut manifest = Manifest {
        format: FORMAT,
        allranks: env!("CARGO_PKG_VERSION").to_owned(),
        created: created.map_or(0, |since| since.as_secs()),
        suite,
        files: BTreeMap::new(),
    };
    for (path, file) in &files {
        manifest.files.insert(path.clone(), digest(file)?);
    }
    let parent = match out.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let listed = tempfile::NamedTempFile::new_in(parent)?;
    serde_json::to_writer_pretty(&listed, &manifest).map_err(io::Error::from)?;
    files.insert(MANIFEST.to_owned(), listed.path().to_owned());
    let mut package = tempfile::NamedTempFile::new_in(parent)?;
    archive::write(&mut package, &files)?;
    let review = verify(package.path(), now)?;
    if review.is_accepted() {
        // A temporary file is its owner's alone.
        let mode = std::fs::Permissions::from_mode(0o644);
        package.as_file().set_permissions(mode)?;
        package.persist(out).map_err(|error| error.error)?;
    }
    Ok(review)
}

/// Adds a file, or the files below a folder. Links are left out; a path that does not exist has no files.
fn collect(path: &Path, name: &str, files: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    let Ok(data) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if data.is_file() {
        files.insert(name.to_owned(), path.to_owned());
    } else if data.is_dir() {
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let name = format!("{name}/{}", entry.file_name().to_string_lossy());
            collect(&entry.path(), &name, files)?;
        }
    }
    Ok(())
}

/// Returns the digest of a file.
///
/// # Errors
/// It cannot be read.
fn digest(file: &Path) -> io::Result<FileDigest> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    let mut source = File::open(file).map_err(named)?;
    FileDigest::of(&mut source, named, |_| Ok(()))
}
