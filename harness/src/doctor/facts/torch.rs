//! Collects facts about the interpreter's torch: whether it can be imported, and if not, which package is at fault. Each import
//! runs in a process with a time limit: first with all backends that load themselves and, if that fails, without them and with
//! each alone.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Depth, FactsQuery};
use allranks_host as host;
use allranks_runner::probe::{AUTOLOAD, EntryPoint, Interpreter};

const SCRIPT: &str = include_str!("../../../python/allranks_doctor/torch_facts.py");
const LINE_PREFIX: &str = "ALLRANKS-DOCTOR ";

/// A Python interpreter and its torch.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TorchFacts {
    /// The path of the interpreter.
    pub python: String,
    /// Why this interpreter was chosen: `--python`, `PATH`.
    pub why: String,
    /// The versions of installed packages that change how torch.distributed behaves, by name.
    pub packages: BTreeMap<String, String>,
    /// The versions of all installed packages, by name.
    pub installed: BTreeMap<String, String>,
    /// Entry points that torch loads when it is imported: `torch.backends`.
    pub entry_points: Vec<EntryPoint>,
    /// Entry points that a newer torch loads when a process group of that name is made: `torch.distributed.backends`.
    pub lazy_entry_points: Vec<EntryPoint>,
    /// The result of `import torch`.
    pub import: Import,
    /// The result with `TORCH_DEVICE_BACKEND_AUTOLOAD=0`; `None` if the first import succeeded, or if torch loads no
    /// entry points.
    pub without_autoload: Option<Import>,
    /// The entry points that fail when they are loaded alone, by name, each with its result.
    pub broken: BTreeMap<String, Import>,
}

impl TorchFacts {
    /// Returns the torch that was imported, with or without entry points; `None` if neither import succeeded.
    #[must_use]
    pub fn build(&self) -> Option<&Build> {
        let without = || self.without_autoload.as_ref()?.build();
        self.import.build().or_else(without)
    }
}

/// The result of one `import torch`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Import {
    /// Torch was imported.
    Works(Box<Build>),
    /// The interpreter cannot be started, or is not Python; the reason.
    NoPython(String),
    /// Torch is not installed.
    NoTorch,
    /// The import raised.
    Raises {
        /// The exception.
        error: String,
        /// `FILE:LINE` of the code that raised; `None` if that is torch itself.
        at: Option<String>,
    },
    /// The import ended the interpreter.
    Dies {
        /// How the process ended.
        how: ProcessEnd,
        /// What the script was doing.
        trying: String,
        /// `FILE:LINE`, if Python could tell.
        at: Option<String>,
    },
    /// The import did not return.
    Hangs {
        /// What the script was doing.
        trying: String,
        /// `FILE:LINE`, if Python could tell.
        at: Option<String>,
        /// The time limit, in seconds.
        seconds: u64,
    },
}

impl Default for Import {
    fn default() -> Self {
        Self::Works(Box::default())
    }
}

impl Import {
    /// Returns the torch that was imported; `None` if the import failed.
    #[must_use]
    pub fn build(&self) -> Option<&Build> {
        match self {
            Self::Works(build) => Some(build),
            Self::NoPython(_)
            | Self::NoTorch
            | Self::Raises { .. }
            | Self::Dies { .. }
            | Self::Hangs { .. } => None,
        }
    }
}

/// How an interpreter's process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessEnd {
    /// By this signal.
    Signal(i32),
    /// With this exit code; the text is its last line of output.
    Code(i32, String),
}

/// The version of a torch and what it was built with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Build {
    /// The version of torch: `2.11.0+cu130`.
    pub version: String,
    /// Paths of the shared libraries that `import torch` has loaded, without those of the system; the home folder is `~`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
    /// The CUDA version that it was built for; `None` if it was not built for CUDA.
    pub cuda: Option<String>,
    /// The ROCm version that it was built for; `None` if it was not built for ROCm.
    pub hip: Option<String>,
    /// The oneAPI version that it was built for; `None` if it was not built for XPU.
    pub xpu: Option<String>,
    /// True if it has `torch.distributed`.
    pub distributed: bool,
    /// The backends of torch itself, each with whether it is built in.
    pub backends: BTreeMap<String, bool>,
    /// The version of its NCCL; `None` if it has none.
    pub nccl: Option<String>,
    /// The device type of its accelerator, whether a device is there or not; `None` if it was built for none.
    pub device_type: Option<String>,
    /// The number of accelerator devices that it sees.
    pub devices: u64,
    /// The names of those devices.
    pub device_names: Vec<String>,
    /// For each device, whether it says that it can reach the memory of each other one; `None` if that was not asked.
    pub peers: Option<Vec<Vec<bool>>>,
    /// Why it could not be asked for devices; `None` if it could. In JSON the field is `trouble`.
    #[serde(rename = "trouble")]
    pub devices_error: Option<String>,
    /// The backends that other packages have registered.
    pub plugins: Vec<Plugin>,
    /// The backend that torch takes where none is named, by device type.
    pub defaults: BTreeMap<String, String>,
    /// True if it loads the entry points `torch.distributed.backends`; `None` if that is not known.
    pub reads_lazily: Option<bool>,
}

