//! Which crate of the workspace may use which: `ALLOWED` is the architecture, and the manifests must say no more than it. Inside
//! the suite's crate, `SUITE` is the order of its modules, and inside the runner's watch `WATCH`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate after those that it may use, directly or through others; the lowest layer first.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("yaml", &[]),
    ("host", &[]),
    ("protocol", &["model"]),
    ("suite", &["model", "yaml", "protocol"]),
    ("oracle", &["model", "protocol"]),
    ("diagnose", &["model"]),
    ("report", &["model"]),
    ("history", &["model", "report"]),
    (
        "runner",
        &["model", "host", "protocol", "suite", "oracle", "diagnose"],
    ),
    ("libtorch", &["model", "protocol"]),
];

/// The modules of `allranks-suite`, the lowest first; each may use those before it.
const SUITE: &[&str] = &["case", "platform", "plan", "expectation"];

/// The folders of the runner's watch, the lowest first; each may use those before it.
const WATCH: &[&str] = &[
    "command",
    "trace",
    "recorder",
    "ranks",
    "endpoints",
    "waits",
    "evidence",
    "detector",
    "nodes",
    "attach",
    "watcher",
];

/// The crates of this workspace that a manifest names in a section, without the prefix `allranks-`.
fn used(manifest: &str, section: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_inside = line.trim_matches(['[', ']']).ends_with(section) && !line.contains("dev-");
        } else if let Some(rest) = line.strip_prefix("allranks-").filter(|_| is_inside) {
            let end = rest.find(['.', ' ', '=']).unwrap_or(rest.len());
            found.insert(rest[..end].to_owned());
        }
    }
    found
}

fn manifest(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(folder.join("Cargo.toml")).unwrap()
}

/// What of `used` is not among `allowed`.
fn upward(used: &BTreeSet<String>, allowed: &[&str]) -> Vec<String> {
    let is_allowed = |name: &&String| allowed.contains(&name.as_str());
    used.iter()
        .filter(|name| !is_allowed(name))
        .cloned()
        .collect()
}

#[test]
fn no_crate_uses_one_above_it() {
    let mut below: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, (name, allowed)) in ALLOWED.iter().enumerate() {
        for other in *allowed {
            assert!(below.contains_key(other), "{name} is listed before {other}");
        }
        below.insert(name, place);
        let found = upward(&used(&manifest(name), "dependencies"), allowed);
        assert_eq!(
            found,
            Vec::<String>::new(),
            "allranks-{name} may not use these"
        );
    }
}

#[test]
fn every_crate_has_its_layer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = fs::read_dir(folder).unwrap().flatten();
    let crates: BTreeSet<String> = folders
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let listed: BTreeSet<String> = ALLOWED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(crates, listed);
}

#[test]
fn an_upward_use_is_found() {
    let manifest = "[dependencies]\nallranks-model.workspace = true\nallranks-runner = { path = \"../runner\" }\n\
                    [dev-dependencies]\nallranks-yaml.workspace = true\n";
    let used = used(manifest, "dependencies");
    assert_eq!(upward(&used, &["model", "protocol"]), ["runner"]);
    assert_eq!(upward(&used, &["model", "runner"]), Vec::<String>::new());
}

