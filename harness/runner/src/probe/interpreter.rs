//! Probes platforms in a Python interpreter that is a process of its own: its `import torch` may fail, be killed by a signal,
//! print, fork, or never return, and the harness goes on.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rayon::prelude::*;

use super::autoload::{self, AUTOLOAD, EntryPoint};
use super::probe_script::{
    IMPORT, PlatformAnswer, ProbeFailure, ProbeLine, ProbeProblem, installed, lines, probe_command,
    probe_in_fork, run_probe,
};
use crate::world::ForkedInterpreter;
use allranks_host as host;
use allranks_model::version::torch_version;
use allranks_suite::platform::{Platform, Start};

/// Default limit for importing torch and the platform's modules. Long enough for a cold disk or a network file system on a busy
/// machine.
pub const IMPORT_PATIENCE: Duration = Duration::from_secs(180);

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// Whether ranks of this platform can run here; the error says in one line why not.
    pub usable: Result<(), String>,
    /// Torch's version; none if it could not be imported.
    pub torch: Option<String>,
    /// Number of devices; none on a host platform, or if it could not be counted.
    pub count: Option<u64>,
    /// For each of the platform's backends, true if this build of torch has it. Empty if that could not be asked.
    pub backends: BTreeMap<String, bool>,
    /// True if the device reports that it is simulated.
    pub is_simulated: bool,
}

impl ProbeResult {
    /// Makes the result of a probe that found nothing, for this reason.
    #[must_use]
    pub fn unusable(reason: String) -> Self {
        Self {
            usable: Err(reason),
            torch: None,
            count: None,
            backends: BTreeMap::new(),
            is_simulated: false,
        }
    }
}

/// Probes one platform. Takes as long as `import torch`, and at most `limit`. If `import torch` fails, takes at most twice
/// `limit`: a second interpreter then finds out whether a package that torch loads by itself is at fault.
#[must_use]
pub fn probe(python: &Path, platform: &Platform, limit: Duration) -> ProbeResult {
    probe_within(python, &[platform], limit, None).remove(0)
}

/// Probes many platforms; the results are in the same order.
///
/// Platforms that need the same imports share one interpreter, because importing torch takes long; if that gives no answer,
/// each is probed by itself. A platform with a package that is not installed is not probed further. A platform whose ranks
/// would import the same as `forked` is probed there, and in an interpreter of its own only if something is wrong.
#[must_use]
pub fn probe_all(
    python: &Path,
    platforms: &[&Platform],
    limit: Duration,
    forked: Option<&ForkedInterpreter>,
) -> Vec<ProbeResult> {
    let mut alike: Vec<Vec<usize>> = Vec::new();
    let mut answers: Vec<(usize, ProbeResult)> = Vec::new();
    let installed = installed(python, platforms, limit);
    let forked = forked.filter(|_| !installed.autoloads);
    for (index, absent) in installed.absent.into_iter().enumerate() {
        let platform = platforms[index];
        if let Some(package) = absent {
            let reason = not_installed(&package, python);
            answers.push((index, ProbeResult::unusable(reason)));
            continue;
        }
        let same = |other: &Platform| {
            (&other.import, &other.python_path, &other.env)
                == (&platform.import, &platform.python_path, &platform.env)
        };
        match alike.iter_mut().find(|group| same(platforms[group[0]])) {
            Some(group) => group.push(index),
            None => alike.push(vec![index]),
        }
    }
    answers.par_extend(alike.into_par_iter().flat_map_iter(|group| {
        let probed: Vec<_> = group.iter().map(|index| platforms[*index]).collect();
        let forked = forked.filter(|_| probed.iter().all(|platform| can_probe_in_fork(platform)));
        let observed = probe_within(python, &probed, limit, forked);
        group.into_iter().zip(observed)
    }));
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, observed)| observed).collect()
}

/// Returns true if a probe finds in a fork of the zygote what it would find in the platform's ranks. The zygote has imported
/// torch without the platform's folders, which may hold another torch, and without the platform's modules. So the platform must
/// have no folders, and ranks that are forked from such a zygote or import torch alone.
fn can_probe_in_fork(platform: &Platform) -> bool {
    let imports_torch_alone = platform.import.iter().all(|module| module == "torch");
    platform.python_path.is_empty() && (platform.start == Start::Fork || imports_torch_alone)
}

fn not_installed(package: &str, python: &Path) -> String {
    format!("{package} is not installed for {}", python.display())
}