/// A backend that was registered with `Backend.register_backend`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plugin {
    /// The backend's name.
    pub name: String,
    /// True if its creator takes `(DistributedBackendOptions, options)` and not `(store, rank, size, timeout)`.
    pub extended: bool,
    /// The device types that it was registered for.
    pub devices: Vec<String>,
    /// The function that creates it: `module.function`.
    pub creator: String,
    /// The packages that registered it while torch loaded their entry points, in order; the last one counts.
    pub packages: Vec<String>,
}

/// A line that the script prints.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FactLine {
    packages: Option<BTreeMap<String, String>>,
    installed: Option<BTreeMap<String, String>>,
    entry_points: Option<Vec<EntryPoint>>,
    lazy_entry_points: Option<Vec<EntryPoint>>,
    trying: Option<String>,
    found: Option<Build>,
    failed: Option<Failed>,
}

#[derive(Deserialize)]
struct Failed {
    error: String,
    missing: Option<String>,
    at: Option<String>,
}

/// The result of running the script once.
struct ScriptRun {
    packages: BTreeMap<String, String>,
    installed: BTreeMap<String, String>,
    entry_points: Vec<EntryPoint>,
    lazy_entry_points: Vec<EntryPoint>,
    import: Import,
}

/// Collects the facts of an interpreter's torch. Takes as long as `import torch`, and up to `patience` for each entry
/// point and twice more if that hangs.
pub(super) fn collect(python: &Interpreter, query: &FactsQuery) -> TorchFacts {
    let first = run_script_in_fork(query).unwrap_or_else(|| run_script(python, query, false, None));
    let mut facts = TorchFacts {
        python: python.path.display().to_string(),
        why: python.why.clone(),
        packages: first.packages,
        installed: first.installed,
        entry_points: first.entry_points,
        lazy_entry_points: first.lazy_entry_points,
        import: first.import,
        ..TorchFacts::default()
    };
    let can_be_theirs = match facts.import {
        Import::Works(_) | Import::NoPython(_) | Import::NoTorch => false,
        Import::Raises { .. } | Import::Dies { .. } | Import::Hangs { .. } => true,
    };
    if can_be_theirs && !facts.entry_points.is_empty() && query.depth == Depth::Everything {
        let without = run_script(python, query, true, None).import;
        if without.build().is_some() {
            for point in &facts.entry_points {
                let alone = run_script(python, query, true, Some(&point.name)).import;
                if alone.build().is_none() {
                    facts.broken.insert(point.name.clone(), alone);
                }
            }
        }
        facts.without_autoload = Some(without);
    }
    facts
}

/// Returns what the script finds in a fork of the zygote. `None` if there is no zygote, if it names a problem, or if torch loads packages
/// by itself: only an interpreter of its own shows how an import fails, and which package registers what.
fn run_script_in_fork(query: &FactsQuery) -> Option<ScriptRun> {
    let forked = query.forked.as_ref()?;
    let wanted = script_argument(query, None);
    let none: [(&String, &String); 0] = [];
    let (text, end) = forked
        .run_script(SCRIPT, &wanted, none, query.patience)
        .ok()?;
    let answer = read(&text, end, query);
    (answer.import.build().is_some() && answer.entry_points.is_empty()).then_some(answer)
}

/// Returns the argument of the script.
fn script_argument(query: &FactsQuery, load: Option<&str>) -> Value {
    serde_json::json!({
        "load": load,
        "peers": query.depth == Depth::Everything,
        "patience": query.patience.as_secs_f64(),
    })
}

impl ScriptRun {
    /// Makes the result of a script without output.
    fn none(import: Import) -> Self {
        Self {
            packages: BTreeMap::new(),
            installed: BTreeMap::new(),
            entry_points: Vec::new(),
            lazy_entry_points: Vec::new(),
            import,
        }
    }
}

/// Runs the script in a new interpreter; `alone` without the entry points, `load` with this one.
fn run_script(
    python: &Interpreter,
    query: &FactsQuery,
    alone: bool,
    load: Option<&str>,
) -> ScriptRun {
    let wanted = script_argument(query, load);
    let mut command = host::python_command(&python.path, SCRIPT, &wanted);
    if alone {
        command.env(AUTOLOAD, "0");
    }
    match host::run_with_timeout(command, query.patience) {
        Ok((text, end)) => read(&text, end, query),
        Err(error) => ScriptRun::none(Import::NoPython(error.to_string())),
    }
}

