//! The table that traces one check from its YAML line to its JUnit line, held against the sources: each file is there and
//! names its types, each type is defined in the row's crate or below it, and each row takes what an earlier row gives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

/// The header of the table.
const HEADER: &str = "| crate | file | takes | gives |";
/// The row of the Python driver. It names frames and not types, which are those of the protocol.
const DRIVER: (&str, &str, &str) = ("driver", "harness/python/allranks_rank", "protocol");

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// The crate, without the prefix `allranks-`.
    pub name: String,
    /// The path of its source, relative to the repository.
    pub file: String,
    /// The types that it takes.
    pub takes: Vec<String>,
    /// The types that it gives.
    pub gives: Vec<String>,
}

static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`([^`]+)`").unwrap());
static DEFINITION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^\s*pub(?:\(\w+\))? (?:struct|enum|type) (\w+)").unwrap());
static TYPE: LazyLock<Regex> = LazyLock::new(|| Regex::new("^[A-Z][A-Za-z]+$").unwrap());

/// The rows of the table in a page's text; none if it has no such table.
pub fn rows(text: &str) -> Vec<Row> {
    let (_, table) = text.split_once(HEADER).unwrap_or_default();
    let lines = table.lines().skip(2);
    let lines = lines.take_while(|line| line.starts_with('|'));
    lines.map(row).collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [name, file, takes, gives] = *cells else {
        panic!("not four cells: {line}");
    };
    let codes = |cell: &str| -> Vec<String> {
        let codes = CODE.captures_iter(cell);
        codes.map(|found| found[1].to_owned()).collect()
    };
    let types = |cell: &str| -> Vec<String> {
        let codes = codes(cell).into_iter();
        codes.filter(|code| TYPE.is_match(code)).collect()
    };
    Row {
        name: name.to_owned(),
        file: codes(file).concat(),
        takes: types(takes),
        gives: types(gives),
    }
}

/// What is wrong with the rows.
pub fn wrong(root: &Path, rows: &[Row]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut given: BTreeSet<&str> = BTreeSet::new();
    let mut defined: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        let Row { name, file, .. } = row;
        if let Err(problem) = is_there(root, row) {
            problems.push(problem);
        }
        // What comes first is read from a file.
        for taken in row.takes.iter().filter(|_| number > 0) {
            if !given.contains(taken.as_str()) {
                problems.push(format!("{file}: no row before it gives `{taken}`"));
            }
        }
        given.extend(row.gives.iter().map(String::as_str));
        let below = below(root, name);
        for name in &below {
            defined.entry(name.clone()).or_insert_with(|| {
                let mut found = BTreeSet::new();
                add_definitions(&root.join(folder(name)).join("src"), &mut found);
                found
            });
        }
        for named in row.takes.iter().chain(&row.gives) {
            if !below.iter().any(|name| defined[name].contains(named)) {
                problems.push(format!("{file}: `{named}` is defined above {name}"));
            }
        }
    }
    problems
}

/// Returns an error if a row's file is not there, is not of its crate, or does not name the row's types.
fn is_there(root: &Path, row: &Row) -> Result<(), String> {
    let Row { name, file, .. } = row;
    let is_driver = name == DRIVER.0;
    let folder = match is_driver {
        true => DRIVER.1.to_owned(),
        false => format!("{}/src", folder(name)),
    };
    if !file.starts_with(&format!("{folder}/")) {
        return Err(format!("{file} is not in {folder}"));
    }
    let text = fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))?;
    let is_named = |word: &&String| has_word(&text, word);
    let mut types = row.takes.iter().chain(&row.gives);
    match types.find(|word| !is_driver && !is_named(word)) {
        Some(word) => Err(format!("{file} does not name `{word}`")),
        None => Ok(()),
    }
}

/// The folder of a crate, relative to the repository.
fn folder(name: &str) -> String {
    match name {
        "allranks" => "harness".to_owned(),
        _ => format!("harness/{name}"),
    }
}

/// A crate and all that it uses, directly or through others.
fn below(root: &Path, name: &str) -> Vec<String> {
    let first = if name == DRIVER.0 { DRIVER.2 } else { name };
    let mut found = vec![first.to_owned()];
    let mut place = 0;
    while let Some(name) = found.get(place) {
        let manifest = root.join(folder(name)).join("Cargo.toml");
        let manifest = fs::read_to_string(&manifest)
            .unwrap_or_else(|error| panic!("{}: {error}", manifest.display()));
        let (dependencies, _) = manifest
            .split_once("[dev-dependencies]")
            .unwrap_or((&manifest, ""));
        let used = dependencies
            .lines()
            .filter_map(|line| line.strip_prefix("allranks-")?.split(['.', ' ']).next());
        let new: Vec<String> = used
            .filter(|name| !found.iter().any(|known| known == name))
            .map(str::to_owned)
            .collect();
        found.extend(new);
        place += 1;
    }
    found
}

/// Adds the types that the sources below a folder define.
fn add_definitions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            add_definitions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let names = DEFINITION.captures_iter(&text);
            found.extend(names.map(|name| name[1].to_owned()));
        }
    }
}

fn has_word(text: &str, word: &str) -> bool {
    Regex::new(&format!(r"\b{word}\b")).unwrap().is_match(text)
}

#[test]
fn a_table_becomes_rows() {
    let text = format!(
        "# A\n\n{HEADER}\n|---|---|---|---|\n| yaml | `harness/yaml/src/decode.rs` | the text, a `Source` | `Document`, `x.y` |\n\nend\n"
    );
    let types = |name: &str| vec![name.to_owned()];
    assert_eq!(
        rows(&text),
        [Row {
            name: "yaml".to_owned(),
            file: "harness/yaml/src/decode.rs".to_owned(),
            takes: types("Source"),
            gives: types("Document"),
        }]
    );
    assert_eq!(rows("# Without"), []);
}

#[test]
fn a_table_that_is_not_true_is_found() {
    let row = |name: &str, file: &str, takes: &str, gives: &str| Row {
        name: name.to_owned(),
        file: file.to_owned(),
        takes: vec![takes.to_owned()],
        gives: vec![gives.to_owned()],
    };
    let yaml = "harness/yaml/src/decode.rs";
    let case = "harness/suite/src/case/validate.rs";
    let problems = |rows: &[Row]| wrong(&super::root(), rows);
    let good = [
        row("yaml", yaml, "Source", "Document"),
        row("suite", case, "Document", "Case"),
    ];
    assert_eq!(problems(&good), [""; 0]);
    assert_eq!(
        problems(&[row(
            "yaml",
            "harness/yaml/src/gone.rs",
            "Source",
            "Document"
        )]),
        ["harness/yaml/src/gone.rs: No such file or directory (os error 2)"]
    );
    assert_eq!(
        problems(&[row("host", yaml, "TaggedProcess", "TaggedProcess")]),
        [format!("{yaml} is not in harness/host/src")]
    );
    assert_eq!(
        problems(&[row("yaml", yaml, "Source", "Case")]),
        [
            format!("{yaml} does not name `Case`"),
            format!("{yaml}: `Case` is defined above yaml"),
        ]
    );
    assert_eq!(
        problems(&[
            row("yaml", yaml, "Source", "Document"),
            row("suite", case, "CaseFile", "Case")
        ]),
        [format!("{case}: no row before it gives `CaseFile`")]
    );
}
