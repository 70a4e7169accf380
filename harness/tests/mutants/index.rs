//! `fixtures/mutants/index.yaml`: which mutants there are, and how each must be reported.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use allranks::judge::{Outcome, Verdict};
use allranks::names::RequirementId;
use serde::Deserialize;

/// `fixtures/mutants`.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/mutants")
}

/// An entry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Its function in the Python package.
    pub name: String,
    /// The requirement it breaks.
    pub breaks: RequirementId,
    /// The checks to run.
    pub filter: String,
    /// World size.
    #[serde(default = "two")]
    pub size: u32,
    /// A case file beside the suite's own.
    #[serde(default)]
    pub case: Option<PathBuf>,
    /// What must happen.
    #[serde(default = "mismatch")]
    pub outcome: Outcome,
    /// What it must look like.
    #[serde(default)]
    pub class: Option<String>,
    /// What it must mean.
    #[serde(default = "regression")]
    pub verdict: Verdict,
    /// Units of the shortest failing sequence, if it is one that fails.
    #[serde(default)]
    pub shrinks_to: Option<usize>,
    /// Where such a bug was seen.
    #[serde(default)]
    #[expect(dead_code, reason = "for people; checked for its form by being here")]
    pub source: Option<String>,
}

impl Mutant {
    /// The case file, or the folder of the suite's.
    pub fn cases(&self) -> PathBuf {
        match &self.case {
            Some(case) => folder().join(case),
            None => folder().join("../../cases"),
        }
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

/// Reads the index.
pub fn mutants() -> Vec<Mutant> {
    let path = folder().join("index.yaml");
    let text = fs::read_to_string(&path).expect("the index is there");
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of the functions that the package decorates.
pub fn functions() -> BTreeSet<String> {
    let folder = folder().join("allranks_mutants");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the package is there") {
        let path = entry.expect("its files can be listed").path();
        if path.extension().is_none_or(|extension| extension != "py") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("its files can be read");
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2) {
            if !pair[0].starts_with("@mutates(") {
                continue;
            }
            let name = pair[1]
                .strip_prefix("def ")
                .and_then(|rest| rest.split_once('('))
                .unwrap_or_else(|| panic!("{}: `{}` is no function", path.display(), pair[1]))
                .0;
            assert!(
                names.insert(name.to_owned()),
                "two mutants are named {name}"
            );
        }
    }
    names
}
