//! Lists the YAML files of a path.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Returns the file itself, or the `.yaml` files of a folder in sorted order, without those of its subfolders.
///
/// # Errors
/// The path does not exist or cannot be read.
pub fn yaml_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
