//! The names of the files of nodes' evidence, and where they are found.

use std::fs;
use std::path::{Path, PathBuf};

/// How the name of every file ends.
pub const SUFFIX: &str = ".evidence.json";
/// Returns the name of this host.
pub fn host_name() -> String {
    let own = rustix::system::uname();
    own.nodename().to_string_lossy().into_owned()
}

/// Returns a text with all characters replaced that are not meant for the name of a file.
pub fn file_name(text: &str) -> String {
    let is_kept = |one: char| one.is_ascii_alphanumeric() || "-.".contains(one);
    let kept = |one: char| if is_kept(one) { one } else { '_' };
    text.chars().map(kept).collect()
}

/// Returns true if a path is a file of evidence, or a folder with one.
#[must_use]
pub fn is_evidence(path: &Path) -> bool {
    !files(path).is_empty()
}

/// Returns the path if it is a file of evidence, or those in it if it is a folder, in order.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let is_named = |path: &PathBuf| path.to_string_lossy().ends_with(SUFFIX);
    let mut found: Vec<PathBuf> = match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path.to_owned()],
    };
    found.retain(|path| is_named(path) && path.is_file());
    found.sort();
    found
}
