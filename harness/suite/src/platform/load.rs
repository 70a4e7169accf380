//! Loads platform files, and returns valid platforms.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_yaml::Value;

use super::{Backend, Platform, Support};
use crate::case::{OneOrMany, is_backend_string, is_env_name, is_name};
use allranks_model::op::Op;
use allranks_model::recipe::{CpuBackend, DeviceId, SetDevice};
use allranks_yaml as yaml;
use allranks_yaml::{Diagnostic, Document, Focus, Segment, Source, way, yaml_files};

/// The form of names.
const NAME: &str = "lower-case letters, digits, `_` and `-`";

/// Loads platform files, and those in folders, and sorts the platforms by name. Backends that are made of another one
/// inherit from it.
///
/// # Errors
///
/// All problems of all files. Two platforms of one name are one: a later file cannot replace an earlier one.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Platform>, Vec<Diagnostic>> {
    let mut platforms: BTreeMap<String, (Platform, Document, PathBuf)> = BTreeMap::new();
    let mut problems = Vec::new();
    let mut files = Vec::new();
    for path in paths {
        match yaml_files(path) {
            Ok(found) => files.extend(found),
            Err(error) => {
                let message = format!("there is no such platform file: {error}");
                problems.push(Diagnostic::of_file(&path.display().to_string(), message));
            }
        }
    }
    for file in files {
        match load_file(&file) {
            Err(found) => problems.extend(found),
            Ok((platform, document)) => match platforms.get(&platform.name) {
                Some((_, _, first)) => {
                    let message = format!("another platform is named `{}`", platform.name);
                    let problem = document.problem(way!["name"], Focus::Value, message);
                    problems.push(problem.hint(format!("it is {}", first.display())));
                }
                None => {
                    platforms.insert(platform.name.clone(), (platform, document, file));
                }
            },
        }
    }
    let files = platforms.into_values();
    let (mut platforms, documents): (Vec<_>, Vec<_>) = files.map(|(one, at, _)| (one, at)).unzip();
    problems.extend(inherit(&mut platforms, &documents));
    if problems.is_empty() {
        Ok(platforms)
    } else {
        Err(problems)
    }
}

/// Adds to backends that are made of another one what that one declares and promises. Returns a problem for each
/// `made_of:` that names no backend, or one that is itself made of another.
fn inherit(platforms: &mut [Platform], documents: &[Document]) -> Vec<Diagnostic> {
    let plain: BTreeMap<_, _> = platforms
        .iter()
        .flat_map(|platform| platform.backends.values().map(|one| (&platform.name, one)))
        .filter(|(_, backend)| backend.made_of.is_none())
        .map(|(platform, backend)| ((platform.clone(), backend.name.clone()), backend.clone()))
        .collect();
    let mut problems = Vec::new();
    for (platform, document) in platforms.iter_mut().zip(documents) {
        for (name, backend) in &mut platform.backends {
            let Some(of) = &backend.made_of else {
                continue;
            };
            let Some(inner) = plain.get(&(of.platform.clone(), of.backend.clone())) else {
                let message = format!(
                    "there is no backend {}/{} that does its own work",
                    of.platform, of.backend
                );
                let path = way!["backends", name.as_str(), "made_of"];
                problems.push(document.problem(path, Focus::Value, message));
                continue;
            };
            backend.promises = inner.promises;
            backend.supports.extend(without(inner, &of.except));
        }
    }
    problems
}

/// Returns the entries of a backend's `supports` without some ops. An entry about all ops then lists the remaining
/// ones.
fn without(backend: &Backend, except: &[Op]) -> impl Iterator<Item = Support> {
    backend.supports.iter().filter_map(|support| {
        let all = || Op::ALL.to_vec();
        let ops = support
            .ops
            .as_ref()
            .map_or_else(all, |ops| ops.as_slice().to_vec());
        let ops: Vec<_> = ops.into_iter().filter(|op| !except.contains(op)).collect();
        (!ops.is_empty()).then(|| Support {
            ops: Some(OneOrMany::Many(ops)),
            ..support.clone()
        })
    })
}

