//! Links between pages, and to files of the repository.

use std::collections::BTreeMap;

use regex::Regex;

use super::page::Page;

/// Files that a page tells its reader to make.
const MADE_BY_THE_READER: [&str; 1] = ["cases/collectives/hundred.yaml"];

/// Links of a page that lead to no file, or to no heading of a page.
pub fn dead(
    path: &str,
    page: &Page,
    pages: &BTreeMap<String, Page>,
    exists: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    for link in &page.links {
        let at = format!("{path}:{}: {}", link.line, link.target);
        let Some((file, anchor)) = parts(path, &link.target) else {
            continue;
        };
        if !exists(&file) {
            problems.push(format!("{at}: there is no {file}"));
        } else if let Some(anchor) = anchor {
            let is_there = pages
                .get(&file)
                .is_some_and(|page| page.anchors.contains(anchor));
            if !is_there {
                problems.push(format!("{at}: {file} has no heading #{anchor}"));
            }
        }
    }
    problems
}

/// Links from a page of the book to something outside the book: they would be dead in the rendered one.
pub fn leaving(book: &str, path: &str, page: &Page) -> Vec<String> {
    if !path.starts_with(book) {
        return Vec::new();
    }
    let inside = format!("{book}/");
    let links = page.links.iter();
    links
        .filter(|link| {
            parts(path, &link.target).is_some_and(|(file, _)| !file.starts_with(&inside))
        })
        .map(|link| format!("{path}:{}: {} leaves the book", link.line, link.target))
        .collect()
}

/// Files and folders of the repository that a page names in code and that are not there. Of a path with a part such as
/// `<name>`, the folder before that part must be there. The change log also names files that are gone.
pub fn missing_files(path: &str, page: &Page, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let named =
        Regex::new(r"^(cases|fixtures|ci|harness)(/[A-Za-z0-9_.-]+)*(/[A-Za-z0-9_.-]*<.*)?/?$")
            .unwrap();
    page.code
        .iter()
        .filter(|(_, code)| named.is_match(code) && code.contains('/'))
        .filter(|(_, code)| !MADE_BY_THE_READER.contains(&code.as_str()))
        .filter(|(_, code)| !(path == "CHANGELOG.md" && code.starts_with("harness/")))
        .filter(|(_, code)| {
            let (fixed, _) = code.split_once('<').unwrap_or((code, ""));
            let folder = match fixed == code {
                true => fixed,
                false => fixed.rsplit_once('/').map_or("", |(folder, _)| folder),
            };
            // A case may be named without its ending, as ids are.
            !exists(folder) && !exists(&format!("{folder}.yaml"))
        })
        .map(|(line, code)| format!("{path}:{line}: there is no {code}"))
        .collect()
}

/// Pages of the book that its summary does not link to exactly once.
pub fn unlisted(book: &str, summary: &str, pages: &BTreeMap<String, Page>) -> Vec<String> {
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for link in &pages[summary].links {
        if let Some((file, _)) = parts(summary, &link.target) {
            *listed.entry(file).or_default() += 1;
        }
    }
    let inside = format!("{book}/");
    pages
        .keys()
        .filter(|path| path.starts_with(&inside) && *path != summary)
        .filter_map(|path| match listed.get(path) {
            Some(1) => None,
            Some(times) => Some(format!("{path} is in the summary {times} times")),
            None => Some(format!("{path} is not in the summary")),
        })
        .collect()
}

/// The file of a link, relative to the repository, and the fragment; none for a link into the web.
fn parts<'a>(path: &str, target: &'a str) -> Option<(String, Option<&'a str>)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    if file.is_empty() {
        return Some((path.to_owned(), anchor));
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some((parts.join("/"), anchor))
}

#[cfg(test)]
fn small_book() -> BTreeMap<String, Page> {
    let pages = [
        (
            "doc/SUMMARY.md",
            "- [a](a.md)\n- [a again](a.md#top)\n- [b](deep/b.md)\n",
        ),
        (
            "doc/a.md",
            "# Top\n[b](deep/b.md) [self](#top) [web](https://example.org/x)\n",
        ),
        (
            "doc/deep/b.md",
            "# B\n[up](../a.md#bottom) [gone](c.md) [out](../../out.md) [nothing](#nothing)\n",
        ),
        (
            "doc/left-out.md",
            "# Left out\n`fixtures/there.yaml` `fixtures/gone.yaml` `ci/test` `ci` `harness/src/<x>.rs` `harness/off/<x>/y.rs`\n",
        ),
    ];
    pages
        .into_iter()
        .map(|(path, text)| (path.to_owned(), Page::parse(text)))
        .collect()
}

#[test]
fn links_to_nothing_are_found() {
    let pages = small_book();
    let exists = |path: &str| pages.contains_key(path) || path == "out.md";
    let of = |path: &str| dead(path, &pages[path], &pages, &exists);
    assert!(of("doc/a.md").is_empty());
    assert_eq!(
        of("doc/deep/b.md"),
        [
            "doc/deep/b.md:2: ../a.md#bottom: doc/a.md has no heading #bottom",
            "doc/deep/b.md:2: c.md: there is no doc/deep/c.md",
            "doc/deep/b.md:2: #nothing: doc/deep/b.md has no heading #nothing",
        ]
    );
    assert_eq!(
        leaving("doc", "doc/deep/b.md", &pages["doc/deep/b.md"]),
        ["doc/deep/b.md:2: ../../out.md leaves the book"]
    );
}

#[test]
fn pages_that_are_listed_twice_or_never_are_found() {
    assert_eq!(
        unlisted("doc", "doc/SUMMARY.md", &small_book()),
        [
            "doc/a.md is in the summary 2 times",
            "doc/left-out.md is not in the summary"
        ]
    );
}

#[test]
fn files_that_are_named_and_not_there_are_found() {
    let pages = small_book();
    let exists = |path: &str| ["fixtures/there.yaml", "harness/src"].contains(&path);
    assert_eq!(
        missing_files("doc/left-out.md", &pages["doc/left-out.md"], &exists),
        [
            "doc/left-out.md:2: there is no fixtures/gone.yaml",
            "doc/left-out.md:2: there is no ci/test",
            "doc/left-out.md:2: there is no harness/off/<x>/y.rs"
        ]
    );
}
