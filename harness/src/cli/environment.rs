//! `environment.json`: what a reader needs to know of the machine to trust or repeat a run: what `allranks doctor` knows
//! without disturbing other programs, and what was planned on it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::json;

use super::planning::Planned;
use allranks_runner::probe::Interpreter;
use allranks_runner::world::Imported;

use crate::doctor;
use crate::doctor::{Depth, Facts, Question};

/// Starts a thread that collects the facts of this machine. It takes as long as an `import torch`, and at most
/// `patience`. `imported` is a process that has imported torch, or is about to.
#[must_use]
pub fn look(
    python: Option<Interpreter>,
    patience: Duration,
    imported: Option<Imported>,
) -> JoinHandle<Facts> {
    thread::spawn(move || {
        doctor::collect(&Question {
            imported,
            ..Question::here(python, Depth::Record, patience)
        })
    })
}

/// Writes `environment.json` into a run's folder.
///
/// # Errors
/// It cannot be written.
pub fn write(folder: &Path, planned: &Planned, facts: &Facts) -> io::Result<()> {
    let uname = rustix::system::uname();
    let mut environment = json!({
        "format": 1,
        "allranks": env!("CARGO_PKG_VERSION"),
        "system": format!(
            "{} {} {}",
            uname.sysname().to_string_lossy(),
            uname.release().to_string_lossy(),
            uname.machine().to_string_lossy()
        ),
        "memory_mib": facts.memory.total_mib,
        "python": planned.python.as_ref().map(|python| python.path.display().to_string()),
        "platforms_found": planned
            .targets
            .iter()
            .map(|target| format!("{}/{}", target.platform.name, target.backend))
            .collect::<Vec<_>>(),
        "platforms_not_found": planned
            .absent
            .iter()
            .map(|absent| (absent.platform.name.clone(), absent.reason.clone()))
            .collect::<BTreeMap<_, _>>(),
        "findings": doctor::findings(facts),
    });
    super::doctor::merge(&mut environment, facts)?;
    let path = folder.join("environment.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&environment)?)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
