//! The last verdict on a job, as a file for the watches of its other nodes.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::member::write_whole;
use allranks_model::diagnosis::Diagnosis;

/// The file with the last verdict.
const VERDICT: &str = "verdict.json";

/// A verdict for the watches that kill on one.
#[derive(Serialize, Deserialize)]
pub struct Judged {
    /// The names of the watches that it is for.
    pub of: Vec<String>,
    pub diagnosis: Diagnosis,
}

impl Judged {
    /// Reads the verdict in a folder; `None` if there is none.
    pub fn read(folder: &Path) -> Option<Self> {
        let text = fs::read(folder.join(VERDICT)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Writes it into a folder, in the place of the one before.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        write_whole(folder, VERDICT, &serde_json::to_vec(self)?)
    }

    /// Removes the verdict in a folder, if there is one.
    pub fn remove(folder: &Path) {
        let _ = fs::remove_file(folder.join(VERDICT));
    }
}
