//! Reads the files of `fixtures/mutants`: the mutants, how each must be reported, and the requirements that cannot have a mutant
//! of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;

use allranks_model::names::{CaseId, RequirementId};
use allranks_model::outcome::{Outcome, Verdict};
use allranks_suite::plan::Filter;
use allranks_yaml as yaml;
use allranks_yaml::Diagnostic;

/// The list of mutants.
const INDEX: &str = "index.yaml";
/// Requirements without a mutant of their own, with the reason.
const SHARED: &str = "shared.yaml";
/// The cases that the quick shared checks leave out.
const PANEL: &str = "panel.yaml";
/// The name of the Python package that holds the mutants' functions.
pub const PACKAGE: &str = "allranks_mutants";

/// A mutant, as an entry of `index.yaml` describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// The name of its function in the Python package.
    pub name: String,
    /// The requirement it breaks.
    pub breaks: RequirementId,
    /// The checks to run, as for `allranks run --filter`.
    pub filter: String,
    /// The world size of its checks.
    #[serde(default = "two")]
    pub size: u32,
    /// A case file of its own, relative to the index; `None`: the suite's cases.
    #[serde(default)]
    pub case: Option<PathBuf>,
    /// The simulated platform on which it is loaded; `None`: `cpu`.
    #[serde(default)]
    pub platform: Option<String>,
    /// The outcome that its checks must have.
    #[serde(default = "mismatch")]
    pub outcome: Outcome,
    /// The class that its checks must report; `None`: any.
    #[serde(default)]
    pub class: Option<String>,
    /// The verdict that its checks must get.
    #[serde(default = "regression")]
    pub verdict: Verdict,
    /// The number of units in the shortest failing sequence, if the check is a random sequence.
    #[serde(default)]
    pub shrinks_to: Option<usize>,
    /// True if no check of c10d's functions may detect it. It is then also tried on a check of each op, and on the shared checks
    /// without the cases of the stack.
    #[serde(default)]
    pub above_c10d: bool,
    /// The URL of a public report of such a bug; `None` if none is known.
    #[serde(default)]
    pub source: Option<String>,
}

impl Mutant {
    /// Returns true if the index expects a hang or a crash, so that its worlds end early.
    #[must_use]
    pub fn loses_worlds(&self) -> bool {
        matches!(self.outcome, Outcome::Hang | Outcome::Crash)
            || matches!(self.class.as_deref(), Some("hang" | "crash"))
    }
}

/// A requirement without a mutant that only its checks detect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    requirement: RequirementId,
    why: String,
}

/// `panel.yaml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PanelFile {
    #[serde(default)]
    leave_out: Vec<ExcludedCase>,
}

/// Cases that the quick shared checks leave out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExcludedCase {
    /// A case's id; with a trailing `/**`, all cases below.
    case: String,
    /// Why.
    #[expect(dead_code, reason = "for people; checked for its form by being here")]
    why: String,
}

/// The mutants of a folder, and the requirements without a mutant.
#[derive(Clone, Debug)]
pub struct Index {
    /// The folder that holds `index.yaml` and the Python package.
    pub folder: PathBuf,
    /// The mutants, in the order of the file.
    pub mutants: Vec<Mutant>,
    /// The requirements that have no mutant of their own, each with the reason.
    pub shared: BTreeMap<RequirementId, String>,
    panel: PanelFile,
}