/// Parses the text of a platform file. `folder` is what its relative paths are relative to.
///
/// # Errors
///
/// All problems of the file.
pub fn parse(source: Source, folder: &Path) -> Result<Platform, Vec<Diagnostic>> {
    decode(source, folder).map(|(platform, _)| platform)
}

fn load_file(file: &Path) -> Result<(Platform, Document), Vec<Diagnostic>> {
    let source = Source::read(file)?;
    decode(source, file.parent().unwrap_or(Path::new("")))
}

fn decode(source: Source, folder: &Path) -> Result<(Platform, Document), Vec<Diagnostic>> {
    let (mut platform, document): (Platform, _) = yaml::decode(source)?;
    let mut checker = Checker {
        document: &document,
        problems: Vec::new(),
    };
    checker.platform(&platform);
    let mut problems = checker.problems;
    if !problems.is_empty() {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        return Err(problems);
    }
    for path in &mut platform.python_path {
        *path = folder.join(&*path);
    }
    for (name, backend) in &mut platform.backends {
        backend.name.clone_from(name);
    }
    Ok((platform, document))
}

/// Collects the problems of one platform file.
struct Checker<'a> {
    document: &'a Document,
    problems: Vec<Diagnostic>,
}

impl Checker<'_> {
    fn report(&mut self, path: &[Segment], focus: Focus, message: impl Into<String>, hint: &str) {
        let problem = self.document.problem(path, focus, message);
        self.problems.push(problem.hint(hint));
    }

    /// Checks all fields of a platform file.
    fn platform(&mut self, platform: &Platform) {
        self.names(platform);
        self.python(platform);
        self.recipe(platform);
        self.variables(platform);
        self.requires(platform);
        self.backends(platform);
    }

    /// Checks the names of the platform and of its device type.
    fn names(&mut self, platform: &Platform) {
        if !is_name(&platform.name) {
            let message = format!("`{}` is not a platform's name", platform.name);
            self.report(way!["name"], Focus::Value, message, NAME);
        }
        if !is_name(&platform.device_type) {
            let message = format!("`{}` is not a device type", platform.device_type);
            self.report(
                way!["device_type"],
                Focus::Value,
                message,
                "as in torch.device: `cpu`, `cuda`, `xpu`",
            );
        }
    }

    /// Checks the modules, functions and expressions of Python, and the variable that selects devices.
    fn python(&mut self, platform: &Platform) {
        for (index, module) in platform.import.iter().enumerate() {
            if !is_dotted(module) {
                let message = format!("`{module}` is not a Python module");
                self.report(
                    way!["import", index],
                    Focus::Value,
                    message,
                    "as after `import`: `torch_npu`",
                );
            }
        }
        for (field, function) in [
            ("set_device", &platform.set_device),
            ("synchronize", &platform.synchronize),
        ] {
            if let Some(function) = function
                && !(function.contains('.') && is_dotted(function))
            {
                let message = format!("`{function}` is not the dotted name of a function");
                self.report(
                    way![field],
                    Focus::Value,
                    message,
                    "without brackets: `torch.xpu.synchronize`",
                );
            }
        }
        if platform
            .count
            .as_ref()
            .is_some_and(|count| count.trim().is_empty())
        {
            self.report(
                way!["count"],
                Focus::Value,
                "an empty expression",
                "`torch.xpu.device_count()`, or leave it out",
            );
        }
        if let Some(variable) = &platform.visible_devices
            && !is_env_name(variable)
        {
            let message = format!("`{variable}` is not a variable's name");
            self.report(
                way!["visible_devices"],
                Focus::Value,
                message,
                "such as `CUDA_VISIBLE_DEVICES`",
            );
        }
    }

    /// Checks the names of environment variables.
    fn variables(&mut self, platform: &Platform) {
        for name in platform.env.keys().filter(|name| !is_env_name(name)) {
            let message = format!("`{name}` is not a variable's name");
            self.report(
                way!["env", name.as_str()],
                Focus::Key,
                message,
                "letters, digits and `_`",
            );
        }
    }

    /// Checks the versions that are required of packages.
    fn requires(&mut self, platform: &Platform) {
        for (package, version) in &platform.requires {
            if semver::VersionReq::parse(version).is_err() {
                let message = format!("`{version}` is not a version requirement");
                self.report(
                    way!["requires", package.as_str()],
                    Focus::Value,
                    message,
                    "such as \">=2.8\" or \">=2.4, <2.9\"",
                );
            }
        }
    }

    /// Checks the backends.
    fn backends(&mut self, platform: &Platform) {
        if platform.backends.is_empty() {
            self.report(
                way!["backends"],
                Focus::Key,
                "no backends",
                "name at least one: `gloo: {supports: [...]}`",
            );
        }
        for (name, backend) in &platform.backends {
            if !is_name(name) {
                let message = format!("`{name}` is not a backend's name");
                self.report(way!["backends", name.as_str()], Focus::Key, message, NAME);
            }
            self.backend(name, backend);
        }
    }

    /// Reports a recipe that asks for what the platform does not have.
    fn recipe(&mut self, platform: &Platform) {
        let recipe = &platform.recipe;
        let is_host = !platform.is_on_device();
        if is_host && recipe.device_id != DeviceId::Absent {
            let message = "a `device_id` on the host";
            let hint = "leave it out: torch refuses to bind a world to a CPU";
            self.report(way!["recipe", "device_id"], Focus::Value, message, hint);
        }
        if is_host && recipe.cpu_backend != CpuBackend::Absent {
            let message = "a backend for the host beside that of the host";
            let hint = "leave it out: the world has one as it is";
            self.report(way!["recipe", "cpu_backend"], Focus::Value, message, hint);
        }
        if recipe.set_device == SetDevice::After && platform.set_device.is_none() {
            let message = "no function makes a device the current one";
            let hint = "name it: `set_device: torch.xpu.set_device`";
            self.report(way!["recipe", "set_device"], Focus::Value, message, hint);
        }
    }

    fn backend(&mut self, name: &str, backend: &Backend) {
        if let Some(init) = &backend.init
            && !is_backend_string(init)
        {
            let message = format!("`{init}` is not a backend");
            self.report(
                way!["backends", name, "init"],
                Focus::Value,
                message,
                "a name, or pairs: `cpu:gloo,xpu:xccl`",
            );
        }
        if backend.supports.is_empty() && backend.made_of.is_none() {
            let message = format!("`{name}` supports nothing");
            let hint = "one entry for each set of combinations that work: `- {ops: barrier}`";
            self.report(
                way!["backends", name, "supports"],
                Focus::Key,
                message,
                hint,
            );
        }
        for (index, support) in backend.supports.iter().enumerate() {
            self.support(name, index, support);
        }
    }

    fn support(&mut self, name: &str, index: usize, support: &Support) {
        let path = way!["backends", name, "supports", index];
        if let Some(version) = &support.torch
            && semver::VersionReq::parse(version).is_err()
        {
            let message = format!("`{version}` is not a version requirement");
            self.report(
                way!["backends", name, "supports", index, "torch"],
                Focus::Value,
                message,
                "such as \">=2.12\" or \">=2.4, <2.9\"",
            );
        }
        // An entry without fields says that everything works: possible, but never by accident.
        if *support == Support::default() {
            self.report(
                path,
                Focus::Value,
                "an entry that supports everything",
                "name at least the ops",
            );
        }
        let sizes = support
            .world_sizes
            .as_ref()
            .map_or(&[][..], OneOrMany::as_slice);
        if let Some(item) = sizes.iter().position(|size| *size == 0) {
            let path = way!["backends", name, "supports", index, "world_sizes", item];
            self.report(path, Focus::Value, "a world of 0 ranks", "at least 1");
        }
        // No list has a value twice. Values are compared as written, so that no field is forgotten.
        let fields = serde_yaml::to_value(support).unwrap_or(Value::Null);
        for (field, value) in fields.as_mapping().into_iter().flatten() {
            let (Some(field), Some(items)) = (field.as_str(), value.as_sequence()) else {
                continue;
            };
            for (item, value) in items.iter().enumerate() {
                if items[..item].contains(value) {
                    let path = way!["backends", name, "supports", index, field, item];
                    self.report(
                        path,
                        Focus::Value,
                        "a value is given twice",
                        "leave one out",
                    );
                }
            }
        }
    }
}

