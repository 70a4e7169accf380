//! The commands of a page: lines of console blocks that begin with `$`, and `allranks ...` in lines of prose.

use std::sync::LazyLock;

use regex::Regex;

use super::page::{Block, Page};

/// A command line of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    /// Its line, from 1.
    pub line: usize,
    /// Its words, without quotes, comment, and what follows an operator of the shell.
    pub words: Vec<String>,
    /// Whether the shell does more with it: a pipe, a redirection, another command.
    pub has_operator: bool,
    /// The exit code that its comment says: `# exit code 1`; 0 if it says none.
    pub exit: i32,
    /// What the page shows of its output; none for a command in a line of prose.
    pub output: Option<Vec<String>>,
}

static EXIT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r" #.*exit code (\d+)").unwrap());

/// The commands of a page.
pub fn commands(page: &Page) -> Vec<Command> {
    let blocks = page
        .blocks
        .iter()
        .filter(|block| block.language == "console");
    let prose = page
        .code
        .iter()
        .filter(|(_, code)| code.starts_with("allranks "));
    let mut commands: Vec<Command> = blocks.flat_map(of_block).collect();
    commands.extend(prose.map(|(line, code)| Command {
        output: None,
        ..command(*line, code)
    }));
    commands
}

fn of_block(block: &Block) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut lines = block.lines.iter().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(text) = line.trim_start().strip_prefix("$ ") else {
            if let Some(output) = commands.last_mut().and_then(|last| last.output.as_mut()) {
                output.push(line.trim_end().to_owned());
            }
            continue;
        };
        let mut text = text.to_owned();
        while let Some(unfinished) = text.strip_suffix('\\') {
            let (_, more) = lines.next().expect("a line after a backslash");
            text = format!("{unfinished} {}", more.trim_start());
        }
        commands.push(command(block.line + number, &text));
    }
    commands
}

/// Splits a command line as a shell does, up to the first word that is an operator or begins with one.
fn command(line: usize, text: &str) -> Command {
    let words = shlex::split(text).unwrap_or_else(|| panic!("line {line}: a quote is open"));
    let is_operator = |word: &String| word.starts_with(['|', '>', '<', ';', '&']);
    let end = words.iter().position(is_operator);
    Command {
        line,
        has_operator: end.is_some(),
        words: words[..end.unwrap_or(words.len())].to_vec(),
        exit: EXIT
            .captures(text)
            .map_or(0, |found| found[1].parse().unwrap()),
        output: Some(Vec::new()),
    }
}

#[test]
fn commands_are_split_as_a_shell_does() {
    let page = Page::parse(
        "Say `allranks plan --steps`, not `plan`.\n```console\n$ allranks diff OLD 'NEW # one' \\\n    --x \"y z\"  # exit code 3, twice\n\
         out\n\n$ A=b srun allranks doctor --json | jq .\n```\n```text\n$ allranks nothing\n```\n",
    );
    let found = commands(&page);
    let words: Vec<Vec<&str>> = found
        .iter()
        .map(|command| command.words.iter().map(String::as_str).collect())
        .collect();
    assert_eq!(
        words,
        [
            vec!["allranks", "diff", "OLD", "NEW # one", "--x", "y z"],
            vec!["A=b", "srun", "allranks", "doctor", "--json"],
            vec!["allranks", "plan", "--steps"],
        ]
    );
    let lines: Vec<usize> = found.iter().map(|command| command.line).collect();
    assert_eq!(lines, [3, 7, 1]);
    assert_eq!((found[0].exit, found[1].exit), (3, 0));
    assert_eq!(found[0].output, Some(vec!["out".to_owned(), String::new()]));
    assert!(!found[0].has_operator && found[1].has_operator);
    assert_eq!(found[2].output, None);
}
