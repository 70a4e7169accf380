//! Collects the problems of one case file: what the validation of every part of a file needs.

use std::path::Path;

use super::file::CaseFile;
use super::requirement::is_well_formed;
use super::{MAX_SECONDS, Requirements};
use allranks_model::names::{RequirementId, WorldSize};
use allranks_yaml::{Diagnostic, Document, Focus, Segment, did_you_mean};

/// The place of a case file, and what it may refer to.
pub(super) struct FileContext<'a> {
    pub file: &'a Path,
    /// The file's path below its root. `None` if it has no root.
    pub below_root: Option<&'a Path>,
    /// The requirements of its root. `None` if they are unknown; ids are then checked for their form only.
    pub requirements: Option<&'a Requirements>,
}

impl FileContext<'_> {
    /// Returns the folder of the file.
    pub(super) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }
}

/// Collects the problems of one case file.
pub(super) struct Checker<'a> {
    /// The file as written.
    pub document: &'a Document,
    /// The place of the file.
    pub place: &'a FileContext<'a>,
    /// The decoded file.
    pub file: &'a CaseFile,
    /// The problems found so far.
    pub problems: Vec<Diagnostic>,
}

impl Checker<'_> {
    /// Adds a problem about the value at a path.
    pub(super) fn report(
        &mut self,
        path: &[Segment],
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let problem = self.document.problem(path, Focus::Value, message);
        self.problems.push(problem.hint(hint));
    }

    /// Adds a problem about the key at a path.
    pub(super) fn report_key(
        &mut self,
        path: &[Segment],
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let problem = self.document.problem(path, Focus::Key, message);
        self.problems.push(problem.hint(hint));
    }

    /// Reports values that a list has twice.
    pub(super) fn distinct<T: PartialEq>(&mut self, path: &[Segment], values: &[T]) {
        for (index, value) in values.iter().enumerate() {
            if values[..index].contains(value) {
                let mut path = path.to_vec();
                path.push(index.into());
                self.report(&path, "a value is given twice", "leave one out");
            }
        }
    }

    /// Reports requirement ids that are malformed, unknown or given twice.
    pub(super) fn covers(&mut self, path: &[Segment], covers: &[RequirementId]) {
        self.distinct(path, covers);
        for (index, id) in covers.iter().enumerate() {
            let mut path = path.to_vec();
            path.push(index.into());
            if !is_well_formed(id) {
                let hint = "capital letters, a hyphen, three digits: `COLL-014`";
                self.report(&path, format!("`{id}` is not a requirement id"), hint);
            } else if let Some(known) = self.place.requirements
                && known.get(id).is_none()
            {
                let known: Vec<_> = known.iter().map(|known| known.id.as_str()).collect();
                let hint = match did_you_mean(id.as_str(), &known) {
                    Some(meant) => format!("did you mean `{meant}`? requirements.yaml lists them"),
                    None => "requirements.yaml lists them; add it there first".to_owned(),
                };
                self.report(&path, format!("there is no requirement `{id}`"), hint);
            }
        }
    }

    /// Reports a time that is not more than 0 and at most [`MAX_SECONDS`].
    pub(super) fn seconds(&mut self, path: &[Segment], field: &str, seconds: f64) {
        if !(0.0..=MAX_SECONDS).contains(&seconds) || seconds == 0.0 {
            let message = format!("`{field}` is {seconds:?}");
            let hint = format!("seconds, more than 0 and at most {MAX_SECONDS}");
            self.report(path, message, hint);
        }
    }

    /// Returns the world sizes of the case that are in range; the others have been reported.
    pub(super) fn sizes(&self) -> Vec<WorldSize> {
        let sizes = self.file.world.size.as_slice().iter().copied();
        sizes
            .filter(|size| (1..=WorldSize::MAX).contains(size))
            .map(WorldSize)
            .collect()
    }
}
