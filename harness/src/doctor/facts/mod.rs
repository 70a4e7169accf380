//! Facts of this machine: one file for each noun, each with what is known and the function that finds it out. What cannot
//! be found out is absent, and never an error: the doctor is for machines on which things go wrong.

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

pub use devices::{Device, Use};
pub use leftovers::Leftover;
pub use limits::Limits;
pub use memory::{Memory, Space};
pub use network::{Interface, Lookup, Network};
pub use platforms::{PlatformFacts, platforms};
pub use ports::Port;
pub use torch::{Build, Died, Import, Plugin, TorchFacts};

use allranks_host::describe;
use allranks_runner::probe::Interpreter;
use allranks_runner::world::Imported;

/// Everything that is known of a machine. Serialised, it is a part of `environment.json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// Cores this process may use.
    pub cores: usize,
    /// The interpreter and its torch; none if no interpreter is used.
    pub torch: Option<TorchFacts>,
    /// Every platform that was looked for; empty in the record of a run, which says it in its own words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<PlatformFacts>,
    /// Variables that change how collectives behave, by an allow-list, secrets redacted.
    pub variables: BTreeMap<String, String>,
    /// Names and interfaces.
    pub network: Network,
    /// Ports at which jobs meet.
    pub ports: Vec<Port>,
    /// Memory and disks.
    pub memory: Memory,
    /// What the system lets one process have.
    pub limits: Limits,
    /// Devices, as their vendor's tool lists them.
    pub devices: Vec<Device>,
    /// What the vendor's tool complained of, if it is there and did not work.
    pub tool_trouble: Option<String>,
    /// Ranks that run here now.
    pub leftovers: Vec<Leftover>,
}

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only what is cheap and affects no other process, for the record of a run.
    Record,
    /// Everything: failed imports are taken apart, devices initialised, names looked up.
    Everything,
}

/// What to look at.
#[derive(Clone, Debug)]
pub struct Question {
    /// The interpreter, if one is used.
    pub python: Option<Interpreter>,
    /// The variables of the environment, all of them.
    pub environment: BTreeMap<String, String>,
    /// How long an `import torch` may take.
    pub patience: Duration,
    /// How closely to look.
    pub depth: Depth,
    /// A process that has imported torch and may be asked; none: the interpreter is started for every question.
    pub imported: Option<Imported>,
}

impl Question {
    /// A question about this process's own environment. Variables that are no text are left out.
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
            imported: None,
        }
    }

    /// A program of this name in `PATH`.
    fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.environment.get("PATH")?;
        std::env::split_paths(path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())
    }
}

/// A process, for reports that leave this machine: its program and at most its script, for arguments may be secrets.
fn describe_process(pid: u32) -> String {
    let whole = describe(pid);
    let Some((command, _)) = whole.rsplit_once(" (pid ") else {
        return whole;
    };
    let is_plain = |word: &&str| !word.starts_with('-') && !word.contains('=');
    let words: Vec<_> = command.split(' ').take_while(is_plain).take(2).collect();
    format!("{} (pid {pid})", words.join(" "))
}

/// Looks at everything but platforms, which need their files: see [`platforms`].
#[must_use]
pub fn collect(question: &Question) -> Facts {
    let (devices, tool_trouble) = devices::collect(question);
    Facts {
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        torch: question
            .python
            .as_ref()
            .map(|python| torch::collect(python, question)),
        platforms: Vec::new(),
        variables: variables::shown(&question.environment),
        network: network::collect(question),
        ports: ports::collect(&question.environment),
        memory: memory::collect(),
        limits: limits::collect(),
        devices,
        tool_trouble,
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
            // Between fork and exec it is still this program.
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
