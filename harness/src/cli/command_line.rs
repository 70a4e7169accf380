//! The command line as runs and reports record it.

use std::path::Path;

/// What stands in the place of a word that may be secret.
pub const REDACTED: &str = "<redacted>";
/// What stood there in records of earlier versions.
const REDACTED_BEFORE: &str = "(redacted)";

/// Returns true if a word stands for one that is not recorded.
#[must_use]
pub fn is_redacted(word: &str) -> bool {
    [REDACTED, REDACTED_BEFORE].contains(&word)
}

/// Returns a command line as it is recorded. Arguments of a driver's command that are not names of files are
/// redacted, because they may be secrets.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(words: &[&str]) -> Vec<String> {
        without_secrets(words.iter().map(|word| (*word).to_owned()).collect())
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
