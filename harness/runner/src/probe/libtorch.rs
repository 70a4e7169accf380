//! Finds the libtorch driver, and asks it what it offers of a platform (`allranks-libtorch probe`).

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::probe::ProbeResult;
use allranks_host as host;
use allranks_model::version::torch_version;
use allranks_suite::platform::Platform;

/// The name of the driver's binary.
const NAME: &str = "allranks-libtorch";
/// The variable that names the binary's path.
const VARIABLE: &str = "ALLRANKS_LIBTORCH";
/// The version of libtorch that the driver is made for.
const WANTED: &str = "2.11";
/// The Python module that the driver replaces.
const TORCH: &str = "torch";
/// The variable that hides devices from CUDA, but not from other runtimes whose devices torch calls `cuda`.
const CUDA_MASK: &str = "CUDA_VISIBLE_DEVICES";

/// Returns the driver's binary: `ALLRANKS_LIBTORCH`, or else the one beside this program.
///
/// # Errors
/// The binary is not there; the text says what to do.
pub fn libtorch() -> Result<PathBuf, String> {
    let own = env::current_exe().ok();
    find(env::var_os(VARIABLE), own.as_deref())
}

fn find(asked: Option<OsString>, own: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = asked.filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => Ok(path),
            false => Err(format!("{VARIABLE}={} is no file", path.display())),
        };
    }
    // Tests run in `deps`, below the folder of binaries.
    let folders = own.map(|own| own.ancestors().skip(1).take(2));
    let found = folders
        .into_iter()
        .flatten()
        .map(|folder| folder.join(NAME))
        .find(|path| path.is_file());
    found.ok_or_else(|| {
        format!(
            "there is no {NAME} beside this program; build it with `ci/libtorch` (it needs torch {WANTED} and a C++ \
             compiler), or name it in {VARIABLE}"
        )
    })
}

/// The driver's answer to `probe`.
#[derive(Debug, Deserialize)]
struct Offered {
    torch: String,
    /// Number of devices by device type.
    #[serde(default)]
    count: BTreeMap<String, u64>,
    #[serde(default)]
    backends: BTreeMap<String, bool>,
}

/// Asks the driver what it offers of a platform. Takes at most `limit`.
#[must_use]
pub fn probe_libtorch(program: &Path, platform: &Platform, limit: Duration) -> ProbeResult {
    match ask(program, limit) {
        Ok(offered) => observe(&offered, platform),
        Err(reason) => ProbeResult::unusable(reason),
    }
}

fn observe(offered: &Offered, platform: &Platform) -> ProbeResult {
    let backends: BTreeMap<String, bool> = platform
        .backends
        .iter()
        .map(|(name, backend)| {
            // A string such as `cpu:gloo,cuda:nccl` needs all of its backends.
            let init = backend.init.as_ref().unwrap_or(name);
            let has = init
                .split(',')
                .map(|part| part.rsplit(':').next().unwrap_or(part))
                .all(|part| offered.backends.get(part) == Some(&true));
            (name.clone(), has)
        })
        .collect();
    let count = platform.count.as_ref().map(|_| {
        offered
            .count
            .get(&platform.device_type)
            .copied()
            .unwrap_or(0)
    });
    ProbeResult {
        usable: check_usable(offered, platform, &backends, count),
        torch: Some(offered.torch.clone()),
        count,
        backends,
        is_simulated: false,
    }
}

/// Returns an error, the reason why the platform cannot be used, if what the driver offers is not enough for it.
fn check_usable(
    offered: &Offered,
    platform: &Platform,
    backends: &BTreeMap<String, bool>,
    count: Option<u64>,
) -> Result<(), String> {
    if let Some(module) = platform.import.iter().find(|module| *module != TORCH) {
        return Err(format!(
            "the libtorch driver cannot import the Python module {module}"
        ));
    }
    // AMD's GPUs have the device type `cuda` too; the driver is built for NVIDIA's.
    let mask = platform.visible_devices.as_deref();
    if platform.device_type == "cuda" && mask.is_some_and(|mask| mask != CUDA_MASK) {
        return Err("the libtorch driver is built for CUDA".to_owned());
    }
    for (package, wanted) in &platform.requires {
        if package != TORCH {
            return Err(format!(
                "{package} {wanted} is required, and the libtorch driver has no Python packages"
            ));
        }
        let has = &offered.torch;
        let fits = torch_version(has)
            .zip(semver::VersionReq::parse(wanted).ok())
            .is_some_and(|(has, wanted)| wanted.matches(&has));
        if !fits {
            return Err(format!("{package} {has} is not {wanted}"));
        }
    }
    if !backends.values().any(|has| *has) {
        let names: Vec<_> = backends.keys().map(String::as_str).collect();
        return Err(format!(
            "the libtorch driver was built without {}",
            names.join(" and without ")
        ));
    }
    match count {
        Some(0) => Err(format!(
            "the libtorch driver sees no {}",
            platform.device_type
        )),
        Some(_) | None => Ok(()),
    }
}

