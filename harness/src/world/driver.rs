//! The program a rank runs, as a command line.

use std::io;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

static PACKAGE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/python/allranks_rank");

/// The program a rank runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The Python driver that the binary carries.
    Python {
        /// The interpreter.
        python: PathBuf,
        /// The folder that holds `allranks_rank`.
        package: PathBuf,
    },
    /// Any other program that speaks the rank protocol: its path, then its arguments.
    Command(Vec<String>),
}

impl Driver {
    /// Unpacks the Python driver below `folder`, where it stays for the length of the run.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn python(python: &Path, folder: &Path) -> io::Result<Self> {
        let package = folder.join("driver");
        let target = package.join("allranks_rank");
        std::fs::create_dir_all(&target)?;
        PACKAGE.extract(&target)?;
        Ok(Self::Python {
            python: python.to_owned(),
            package: std::path::absolute(package)?,
        })
    }

    /// `python`, or `command`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Python { .. } => "python",
            Self::Command(_) => "command",
        }
    }
}
