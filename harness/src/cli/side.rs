//! Reads the runs that are compared or merged: a folder or a package, optionally with a label.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Failure;
use super::read_run::read_packed;
use crate::claim::{self, OpenError};
use allranks_report::PackedResults;

/// The most characters of a label.
const LONGEST_LABEL: usize = 60;

/// Reads `RUN` or `LABEL=RUN`. A package is unpacked into `folder`, which is made. Its default label is the product's package and
/// version.
///
/// # Errors
/// There is no such run, its records cannot be read, the package is damaged, or the label is invalid.
pub fn read(given: &OsStr, folder: &Path) -> Result<PackedResults, Failure> {
    let (label, path) = split(given);
    let label = label.map(checked).transpose()?;
    let (own, mut results) = match claim::is_package(path) {
        true => read_package(path, folder)?,
        false => (String::new(), read_packed(path)?),
    };
    results.label = label.unwrap_or(own);
    Ok(results)
}

/// Reads the first run of a package; returns its label and its results.
fn read_package(package: &Path, folder: &Path) -> Result<(String, PackedResults), Failure> {
    std::fs::create_dir_all(folder)?;
    let opened = claim::open(package, folder).map_err(|error| match error {
        OpenError::Damaged(why) => Failure::Usage(
            format!("{} cannot be read: {why}", package.display()),
            "`allranks verify` says all that is wrong with a package".to_owned(),
        ),
        OpenError::Io(error) => Failure::Io(error),
    })?;
    let product = opened.product;
    let label = format!("{}-{}", product.package, product.version);
    Ok((label, read_packed(&opened.run)?))
}

/// Splits `LABEL=RUN`. If a file or folder with the whole name exists, that is the run, without a label.
fn split(given: &OsStr) -> (Option<&OsStr>, &Path) {
    let whole = Path::new(given);
    let bytes = given.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(place) if !whole.exists() => {
            let [label, path] = [&bytes[..place], &bytes[place + 1..]].map(OsStr::from_bytes);
            (Some(label), Path::new(path))
        }
        _ => (None, whole),
    }
}

/// Returns a label that can be part of a column's name.
fn checked(label: &OsStr) -> Result<String, Failure> {
    let text = label.to_string_lossy();
    let is_allowed = |letter: char| letter.is_alphanumeric() || "._+-".contains(letter);
    match !text.is_empty() && text.chars().count() <= LONGEST_LABEL && text.chars().all(is_allowed)
    {
        true => Ok(text.into_owned()),
        false => Err(Failure::Usage(
            format!("`{text}` is not a label"),
            format!(
                "a label has letters, digits, `.`, `_`, `+` and `-`, at most {LONGEST_LABEL} of them: 0.4.0=target/allranks/new"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_stands_before_the_first_equals_sign() {
        let split = |text: &'static str| {
            let (label, path) = split(OsStr::new(text));
            (label.and_then(OsStr::to_str), path.to_str().unwrap())
        };
        assert_eq!(split("new=runs/a=b"), (Some("new"), "runs/a=b"));
        assert_eq!(split("runs/a"), (None, "runs/a"));
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a=b");
        std::fs::create_dir(&odd).unwrap();
        assert_eq!(super::split(odd.as_os_str()), (None, &*odd));
        assert!(checked(OsStr::new("0.4.0+rc-1_x")).is_ok());
        for bad in ["", "a/b", "a b", &"x".repeat(61)] {
            assert!(checked(OsStr::new(bad)).is_err(), "{bad}");
        }
    }
}
