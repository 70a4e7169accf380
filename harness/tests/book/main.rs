//! The README, CONTRIBUTING, the change log and the book in `harness/doc/`, held against the repository and the binary:
//! every page is in the summary, every link leads somewhere, every command exists, and short commands that need no
//! torch run and print what the page shows.
//!
//! Pages of the reference that are generated are compared with what the binary prints; `ALLRANKS_UPDATE=1` writes them.
//!
//! | module | holds |
//! |---|---|
//! | `page` | Markdown: headings, links, code |
//! | `glossary` | the names of the glossary in the sources |
//! | `link` | whether a link leads somewhere |
//! | `shell` | the commands of a console block |
//! | `binary` | what the binary offers and prints |
//! | `command` | whether a command exists, and whether it does what the page says |
//! | `example` | whether a file that a page shows is valid |
//! | `schema` | a JSON schema as a page |
//! | `exit_codes` | the tables of exit codes, and those in help texts |
//! | `names` | the pages of hang kinds and of mismatch classes |
//! | `trace` | the table that traces one check through the crates |

mod binary;
mod command;
mod example;
mod exit_codes;
mod glossary;
mod link;
mod names;
mod page;
mod schema;
mod shell;
mod trace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use binary::Binary;
use page::Page;

/// The book's folder, relative to the repository.
const BOOK: &str = "harness/doc";
/// Pages outside the book.
const FRONT: [&str; 3] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// The repository's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every page, by its path relative to the repository.
fn pages() -> BTreeMap<String, Page> {
    let mut paths: Vec<String> = FRONT.into_iter().map(str::to_owned).collect();
    let mut folders = vec![BOOK.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.ends_with(".md") {
                paths.push(path);
            }
        }
    }
    let read = |path: String| {
        let text = fs::read_to_string(root().join(&path))
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        (path, Page::parse(&text))
    };
    paths.into_iter().map(read).collect()
}

/// Fails with all problems, one on each line.
#[track_caller]
fn none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// Compares a generated page with the one in the repository, or writes it.
fn compare(path: &str, text: &str) {
    let file = root().join(path);
    if env::var_os("ALLRANKS_UPDATE").is_some() {
        fs::write(&file, text).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == text,
        "{path} is not up to date: run the tests with ALLRANKS_UPDATE=1"
    );
}

#[test]
fn every_page_of_the_book_is_in_its_summary_once() {
    let pages = pages();
    let summary = format!("{BOOK}/SUMMARY.md");
    none(&link::unlisted(BOOK, &summary, &pages));
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let exists = |path: &str| root().join(path).exists();
    let mut count = 0;
    let mut problems = Vec::new();
    for (path, page) in &pages {
        count += page.links.len();
        problems.extend(link::dead(path, page, &pages, &exists));
        problems.extend(link::leaving(BOOK, path, page));
        problems.extend(link::missing_files(path, page, &exists));
    }
    none(&problems);
    assert!(count > 100, "only {count} links were found");
}

#[test]
fn one_check_can_be_traced_through_the_crates() {
    let path = format!("{BOOK}/internals/architecture.md");
    let text = fs::read_to_string(root().join(path)).unwrap();
    let rows = trace::rows(&text);
    none(&trace::wrong(&root(), &rows));
    let crates: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert!(crates.starts_with(&["yaml", "suite"]), "{crates:?}");
    let last = crates.rsplit(|name| *name == "allranks").next().unwrap();
    assert!(
        last.len() > 2 && last.iter().all(|name| *name == "report"),
        "{crates:?}"
    );
}

#[test]
fn every_name_of_the_glossary_is_in_the_sources() {
    let path = format!("{BOOK}/reference/glossary.md");
    let names = glossary::names(&fs::read_to_string(root().join(path)).unwrap());
    none(&glossary::unknown(&root(), &names));
    assert!(names.len() > 50, "only {} names were found", names.len());
}

#[test]
fn every_page_of_extend_names_its_files() {
    for (path, page) in &pages() {
        if path.starts_with("harness/doc/extend/") {
            let count = page.tables_of_files;
            assert_eq!(count, 1, "{path}: tables of files");
        }
    }
}

