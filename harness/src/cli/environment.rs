//! Writes `environment.json`: the facts of the machine that `allranks doctor` can collect without disturbing other programs, and
//! what was planned on it. A reader needs them to trust or repeat a run.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use super::planning::Planned;
use allranks_report::facts::MERGED;
use allranks_runner::probe::Interpreter;
use allranks_runner::world::ForkedInterpreter;

use crate::doctor;
use crate::doctor::{Depth, Facts, FactsQuery};

/// The name of the file in a run's folder.
const FILE_NAME: &str = "environment.json";

/// Starts a thread that collects the facts of this machine. It takes as long as `import torch`, and at most `patience`.
/// Scripts run in forks of `forked`, if there is one.
#[must_use]
pub fn start_collecting(
    python: Option<Interpreter>,
    patience: Duration,
    forked: Option<ForkedInterpreter>,
) -> JoinHandle<Facts> {
    thread::spawn(move || {
        doctor::collect(&FactsQuery {
            forked,
            ..FactsQuery::here(python, Depth::Record, patience)
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
    super::doctor::merge_facts(&mut environment, facts)?;
    save(folder, &environment)
}

/// Writes the `environment.json` of a merged run: a list with the name and the environment of each run, `null` for a run without
/// one. A run that was merged itself is replaced by its own list.
///
/// # Errors
/// A file cannot be read or is not JSON, or the new one cannot be written.
pub fn write_merged(folder: &Path, runs: &[PathBuf]) -> io::Result<()> {
    let mut merged = Vec::new();
    for run in runs {
        let environment = read(&run.join(FILE_NAME))?;
        if let Some(Value::Array(parts)) = environment.get(MERGED) {
            merged.extend(parts.iter().cloned());
            continue;
        }
        let name = std::path::absolute(run)?;
        let name = name
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        merged.push(json!({"run": name, "environment": environment}));
    }
    save(
        folder,
        &json!({"format": 1, "allranks": env!("CARGO_PKG_VERSION"), MERGED: merged}),
    )
}

fn read(path: &Path) -> io::Result<Value> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| named(error.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(named(error)),
    }
}

fn save(folder: &Path, environment: &Value) -> io::Result<()> {
    let path = folder.join(FILE_NAME);
    std::fs::write(&path, serde_json::to_vec_pretty(environment)?)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
