//! Runs the probe script, `allranks_rank/probe.py`, in a Python interpreter, and reads its answers.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::EntryPoint;
use crate::world::ForkedInterpreter;
use allranks_host as host;
use allranks_suite::platform::Platform;

/// The text of the script.
const SCRIPT: &str = include_str!("../../python/allranks_rank/probe.py");
/// The prefix of the lines that the probe script writes; all others are ignored.
const LINE_PREFIX: &str = "ALLRANKS-PROBE ";
/// The value of [`ProbeLine::Trying`] while torch is imported, and with it the packages that torch loads by itself.
pub const IMPORT: &str = "import torch";

/// What is known of an interpreter's packages without importing them.
pub struct Installed {
    /// For each platform, its first package that is not installed. `None` if all are installed, or if the script failed: the
    /// import then shows which one is missing.
    pub absent: Vec<Option<String>>,
    /// Whether torch loads packages by itself, whose import may depend on a platform's environment. True if the script failed.
    pub autoloads: bool,
}

/// Returns which packages of these platforms an interpreter has. Takes at most `limit`.
pub fn installed(python: &Path, platforms: &[&Platform], limit: Duration) -> Installed {
    let modules = platforms.iter().map(|platform| {
        serde_json::json!({"python_path": platform.python_path, "import": platform.import})
    });
    let request = serde_json::json!({"absent": modules.collect::<Vec<_>>()});
    let command = host::python_command(python, SCRIPT, &request);
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
pub struct PlatformAnswer {
    /// Why the platform could not be probed; none if it could.
    pub problem: Option<ProbeProblem>,
    /// The version of torch; none if it could not be imported.
    pub torch: Option<String>,
    /// The versions of packages that platforms require, by name; none of one that is not installed.
    #[serde(default)]
    pub versions: BTreeMap<String, Option<String>>,
    /// Whether this build of torch has `torch.distributed`.
    #[serde(default)]
    pub distributed: bool,
    /// The number of devices; none on a host platform, or if they could not be counted.
    pub count: Option<u64>,
    /// For each backend, whether this build of torch has it.
    #[serde(default)]
    pub backends: BTreeMap<String, bool>,
    /// Whether the device says that it is simulated.
    #[serde(default)]
    pub simulated: bool,
}

/// Why a platform could not be probed.
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
    Found(Vec<PlatformAnswer>),
    /// What is known without an import.
    #[serde(untagged)]
    Absent {
        /// For each platform, the first package that is not installed.
        absent: Vec<Option<String>>,
        /// Whether there are packages that torch loads by itself.
        autoloads: bool,
    },
}

/// Iterates over the lines that the script has written, in the output of its interpreter.
pub fn lines(text: &str) -> impl Iterator<Item = serde_json::Result<ProbeLine>> {
    let ours = text
        .lines()
        .filter_map(|line| line.strip_prefix(LINE_PREFIX));
    ours.map(serde_json::from_str)
}

/// Why the script gave no answer.
pub struct ProbeFailure {
    /// The reason, in one line.
    pub reason: String,
    /// What was being tried when it ended.
    pub trying: String,
}

/// Probes platforms that need the same imports, in an interpreter of their own. Returns an answer for each platform.
///
/// # Errors
/// Fails if the interpreter cannot be started, ends without an answer, or does not answer within `limit`.
pub fn run_probe(
    python: &Path,
    platforms: &[&Platform],
    limit: Duration,
) -> Result<Vec<PlatformAnswer>, ProbeFailure> {
    let shown = python.display();
    let mut trying = String::from("the start of the interpreter");
    let ran = host::run_with_timeout(probe_command(python, platforms, false), limit);
    let (text, end) = match ran {
        Ok(ran) => ran,
        Err(error) => {
            let reason = format!("{shown} cannot be started: {error}");
            return Err(ProbeFailure { reason, trying });
        }
    };
    for line in lines(&text) {
        match line {
            Ok(ProbeLine::Found(found)) => return Ok(found),
            Ok(ProbeLine::Trying(what)) => trying = what,
            Ok(ProbeLine::Loading(_) | ProbeLine::Absent { .. }) => {}
            Err(error) => {
                let reason = format!("the probe's answer cannot be parsed: {error}");
                return Err(ProbeFailure { reason, trying });
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
    Err(ProbeFailure { reason, trying })
}

/// Probes platforms that need the same imports, in a process that is forked from a zygote. Returns an answer for each platform;
/// `None` if there is no answer or one names a problem: only an interpreter of their own shows how an import fails.
pub fn probe_in_fork(
    interpreter: &ForkedInterpreter,
    platforms: &[&Platform],
    limit: Duration,
) -> Option<Vec<PlatformAnswer>> {
    let request = probe_request(platforms, false);
    let (text, _) = interpreter
        .run_script(SCRIPT, &request, &platforms[0].env, limit)
        .ok()?;
    let found = lines(&text).find_map(|line| match line {
        Ok(ProbeLine::Found(found)) => Some(found),
        _ => None,
    })?;
    let is_complete =
        found.len() == platforms.len() && found.iter().all(|one| one.problem.is_none());
    is_complete.then_some(found)
}

/// Returns the command that runs the script for platforms that need the same imports. With `load`, the script loads the packages
/// that torch loads by itself, one after another.
pub fn probe_command(python: &Path, platforms: &[&Platform], load: bool) -> Command {
    let mut command = host::python_command(python, SCRIPT, &probe_request(platforms, load));
    command.envs(&platforms[0].env);
    command
}

/// Returns the argument of the script, for platforms that need the same imports; `load` is as for [`probe_command`].
fn probe_request(platforms: &[&Platform], load: bool) -> Value {
    let requests = platforms.iter().map(|platform| {
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
        "platforms": requests.collect::<Vec<_>>(),
    })
}