impl Index {
    /// Reads a folder of mutants. Only its index must exist.
    ///
    /// # Errors
    /// All problems of its files.
    pub fn load(folder: &Path) -> Result<Self, Vec<Diagnostic>> {
        let path = folder.join(INDEX);
        let mutants: Vec<Mutant> = yaml::load(&path)?.0;
        let mut problems = Vec::new();
        let shown = path.display().to_string();
        let mut seen = BTreeMap::new();
        for (index, mutant) in mutants.iter().enumerate() {
            if seen.insert(&mutant.name, index).is_some() {
                let message = format!("two mutants are named {}", mutant.name);
                problems.push(Diagnostic::of_file(&shown, message));
            }
            if let Err(error) = mutant.filter.parse::<Filter>() {
                let message = format!("the filter of {}: {error}", mutant.name);
                problems.push(Diagnostic::of_file(&shown, message));
            }
        }
        let shared: Vec<Shared> = optional(&folder.join(SHARED)).unwrap_or_else(|found| {
            problems.extend(found);
            Vec::new()
        });
        let panel = optional(&folder.join(PANEL)).unwrap_or_else(|found| {
            problems.extend(found);
            PanelFile::default()
        });
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            folder: folder.to_owned(),
            mutants,
            shared: shared
                .into_iter()
                .map(|one| (one.requirement, one.why))
                .collect(),
            panel,
        })
    }

    /// Returns true if the quick shared checks leave this case out.
    #[must_use]
    pub fn leaves_out(&self, case: &CaseId) -> bool {
        self.panel
            .leave_out
            .iter()
            .any(|one| match one.case.strip_suffix("**") {
                Some(folder) => case.as_str().starts_with(folder),
                None => case.as_str() == one.case,
            })
    }

    /// Returns the functions that the package decorates with `mutates`, each with the first line of its docstring,
    /// which describes the bug.
    ///
    /// # Errors
    /// The package cannot be read.
    pub fn functions(&self) -> io::Result<BTreeMap<String, String>> {
        let mut functions = BTreeMap::new();
        for entry in fs::read_dir(self.folder.join(PACKAGE))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "py") {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            let mut lines = text.lines();
            while let Some(line) = lines.next() {
                if !line.starts_with("@mutates(") {
                    continue;
                }
                let name = lines
                    .find_map(|line| line.strip_prefix("def "))
                    .and_then(|rest| rest.split_once('('));
                let about = lines.find_map(|line| line.trim().strip_prefix("\"\"\""));
                if let Some((name, _)) = name {
                    let about = about.unwrap_or_default().trim_end_matches("\"\"\"");
                    functions.insert(name.to_owned(), about.to_owned());
                }
            }
        }
        Ok(functions)
    }
}

/// Reads a file that may be missing; then its default is returned.
fn optional<T: Default + serde::de::DeserializeOwned>(path: &Path) -> Result<T, Vec<Diagnostic>> {
    if path.exists() {
        Ok(yaml::load(path)?.0)
    } else {
        Ok(T::default())
    }
}

fn two() -> u32 {
    2
}

fn mismatch() -> Outcome {
    Outcome::Mismatch
}

fn regression() -> Verdict {
    Verdict::Regression
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(index: &str) -> Result<Index, Vec<Diagnostic>> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(INDEX), index).unwrap();
        Index::load(folder.path())
    }

    #[test]
    fn an_entry_needs_three_fields() {
        let index = load("- {name: a, breaks: COLL-001, filter: case=x}\n").unwrap();
        let mutant = &index.mutants[0];
        assert_eq!(mutant.size, 2);
        assert_eq!(mutant.outcome, Outcome::Mismatch);
        assert_eq!(mutant.verdict, Verdict::Regression);
        assert!(!mutant.loses_worlds());
    }

    #[test]
    fn names_are_unique_and_filters_are_filters() {
        let twice =
            "- {name: a, breaks: X-001, filter: x}\n- {name: a, breaks: X-001, filter: 'dtype='}\n";
        let problems = load(twice).unwrap_err();
        assert_eq!(problems.len(), 2);
        assert!(problems[0].message.contains("two mutants are named a"));
        assert!(problems[1].message.contains("lacks a name or a value"));
        assert!(load("- {name: a, breaks: X-001, filter: x, sise: 3}\n").is_err());
    }

    #[test]
    fn a_function_is_what_is_decorated() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join(PACKAGE);
        fs::create_dir(&package).unwrap();
        fs::write(folder.path().join(INDEX), "[]\n").unwrap();
        let text = "def helper():\n    pass\n\n\n@mutates(\"send\")\ndef late(original, *args):\n    \"\"\"Comes late.\"\"\"\n";
        fs::write(package.join("one.py"), text).unwrap();
        let functions = Index::load(folder.path()).unwrap().functions().unwrap();
        let expected = BTreeMap::from([("late".to_owned(), "Comes late.".to_owned())]);
        assert_eq!(functions, expected);
    }
}
