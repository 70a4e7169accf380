//! Loads the suite: cases, requirements, profiles, platforms and expectations, from a checkout or from the copies in the binary.

mod embedded;
mod identity;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use allranks_suite::case;
use allranks_suite::case::{Case, Profile, Requirements};
use allranks_suite::expectation::Expectations;
use allranks_suite::platform;
use allranks_suite::platform::Platform;
use allranks_yaml::Diagnostic;

use embedded::{CASES, EXPECTATIONS, MUTANTS, PLATFORMS, PROGRAMS, SIMULATED, in_checkout, unpack};
pub use identity::{driver_digest, identity, own_identity};

/// What to load. An empty list means: what the suite has.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Case files and folders.
    pub cases: Vec<PathBuf>,
    /// Platform files and folders besides the suite's.
    pub platforms: Vec<PathBuf>,
    /// Expectation files and folders besides the suite's.
    pub expectations: Vec<PathBuf>,
    /// Waiver files and folders; the suite itself has none.
    pub waivers: Vec<PathBuf>,
}

/// Everything a plan is made from.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Cases, in order of id.
    pub cases: Vec<Arc<Case>>,
    /// Requirements of the cases' roots.
    pub requirements: Requirements,
    /// Named parts of the suite's cases.
    pub profiles: Vec<Profile>,
    /// Platforms, in order of name.
    pub platforms: Vec<Arc<Platform>>,
    /// Names of the platforms that are used only if they are named: the suite's simulated ones, which exist on every machine.
    pub on_request: BTreeSet<String>,
    /// Known failures and waivers.
    pub expectations: Arc<Expectations>,
    /// Where the cases come from, as text.
    pub origin: String,
    /// True if files are the copies in the binary, because the current folder is not a checkout.
    pub is_embedded: bool,
}

/// Why the suite cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// Files are invalid.
    #[error("{} problem(s) in case or platform files", .0.len())]
    Invalid(Vec<Diagnostic>),
    /// The copies in the binary cannot be unpacked.
    #[error("cannot unpack the suite: {0}")]
    Io(#[from] io::Error),
}

impl Suite {
    /// Loads a suite. If no cases are named, they are those of the checkout in the current folder, or else the binary's own,
    /// which are unpacked below `scratch`. That folder must outlive the run.
    ///
    /// # Errors
    /// All problems of all files, or the error of unpacking.
    pub fn load(request: &Request, scratch: &Path) -> Result<Self, SuiteError> {
        match in_checkout() {
            true => Self::load_below(request, Path::new(""), scratch),
            false => Self::load_embedded(request, scratch),
        }
    }

    /// Loads the suite that the binary carries, even in a checkout, with the requested files.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_embedded(request: &Request, scratch: &Path) -> Result<Self, SuiteError> {
        let root = scratch.join("suite");
        unpack(&CASES, &root.join("cases"))?;
        unpack(&PLATFORMS, &root.join("fixtures/platforms"))?;
        unpack(&EXPECTATIONS, &root.join("fixtures/expectations"))?;
        unpack(&PROGRAMS, &root.join("fixtures/programs"))?;
        unpack(&SIMULATED, &root.join("fixtures/sim"))?;
        Self::load_below(request, &root, scratch)
    }

    fn load_below(request: &Request, root: &Path, scratch: &Path) -> Result<Self, SuiteError> {
        let is_unpacked = root.starts_with(scratch);
        let origin = match is_unpacked {
            true => "the binary's own".to_owned(),
            false => "this checkout's".to_owned(),
        };
        let own_cases = root.join("cases");
        let (paths, origin) = if request.cases.is_empty() {
            (vec![own_cases.clone()], origin)
        } else {
            let named: Vec<_> = request
                .cases
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            let found = request.cases.iter().map(|path| case_path(path, root));
            (found.collect(), named.join(", "))
        };
        let has_embedded_cases = paths.iter().any(|path| path.starts_with(scratch));
        let with_own = |own: [&str; 2], more: &[PathBuf]| -> Vec<PathBuf> {
            own.into_iter()
                .map(|own| root.join(own))
                .chain(more.iter().cloned())
                .collect()
        };
        let cases = case::load(&paths);
        let own = ["fixtures/platforms", "fixtures/sim/platforms"];
        let platforms = platform::load(&with_own(own, &request.platforms));
        let own = ["fixtures/expectations", "fixtures/sim/expectations"];
        let expectations = Expectations::load(&with_own(own, &request.expectations));
        let expectations = expectations.and_then(|mut all| {
            all.load_waivers(&request.waivers, SystemTime::now())?;
            Ok(all)
        });
        let profiles = case::load_profiles(&own_cases.join("profiles"));
        match (cases, platforms, expectations, profiles) {
            (Ok(library), Ok(platforms), Ok(expectations), Ok(profiles)) => Ok(Self {
                cases: library.cases,
                requirements: library.requirements,
                profiles,
                on_request: platforms
                    .iter()
                    .filter(|platform| {
                        let is_simulated =
                            platform.python_path.iter().any(|path| is_own(path, root));
                        platform.only_if_named || is_simulated
                    })
                    .map(|platform| platform.name.clone())
                    .collect(),
                platforms: platforms.into_iter().map(Arc::new).collect(),
                expectations: Arc::new(expectations),
                origin,
                is_embedded: is_unpacked && has_embedded_cases,
            }),
            (cases, platforms, expectations, profiles) => {
                let problems = [
                    cases.err(),
                    platforms.err(),
                    expectations.err(),
                    profiles.err(),
                ];
                Err(SuiteError::Invalid(
                    problems.into_iter().flatten().flatten().collect(),
                ))
            }
        }
    }

    /// Returns the profile with this name; `None` if there is none.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }
}

/// Returns the file or folder that a case argument names: a path, or a path or case id of the suite below `root`, each with or
/// without `.yaml`. Returns the argument itself if none of them exists.
fn case_path(argument: &Path, root: &Path) -> PathBuf {
    let mut with_extension = argument.as_os_str().to_owned();
    with_extension.push(".yaml");
    let names = [argument.to_path_buf(), PathBuf::from(with_extension)];
    let folders = [PathBuf::new(), root.to_path_buf(), root.join("cases")];
    let candidates = folders
        .iter()
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let mut existing = candidates.filter(|path| path.exists());
    existing.next().unwrap_or_else(|| argument.to_path_buf())
}

/// Returns true if a folder of Python modules is that of the suite's simulated platforms.
fn is_own(path: &Path, root: &Path) -> bool {
    path.starts_with(root.join("fixtures/sim"))
}

/// Returns the folder of the suite's own mutants: that of the checkout in the current folder, if there is one, else the binary's
/// own, unpacked below `scratch` beside the cases that [`Suite::load`] unpacks there.
///
/// # Errors
/// The mutants cannot be unpacked.
pub fn mutants(scratch: &Path) -> io::Result<PathBuf> {
    if in_checkout() {
        return Ok(PathBuf::from("fixtures/mutants"));
    }
    let folder = scratch.join("suite/fixtures/mutants");
    unpack(&MUTANTS, &folder)?;
    Ok(folder)
}
