//! A Markdown page, as far as the checks need it: headings, links, words in code, and blocks of code.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

/// What a page has.
#[derive(Debug, Default)]
pub struct Page {
    /// The fragments that its headings can be reached by, without `#`.
    pub anchors: BTreeSet<String>,
    /// Its links, in order.
    pub links: Vec<Link>,
    /// Code within lines of prose, in order, each with its line.
    pub code: Vec<(usize, String)>,
    /// Fenced blocks of code, in order.
    pub blocks: Vec<Block>,
    /// How many tables it has whose first column is `file` and whose second is `change` or `what`.
    pub tables_of_files: usize,
}

/// A link.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// Its line, from 1.
    pub line: usize,
    /// Where it leads.
    pub target: String,
}

/// A fenced block of code.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of its first line of code, from 1.
    pub line: usize,
    /// What is written after the fence: `console`.
    pub language: String,
    /// Its lines.
    pub lines: Vec<String>,
}

static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`([^`]+)`").unwrap());
/// A link's target. Its text may begin on an earlier line.
static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\(([^)\s]+)\)").unwrap());
static LINK_TEXT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap());

impl Page {
    /// Reads a page.
    pub fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut open: Option<Block> = None;
        for (number, line) in text.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (Some(_), Some(_)) => page.blocks.extend(open.take()),
                (Some(block), None) => block.lines.push(line.to_owned()),
                (None, Some(language)) => {
                    open = Some(Block {
                        line: number + 2,
                        language: language.trim().to_owned(),
                        lines: Vec::new(),
                    });
                }
                (None, None) => page.prose(number + 1, line),
            }
        }
        assert!(open.is_none(), "a block of code is never closed");
        page
    }

    fn prose(&mut self, number: usize, line: &str) {
        if let Some(heading) = heading(line) {
            let slug = slug(heading);
            let mut anchor = slug.clone();
            let mut again = 0;
            while !self.anchors.insert(anchor.clone()) {
                again += 1;
                anchor = format!("{slug}-{again}");
            }
        }
        let code = CODE
            .captures_iter(line)
            .map(|found| (number, found[1].to_owned()));
        self.code.extend(code);
        if matches!(line, "| file | change |" | "| file | what |") {
            self.tables_of_files += 1;
        }
        let bare = CODE.replace_all(line, "");
        let links = LINK.captures_iter(&bare).map(|found| Link {
            line: number,
            target: found[1].to_owned(),
        });
        self.links.extend(links);
    }
}

/// A heading's text.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    (1..=6).contains(&level).then_some(text)?.strip_prefix(' ')
}

/// The fragment of a heading, as GitHub and mdBook both make it.
fn slug(heading: &str) -> String {
    let text = LINK_TEXT.replace_all(heading.trim(), "$1");
    let kept = text.chars().flat_map(char::to_lowercase);
    kept.filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

#[test]
fn headings_links_and_code_are_found() {
    let page = Page::parse(
        "# A `page`, with [a link](x.md)\n\nSee [here](other.md#part) and\n[there\nand on](#a). `[not](this)`\n\n\
         ## Part\n## Part\n\n```console\n$ allranks list\n# no heading, [no](link)\n```\n",
    );
    assert_eq!(
        page.anchors.iter().map(String::as_str).collect::<Vec<_>>(),
        ["a-page-with-a-link", "part", "part-1"]
    );
    let targets: Vec<_> = page
        .links
        .iter()
        .map(|link| (link.line, link.target.as_str()))
        .collect();
    assert_eq!(targets, [(1, "x.md"), (3, "other.md#part"), (5, "#a")]);
    assert_eq!(
        page.code,
        [(1, "page".to_owned()), (5, "[not](this)".to_owned())]
    );
    assert_eq!(
        page.blocks,
        [Block {
            line: 11,
            language: "console".to_owned(),
            lines: vec![
                "$ allranks list".to_owned(),
                "# no heading, [no](link)".to_owned()
            ],
        }]
    );
}

#[test]
#[should_panic(expected = "never closed")]
fn a_block_without_an_end_is_noticed() {
    Page::parse("```console\n$ allranks list\n");
}
