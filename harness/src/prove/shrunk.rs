//! Measures the shrunk sequence that a run wrote beside its results.

use std::fs;
use std::path::{Path, PathBuf};

use allranks_suite::case;
use allranks_suite::case::{StepSpec, Verb};

/// Returns the number of ops and messages of the only case in the folder.
///
/// # Errors
/// The folder does not have exactly one case, or it is not a script. The text is for people.
pub(super) fn shrunk_units(folder: &Path) -> Result<usize, String> {
    let unread = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(unread)?;
    let files: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
    let library = case::load(&files.map_err(unread)?)
        .map_err(|problems| format!("the shrunk sequence is no case: {}", problems[0]))?;
    let [case] = library.cases.as_slice() else {
        let count = library.cases.len();
        return Err(format!("{count} shrunk sequences in {}", folder.display()));
    };
    let [StepSpec::Script { spec, .. }, ..] = case.steps.as_slice() else {
        return Err("the shrunk sequence is no script".to_owned());
    };
    let ops = spec.moves.iter();
    let ops = ops.filter(|one| matches!(one.verb, Verb::Issue(..)));
    Ok(ops.count() + spec.messages.0.len())
}
