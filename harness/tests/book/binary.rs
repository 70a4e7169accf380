//! The binary: what it offers, as its own help says, and what it prints.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use regex::Regex;

/// What the help of a binary says.
pub struct Binary {
    /// The help of the binary itself.
    help: String,
    /// The subcommands, in the order of the help.
    pub subcommands: Vec<Subcommand>,
}

/// One subcommand.
pub struct Subcommand {
    /// Its name.
    pub name: String,
    /// Its help.
    pub help: String,
    /// Its long options, `--json`, and whether each takes a value.
    pub options: BTreeMap<String, bool>,
}

/// The result of a command.
pub struct Ran {
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// What it printed to standard output, then to standard error.
    pub output: String,
}

/// Runs the binary in a folder, without a terminal and as wide as the pages.
pub fn run<Word: AsRef<OsStr>>(folder: &Path, arguments: &[Word]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_allranks"))
        .args(arguments)
        .current_dir(folder)
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    Ran {
        code: output.status.code(),
        output: String::from_utf8(text).unwrap(),
    }
}

impl Binary {
    /// Asks the binary for all its help.
    pub fn ask() -> Self {
        let here = Path::new(".");
        let help = run(here, &["--help"]).output;
        let of = |name: String| {
            let mut help = run(here, &["help", &name]).output;
            // Its own subcommands belong to it.
            for inner in names(&help).iter().filter(|inner| *inner != "help") {
                let of_inner = run(here, &["help", &name, inner]).output;
                help += &format!("\n--- allranks {name} {inner} ---\n\n{of_inner}");
            }
            let options = options(&help);
            Subcommand {
                name,
                help,
                options,
            }
        };
        let subcommands = names(&help).into_iter().map(of).collect();
        Self { help, subcommands }
    }

    /// A subcommand.
    pub fn subcommand(&self, name: &str) -> Option<&Subcommand> {
        self.subcommands.iter().find(|one| one.name == name)
    }

    /// The page of the command line.
    pub fn page(&self) -> String {
        let mut page = String::from(
            "# Command line\n\n<!-- Written by `ALLRANKS_UPDATE=1 cargo test -p allranks --test book`; do not edit. -->\n\n\
             This is what `allranks --help` and `allranks help SUBCOMMAND` print. [Exit codes](exit-codes.md) has all codes\n\
             in one table.\n",
        );
        page += &format!("\n```text\n{}\n```\n", self.help.trim_end());
        for one in self.subcommands.iter().filter(|one| one.name != "help") {
            page += &format!(
                "\n## allranks {}\n\n```text\n{}\n```\n",
                one.name,
                one.help.trim_end()
            );
        }
        page
    }
}

/// The subcommands that a help text lists.
fn names(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let name = Regex::new("^  ([a-z][a-z-]*)").unwrap();
    listed
        .filter_map(|line| Some(name.captures(line)?[1].to_owned()))
        .collect()
}

/// The long options that a help text lists, and whether each takes a value.
fn options(help: &str) -> BTreeMap<String, bool> {
    let option = Regex::new(r"(?m)^ +(?:-\w, )?(--[a-z][a-z-]*)( <)?").unwrap();
    option
        .captures_iter(help)
        .map(|found| (found[1].to_owned(), found.get(2).is_some()))
        .collect()
}

#[test]
fn subcommands_and_options_are_read_from_help() {
    let help = "Usage: x\n\nCommands:\n  run     Run it and\n          more\n  dry-run  Say --what\n\nOptions:\n  -h, --help  Help\n";
    assert_eq!(names(help), ["run", "dry-run"]);
    let help = "Options:\n      --json\n          Not --this\n  -o, --out <FILE>  A file\n";
    let expected = [("--json".to_owned(), false), ("--out".to_owned(), true)];
    assert_eq!(options(help), BTreeMap::from(expected));
}

#[test]
fn the_binary_offers_what_it_must() {
    let binary = Binary::ask();
    let names: BTreeSet<&str> = binary
        .subcommands
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    for name in [
        "run", "plan", "watch", "diagnose", "doctor", "repro", "schema",
    ] {
        assert!(names.contains(name), "{names:?}");
    }
    assert_eq!(
        binary.subcommand("run").unwrap().options.get("--filter"),
        Some(&true)
    );
    assert_eq!(
        binary
            .subcommand("run")
            .unwrap()
            .options
            .get("--requirements"),
        None
    );
}
