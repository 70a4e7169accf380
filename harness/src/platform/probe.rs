//! What a Python interpreter offers of a platform, observed in a process of its own: an `import torch` may fail, die of a
//! signal, print, fork, or never return, and the harness goes on.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::{Platform, torch_version};
use crate::host;

const SCRIPT: &str = include_str!("../../python/allranks_rank/probe.py");
/// What our lines of the probe's output begin with.
const MARK: &str = "ALLRANKS-PROBE ";
/// Longer than any `import torch` that is going to return.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Whether ranks of this platform can run here, or one line why not.
    pub usable: Result<(), String>,
    /// Torch's version, if it could be imported.
    pub torch: Option<String>,
    /// Number of devices; none on a host platform, or if it could not be found out.
    pub count: Option<u64>,
    /// For each of the platform's backends whether this build of torch has it; empty if that could not be asked.
    pub backends: BTreeMap<String, bool>,
}

/// Asks an interpreter what it offers of a platform. Takes as long as `import torch`, and at most 30 seconds.
#[must_use]
pub fn probe(python: &Path, platform: &Platform) -> Observed {
    probe_within(python, platform, LIMIT)
}

fn probe_within(python: &Path, platform: &Platform, limit: Duration) -> Observed {
    match ask(python, platform, limit) {
        Ok(found) => {
            let usable = judge(python, platform, &found);
            let backends = platform.backends.iter().filter_map(|(name, backend)| {
                let init = backend.init.as_ref().unwrap_or(name);
                found
                    .backends
                    .get(init)
                    .map(|available| (name.clone(), *available))
            });
            Observed {
                usable,
                torch: found.torch,
                count: found.count,
                backends: backends.collect(),
            }
        }
        Err(reason) => Observed {
            usable: Err(reason),
            torch: None,
            count: None,
            backends: BTreeMap::new(),
        },
    }
}

/// The script's answer.
#[derive(Debug, Deserialize)]
struct Found {
    trouble: Option<Trouble>,
    torch: Option<String>,
    #[serde(default)]
    versions: BTreeMap<String, Option<String>>,
    #[serde(default)]
    distributed: bool,
    count: Option<u64>,
    #[serde(default)]
    backends: BTreeMap<String, bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Trouble {
    /// A package that is not installed.
    missing: Option<String>,
    /// A module whose import failed otherwise.
    import: Option<String>,
    /// An expression that failed.
    count: Option<String>,
    error: String,
}

/// One of the script's lines.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(default)]
    trying: Option<String>,
    #[serde(default)]
    found: Option<Found>,
}

fn ask(python: &Path, platform: &Platform, limit: Duration) -> Result<Found, String> {
    let shown = python.display();
    let (text, end) = host::ask(command(python, platform), limit)
        .map_err(|error| format!("{shown} cannot be started: {error}"))?;
    let mut trying = String::from("the start of the interpreter");
    for line in text.lines().filter_map(|line| line.strip_prefix(MARK)) {
        match serde_json::from_str(line) {
            Ok(Line {
                found: Some(found), ..
            }) => return Ok(found),
            Ok(Line {
                trying: Some(what), ..
            }) => trying = what,
            Ok(Line {
                trying: None,
                found: None,
            }) => {}
            Err(error) => return Err(format!("the probe's answer makes no sense: {error}")),
        }
    }
    Err(match end {
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
                    .find(|line| !line.trim().is_empty() && !line.starts_with(MARK));
                let last = last.map_or(String::new(), |line| format!(": {}", line.trim()));
                let code = status.code().unwrap_or_default();
                format!("{shown} ended with code {code} in `{trying}`{last}")
            }
        },
    })
}

/// The script, and what it is asked for.
fn command(python: &Path, platform: &Platform) -> Command {
    let backends: Vec<_> = platform
        .backends
        .iter()
        .map(|(name, backend)| backend.init.as_ref().unwrap_or(name))
        .collect();
    let wanted = serde_json::json!({
        "python_path": platform.python_path,
        "import": platform.import,
        "requires": platform.requires.keys().collect::<Vec<_>>(),
        "count": platform.count,
        "backends": backends,
    });
    let mut command = Command::new(python);
    command
        .args(["-c", SCRIPT, &wanted.to_string()])
        .envs(&platform.env);
    command
}

