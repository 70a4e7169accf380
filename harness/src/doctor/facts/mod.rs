//! The facts of this machine, in one file for each subject: its data types, and the function that collects them. A fact that
//! cannot be collected is absent, and never an error, because the doctor is for machines on which things go wrong.

mod devices;
mod leftovers;
mod limits;
mod memory;
mod network;
mod platforms;
mod ports;
mod torch;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

pub use devices::{Device, DeviceUser};
pub use leftovers::Leftover;
pub use limits::Limits;
pub use memory::{FileSystem, Memory};
pub use network::{Interface, Lookup, Network};
pub use platforms::{PlatformFacts, platforms};
pub use ports::Port;
pub use torch::{Build, Import, Plugin, ProcessEnd, TorchFacts};

use allranks_host::describe;
use allranks_runner::probe::Interpreter;
use allranks_runner::world::ForkedInterpreter;

/// The facts of a machine, without a conclusion. As JSON they are a part of `environment.json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// The number of CPU cores that this process may use.
    pub cores: usize,
    /// The Python interpreter and its torch; `None` if no interpreter is used.
    pub torch: Option<TorchFacts>,
    /// Every platform that was probed; empty in the record of a run, which holds its platforms elsewhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<PlatformFacts>,
    /// Variables that change how collectives behave, by an allow-list, secrets redacted.
    pub variables: BTreeMap<String, String>,
    /// Names that must resolve, and network interfaces.
    pub network: Network,
    /// The ports at which the ranks of jobs meet.
    pub ports: Vec<Port>,
    /// The memory of the machine, and the file systems that ranks use.
    pub memory: Memory,
    /// The soft limits of a process.
    pub limits: Limits,
    /// Devices, as their vendor's tool lists them.
    pub devices: Vec<Device>,
    /// The error of the vendor's tool; `None` if it works, or is not installed.
    /// In JSON the field is `tool_trouble`.
    #[serde(rename = "tool_trouble")]
    pub tool_error: Option<String>,
    /// Ranks of other jobs that run here now.
    pub leftovers: Vec<Leftover>,
}

/// How thoroughly the machine is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only facts that are cheap and whose collection affects no other process, for the record of a run.
    Record,
    /// All facts: failed imports are analysed, devices initialised, names looked up.
    Everything,
}

/// The parameters for collecting facts.
#[derive(Clone, Debug)]
pub struct FactsQuery {
    /// The Python interpreter; `None` if none is used.
    pub python: Option<Interpreter>,
    /// All environment variables.
    pub environment: BTreeMap<String, String>,
    /// The longest time that one `import torch` may take.
    pub patience: Duration,
    /// How thoroughly to examine the machine.
    pub depth: Depth,
    /// Runs scripts in forks of a zygote that has imported torch; none: each script runs in an interpreter of its own.
    pub forked: Option<ForkedInterpreter>,
}

impl FactsQuery {
    /// Makes a query with the environment of this process. Variables that are not valid Unicode are left out.
    #[must_use]
    pub fn here(python: Option<Interpreter>, depth: Depth, patience: Duration) -> Self {
        let text = |value: std::ffi::OsString| value.into_string().ok();
        Self {
            python,
            environment: std::env::vars_os()
                .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
                .collect(),
            patience,
            depth,
            forked: None,
        }
    }

    /// Returns the path of a program in `PATH`; `None` if there is none.
    fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.environment.get("PATH")?;
        std::env::split_paths(path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())
    }
}

/// Describes a process by its program and script, `python train.py (pid 4711)`. Other arguments may be secrets, and reports leave
/// this machine.
fn describe_process(pid: u32) -> String {
    let whole = describe(pid);
    let Some((command, _)) = whole.rsplit_once(" (pid ") else {
        return whole;
    };
    let is_plain = |word: &&str| !word.starts_with('-') && !word.contains('=');
    let words: Vec<_> = command.split(' ').take_while(is_plain).take(2).collect();
    format!("{} (pid {pid})", words.join(" "))
}

/// Collects all facts but those of platforms, which need the platform files: see [`platforms`].
#[must_use]
pub fn collect(query: &FactsQuery) -> Facts {
    let (devices, tool_error) = devices::collect(query);
    Facts {
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        torch: query
            .python
            .as_ref()
            .map(|python| torch::collect(python, query)),
        platforms: Vec::new(),
        variables: variables::shown(&query.environment),
        network: network::collect(query),
        ports: ports::collect(&query.environment),
        memory: memory::collect(),
        limits: limits::collect(),
        devices,
        tool_error,
        leftovers: leftovers::collect(),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::describe_process;

    #[test]
    fn arguments_of_others_are_not_shown() {
        let script = "import time; time.sleep(60)";
        let mut child = std::process::Command::new("python3")
            .args(["-c", script, "--token", "hunter2"])
            .spawn()
            .unwrap();
        let shown = loop {
            let shown = describe_process(child.id());
            // Between fork and exec the child still runs this program.
            if shown.contains("python") {
                break shown;
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            shown.ends_with(&format!(" (pid {})", child.id())),
            "{shown}"
        );
        assert!(
            !shown.contains("hunter2") && !shown.contains("import"),
            "{shown}"
        );
    }
}
