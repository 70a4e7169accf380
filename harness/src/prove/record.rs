//! The records of `kills.jsonl`: a head, the healthy backend, one line for each mutant, and the totals. The format is a contract,
//! and has the same version number as that of `results.jsonl`.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::healthy::Healthy;
use super::kill::Kill;
use super::shared_checks::SharedChecks;
use allranks_model::names::RequirementId;

/// The name of the file in a proof's folder.
pub const FILE_NAME: &str = "kills.jsonl";

/// One line of `kills.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum MatrixRecord {
    /// The first line.
    Prove(Head),
    /// The backend without a bug.
    Healthy(Healthy),
    /// The result of a mutant.
    Mutant(Box<Kill>),
    /// The last line; a proof that was cut off has none.
    End(Tail),
}

/// The first line of `kills.jsonl`: the parameters of the proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The version of this format: [`allranks_model::record::FORMAT`].
    pub format: u32,
    /// The version of allranks.
    pub allranks: String,
    /// When the proof began, in seconds since the Unix epoch.
    pub started: u64,
    /// The platform on which mutants are loaded.
    pub platform: String,
    /// The backend on that platform.
    pub backend: String,
    /// The seed of all inputs.
    pub seed: u64,
    /// The checks that every mutant meets besides its own. In JSON the field is `panel`.
    #[serde(rename = "panel")]
    pub shared_checks: SharedChecks,
    /// The number of mutants that are tried.
    pub mutants: u64,
    /// Every requirement of the suite, with its sentence.
    pub requirements: BTreeMap<RequirementId, String>,
    /// Requirements without a mutant that only their checks detect, with the reason.
    pub shared: BTreeMap<RequirementId, String>,
    /// Requirements for which the backend cannot be checked, with the reason and the cases that check other backends.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub elsewhere: BTreeMap<RequirementId, String>,
}

/// The last line of `kills.jsonl`: the totals over all mutants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// The version of this format: [`allranks_model::record::FORMAT`].
    pub format: u32,
    /// The version of torch that the ranks reported.
    pub torch: String,
    /// Number of mutants by outcome.
    pub tally: MutantCounts,
    /// How long the proof took, in milliseconds.
    pub duration_ms: u64,
    /// The exit code.
    pub exit_code: u8,
}

/// Numbers of mutants by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MutantCounts {
    /// The number of mutants that were [`super::MutantOutcome::Killed`].
    pub killed: u64,
    /// The number of mutants that were [`super::MutantOutcome::Misnamed`].
    pub misnamed: u64,
    /// The number of mutants that were [`super::MutantOutcome::Incidental`].
    pub incidental: u64,
    /// The number of mutants that [`super::MutantOutcome::Survived`].
    pub survived: u64,
    /// The number of mutants that were [`super::MutantOutcome::Untried`] or never begun.
    pub untried: u64,
}

/// Appends lines to `kills.jsonl` without buffering.
#[derive(Debug)]
pub struct Writer(File);

impl Writer {
    /// Starts the file in a folder.
    ///
    /// # Errors
    /// The file exists, or cannot be made.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE_NAME);
        let file = OpenOptions::new().append(true).create_new(true).open(path);
        Ok(Self(file?))
    }

    /// Appends a line.
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn append(&mut self, line: &MatrixRecord) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line).map_err(io::Error::other)?;
        bytes.push(b'\n');
        self.0.write_all(&bytes)
    }
}
