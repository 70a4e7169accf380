//! Every file in `fixtures/bad/` is wrong in some way, and what allranks says of it is written beside it: `NAME.txt` for
//! `NAME.yaml`. The whole text is compared. `ALLRANKS_UPDATE=1` writes it anew; read the difference before committing it.
//!
//! A bad file that loads, and a text without its file, fail too.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use allranks_suite::case;
use allranks_suite::case::Requirements;
use allranks_suite::expectation::Expectations;
use allranks_suite::platform;
use allranks_yaml::Diagnostic;

/// Relative to the package, where cargo runs tests; cut off what is shown.
const FOLDER: &str = "../fixtures/bad/";

fn check(kind: &str, load: fn(&Path) -> Result<(), Vec<Diagnostic>>) {
    let folder = Path::new(FOLDER).join(kind);
    let update = env::var_os("ALLRANKS_UPDATE").is_some();
    let mut wrong = Vec::new();
    let files = files(&folder, "yaml");
    assert!(!files.is_empty(), "no files in {}", folder.display());
    for file in &files {
        let said = match load(file) {
            Ok(()) => {
                wrong.push(format!("{} loads without a complaint", file.display()));
                continue;
            }
            Err(problems) => text(&problems),
        };
        let expected = file.with_extension("txt");
        if update {
            fs::write(&expected, &said).unwrap();
        }
        let written = fs::read_to_string(&expected).unwrap_or_default();
        if written != said {
            wrong.push(format!(
                "{}: expected\n{written}\nand it says\n{said}",
                file.display()
            ));
        }
    }
    for text in self::files(&folder, "txt") {
        if !text.with_extension("yaml").is_file() {
            wrong.push(format!("{} has no file", text.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn text(problems: &[Diagnostic]) -> String {
    let drawn: Vec<_> = problems.iter().map(Diagnostic::to_string).collect();
    format!("{}\n", drawn.join("\n\n").replace(FOLDER, ""))
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

#[test]
fn cases() {
    check("case", |file| case::load(&[file.to_path_buf()]).map(drop));
}

#[test]
fn platforms() {
    check("platform", |file| {
        platform::load(&[file.to_path_buf()]).map(drop)
    });
}

#[test]
fn requirements() {
    check("requirements", |file| Requirements::load(file).map(drop));
}

#[test]
fn expectations() {
    check("expectations", |file| {
        Expectations::load(&[file.to_path_buf()]).map(drop)
    });
}

/// As of a day on which none of them has expired.
#[test]
fn waivers() {
    check("waivers", |file| {
        let now = SystemTime::UNIX_EPOCH;
        Expectations::default().load_waivers(&[file.to_path_buf()], now)
    });
}
