//! What crates carry. What is included with `include_dir!` is watched by the build script: cargo does not see it by itself, as
//! it sees `include_str!`. And all of it is in the package that `cargo package` makes, although it lies elsewhere in the
//! checkout and links lead to it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

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

/// The files that a source includes, relative to its folder.
fn included_files(source: &str) -> Vec<String> {
    ["str", "bytes"]
        .iter()
        .flat_map(|kind| {
            let start = format!("include_{kind}!(\"");
            let parts: Vec<&str> = source.split(&start).skip(1).collect();
            parts
        })
        .filter_map(|part| part.split_once("\")"))
        .map(|(path, _)| path.to_owned())
        .collect()
}

/// Every file below a folder, except for what Python compiles, which git ignores and no package has.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| !path.ends_with("__pycache__"))
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => vec![path],
        })
        .collect()
}

/// A path without `.` and `..`; links count as what they are called.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// The files of the package that `cargo package` would make of a folder, relative to it. Uses no network, and builds nothing.
fn packaged(package: &Path) -> BTreeSet<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["package", "--list", "--offline", "--allow-dirty"])
        .current_dir(package)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", package.display());
    let list = String::from_utf8(output.stdout).unwrap();
    list.lines().map(PathBuf::from).collect()
}

/// What a package carries and `listed` lacks.
fn left_out(package: &Path, listed: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut carried = Vec::new();
    for source in sources(&package.join("src")) {
        let text = fs::read_to_string(&source).unwrap();
        let folders = included(&text).into_iter();
        carried.extend(folders.flat_map(|folder| files(&package.join(folder))));
        let names = included_files(&text).into_iter();
        carried.extend(names.map(|name| plain(&source.with_file_name(name))));
    }
    let missing = carried.into_iter().filter(|path| {
        let inside = path.strip_prefix(package);
        !inside.is_ok_and(|path| listed.contains(path))
    });
    missing.collect()
}

/// The packages of the workspace, except for the libtorch driver, which is built in a checkout only.
fn packages() -> Vec<PathBuf> {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = fs::read_dir(harness).unwrap().flatten();
    let folders = folders.map(|entry| entry.path());
    let packages = folders
        .chain([harness.to_owned()])
        .filter(|folder| folder.join("Cargo.toml").is_file() && !folder.ends_with("libtorch"));
    packages.collect()
}

#[test]
fn packages_hold_what_crates_carry() {
    for package in packages() {
        let listed = packaged(&package);
        assert_eq!(left_out(&package, &listed), [""; 0].map(PathBuf::from));
    }
}

#[test]
fn a_file_that_a_package_leaves_out_is_found() {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, file) in [
        ("", "embedded/cases/requirements.yaml"),
        ("", "python/allranks_doctor/torch_facts.py"),
        ("runner", "python/allranks_rank/__main__.py"),
        ("host", "exit_with_harness.py"),
    ] {
        let package: PathBuf = harness.join(name).components().collect();
        let mut listed = packaged(&package);
        assert!(listed.remove(Path::new(file)), "{file}");
        assert_eq!(left_out(&package, &listed), [package.join(file)]);
    }
}

#[test]
fn cargo_watches_the_folders_that_crates_carry() {
    let mut carriers = 0;
    for package in packages() {
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
