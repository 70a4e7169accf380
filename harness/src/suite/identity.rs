//! The identity of suite and driver: the commit, and digests of the files.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;

use include_dir::Dir;
use sha2::{Digest, Sha256};

use super::embedded::{CASES, EXPECTATIONS, PLATFORMS, PROGRAMS, SIMULATED, in_checkout};
use allranks_model::record::SuiteIdentity;

/// Returns the digest of a driver's files; an empty text if there are none.
#[must_use]
pub fn driver_digest(files: &[(String, Vec<u8>)]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let mut hash = Sha256::new();
    for (name, bytes) in files {
        let name = Path::new(name).file_name().unwrap_or_default();
        hash.update(name.as_encoded_bytes());
        hash.update(Sha256::digest(bytes));
    }
    format!("{:x}", hash.finalize())
}

/// Returns the identity of the suite, without the driver: that of the checkout in the current folder, or else of the binary's
/// own.
///
/// # Errors
/// A file of the checkout cannot be read.
pub fn identity() -> io::Result<SuiteIdentity> {
    if !in_checkout() {
        return Ok(own_identity());
    }
    let digest = |folders: &[&str], is_meant: &dyn Fn(&str) -> bool| -> io::Result<String> {
        let mut files = BTreeMap::new();
        for folder in folders {
            read_below(Path::new(folder), folder, &mut files)?;
        }
        Ok(digest_of(files, is_meant))
    };
    Ok(SuiteIdentity {
        commit: commit_of_checkout(),
        cases: digest(CASE_FOLDERS, &is_case)?,
        requirements: digest(CASE_FOLDERS, &is_requirements)?,
        platforms: digest(PLATFORM_FOLDERS, &|path| !is_expectation(path))?,
        expectations: digest(EXPECTATION_FOLDERS, &is_expectation)?,
        driver: String::new(),
    })
}

/// Returns the identity of the suite that the binary carries, without the driver.
#[must_use]
pub fn own_identity() -> SuiteIdentity {
    let digest = |folders: &[&str], is_meant: &dyn Fn(&str) -> bool| {
        let mut files = BTreeMap::new();
        for folder in folders {
            let dir = match *folder {
                "cases" => &CASES,
                "fixtures/programs" => &PROGRAMS,
                "fixtures/platforms" => &PLATFORMS,
                "fixtures/expectations" => &EXPECTATIONS,
                _ => &SIMULATED,
            };
            embedded_below(dir, folder, &mut files);
        }
        digest_of(files, is_meant)
    };
    SuiteIdentity {
        commit: option_env!("ALLRANKS_COMMIT").map(str::to_owned),
        cases: digest(CASE_FOLDERS, &is_case),
        requirements: digest(CASE_FOLDERS, &is_requirements),
        platforms: digest(PLATFORM_FOLDERS, &|path| !is_expectation(path)),
        expectations: digest(EXPECTATION_FOLDERS, &is_expectation),
        driver: String::new(),
    }
}

const CASE_FOLDERS: &[&str] = &["cases", "fixtures/programs"];
const PLATFORM_FOLDERS: &[&str] = &["fixtures/platforms", "fixtures/sim"];
const EXPECTATION_FOLDERS: &[&str] = &["fixtures/expectations", "fixtures/sim"];

fn is_requirements(path: &str) -> bool {
    path == "cases/requirements.yaml"
}

fn is_case(path: &str) -> bool {
    !is_requirements(path)
}

fn is_expectation(path: &str) -> bool {
    path.starts_with("fixtures/expectations/") || path.starts_with("fixtures/sim/expectations/")
}

/// Returns the digest of files and their paths. Compiled Python files are left out.
fn digest_of(files: BTreeMap<String, Vec<u8>>, is_meant: &dyn Fn(&str) -> bool) -> String {
    let mut hash = Sha256::new();
    for (path, bytes) in files.iter().filter(|(path, _)| is_meant(path)) {
        if path.contains("__pycache__") {
            continue;
        }
        let line = format!("{:x} {path}\n", Sha256::digest(bytes));
        hash.update(line.as_bytes());
    }
    format!("{:x}", hash.finalize())
}

fn read_below(folder: &Path, name: &str, files: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        match entry.path().is_dir() {
            true => read_below(&entry.path(), &name, files)?,
            false => {
                files.insert(name, std::fs::read(entry.path())?);
            }
        }
    }
    Ok(())
}

fn embedded_below(dir: &Dir<'_>, name: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for file in dir.files() {
        let path = format!("{name}/{}", file.path().display());
        files.insert(path, file.contents().to_vec());
    }
    for inner in dir.dirs() {
        embedded_below(inner, name, files);
    }
}

/// Returns the commit of the checkout in the current folder; `None` if git does not tell.
fn commit_of_checkout() -> Option<String> {
    let output = Command::new("git")
        .args([
            "describe",
            "--always",
            "--dirty",
            "--abbrev=40",
            "--exclude=*",
        ])
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_paths_and_contents() {
        let of = |files: &[(&str, &str)]| {
            let files = files
                .iter()
                .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
            digest_of(files.collect(), &|_| true)
        };
        let one = of(&[("a", "1"), ("b", "2")]);
        assert_eq!(
            one,
            of(&[("b", "2"), ("a", "1"), ("x/__pycache__/y.pyc", "")])
        );
        for other in [
            &[("a", "1"), ("b", "3")][..],
            &[("a", "1"), ("c", "2")],
            &[("a", "1")],
        ] {
            assert_ne!(one, of(other));
        }
    }

    #[test]
    fn the_binary_s_suite_is_the_checkout_s() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = BTreeMap::new();
        for folder in CASE_FOLDERS {
            read_below(&root.join(folder), folder, &mut files).unwrap();
        }
        let own = own_identity();
        assert_eq!(own.cases, digest_of(files.clone(), &is_case));
        assert_eq!(own.requirements, digest_of(files, &is_requirements));
        assert_ne!(own.platforms, own.expectations);
    }
}
