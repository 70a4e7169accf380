//! Chooses the Python interpreter that runs the ranks.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// An interpreter, and where it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Its path, or `python3`, which is looked up in `PATH`.
    pub path: PathBuf,
    /// Where it was named: `--python`, `ALLRANKS_PYTHON`, `VIRTUAL_ENV`, the path of a `.venv`, or `PATH`.
    pub why: String,
}

/// Returns the interpreter to use: `asked`, else `ALLRANKS_PYTHON`, else that of `VIRTUAL_ENV`, else `.venv/bin/python`
/// of the current folder or of a folder above that holds a `Cargo.toml`, else `python3`.
#[must_use]
pub fn python(asked: Option<&Path>) -> Interpreter {
    let here = env::current_dir().unwrap_or_default();
    find(asked, |name| env::var_os(name), &here)
}

fn find(
    asked: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
    here: &Path,
) -> Interpreter {
    let found = |path: PathBuf, why: &str| Interpreter {
        path,
        why: why.to_owned(),
    };
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = asked {
        return found(path.to_path_buf(), "--python");
    }
    if let Some(path) = set("ALLRANKS_PYTHON") {
        return found(path.into(), "ALLRANKS_PYTHON");
    }
    if let Some(folder) = set("VIRTUAL_ENV") {
        return found(Path::new(&folder).join("bin/python"), "VIRTUAL_ENV");
    }
    for folder in here.ancestors() {
        let python = folder.join(".venv/bin/python");
        if (folder == here || folder.join("Cargo.toml").is_file()) && python.is_file() {
            let why = folder.join(".venv").display().to_string();
            return Interpreter { path: python, why };
        }
    }
    found("python3".into(), "PATH")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::probe::python::*;

    fn none(_: &str) -> Option<OsString> {
        None
    }

    #[test]
    fn the_nearer_wish_wins() {
        let folder = tempfile::tempdir().unwrap();
        let both = |name: &str| match name {
            "ALLRANKS_PYTHON" => Some("/a/python".into()),
            "VIRTUAL_ENV" => Some("/v".into()),
            _ => None,
        };
        let only_venv = |name: &str| both(name).filter(|_| name == "VIRTUAL_ENV");
        let asked = find(Some(Path::new("/x")), both, folder.path());
        assert_eq!(
            (asked.path.as_path(), asked.why.as_str()),
            (Path::new("/x"), "--python")
        );
        assert_eq!(find(None, both, folder.path()).path, Path::new("/a/python"));
        assert_eq!(
            find(None, only_venv, folder.path()).path,
            Path::new("/v/bin/python")
        );
        let unset = |_: &str| Some(OsString::new());
        assert_eq!(
            find(None, unset, folder.path()).why,
            "PATH",
            "an empty variable is unset"
        );
    }

    #[test]
    fn a_venv_is_found_here_and_in_a_folder_with_a_manifest_above() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        let python = folder.path().join(".venv/bin/python");
        fs::create_dir_all(python.parent().unwrap()).unwrap();
        fs::write(&python, "").unwrap();
        assert_eq!(find(None, none, folder.path()).path, python);
        assert_eq!(find(None, none, &below).why, "PATH", "another user's .venv");
        fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        assert_eq!(find(None, none, &below).path, python);
    }
}
