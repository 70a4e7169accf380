//! The tables of exit codes on their page, and the lists of exit codes in help texts.

use std::sync::LazyLock;

use regex::Regex;

/// A code, and what it means.
type ExitCode = (String, String);

/// The exit codes of a command on the page, in order.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// The first command of the heading: `run`.
    pub command: String,
    codes: Vec<ExitCode>,
}

static HEADING: LazyLock<Regex> = LazyLock::new(|| Regex::new("^## allranks ([a-z]+)").unwrap());
static ROW: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\| ([0-9]+) \| (.+) \|$").unwrap());
static IN_HELP: LazyLock<Regex> = LazyLock::new(|| Regex::new("^  ([0-9]+) +(.+)$").unwrap());

/// The tables of a page.
pub fn tables(page: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut is_command = false;
    for line in page.lines() {
        if line.starts_with('#') {
            let heading = HEADING.captures(line);
            is_command = heading.is_some();
            tables.extend(heading.map(|found| Table {
                command: found[1].to_owned(),
                codes: Vec::new(),
            }));
        }
        if let (true, Some(table), Some(row)) = (is_command, tables.last_mut(), ROW.captures(line))
        {
            table.codes.push((row[1].to_owned(), plain(&row[2])));
        }
    }
    tables
}

/// The exit codes in a help text, in order. A meaning may go on in the next line.
fn in_help(help: &str) -> Vec<ExitCode> {
    let mut codes: Vec<ExitCode> = Vec::new();
    let mut is_list = false;
    for line in help.lines() {
        if line.starts_with("Exit codes") && line.ends_with(':') {
            is_list = true;
        } else if line.is_empty() {
            is_list = false;
        } else if let (true, Some(found)) = (is_list, IN_HELP.captures(line)) {
            codes.push((found[1].to_owned(), plain(&found[2])));
        } else if let (true, Some((_, meaning))) = (is_list, codes.last_mut()) {
            *meaning = format!("{meaning} {}", plain(line));
        }
    }
    codes
}

/// A text without the marks of code.
fn plain(text: &str) -> String {
    text.trim().replace('`', "")
}

/// How the exit codes in the help of a command differ from those on the page; `None` if its help has none.
pub fn differs(command: &str, help: &str, tables: &[Table]) -> Option<String> {
    // The help of its own subcommands follows, and says the same.
    let own = help.split("\n--- ").next().unwrap_or_default();
    let codes = in_help(own);
    if codes.is_empty() {
        return None;
    }
    let Some(table) = tables.iter().find(|table| table.command == command) else {
        return Some(format!("the page has no exit codes of {command}"));
    };
    let differs = |(one, other): &(&ExitCode, &ExitCode)| one != other;
    let first = codes.iter().zip(&table.codes).find(differs);
    match first {
        Some((help, page)) => Some(format!(
            "{command}: {help:?} in its help, {page:?} on the page"
        )),
        None if codes.len() != table.codes.len() => {
            let (help, page) = (codes.len(), table.codes.len());
            Some(format!(
                "{command}: {help} exit codes in its help, {page} on the page"
            ))
        }
        None => None,
    }
}

#[test]
fn other_exit_codes_are_found() {
    let page = "## allranks run, rerun and judge\n\n| code | meaning |\n|---|---|\n| 0 | well |\n| 2 | a bad `file` |\n\n## A driver\n\n| 0 | no |\n";
    let tables = tables(page);
    assert_eq!(tables.len(), 1);
    let problem = |help: &str| differs("run", help, &tables);
    let of = |codes: &str| {
        problem(&format!(
            "Text\n\nExit codes:\n{codes}\nExamples:\n  1 no code\n"
        ))
    };
    assert_eq!(of("  0   well\n  2   a bad\nfile\n"), None);
    assert_eq!(problem("Text\n"), None);
    assert!(of("  0   well\n").unwrap().contains("1 exit codes"));
    assert!(of("  0   well\n  2   another\n").is_some());
    let other = differs("plan", "Exit codes:\n  0   well\n", &tables);
    assert!(other.unwrap().contains("no exit codes of plan"));
}
