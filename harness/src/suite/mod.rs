//! The suite: cases, requirements, profiles, platforms and expectations, from a checkout or from the copies the
//! binary carries.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};

use allranks_model::record::SuiteIdentity;
use allranks_suite::case;
use allranks_suite::case::{Case, Profile, Requirements};
use allranks_suite::expectation::Expectations;
use allranks_suite::platform;
use allranks_suite::platform::Platform;
use allranks_yaml::Diagnostic;

static CASES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/cases");
static PLATFORMS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/platforms");
static SIMULATED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/sim");
static MUTANTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/mutants");
static PROGRAMS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/programs");
static EXPECTATIONS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/embedded/expectations");

/// What to load; empty lists mean "what the suite has".
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Case files and folders.
    pub cases: Vec<PathBuf>,
    /// Further platform files and folders; they come on top of the suite's.
    pub platforms: Vec<PathBuf>,
    /// Expectation files and folders; they come on top of the suite's.
    pub expectations: Vec<PathBuf>,
    /// Files of waivers, and folders of them; the suite has none.
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
    /// Names of the platforms that are used only if they are asked for: the suite's own simulated ones, which exist on
    /// every machine and say nothing about it.
    pub on_request: BTreeSet<String>,
    /// Known failures and waivers.
    pub expectations: Arc<Expectations>,
    /// Where the cases come from, for people.
    pub origin: String,
    /// True if some of them are the copies in the binary, because the current folder is no checkout.
    pub is_embedded: bool,
}

/// Why there is no suite.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// Files people wrote are wrong.
    #[error("{} problem(s) in case or platform files", .0.len())]
    Invalid(Vec<Diagnostic>),
    /// The copies the binary carries cannot be unpacked.
    #[error("cannot unpack the suite: {0}")]
    Io(#[from] io::Error),
}

impl Suite {
    /// Loads what is asked for. With no cases named, those of the checkout in the current folder, if there is one,
    /// else the binary's own, unpacked below `scratch`, which must outlive the run.
    ///
    /// # Errors
    /// Every problem in every file, or the reason why nothing could be unpacked.
    pub fn load(request: &Request, scratch: &Path) -> Result<Self, SuiteError> {
        match in_checkout() {
            true => Self::load_below(request, Path::new(""), scratch),
            false => Self::load_embedded(request, scratch),
        }
    }

    /// Loads the suite that the binary carries, whatever the current folder is, with the files that are asked for.
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

    /// Returns the profile of that name; none if there is none.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }
}

/// The file or folder that a case argument names: a path, or what a path or a case's id names in the suite below `root`,
/// each with or without `.yaml`. Returns the argument itself if there is none of them.
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

/// Whether a folder of Python modules is that of the suite's simulated platforms.
fn is_own(path: &Path, root: &Path) -> bool {
    path.starts_with(root.join("fixtures/sim"))
}

/// The folder of the suite's own mutants: that of the checkout in the current folder, if there is one, else the binary's
/// own, unpacked below `scratch` beside the cases that [`Suite::load`] unpacks there.
///
/// # Errors
/// They cannot be unpacked.
pub fn mutants(scratch: &Path) -> io::Result<PathBuf> {
    if in_checkout() {
        return Ok(PathBuf::from("fixtures/mutants"));
    }
    let folder = scratch.join("suite/fixtures/mutants");
    unpack(&MUTANTS, &folder)?;
    Ok(folder)
}

/// Returns which suite this is, without the driver: that of the checkout in the current folder, if there is one, else the
/// binary's own.
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
        cases: digest(&CASE_FOLDERS, &is_case)?,
        requirements: digest(&CASE_FOLDERS, &is_requirements)?,
        platforms: digest(&PLATFORM_FOLDERS, &|path| !is_expectation(path))?,
        expectations: digest(&EXPECTATION_FOLDERS, &is_expectation)?,
        driver: String::new(),
    })
}

/// Returns which suite the binary carries, without the driver.
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
        cases: digest(&CASE_FOLDERS, &is_case),
        requirements: digest(&CASE_FOLDERS, &is_requirements),
        platforms: digest(&PLATFORM_FOLDERS, &|path| !is_expectation(path)),
        expectations: digest(&EXPECTATION_FOLDERS, &is_expectation),
        driver: String::new(),
    }
}

const CASE_FOLDERS: [&str; 2] = ["cases", "fixtures/programs"];
const PLATFORM_FOLDERS: [&str; 2] = ["fixtures/platforms", "fixtures/sim"];
const EXPECTATION_FOLDERS: [&str; 2] = ["fixtures/expectations", "fixtures/sim"];

fn is_requirements(path: &str) -> bool {
    path == "cases/requirements.yaml"
}

fn is_case(path: &str) -> bool {
    !is_requirements(path)
}

fn is_expectation(path: &str) -> bool {
    path.starts_with("fixtures/expectations/") || path.starts_with("fixtures/sim/expectations/")
}

/// The digest of files with their paths. What Python compiles is left out.
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
    let said = Command::new("git")
        .args([
            "describe",
            "--always",
            "--dirty",
            "--abbrev=40",
            "--exclude=*",
        ])
        .output()
        .ok()?;
    let commit = String::from_utf8(said.stdout).ok()?.trim().to_owned();
    (said.status.success() && !commit.is_empty()).then_some(commit)
}

fn in_checkout() -> bool {
    Path::new("cases/requirements.yaml").is_file() && Path::new("fixtures/platforms").is_dir()
}

fn unpack(dir: &Dir<'_>, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    dir.extract(to)
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