fn ask(program: &Path, limit: Duration) -> Result<Offered, String> {
    let shown = program.display();
    let mut command = Command::new(program);
    // The driver ends when this thread does, which waits for it.
    command.arg("probe").env("ALLRANKS_DIE_WITH_PARENT", "1");
    let (text, end) = host::run_with_timeout(command, limit)
        .map_err(|error| format!("{shown} cannot be run: {error}"))?;
    match end {
        None => Err(format!(
            "{shown} did not answer within {} s",
            limit.as_secs()
        )),
        Some(status) if !status.success() => {
            let last = text.lines().rev().find(|line| !line.trim().is_empty());
            Err(format!(
                "{shown} fails: {}; it runs with libtorch {WANTED}, the very one that `ci/libtorch` built it against, or one that LD_LIBRARY_PATH finds",
                last.unwrap_or("it says nothing")
            ))
        }
        Some(_) => {
            let line = text.lines().find(|line| line.starts_with('{'));
            serde_json::from_str(line.unwrap_or_default())
                .map_err(|error| format!("the answer of {shown} cannot be parsed: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use crate::probe::IMPORT_PATIENCE;
    use crate::probe::libtorch::*;
    use allranks_suite::platform;
    use allranks_yaml::Source;

    fn platform(fields: &str) -> Platform {
        let text = format!(
            "name: t\ndevice_type: t\nevidence: simulated\n{fields}\n\
             backends: {{gloo: {{supports: [{{ops: barrier}}]}}, nccl: {{supports: [{{ops: barrier}}]}}}}\n"
        );
        platform::parse(Source::new("t.yaml", text), Path::new(".")).unwrap()
    }

    fn observed(says: &str, fields: &str) -> ProbeResult {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(NAME);
        fs::write(&program, format!("#!/bin/sh\n{says}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        probe_libtorch(&program, &platform(fields), IMPORT_PATIENCE)
    }

    const SAYS: &str =
        r#"echo '{"torch":"2.11.0+x","count":{"t":2},"backends":{"gloo":true,"nccl":false}}'"#;

    #[test]
    fn what_it_says_is_what_there_is() {
        let found = observed(SAYS, "requires: {torch: \">=2.4\"}");
        assert_eq!(found.usable, Ok(()));
        assert_eq!(found.torch.as_deref(), Some("2.11.0+x"));
        assert_eq!(
            (found.backends["gloo"], found.backends["nccl"]),
            (true, false)
        );
        assert_eq!(observed(SAYS, "count: t.device_count()").count, Some(2));
    }

    #[test]
    fn what_it_cannot_do_is_said() {
        let refused = |says: &str, fields: &str| observed(says, fields).usable.unwrap_err();
        assert!(refused(SAYS, "import: [torch, torch_x]").contains("Python module torch_x"));
        assert!(refused(SAYS, "requires: {torch: \">=3\"}").contains("2.11.0+x is not"));
        let lost = refused("echo symbol lookup error; exit 127", "");
        assert!(
            lost.contains("symbol lookup error") && lost.contains("2.11"),
            "{lost}"
        );
        assert!(refused("echo hello", "").contains("cannot be parsed"));
    }

    #[test]
    fn gpus_of_amd_are_called_cuda_and_are_not_for_it() {
        let says = r#"{"torch":"2.11.0","count":{"cuda":2},"backends":{"gloo":true,"nccl":true}}"#;
        let offered: Offered = serde_json::from_str(says).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/platforms");
        let platforms = platform::load(&[folder]).unwrap();
        let usable = |name: &str| {
            let platform = platforms.iter().find(|one| one.name == name).unwrap();
            observe(&offered, platform).usable
        };
        assert_eq!(usable("cuda"), Ok(()));
        let refused = usable("rocm").unwrap_err();
        assert_eq!(refused, "the libtorch driver is built for CUDA");
    }

    #[test]
    fn it_is_beside_the_program_or_where_the_variable_says() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(NAME);
        let test = folder.path().join("deps/test-0");
        let missing = find(None, Some(&test)).unwrap_err();
        assert!(missing.contains("ci/libtorch"), "{missing}");
        fs::write(&program, "").unwrap();
        assert_eq!(find(None, Some(&test)), Ok(program.clone()));
        assert_eq!(
            find(None, Some(&folder.path().join("allranks"))),
            Ok(program.clone())
        );
        assert_eq!(find(Some(program.clone().into()), None), Ok(program));
        assert!(find(Some("/no/such/file".into()), None).is_err());
    }
}