fn probe_within(
    python: &Path,
    platforms: &[&Platform],
    limit: Duration,
    forked: Option<&ForkedInterpreter>,
) -> Vec<ProbeResult> {
    let answers = forked.and_then(|forked| probe_in_fork(forked, platforms, limit));
    match answers.map_or_else(|| run_probe(python, platforms, limit), Ok) {
        Ok(found) => {
            let both = platforms.iter().zip(found);
            both.map(|(platform, found)| observe(python, platform, found, limit))
                .collect()
        }
        Err(ProbeFailure { reason, trying }) if platforms.len() == 1 || trying == IMPORT => {
            let reason = match trying == IMPORT {
                true => with_package_at_fault(python, platforms[0], reason, limit),
                false => reason,
            };
            let all = platforms.iter();
            all.map(|_| ProbeResult::unusable(reason.clone())).collect()
        }
        // One of them is at fault; the others are probed by themselves.
        Err(_) => {
            let alone = platforms.iter();
            alone
                .flat_map(|platform| probe_within(python, &[platform], limit, None))
                .collect()
        }
    }
}

fn observe(
    python: &Path,
    platform: &Platform,
    found: PlatformAnswer,
    limit: Duration,
) -> ProbeResult {
    let is_import = |problem: &ProbeProblem| problem.import.as_deref() == Some("torch");
    let usable = check_usable(python, platform, &found).map_err(|reason| {
        match found.problem.as_ref().is_some_and(is_import) {
            true => with_package_at_fault(python, platform, reason, limit),
            false => reason,
        }
    });
    let backends = platform.backends.iter().filter_map(|(name, backend)| {
        let init = backend.init.as_ref().unwrap_or(name);
        let available = found.backends.get(init)?;
        Some((name.clone(), *available))
    });
    ProbeResult {
        usable,
        backends: backends.collect(),
        torch: found.torch,
        count: found.count,
        is_simulated: found.simulated,
    }
}

/// Returns `reason`, why torch cannot be imported, with the package that is at fault added if torch loads it by itself. Takes
/// at most `limit`.
fn with_package_at_fault(
    python: &Path,
    platform: &Platform,
    reason: String,
    limit: Duration,
) -> String {
    if autoload::is_off(platform.env.get(AUTOLOAD)) {
        return reason;
    }
    let mut command = probe_command(python, &[platform], true);
    command.env(AUTOLOAD, "0");
    let Ok((text, _)) = host::run_with_timeout(command, limit) else {
        return reason;
    };
    let loading: Vec<Option<EntryPoint>> = lines(&text)
        .filter_map(|line| match line {
            Ok(ProbeLine::Loading(point)) => Some(point),
            _ => None,
        })
        .collect();
    let points: Vec<_> = loading.iter().flatten().collect();
    // Torch itself works if it began to load them. The last one it began to load is at fault, unless all were loaded.
    match (loading.last(), points.as_slice()) {
        (Some(Some(last)), _) => format!("{reason}; {}", autoload::blame(&[last], python)),
        (Some(None), [_, ..]) => format!("{reason}; {}", autoload::blame(&points, python)),
        (Some(None) | None, _) => reason,
    }
}

