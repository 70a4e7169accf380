//! Copies the platform, expectation and waiver files that a run was given into its folder, for later readers and for packages.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::suite::Request;
use allranks_model::record::InputFile;
use allranks_yaml::yaml_files;

/// The name of the folder for the copies, in a run's folder.
pub const FOLDER: &str = "inputs";

/// Copies the platform, expectation and waiver files of a request below the folder of a run. Numbers before their names
/// keep their order of precedence.
///
/// # Errors
/// A file cannot be read or written.
pub fn keep(request: &Request, run: &Path) -> io::Result<Vec<InputFile>> {
    let kinds: [(&str, &[PathBuf]); 3] = [
        ("platforms", &request.platforms),
        ("expectations", &request.expectations),
        ("waivers", &request.waivers),
    ];
    let mut kept = Vec::new();
    for (kind, paths) in kinds {
        let mut files = Vec::new();
        for path in paths {
            files.extend(yaml_files(path)?);
        }
        for (number, file) in files.iter().enumerate() {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // Only files with this ending are read from a folder, but any file that is named.
            let end = if name.ends_with(".yaml") { "" } else { ".yaml" };
            let path = format!("{kind}/{:02}-{name}{end}", number + 1);
            let bytes = std::fs::read(file)?;
            let target = run.join(FOLDER).join(&path);
            if let Some(folder) = target.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&target, &bytes)?;
            kept.push(InputFile {
                path,
                sha256: format!("{:x}", Sha256::digest(&bytes)),
            });
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_kept_in_the_order_in_which_they_count() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("more")).unwrap();
        for (name, text) in [("z.yml", "1"), ("more/a.yaml", "2"), ("more/b.yaml", "3")] {
            std::fs::write(at(name), text).unwrap();
        }
        let request = Request {
            platforms: vec![at("z.yml"), at("more")],
            waivers: vec![at("z.yml")],
            ..Request::default()
        };
        let kept = keep(&request, &at("run")).unwrap();
        let paths: Vec<&str> = kept.iter().map(|one| one.path.as_str()).collect();
        let expected = [
            "platforms/01-z.yml.yaml",
            "platforms/02-a.yaml",
            "platforms/03-b.yaml",
            "waivers/01-z.yml.yaml",
        ];
        assert_eq!(paths, expected);
        let copy = std::fs::read_to_string(at("run/inputs/platforms/02-a.yaml"));
        assert_eq!(copy.unwrap(), "2");
        assert_eq!(kept[0].sha256, kept[3].sha256);
    }
}