/// Whether what was found is enough.
fn judge(python: &Path, platform: &Platform, found: &Found) -> Result<(), String> {
    let shown = python.display();
    if let Some(Trouble {
        missing,
        import,
        count,
        error,
    }) = &found.trouble
    {
        return Err(match (missing, import, count) {
            (Some(package), _, _) => format!("{package} is not installed for {shown}"),
            (None, Some(module), _) => format!("import {module} failed: {error}"),
            (None, None, Some(expression)) => format!("`{expression}` failed: {error}"),
            (None, None, None) => format!("the probe failed: {error}"),
        });
    }
    for (package, wanted) in &platform.requires {
        let has = if package == "torch" {
            found.torch.clone()
        } else {
            found.versions.get(package).cloned().flatten()
        };
        let Some(has) = has else {
            return Err(format!(
                "{package} {wanted} is required, and {shown} has none"
            ));
        };
        let fits = torch_version(&has)
            .zip(semver::VersionReq::parse(wanted).ok())
            .is_some_and(|(has, wanted)| wanted.matches(&has));
        if !fits {
            return Err(format!("{package} {has} is not {wanted}"));
        }
    }
    if !found.distributed {
        return Err("this build of torch has no torch.distributed".to_owned());
    }
    if !found.backends.values().any(|available| *available) {
        let names: Vec<_> = platform.backends.keys().map(String::as_str).collect();
        return Err(format!(
            "this build of torch has no {}",
            names.join(" and no ")
        ));
    }
    match (&platform.count, found.count) {
        (Some(expression), Some(0)) => Err(format!("0 devices: `{expression}` is 0")),
        (Some(_) | None, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use std::time::Instant;

    use super::*;
    use crate::platform;
    use crate::yaml::Source;

    /// A platform whose `torch` is a module of ours, so that these tests need no torch and take no time.
    fn with_torch(folder: &Path, torch: &str, fields: &str) -> Platform {
        fs::create_dir_all(folder.join("lib")).unwrap();
        fs::write(folder.join("lib/torch.py"), torch).unwrap();
        let text = format!(
            "name: t\ndevice_type: t\nevidence: simulated\npython_path: [lib]\n{fields}\n\
             backends: {{gloo: {{supports: [{{ops: barrier}}]}}}}\n"
        );
        platform::parse(Source::new("t.yaml", text), folder).unwrap()
    }

    const TORCH: &str = "
__version__ = '2.8.1+x'
class distributed:
    is_available = staticmethod(lambda: True)
    is_backend_available = staticmethod(lambda name: name == 'gloo')
class t:
    count = staticmethod(lambda: 3)
    none = staticmethod(lambda: 0)
";

    fn observe(torch: &str, fields: &str) -> Observed {
        let folder = tempfile::tempdir().unwrap();
        let platform = with_torch(folder.path(), torch, fields);
        probe_within(Path::new("python3"), &platform, Duration::from_secs(20))
    }

    #[test]
    fn a_usable_platform_is_counted() {
        let observed = observe(
            TORCH,
            "count: torch.t.count()\nrequires: {torch: \">=2.8\"}",
        );
        assert_eq!(observed.usable, Ok(()));
        assert_eq!(observed.torch.as_deref(), Some("2.8.1+x"));
        assert_eq!(observed.count, Some(3));
        assert_eq!(
            observed.backends,
            BTreeMap::from([("gloo".to_owned(), true)])
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        for (torch, fields, reason) in [
            (
                TORCH,
                "requires: {torch: \">=2.9\"}",
                "torch 2.8.1+x is not >=2.9",
            ),
            (
                TORCH,
                "requires: {no-such-package: \">=1\"}",
                "no-such-package >=1 is required, and python3 has none",
            ),
            (
                TORCH,
                "count: torch.t.none()",
                "0 devices: `torch.t.none()` is 0",
            ),
            (
                TORCH,
                "count: torch.u.count()",
                "`torch.u.count()` failed: AttributeError: module 'torch' has no attribute 'u'",
            ),
            (
                TORCH,
                "import: [no_such_module]",
                "no_such_module is not installed for python3",
            ),
            (
                "import no_such_library",
                "",
                "import torch failed: ModuleNotFoundError: No module named 'no_such_library'",
            ),
            (
                "raise ImportError('libx.so: no such file')",
                "",
                "import torch failed: ImportError: libx.so: no such file",
            ),
            (
                "raise SystemExit(3)",
                "",
                "import torch failed: SystemExit: 3",
            ),
        ] {
            let observed = observe(torch, fields);
            assert_eq!(observed.usable, Err(reason.to_owned()));
        }
        let without = TORCH.replace("name == 'gloo'", "False");
        assert_eq!(
            observe(&without, "").usable,
            Err("this build of torch has no gloo".to_owned())
        );
    }

    #[test]
    fn noise_does_not_disturb_the_answer() {
        let noisy = format!(
            "import sys\nprint('hello', end='')\nprint('ALLRANKS', file=sys.stderr, end='')\n{TORCH}"
        );
        assert_eq!(observe(&noisy, "").usable, Ok(()));
    }

    #[test]
    fn an_import_that_kills_the_interpreter_is_survived() {
        let observed = observe("import os\nos.kill(os.getpid(), 11)", "");
        assert_eq!(
            observed.usable,
            Err("python3 was killed by signal 11 in `import torch`".to_owned())
        );
        let observed = observe(
            "import os\nprint('no licence', flush=True)\nos._exit(7)",
            "",
        );
        assert_eq!(
            observed.usable,
            Err("python3 ended with code 7 in `import torch`: no licence".to_owned())
        );
    }

    #[test]
    fn an_import_that_never_returns_is_ended_with_all_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let child = folder.path().join("child");
        let torch = format!(
            "import os, time\nif os.fork() == 0:\n    open({child:?}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
        );
        let platform = with_torch(folder.path(), &torch, "");
        let start = Instant::now();
        let observed = probe_within(Path::new("python3"), &platform, Duration::from_secs(2));
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(
            observed.usable,
            Err("python3 did not answer within 2 s, in `import torch`".to_owned())
        );
        let child = fs::read_to_string(child).unwrap();
        // Ended: gone, or a zombie that its new parent has not collected. The signal takes a moment to act.
        let ended = || {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
            state.is_empty() || state.starts_with(['Z', 'X'])
        };
        let patience = Instant::now() + Duration::from_secs(5);
        while !ended() {
            assert!(Instant::now() < patience, "process {child} lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn an_interpreter_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let platform = with_torch(folder.path(), TORCH, "");
        let none = probe(Path::new("/no/such/python"), &platform);
        assert!(
            none.usable
                .unwrap_err()
                .starts_with("/no/such/python cannot be started: ")
        );
        let shell = probe(Path::new("/bin/sh"), &platform).usable.unwrap_err();
        assert!(
            shell.starts_with("/bin/sh ended with code 2 in `the start of the interpreter`: "),
            "{shell}"
        );
    }
}
