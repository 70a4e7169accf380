//! The suite that the binary carries. In a checkout, the checkout's files are used instead.

use std::io;
use std::path::Path;

use include_dir::{Dir, include_dir};

pub(super) static CASES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/cases");
pub(super) static PLATFORMS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/platforms");
pub(super) static SIMULATED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/sim");
pub(super) static MUTANTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/mutants");
pub(super) static PROGRAMS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/programs");
pub(super) static EXPECTATIONS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/expectations");

/// Returns true if the current folder is a checkout of the suite.
pub(super) fn in_checkout() -> bool {
    Path::new("cases/requirements.yaml").is_file() && Path::new("fixtures/platforms").is_dir()
}

/// Writes an embedded folder to `to`, which is made if it is missing.
///
/// # Errors
/// A folder or file cannot be written.
pub(super) fn unpack(dir: &Dir<'_>, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    dir.extract(to)
}
