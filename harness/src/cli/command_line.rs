//! Prepares a command line for the records of runs: removes secrets and paths.

use std::path::Path;

/// Replaces a word that may be secret.
pub const REDACTED: &str = "<redacted>";
/// Replaces such a word in records of earlier versions.
const REDACTED_BEFORE: &str = "(redacted)";

/// Returns true if a recorded word replaces a secret one.
#[must_use]
pub fn is_redacted(word: &str) -> bool {
    [REDACTED, REDACTED_BEFORE].contains(&word)
}

/// Returns a command line without the arguments of a driver's command that are not names of files: they may be secrets.
#[must_use]
pub fn without_secrets(words: Vec<String>) -> Vec<String> {
    let mut is_driver = false;
    let shown = words.into_iter().map(|word| {
        let (option, value) = match word.split_once('=') {
            Some(("--driver", value)) => ("--driver=", value),
            _ if is_driver => ("", word.as_str()),
            _ => (word.as_str(), ""),
        };
        is_driver = word == "--driver";
        let mut parts = value.split_whitespace();
        let program = parts.next().unwrap_or_default();
        let rest = parts.map(|part| match Path::new(part).is_file() {
            true => part,
            false => REDACTED,
        });
        let value: Vec<&str> = std::iter::once(program).chain(rest).collect();
        format!("{option}{}", value.join(" "))
    });
    shown.collect()
}

/// Returns a command line without what is specific to this machine: `--out`, `--python`, and the folders of absolute paths.
#[must_use]
pub fn without_places(words: Vec<String>) -> Vec<String> {
    const PLACES: [&str; 2] = ["--out", "--python"];
    let mut kept = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let option = word.split('=').next().unwrap_or_default();
        if PLACES.contains(&option) {
            if option == word {
                words.next();
            }
            continue;
        }
        let (option, value) = match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (format!("{option}="), value),
            _ => (String::new(), word.as_str()),
        };
        let path = Path::new(value);
        let name = path.file_name().filter(|_| path.is_absolute());
        let shown = name.map(|name| format!("{option}{}", name.to_string_lossy()));
        kept.push(shown.unwrap_or_else(|| word.clone()));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(words: &[&str]) -> Vec<String> {
        without_secrets(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn no_place_of_this_machine_is_kept() {
        let words = [
            "repro",
            "edges/sizes@cpu.gloo.ws2#1",
            "--python",
            "/home/me/venv/bin/python",
            "--out=/tmp/x.py",
            "--cases",
            "/home/me/suite/mine.yaml",
            "--expectations=/home/me/known.yaml",
            "--seed",
            "1",
        ];
        let kept = without_places(words.map(str::to_owned).to_vec());
        let shown = [
            "repro",
            "edges/sizes@cpu.gloo.ws2#1",
            "--cases",
            "mine.yaml",
            "--expectations=known.yaml",
            "--seed",
            "1",
        ];
        assert_eq!(kept, shown);
    }

    #[test]
    fn of_a_driver_the_program_and_its_files_are_recorded() {
        let script = file!().rsplit('/').next().unwrap();
        let script = format!("src/cli/{script}");
        let secret = format!("command:python3 {script} --token hunter2");
        let shown = format!("command:python3 {script} <redacted> <redacted>");
        assert_eq!(
            recorded(&["run", "a.yaml", "--driver", &secret, "--out", "a=b"]),
            ["run", "a.yaml", "--driver", &shown, "--out", "a=b"]
        );
        let (secret, shown) = (format!("--driver={secret}"), format!("--driver={shown}"));
        assert_eq!(recorded(&[&secret]), [shown]);
        let plain = ["--driver", "python", "--driver=libtorch", "--driver"];
        assert_eq!(recorded(&plain), plain);
    }
}
