//! The names of the glossary, held against the sources: a name in code font is a word of a source file, or a file's name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

/// The folders whose sources have the names, relative to the repository.
const SOURCES: [&str; 2] = ["harness", "fixtures/mutants"];

static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`([^`]+)`").unwrap());
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\w+").unwrap());

/// Returns the names in code font in the first column of the glossary's tables, in order.
pub fn names(text: &str) -> Vec<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix('|'));
    let terms = rows.filter_map(|row| row.split('|').next());
    let codes = terms.flat_map(|term| CODE.captures_iter(term));
    codes.map(|code| code[1].to_owned()).collect()
}

/// Returns the names that no source has. Of a path such as `oracle/ops` the last part counts.
pub fn unknown(root: &Path, names: &[String]) -> Vec<String> {
    let mut words = BTreeSet::new();
    for folder in SOURCES {
        add_words(&root.join(folder), &mut words);
    }
    let is_known = |name: &&String| {
        name.rsplit('/')
            .next()
            .is_some_and(|last| words.contains(last))
    };
    let unknown = names.iter().filter(|name| !is_known(name));
    unknown.cloned().collect()
}

/// Adds the words of the Rust and Python files below a folder, and the names of the files.
fn add_words(folder: &Path, words: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            add_words(&path, words);
            continue;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("rs" | "py")) {
            let text = fs::read_to_string(&path).unwrap();
            words.extend(WORD.find_iter(&text).map(|word| word.as_str().to_owned()));
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            words.extend(stem.map(str::to_owned));
        }
    }
}

#[test]
fn names_are_what_the_first_column_has_in_code_font() {
    let text = "`Before`\n\n| term | meaning |\n|---|---|\n| rank | `Rank` |\n| `RankExit`, `oracle/ops` | x |\n";
    assert_eq!(names(text), ["RankExit", "oracle/ops"]);
}

#[test]
fn a_name_that_no_source_has_is_found() {
    let gone = ["Gone", "Anywhere"].concat();
    let names = ["add_words", "book/glossary", &gone].map(str::to_owned);
    assert_eq!(unknown(&super::root(), &names), [gone]);
}
