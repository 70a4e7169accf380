//! Which crate of the workspace may use which: `ALLOWED` is the architecture, and the manifests must say no more than it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Each crate after those that it may use, directly or through others; the lowest layer first.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("yaml", &[]),
    ("host", &[]),
    ("protocol", &["model"]),
    ("suite", &["model", "yaml", "protocol"]),
    ("oracle", &["model", "protocol", "suite"]),
    ("diagnose", &["model"]),
    ("report", &["model"]),
    (
        "runner",
        &["model", "host", "protocol", "suite", "oracle", "diagnose"],
    ),
    ("libtorch", &["model", "protocol"]),
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
