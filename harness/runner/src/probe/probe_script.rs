//! The script that an interpreter runs for a probe: what it is asked, and what it answers.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::EntryPoint;
use crate::world::Imported;
use allranks_host as host;
use allranks_suite::platform::Platform;

/// The script.
const SCRIPT: &str = include_str!("../../python/allranks_rank/probe.py");
/// The prefix of the lines that the probe script writes; all others are ignored.
const LINE_PREFIX: &str = "ALLRANKS-PROBE ";
/// What is being tried while torch loads packages by itself.
pub const IMPORT: &str = "import torch";

/// What an interpreter has, as far as that can be known without importing it.
pub struct Installed {
    /// For each platform its first package that is not installed. None if all are, and also if that could not be asked:
    /// then the import shows it.
    pub absent: Vec<Option<String>>,
    /// Whether torch loads packages by itself, whose import may depend on a platform's environment. True if that is not known.
    pub autoloads: bool,
}

/// Asks an interpreter which packages of platforms it has.
pub fn installed(python: &Path, platforms: &[&Platform], limit: Duration) -> Installed {
    let asked = platforms.iter().map(|platform| {
        serde_json::json!({"python_path": platform.python_path, "import": platform.import})
    });
    let wanted = serde_json::json!({"absent": asked.collect::<Vec<_>>()});
    let command = host::python_command(python, SCRIPT, &wanted);
    let answer = host::run_with_timeout(command, limit)
        .ok()
        .and_then(|(text, _)| {
            lines(&text).find_map(|line| match line {
                Ok(ProbeLine::Absent { absent, autoloads }) if absent.len() == platforms.len() => {
                    Some(Installed { absent, autoloads })
                }
                _ => None,
            })
        });
    answer.unwrap_or_else(|| Installed {
        absent: vec![None; platforms.len()],
        autoloads: true,
    })
}

/// The script's answer about one platform.
#[derive(Debug, Deserialize)]
pub struct Found {
    /// What is wrong; none if nothing is.
    pub problem: Option<ProbeProblem>,
    /// The version of torch; none if it could not be imported.
    pub torch: Option<String>,
    /// The versions of packages that platforms require, by name; none of one that is not installed.
    #[serde(default)]
    pub versions: BTreeMap<String, Option<String>>,
    /// Whether this build of torch has `torch.distributed`.
    #[serde(default)]
    pub distributed: bool,
    /// The number of devices; none if they could not be counted, or are not to be.
    pub count: Option<u64>,
    /// For each backend, whether this build of torch has it.
    #[serde(default)]
    pub backends: BTreeMap<String, bool>,
    /// Whether the device says that it is simulated.
    #[serde(default)]
    pub simulated: bool,
}

/// Why a platform could not be looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProbeProblem {
    /// A package that is not installed.
    pub missing: Option<String>,
    /// A module whose import failed for another reason.
    pub import: Option<String>,
    /// A counting expression that failed.
    pub count: Option<String>,
    /// The error, in one line.
    pub error: String,
}

/// One line that the script writes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeLine {
    /// What is about to be tried.
    Trying(String),
    /// The entry point that is about to be loaded; none when all have been loaded.
    Loading(Option<EntryPoint>),
    /// The results, one for each platform.
    Found(Vec<Found>),
    /// What is known without an import.
    #[serde(untagged)]
    Absent {
        /// For each platform, the first package that is not installed.
        absent: Vec<Option<String>>,
        /// Whether there are packages that torch loads by itself.
        autoloads: bool,
    },
}

/// Iterates over the lines of the script in what the interpreter has written.
pub fn lines(text: &str) -> impl Iterator<Item = serde_json::Result<ProbeLine>> {
    let ours = text
        .lines()
        .filter_map(|line| line.strip_prefix(LINE_PREFIX));
    ours.map(serde_json::from_str)
}

/// The script gave no answer.
pub struct NoAnswer {
    /// The reason, in one line.
    pub reason: String,
    /// What was being tried when it ended.
    pub trying: String,
}

/// Asks an interpreter of their own about platforms that need the same imports.
///
/// # Errors
/// Fails if the interpreter cannot be started, ends, or does not answer in time.
pub fn ask(
    python: &Path,
    platforms: &[&Platform],
    limit: Duration,
) -> Result<Vec<Found>, NoAnswer> {
    let shown = python.display();
    let mut trying = String::from("the start of the interpreter");
    let ran = host::run_with_timeout(command(python, platforms, false), limit);
    let (text, end) = match ran {
        Ok(ran) => ran,
        Err(error) => {
            let reason = format!("{shown} cannot be started: {error}");
            return Err(NoAnswer { reason, trying });
        }
    };
    for line in lines(&text) {
        match line {
            Ok(ProbeLine::Found(found)) => return Ok(found),
            Ok(ProbeLine::Trying(what)) => trying = what,
            Ok(ProbeLine::Loading(_) | ProbeLine::Absent { .. }) => {}
            Err(error) => {
                let reason = format!("the probe's answer makes no sense: {error}");
                return Err(NoAnswer { reason, trying });
            }
        }
    }
    let reason = match end {
        None => format!(
            "{shown} did not answer within {} s, in `{trying}`",
            limit.as_secs()
        ),
        Some(status) => match status.signal() {
            Some(signal) => format!("{shown} was killed by signal {signal} in `{trying}`"),
            None => {
                let last = text
                    .lines()
                    .rev()
                    .find(|line| !line.trim().is_empty() && !line.starts_with(LINE_PREFIX));
                let last = last.map_or(String::new(), |line| format!(": {}", line.trim()));
                let code = status.code().unwrap_or_default();
                format!("{shown} ended with code {code} in `{trying}`{last}")
            }
        },
    };
    Err(NoAnswer { reason, trying })
}

/// Returns what a process that has imported torch says of platforms that need the same imports. None if it says nothing or
/// that something is wrong: an interpreter of their own tells what.
pub fn ask_imported(
    imported: &Imported,
    platforms: &[&Platform],
    limit: Duration,
) -> Option<Vec<Found>> {
    let question = question(platforms, false);
    let (text, _) = imported
        .ask(SCRIPT, &question, &platforms[0].env, limit)
        .ok()?;
    let found = lines(&text).find_map(|line| match line {
        Ok(ProbeLine::Found(found)) => Some(found),
        _ => None,
    })?;
    let is_well = found.len() == platforms.len() && found.iter().all(|one| one.problem.is_none());
    is_well.then_some(found)
}

/// Returns the command of the script. The platforms need the same imports; `load` is passed on to the script.
pub fn command(python: &Path, platforms: &[&Platform], load: bool) -> Command {
    let mut command = host::python_command(python, SCRIPT, &question(platforms, load));
    command.envs(&platforms[0].env);
    command
}

/// Returns what the script is asked.
fn question(platforms: &[&Platform], load: bool) -> Value {
    let asked = platforms.iter().map(|platform| {
        let backends = platform.backends.iter();
        let backends = backends.map(|(name, backend)| backend.init.as_ref().unwrap_or(name));
        serde_json::json!({
            "device_type": platform.device_type,
            "requires": platform.requires.keys().collect::<Vec<_>>(),
            "count": platform.count,
            "backends": backends.collect::<Vec<_>>(),
        })
    });
    let first = platforms[0];
    serde_json::json!({
        "python_path": first.python_path,
        "import": first.import,
        "load": load,
        "platforms": asked.collect::<Vec<_>>(),
    })
}