/// Returns an error, the reason why the platform cannot be used, if what was found is not enough for it.
fn check_usable(python: &Path, platform: &Platform, found: &PlatformAnswer) -> Result<(), String> {
    let shown = python.display();
    if let Some(ProbeProblem {
        missing,
        import,
        count,
        error,
    }) = &found.problem
    {
        return Err(match (missing, import, count) {
            (Some(package), _, _) => not_installed(package, python),
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

    use crate::probe::interpreter::*;
    use allranks_suite::platform;
    use allranks_yaml::Source;

    /// Makes a platform whose `torch` is a small module of the test, so that these tests need no torch and take little
    /// time.
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

    fn observe(torch: &str, fields: &str) -> ProbeResult {
        let folder = tempfile::tempdir().unwrap();
        let platform = with_torch(folder.path(), torch, fields);
        alone(&platform, 20)
    }

    fn alone(platform: &Platform, seconds: u64) -> ProbeResult {
        probe(Path::new("python3"), platform, Duration::from_secs(seconds))
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
    fn platforms_that_need_the_same_imports_share_an_interpreter_and_no_problem() {
        let folder = tempfile::tempdir().unwrap();
        let starts = folder.path().join("starts");
        let torch = format!("open({starts:?}, 'a').write('x')\n{TORCH}");
        let platforms = [
            "count: torch.t.count()",
            "count: torch.t.none()",
            "count: torch.t.count()\nenv: {OTHER: \"1\"}",
            "count: __import__('os')._exit(3)\nenv: {OTHER: \"1\"}",
        ]
        .map(|fields| with_torch(folder.path(), &torch, fields));
        let asked = |which: &[usize]| {
            let _ = fs::remove_file(&starts);
            let which: Vec<_> = which.iter().map(|index| &platforms[*index]).collect();
            let observed = probe_all(Path::new("python3"), &which, IMPORT_PATIENCE, None);
            let usable: Vec<_> = observed.into_iter().map(|one| one.usable.is_ok()).collect();
            (usable, fs::read_to_string(&starts).unwrap().len())
        };
        assert_eq!(asked(&[0, 2, 1]), (vec![true, true, false], 2));
        let lacking = with_torch(folder.path(), &torch, "import: [no_such_module]");
        let observed = probe_all(
            Path::new("python3"),
            &[&lacking, &platforms[0]],
            IMPORT_PATIENCE,
            None,
        );
        assert_eq!(
            (&observed[0].usable, &observed[1].usable),
            (
                &Err("no_such_module is not installed for python3".to_owned()),
                &Ok(())
            )
        );
        assert_eq!(fs::read_to_string(&starts).unwrap().len(), 3);
        // A platform that ends the interpreter does not affect the others.
        assert_eq!(asked(&[2, 3]), (vec![true, false], 3));
    }

    #[test]
    fn a_device_that_says_it_is_made_up_is_taken_at_its_word() {
        let simulated = TORCH.replace("class t:\n", "class t:\n    is_simulated = True\n");
        assert!(observe(&simulated, "").is_simulated);
        assert!(!observe(TORCH, "").is_simulated);
    }

    /// Probes a torch that loads two packages when it is imported; the second runs `code`.
    fn loading(code: &str) -> ProbeResult {
        let folder = tempfile::tempdir().unwrap();
        let torch = format!(
            "import os\nfrom importlib.metadata import entry_points\n{TORCH}\n\
             if os.environ.get('TORCH_DEVICE_BACKEND_AUTOLOAD', '1') == '1':\n    \
             for point in entry_points(group='torch.backends'):\n        point.load()()\n"
        );
        let platform = with_torch(folder.path(), &torch, "");
        for (name, code) in [("vena", "pass"), ("venb", code)] {
            let info = folder
                .path()
                .join(format!("lib/{name}_wheel-1.0.dist-info"));
            fs::create_dir_all(&info).unwrap();
            let metadata = format!("Metadata-Version: 2.1\nName: {name}-wheel\nVersion: 1.0\n");
            fs::write(info.join("METADATA"), metadata).unwrap();
            let points = format!("[torch.backends]\n{name} = {name}:start\n");
            fs::write(info.join("entry_points.txt"), points).unwrap();
            let module = format!("def start():\n    {code}\n");
            fs::write(folder.path().join(format!("lib/{name}.py")), module).unwrap();
        }
        alone(&platform, 3)
    }

    #[test]
    fn a_package_that_torch_loads_and_cannot_is_named_with_a_way_past_it() {
        assert_eq!(loading("pass").usable, Ok(()));
        for (code, reason) in [
            (
                "raise OSError('libvenb.so: no such file')",
                "import torch failed: OSError: libvenb.so: no such file",
            ),
            (
                "import os; os.kill(os.getpid(), 11)",
                "python3 was killed by signal 11 in `import torch`",
            ),
            (
                "import time; time.sleep(600)",
                "python3 did not answer within 3 s, in `import torch`",
            ),
        ] {
            let expected = format!(
                "{reason}; torch loads venb-wheel (entry point venb = venb:start of torch.backends) by itself: \
                 TORCH_DEVICE_BACKEND_AUTOLOAD=0 lets torch be imported without it, and \
                 python3 -m pip uninstall venb-wheel is for good"
            );
            assert_eq!(loading(code).usable, Err(expected));
        }
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
        let observed = alone(&platform, 2);
        assert_eq!(
            observed.usable,
            Err("python3 did not answer within 2 s, in `import torch`".to_owned())
        );
        let child = fs::read_to_string(child).unwrap();
        // Ended: gone, or a zombie that its new parent has not collected. The signal may take a moment to act.
        let ended = || {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
            state.is_empty() || state.starts_with(['Z', 'X'])
        };
        let patience = Instant::now() + Duration::from_secs(60);
        while !ended() {
            assert!(Instant::now() < patience, "process {child} lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn an_interpreter_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let platform = with_torch(folder.path(), TORCH, "");
        let none = probe(Path::new("/no/such/python"), &platform, IMPORT_PATIENCE);
        assert!(
            none.usable
                .unwrap_err()
                .starts_with("/no/such/python cannot be started: ")
        );
        let shell = probe(Path::new("/bin/sh"), &platform, IMPORT_PATIENCE)
            .usable
            .unwrap_err();
        assert!(
            shell.starts_with("/bin/sh ended with code 2 in `the start of the interpreter`: "),
            "{shell}"
        );
    }
}
