//! Loads case files and folders of them, and returns valid cases.
//!
//! A *root* is a folder with a `requirements.yaml`. Below it, the id of a case is the path of its file, and the
//! requirements it covers must be in that file. A file outside any root is a case by itself: its id ends with the
//! file's name, and the requirements it names are checked for their form only.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::checker::FileContext;
use super::file::CaseFile;
use super::{Case, Requirements, validate};
use allranks_model::names::CaseId;
use allranks_yaml as yaml;
use allranks_yaml::{Diagnostic, Document, Focus, Source, way};

/// The file that makes a folder a root.
const REQUIREMENTS: &str = "requirements.yaml";
/// Folders of a root that hold no cases.
const NOT_CASES: &[&str] = &["profiles"];

/// Loaded cases, and the requirements of their roots.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// The cases, in order of id; no two have the same id.
    pub cases: Vec<Arc<Case>>,
    /// The requirements of every root that a loaded file lies in. If two roots have the same id, the first by path
    /// counts.
    pub requirements: Requirements,
}

/// Loads case files, and the case files below folders, in parallel. The result does not depend on the order in which
/// they are read.
///
/// # Errors
///
/// All problems of all files: a path that does not exist, a file that is no valid case, an id that two files have.
pub fn load(paths: &[PathBuf]) -> Result<Library, Vec<Diagnostic>> {
    let mut files = Vec::new();
    let mut problems = Vec::new();
    for path in paths {
        collect(path, &mut files, &mut problems);
    }
    files.sort();
    files.dedup();

    let mut roots: BTreeMap<PathBuf, Requirements> = BTreeMap::new();
    for root in files.iter().filter_map(|file| root_of(file)) {
        if let Entry::Vacant(vacant) = roots.entry(root) {
            let loaded = Requirements::load(&vacant.key().join(REQUIREMENTS));
            vacant.insert(loaded.unwrap_or_else(|found| {
                problems.extend(found);
                Requirements::default()
            }));
        }
    }
    let loaded: Vec<_> = files
        .par_iter()
        .map(|file| {
            let root = root_of(file);
            let known = root.as_ref().and_then(|root| roots.get(root));
            load_file(file, root.as_deref(), known)
        })
        .collect();

    let mut cases: BTreeMap<CaseId, Arc<Case>> = BTreeMap::new();
    for result in loaded {
        match result {
            Err(found) => problems.extend(found),
            Ok((case, document)) => match cases.get(&case.id) {
                None => {
                    cases.insert(case.id.clone(), Arc::new(case));
                }
                Some(first) => problems.push(
                    document
                        .problem(
                            way!["id"],
                            Focus::Value,
                            format!("another case has the id `{}`", case.id),
                        )
                        .hint(format!("it is {}", first.source.display())),
                ),
            },
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut requirements = Requirements::default();
    for known in roots.into_values() {
        requirements.extend(known);
    }
    Ok(Library {
        cases: cases.into_values().collect(),
        requirements,
    })
}

/// Returns the nearest folder above a file that has a `requirements.yaml`; `None` if there is none.
#[must_use]
pub fn root_of(file: &Path) -> Option<PathBuf> {
    file.ancestors()
        .skip(1)
        .map(|folder| {
            if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            }
        })
        .find(|folder| folder.join(REQUIREMENTS).is_file())
        .map(Path::to_path_buf)
}

/// Reads and validates one case file. `root` is its root, `requirements` what that root's file has; an empty one (it
/// could not be read) is not checked against.
fn load_file(
    file: &Path,
    root: Option<&Path>,
    requirements: Option<&Requirements>,
) -> Result<(Case, Document), Vec<Diagnostic>> {
    let below = root.map(|root| file.strip_prefix(root).unwrap_or(file));
    let source = Source::read(file)?;
    let (raw, document): (CaseFile, _) = yaml::decode(source)?;
    let place = FileContext {
        file,
        below_root: below,
        requirements: requirements.filter(|known| !known.is_empty()),
    };
    let case = validate::case(raw, &document, &place)?;
    Ok((case, document))
}

/// Collects the case files at or below a path into `files`, and what cannot be read into `problems`.
fn collect(path: &Path, files: &mut Vec<PathBuf>, problems: &mut Vec<Diagnostic>) {
    let shown = path.display().to_string();
    match fs::metadata(path) {
        Err(error) => problems.push(
            Diagnostic::of_file(&shown, format!("there is no such case: {error}"))
                .hint("name a file, a folder or a case's id; `allranks list` prints the ids"),
        ),
        Ok(found) if found.is_dir() => {
            let is_root = path.join(REQUIREMENTS).is_file();
            if let Err(error) = walk(path, is_root, files, problems) {
                problems.push(Diagnostic::of_file(
                    &shown,
                    format!("the folder cannot be read: {error}"),
                ));
            }
        }
        Ok(_) => files.push(path.to_path_buf()),
    }
}

/// Collects the `.yaml` files below a folder. Leaves out hidden ones, `requirements.yaml` and, in a root, the
/// profiles.
fn walk(
    folder: &Path,
    is_root: bool,
    files: &mut Vec<PathBuf>,
    problems: &mut Vec<Diagnostic>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // A link to a folder is not followed: it could lead back up.
        if entry.file_type()?.is_dir() {
            let is_other = is_root && NOT_CASES.contains(&&*name);
            if !is_other && !name.starts_with('.') {
                walk(&path, false, files, problems)?;
            }
            continue;
        }
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml") if !name.starts_with('.') && name != REQUIREMENTS => files.push(path),
            Some("yml") => problems.push(
                Diagnostic::of_file(&path.display().to_string(), "a case file ends in `.yaml`")
                    .hint("rename it; it would be left out silently otherwise"),
            ),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Numel, RootSpec, StepSpec};
    use allranks_model::names::{Rank, WorldSize};
    use allranks_model::op::Op;

    const CASE: &str = "id: ID\ntitle: t\ncovers: [COLL-001]\nsteps: [{all_reduce: {}}]\n";
    const KNOWN: &str = "- {id: COLL-001, level: must, text: It MUST be., source: docs}\n";

    fn write(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn cases_below_a_root_are_found_and_sorted_and_other_files_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "requirements.yaml", KNOWN);
        write(folder.path(), "profiles/core.yaml", "not: a case\n");
        write(folder.path(), "README.md", "not a case\n");
        write(folder.path(), "b/x.yaml", &CASE.replace("ID", "b/x"));
        write(folder.path(), "a.yaml", &CASE.replace("ID", "a"));
        let library = load(&[folder.path().to_path_buf(), folder.path().join("a.yaml")]).unwrap();
        let ids: Vec<_> = library.cases.iter().map(|case| case.id.as_str()).collect();
        assert_eq!(ids, ["a", "b/x"]);
        assert_eq!(library.cases[1].source, Path::new("b/x.yaml"));
        assert_eq!(library.requirements.iter().count(), 1);
    }

    #[test]
    fn a_case_keeps_what_is_written_in_the_order_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let text = "id: x\ntitle: t\nworld: {size: [2, 4], init: {method: [tcp, file]}, env: {A: \"1\"}}\n\
                    groups:\n  side: {ranks: all_but_first, backend: \"cpu:gloo,xpu:xccl\"}\n  pair: {ranks: [1, 0]}\n\
                    steps:\n  - all_reduce:\n      dtype: [int8, float8_e4m3fn]\n      numel: [\"1..67\", 3W+1, W-1, scalar, 0]\n\
                    \x20     covers: [COLL-001]\n  - broadcast: {group: [pair, world], root: [1, last], covers: [COLL-004]}\n";
        write(folder.path(), "x.yaml", text);
        let library = load(&[folder.path().join("x.yaml")]);
        let library = library.unwrap_or_else(|problems| panic!("{}", problems[0]));
        let case = &library.cases[0];
        let names: Vec<_> = case.groups.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["side", "pair"]);
        assert_eq!(
            case.groups[1].1.ranks.in_world(WorldSize(4)),
            [Rank(1), Rank(0)]
        );
        assert_eq!(case.world.size.as_slice(), [2, 4]);
        assert_eq!(case.world.timeout_s, 20.0, "a default");
        let sweeps: Vec<_> = case
            .steps
            .iter()
            .map(|step| match step {
                StepSpec::Sweep(sweep) => sweep,
                StepSpec::Script { .. } | StepSpec::Random { .. } | StepSpec::Stack { .. } => {
                    panic!("no script is written there")
                }
            })
            .collect();
        let steps: Vec<_> = sweeps.iter().map(|step| (step.op, step.line)).collect();
        assert_eq!(steps, [(Op::AllReduce, 8), (Op::Broadcast, 12)]);
        let numels = sweeps[0].params.numel.as_ref().unwrap();
        assert_eq!(
            numels.as_slice(),
            [
                Numel::Range(1, 67),
                Numel::OfWorld { times: 3, plus: 1 },
                Numel::OfWorld { times: 1, plus: -1 },
                Numel::Scalar,
                Numel::Exact(0),
            ]
        );
        let roots = sweeps[1].params.root.as_ref().unwrap();
        assert_eq!(roots.as_slice(), [RootSpec::GroupRank(1), RootSpec::Last]);
    }

    #[test]
    fn below_a_root_the_id_is_the_path_and_requirements_exist() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "requirements.yaml", KNOWN);
        write(folder.path(), "b/x.yaml", &CASE.replace("ID", "x"));
        write(
            folder.path(),
            "y.yaml",
            &CASE.replace("ID", "y").replace("001", "002"),
        );
        let problems = load(&[folder.path().to_path_buf()]).unwrap_err();
        let messages: Vec<_> = problems
            .iter()
            .map(|problem| problem.message.as_str())
            .collect();
        assert_eq!(
            messages,
            [
                "the id `x` is not the path of its file",
                "there is no requirement `COLL-002`"
            ]
        );
    }

    #[test]
    fn a_file_outside_any_root_stands_alone_and_ids_are_unique_in_a_run() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a/x.yaml", &CASE.replace("ID", "x"));
        write(folder.path(), "b/x.yaml", &CASE.replace("ID", "x"));
        let a = folder.path().join("a/x.yaml");
        assert_eq!(load(std::slice::from_ref(&a)).unwrap().cases.len(), 1);
        let problems = load(&[a, folder.path().join("b")]).unwrap_err();
        assert_eq!(problems[0].message, "another case has the id `x`");
        assert!(problems[0].path.ends_with("b/x.yaml"));
    }

    #[test]
    fn a_file_that_would_be_left_out_silently_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "x.yml", CASE);
        assert!(load(&[folder.path().to_path_buf()]).is_err());
        assert!(load(&[folder.path().join("none")]).is_err());
    }
}