/// Parses the output of the script. `end` is `None` if the script was killed at its time limit.
fn read(text: &str, end: Option<ExitStatus>, query: &FactsQuery) -> ScriptRun {
    let mut answer = ScriptRun::none(Import::NoTorch);
    let mut trying = None;
    for line in text
        .lines()
        .filter_map(|line| line.strip_prefix(LINE_PREFIX))
    {
        let line: FactLine = serde_json::from_str(line).unwrap_or_default();
        answer.packages.extend(line.packages.unwrap_or_default());
        answer.installed.extend(line.installed.unwrap_or_default());
        answer
            .entry_points
            .extend(line.entry_points.unwrap_or_default());
        let lazy = line.lazy_entry_points;
        answer.lazy_entry_points.extend(lazy.unwrap_or_default());
        trying = line.trying.or(trying);
        if let Some(mut found) = line.found {
            if let Some(home) = query.environment.get("HOME") {
                without_home(&mut found.libraries, home);
            }
            answer.import = Import::Works(Box::new(found));
            return answer;
        }
        if let Some(failed) = line.failed {
            answer.import = match failed.missing.as_deref() {
                Some("torch") => Import::NoTorch,
                Some(_) | None => Import::Raises {
                    error: failed.error,
                    at: failed.at,
                },
            };
            return answer;
        }
    }
    // The script's own alarm ended it, at the same time limit.
    let gave_up = |status: &ExitStatus| status.signal() == Some(Signal::ALARM.as_raw());
    answer.import = match (end.filter(|status| !gave_up(status)), trying) {
        (None, trying) => Import::Hangs {
            trying: trying.unwrap_or_else(|| "the start of the interpreter".to_owned()),
            at: innermost_frame(text),
            seconds: query.patience.as_secs(),
        },
        (Some(status), Some(trying)) => Import::Dies {
            how: process_end(status, text),
            trying,
            at: innermost_frame(text),
        },
        (Some(status), None) => Import::NoPython(match process_end(status, text) {
            ProcessEnd::Signal(signal) => format!("it was killed by signal {signal}"),
            ProcessEnd::Code(code, last) => format!("it ended with code {code}: {last}"),
        }),
    };
    answer
}

/// Replaces the home folder by `~`, because it may contain a person's name.
fn without_home(paths: &mut [String], home: &str) {
    let home = format!("{}/", home.trim_end_matches('/'));
    for path in paths.iter_mut().filter(|_| home.len() > 1) {
        if let Some(rest) = path.strip_prefix(&home) {
            *path = format!("~/{rest}");
        }
    }
}

fn process_end(status: ExitStatus, text: &str) -> ProcessEnd {
    match status.signal() {
        Some(signal) => ProcessEnd::Signal(signal),
        None => {
            let mut lines = text.lines().rev().map(str::trim);
            let last = lines.find(|line| !line.is_empty() && !line.starts_with(LINE_PREFIX));
            ProcessEnd::Code(
                status.code().unwrap_or_default(),
                last.unwrap_or_default().to_owned(),
            )
        }
    }
}

/// Returns the innermost frame in faulthandler's output that is in a file: `  File "x.py", line 3 in f`.
fn innermost_frame(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (file, rest) = line
            .trim()
            .strip_prefix("File \"")?
            .split_once("\", line ")?;
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let is_pythons = file.starts_with('<') || file.contains("importlib");
        (!is_pythons && !number.is_empty()).then(|| format!("{file}:{number}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_folder_is_not_shown() {
        let mut paths = ["/home/me/a.so", "/home/mel/b.so", "/opt/c.so"].map(str::to_owned);
        without_home(&mut paths, "/home/me/");
        assert_eq!(paths, ["~/a.so", "/home/mel/b.so", "/opt/c.so"]);
        without_home(&mut paths, "");
        assert_eq!(paths[2], "/opt/c.so");
    }

    #[test]
    fn a_script_that_ends_itself_was_waited_for() {
        let patience = std::time::Duration::from_secs(60);
        let query = FactsQuery::here(None, Depth::Everything, patience);
        let text = "ALLRANKS-DOCTOR {\"trying\": \"import torch\"}\n";
        let import = |signal: i32| read(text, Some(ExitStatus::from_raw(signal)), &query).import;
        assert_eq!(
            import(Signal::ALARM.as_raw()),
            Import::Hangs {
                trying: "import torch".to_owned(),
                at: None,
                seconds: 60
            }
        );
        assert!(matches!(import(Signal::SEGV.as_raw()), Import::Dies { .. }));
    }

    #[test]
    fn the_innermost_place_is_that_of_a_file() {
        let text = "noise\nFatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n  \
                    File \"<frozen importlib._bootstrap>\", line 241 in _call\n  \
                    File \"/x/site-packages/vena/core.py\", line 7 in _autoload\n  \
                    File \"/x/site-packages/torch/__init__.py\", line 2800 in _import\n";
        assert_eq!(
            innermost_frame(text).as_deref(),
            Some("/x/site-packages/vena/core.py:7")
        );
        assert_eq!(innermost_frame("nothing"), None);
    }
}
