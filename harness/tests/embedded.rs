//! What a crate carries with `include_dir!` is watched by its build script: cargo does not see it by itself, as it sees
//! `include_str!`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders that a source includes, relative to its package.
fn included(source: &str) -> Vec<String> {
    // In pieces, so that this file includes nothing by these lines.
    let start = format!("{}!(\"$CARGO_MANIFEST_DIR/", "include_dir");
    let parts = source.split(&start).skip(1);
    let ends = parts.filter_map(|part| part.split_once("\")"));
    ends.map(|(path, _)| path.to_owned()).collect()
}

/// The paths in a build script: its string literals without a blank.
fn watched(build: &str) -> BTreeSet<String> {
    let code = build
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code: Vec<&str> = code.collect();
    let code = code.join("\n");
    let literals = code.split('"').skip(1).step_by(2);
    literals
        .filter(|text| text.contains('/'))
        .map(str::to_owned)
        .collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .collect()
}

#[test]
fn cargo_watches_the_folders_that_crates_carry() {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut carriers = 0;
    let crates = fs::read_dir(harness).unwrap().flatten();
    let crates = crates.map(|entry| entry.path());
    for package in crates.chain([harness.to_owned()]) {
        if !package.join("Cargo.toml").is_file() {
            continue;
        }
        let included: BTreeSet<String> = sources(&package.join("src"))
            .iter()
            .flat_map(|source| included(&fs::read_to_string(source).unwrap()))
            .collect();
        if included.is_empty() {
            continue;
        }
        carriers += 1;
        let build = fs::read_to_string(package.join("build.rs")).unwrap();
        assert_eq!(watched(&build), included, "{}", package.display());
        for folder in included {
            assert!(package.join(&folder).is_dir(), "there is no {folder}");
        }
    }
    assert_eq!(carriers, 2, "the command line and the runner carry folders");
}

#[test]
fn a_folder_that_is_not_watched_is_found() {
    let source = format!(
        "static A: Dir = {}!(\"$CARGO_MANIFEST_DIR/embedded/a\");",
        "include_dir"
    );
    assert_eq!(included(&source), ["embedded/a"]);
    let build = "//! \"no/path\"\nfn main() { for path in [\"embedded/b\"] { println!(\"rerun {path}\"); } }";
    assert_eq!(watched(build), BTreeSet::from(["embedded/b".to_owned()]));
}