/// Returns whether a text is Python identifiers with dots between them.
fn is_dotted(text: &str) -> bool {
    text.split('.').all(is_env_name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::platform::declare::tests::op_check;

    fn fixtures() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/platforms")
    }

    #[test]
    fn the_platforms_of_the_repository_are_valid() {
        let folders = [fixtures(), fixtures().join("../backends")];
        let platforms = load(&folders).unwrap_or_else(|problems| panic!("{}", problems[0]));
        assert!(platforms.iter().any(|platform| platform.name == "cpu"));
        for platform in platforms {
            for (name, backend) in &platform.backends {
                assert_eq!(backend.name, *name);
            }
        }
    }

    #[test]
    fn a_recipe_asks_for_nothing_that_is_not_there() {
        let problems = |device: &str, fields: &str| {
            let text = format!(
                "name: t\ndevice_type: {device}\nevidence: host\n{fields}\nbackends: {{gloo: {{supports: [{{ops: barrier}}]}}}}\n"
            );
            let parsed = parse(Source::new("t.yaml", &text), Path::new(""));
            let problems = parsed.err().unwrap_or_default();
            problems
                .into_iter()
                .map(|one| one.message)
                .collect::<Vec<_>>()
        };
        let all = "recipe: {device_id: device, set_device: after, cpu_backend: gloo}";
        assert_eq!(
            problems("cpu", all),
            [
                "a `device_id` on the host",
                "no function makes a device the current one",
                "a backend for the host beside that of the host",
            ]
        );
        let with = format!("{all}\nset_device: torch.t.set_device");
        assert_eq!(problems("t", &with), Vec::<String>::new());
        assert_eq!(
            problems("cpu", "recipe: {set_device: before}"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn two_platforms_of_one_name_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "b.yaml"] {
            fs::copy(fixtures().join("cpu.yaml"), folder.path().join(name)).unwrap();
        }
        let problems = load(&[folder.path().to_path_buf()]).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].message, "another platform is named `cpu`");
    }

    #[test]
    fn a_backend_made_of_another_supports_what_that_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, of: &str| {
            let text = format!(
                "name: {name}\ndevice_type: {name}\nevidence: simulated\nbackends:\n  mine:\n    \
                 made_of: {of}\n    supports: [{{ops: monitored_barrier, world_sizes: 2}}]\n"
            );
            fs::write(folder.path().join(format!("{name}.yaml")), text).unwrap();
        };
        let paths = [fixtures(), folder.path().to_path_buf()];
        write(
            "sim",
            "{platform: cpu, backend: gloo, except: [monitored_barrier]}",
        );
        let platforms = load(&paths).unwrap_or_else(|problems| panic!("{}", problems[0]));
        let [cpu, sim] = ["cpu", "sim"].map(|name| {
            let platform = platforms.iter().find(|one| one.name == name).unwrap();
            platform.backends.values().next().unwrap()
        });
        assert_eq!(sim.promises, cpu.promises);
        let barriers = |world| {
            [Op::Barrier, Op::MonitoredBarrier]
                .map(|op| op_check(op, allranks_model::dtype::DType::Int8, None, world))
                .map(|check| {
                    sim.declares(&check) == allranks_model::capability::Declared::Supported
                })
        };
        assert_eq!((barriers(2), barriers(3)), ([true, true], [true, false]));
        write("twice", "{platform: sim, backend: mine}");
        let problems = load(&paths).unwrap_err();
        assert_eq!(
            problems[0].message,
            "there is no backend sim/mine that does its own work"
        );
    }

    #[test]
    fn python_paths_are_relative_to_the_file() {
        let text = "name: sim\ndevice_type: sim\nevidence: simulated\npython_path: [lib, /abs]\n\
                    backends: {sim: {supports: [{ops: barrier}]}}\n";
        let platform = parse(Source::new("sim.yaml", text), Path::new("at/here")).unwrap();
        assert_eq!(
            platform.python_path,
            [Path::new("at/here/lib"), Path::new("/abs")]
        );
    }
}