#[test]
fn the_readme_is_short() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let lines = text.lines().count();
    assert!(lines <= 150, "{lines} lines");
}

#[test]
fn every_command_names_a_subcommand_and_options_that_exist() {
    let binary = Binary::ask();
    let mut count = 0;
    let mut problems = Vec::new();
    for (path, page) in &pages() {
        for command in shell::commands(page) {
            count += 1;
            let problem = command::unknown(&command.words, &binary);
            problems.extend(problem.map(|problem| format!("{path}:{}: {problem}", command.line)));
        }
    }
    none(&problems);
    assert!(count > 40, "only {count} commands were found");
}

#[test]
fn commands_that_need_no_torch_do_what_the_page_says() {
    let mut count = 0;
    let mut problems = Vec::new();
    for (path, page) in &pages() {
        for command in shell::commands(page) {
            if let Some(arguments) = command::runnable(&command) {
                count += 1;
                let ran = binary::run(&root(), arguments);
                let problem = command::differs(&command, &ran);
                problems
                    .extend(problem.map(|problem| format!("{path}:{}: {problem}", command.line)));
            }
        }
    }
    none(&problems);
    assert!(count >= 8, "only {count} commands were run");
}

#[test]
fn files_that_pages_show_are_valid() {
    let pages = pages();
    let mut problems = Vec::new();
    for (path, page) in &pages {
        for block in &page.blocks {
            let problem = example::invalid(block);
            problems.extend(problem.map(|problem| format!("{path}:{}: {problem}", block.line)));
        }
    }
    none(&problems);
}

#[test]
fn the_command_line_page_is_what_the_binary_says() {
    compare(
        &format!("{BOOK}/reference/command-line.md"),
        &Binary::ask().page(),
    );
}

#[test]
fn the_pages_of_kinds_and_classes_are_those_of_the_code() {
    let page = |name: &str| format!("{BOOK}/reference/{name}.md");
    compare(&page("hang-kinds"), &names::hang_kinds());
    compare(&page("classes"), &names::classes());
}

#[test]
fn the_page_of_exit_codes_has_those_of_the_help() {
    let path = format!("{BOOK}/reference/exit-codes.md");
    let text = fs::read_to_string(root().join(path)).unwrap();
    let tables = exit_codes::tables(&text);
    let mut problems = Vec::new();
    for one in Binary::ask().subcommands {
        problems.extend(exit_codes::differs(&one.name, &one.help, &tables));
    }
    none(&problems);
}

#[test]
fn the_help_names_every_profile() {
    let binary = Binary::ask();
    let help = &binary.subcommand("run").unwrap().help;
    for entry in fs::read_dir(root().join("cases/profiles")).unwrap() {
        let file = entry.unwrap().file_name();
        let name = Path::new(&file).file_stem().unwrap().to_str().unwrap();
        assert!(help.contains(name), "profile {name}");
    }
}

/// The figures of the proof: every mutant was tried, and what was not killed survived.
#[test]
fn the_figures_of_the_proof_add_up() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let index = read("fixtures/mutants/index.yaml");
    let mutants = index.lines().filter(|line| line.starts_with("- name: "));
    let count = mutants.count();
    let page = read(&format!("{BOOK}/internals/proof.md"));
    let figure = |row: &str| -> usize {
        let line = page.lines().find(|line| line.starts_with(row)).unwrap();
        line.split("**").nth(1).unwrap().parse().unwrap()
    };
    assert_eq!(figure("| mutants tried "), count);
    assert_eq!(figure("| killed ") + figure("| survived "), count);
    let front = format!("**{} of {count}** seeded bugs", figure("| killed "));
    assert!(read("README.md").contains(&front), "{front}");
}

#[test]
fn the_pages_of_files_are_what_the_schemas_say() {
    for (of, title) in [
        ("case", "Case files"),
        ("platform", "Platform files"),
        ("product", "Product files"),
    ] {
        let ran = binary::run(&root(), &["schema", of]);
        assert_eq!(ran.code, Some(0), "{}", ran.output);
        let schema = serde_json::from_str(&ran.output).unwrap();
        let page = schema::page(title, of, &schema);
        compare(&format!("{BOOK}/reference/{of}-files.md"), &page);
    }
}