/// The modules below `prefix` that a source names: for `crate::`, `X` of every `crate::X`, and of `crate::{X, Y::Z}`. Comments count,
/// for a link in them is a use as well.
fn named<'a>(prefix: &str, source: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for (place, path) in source.match_indices(prefix) {
        // `$crate::` and the end of another word are not meant.
        let before = source[..place].chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || "_$".contains(before)) {
            continue;
        }
        let rest = &source[place + path.len()..];
        match rest.strip_prefix('{') {
            None => {
                found.extend(first_word(rest));
            }
            Some(list) => {
                let mut depth = 0_usize;
                let mut is_start = true;
                for (at, character) in list.char_indices() {
                    match character {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => is_start = true,
                        _ if is_start && !character.is_whitespace() => {
                            found.extend(first_word(&list[at..]));
                            is_start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    found
}

/// The identifier at the beginning of a text, if there is one.
fn first_word(text: &str) -> Option<&str> {
    let is_in_word = |character: char| character.is_alphanumeric() || character == '_';
    let end = text.find(|character| !is_in_word(character));
    let word = &text[..end.unwrap_or(text.len())];
    (!word.is_empty()).then_some(word)
}

/// The modules that a source declares besides those of its tests, and those in the table of modules in its header; none if it has
/// no such table.
fn declared_and_listed(source: &str) -> Option<(BTreeSet<String>, BTreeSet<String>)> {
    let is_head = |line: &&str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        cells == ["//!", "module", "holds", ""]
    };
    let table = source.lines().skip_while(|line| !is_head(line)).skip(2);
    let rows = table.take_while(|line| line.starts_with("//! |"));
    // Words in code in the first cell.
    let names = |row: &str| -> Vec<String> {
        let cell = row.split('|').nth(1).unwrap_or_default();
        let words = cell.split('`').skip(1).step_by(2);
        words
            .map(|word| word.trim_end_matches('/').to_owned())
            .collect()
    };
    let listed: BTreeSet<String> = rows.flat_map(names).collect();
    let mut declared = BTreeSet::new();
    let mut is_test = false;
    for line in source.lines() {
        let words = line.strip_suffix(';').unwrap_or_default();
        let name = words
            .rsplit_once("mod ")
            .map(|(before, name)| (before.trim(), name));
        if let Some(("" | "pub" | "pub(crate)" | "pub(super)", name)) = name
            && !is_test
        {
            declared.insert(name.to_owned());
        }
        is_test = line == "#[cfg(test)]";
    }
    (!listed.is_empty()).then_some((declared, listed))
}

#[test]
fn a_table_of_modules_has_all_of_them() {
    let mut count = 0;
    for file in sources(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        let source = fs::read_to_string(&file).unwrap();
        if let Some((declared, listed)) = declared_and_listed(&source) {
            count += 1;
            assert_eq!(listed, declared, "{}", file.display());
        }
    }
    assert!(count > 10, "only {count} tables were found");
}

#[test]
fn a_module_that_is_not_in_its_table_is_found() {
    let source = "//! | module | holds |\n//! |---|---|\n//! | [`a`], `b` | two |\n\nmod a;\npub mod b;\npub(crate) mod c;\n\
                  #[cfg(test)]\nmod tests;\n";
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let expected = (set(&["a", "b", "c"]), set(&["a", "b"]));
    assert_eq!(declared_and_listed(source), Some(expected));
    assert_eq!(declared_and_listed("mod a;"), None);
}

/// The files of `allranks` that may use tokio: commands that wait for the runner and for signals at the same time.
const ASYNC: [&str; 7] = [
    "cli/doctor_fleet.rs",
    "cli/node.rs",
    "cli/prove.rs",
    "cli/running.rs",
    "cli/signals.rs",
    "cli/watch.rs",
    "prove/proof.rs",
];

#[test]
fn async_code_is_in_the_runner_and_in_commands_that_wait_for_it() {
    for (name, _) in ALLOWED.iter().filter(|(name, _)| *name != "runner") {
        let manifest = manifest(name);
        let (dependencies, _) = manifest
            .split_once("[dev-dependencies]")
            .unwrap_or((&manifest, ""));
        assert!(
            !dependencies.contains("tokio"),
            "allranks-{name} uses tokio"
        );
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found: Vec<String> = sources(&folder)
        .iter()
        .filter(|file| fs::read_to_string(file).unwrap().contains("tokio::"))
        .map(|file| file.strip_prefix(&folder).unwrap().display().to_string())
        .collect();
    found.sort();
    assert_eq!(found, ASYNC);
}

/// The modules below `prefix` that come after `module` in `order`, or are not in it, and are named in its source.
fn above<'a>(order: &[&str], prefix: &str, module: &str, source: &'a str) -> Vec<&'a str> {
    let place = order.iter().position(|known| *known == module).unwrap();
    let may_use = |name: &&str| order[..=place].contains(name);
    let named = named(prefix, source).into_iter();
    named.filter(|name| !may_use(name)).collect()
}

/// Fails if a module below a folder is not in `order`, or uses one above it.
fn assert_order(folder: &str, order: &[&str], prefix: &str, others: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let modules = fs::read_dir(&folder).unwrap().flatten();
    let modules: BTreeSet<String> = modules
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !others.contains(&name.as_str()))
        .collect();
    let listed: BTreeSet<String> = order.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(modules, listed);
    for module in order {
        let files = sources(&folder.join(module));
        assert!(!files.is_empty());
        for file in files {
            let source = fs::read_to_string(&file).unwrap();
            let found = above(order, prefix, module, &source);
            assert_eq!(found, [""; 0], "{}", file.display());
        }
    }
}

/// Every Rust file below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn no_module_of_the_suite_uses_one_above_it() {
    assert_order("suite/src", SUITE, "crate::", &["lib.rs"]);
}

#[test]
fn no_folder_of_the_watch_uses_one_above_it() {
    let others = ["mod.rs", "tests.rs"];
    assert_order("runner/src/watch", WATCH, "crate::watch::", &others);
}

#[test]
fn an_upward_use_of_a_module_is_found() {
    let source = "use crate::case::{Case, platform};\nuse crate::{case::Fail, plan::{Check, Plan}};\n\
                  /// See [`crate::expectation::Entry`].\nfn f(of: &crate::platform::Platform) { $crate::x!() }";
    let found = |module, source| above(SUITE, "crate::", module, source);
    assert_eq!(found("expectation", source), [""; 0]);
    assert_eq!(found("plan", source), ["expectation"]);
    assert_eq!(found("platform", source), ["expectation", "plan"]);
    assert_eq!(found("case", source), ["expectation", "plan", "platform"]);
    assert_eq!(found("plan", "use crate::cases;"), ["cases"]);
}
