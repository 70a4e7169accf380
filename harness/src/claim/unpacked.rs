//! Unpacks a package to read its results, without verifying its claim.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::archive::{self, LIMITS, ReadError};
use super::product::Product;
use super::reason::Rejections;
use super::verify::{PRODUCT, check_manifest};
use allranks_yaml::Source;

/// The ending of a package's name.
const ENDING: &str = ".tar.zst";

/// An unpacked package, whose files match its manifest. Its claim was not verified.
#[derive(Debug)]
pub struct UnpackedPackage {
    /// The product that the package is about.
    pub product: Product,
    /// The folder of the first of its two runs.
    pub run: PathBuf,
}

/// Why a package was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The package is invalid, with the reason.
    #[error("{0}")]
    Damaged(String),
    /// This machine cannot read the file, or has no space for its content.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Returns true if a path is a file whose name ends with `.tar.zst`.
#[must_use]
pub fn is_package(path: &Path) -> bool {
    path.is_file() && path.to_string_lossy().ends_with(ENDING)
}

/// Unpacks a package into an empty folder.
///
/// # Errors
/// See [`OpenError`]. Files that were unpacked before the error stay.
pub fn open(package: &Path, folder: &Path) -> Result<UnpackedPackage, OpenError> {
    let found = match archive::unpack(package, folder, LIMITS) {
        Ok(found) => found,
        Err(ReadError::Rejected(_, text)) => return Err(OpenError::Damaged(text)),
        Err(ReadError::Io(error)) => return Err(OpenError::Io(error)),
    };
    let mut rejections = Rejections::default();
    check_manifest(folder, &found, &mut rejections);
    if let Some(first) = rejections.into_list().into_iter().next() {
        return Err(OpenError::Damaged(first.text));
    }
    let product = Source::read(&folder.join(PRODUCT)).and_then(Product::parse);
    let product = product.map_err(|problems| {
        let first = problems.first().map(ToString::to_string);
        OpenError::Damaged(first.unwrap_or_default())
    })?;
    let run = folder.join("runs/1");
    Ok(UnpackedPackage { product, run })
}
