//! The driver that a rank runs, as a command line.

use std::io;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

static PACKAGE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/python/allranks_rank");

/// The driver that a rank runs.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Driver {
    /// The Python driver that the binary contains.
    Python {
        /// The interpreter.
        python: PathBuf,
        /// The folder that holds the package `allranks_rank`.
        package: PathBuf,
    },
    /// The driver in Rust on libtorch: the path of its binary, which can also be a zygote.
    Libtorch(PathBuf),
    /// Any other program that speaks the rank protocol: its path, then its arguments.
    Command(Vec<String>),
}

impl Driver {
    /// Unpacks the Python driver into `folder`, where it stays for the length of the run.
    ///
    /// # Errors
    /// The files cannot be written.
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

    /// Returns the command of a spawned rank, and the folder that it needs in its `PYTHONPATH`.
    #[must_use]
    pub fn rank(&self) -> (Vec<String>, Option<&Path>) {
        match self {
            Self::Python { python, package } => (
                words([&python.to_string_lossy(), "-m", "allranks_rank"]),
                Some(package),
            ),
            Self::Libtorch(program) => (words([&program.to_string_lossy()]), None),
            Self::Command(argv) => (argv.clone(), None),
        }
    }

    /// Returns the same of its zygote; none if the driver has none. The Python driver's zygote imports `modules`
    /// besides torch.
    #[must_use]
    pub fn zygote(&self, modules: &[&str]) -> Option<(Vec<String>, Option<&Path>)> {
        match self {
            Self::Python { python, package } => {
                let mut argv = words([&python.to_string_lossy(), "-m", "allranks_rank.zygote"]);
                argv.extend(modules.iter().map(|&module| module.to_owned()));
                Some((argv, Some(package)))
            }
            Self::Libtorch(program) => Some((words([&program.to_string_lossy(), "zygote"]), None)),
            Self::Command(_) => None,
        }
    }

    /// Returns the files that decide what a rank does: those of the Python driver that the binary contains, or of the program
    /// and its arguments that name files. Each has a name and its bytes; files that cannot be read are left out.
    #[must_use]
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let read = |path: &str| Some((path.to_owned(), std::fs::read(path).ok()?));
        match self {
            Self::Python { .. } => python_files(),
            Self::Libtorch(program) => read(&program.to_string_lossy()).into_iter().collect(),
            Self::Command(argv) => argv.iter().filter_map(|word| read(word)).collect(),
        }
    }

    /// Returns `python`, `libtorch` or `command`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

/// Returns the files of the Python driver that the binary contains, each with its path and its bytes, in order of path.
#[must_use]
pub fn python_files() -> Vec<(String, Vec<u8>)> {
    fn below(dir: &Dir<'_>, files: &mut Vec<(String, Vec<u8>)>) {
        for file in dir.files() {
            let path = file.path().display().to_string();
            if path.ends_with(".py") {
                files.push((path, file.contents().to_vec()));
            }
        }
        dir.dirs().for_each(|inner| below(inner, files));
    }
    let mut files = Vec::new();
    below(&PACKAGE, &mut files);
    files.sort();
    files
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}
