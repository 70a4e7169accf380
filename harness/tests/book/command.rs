//! Whether a command of a page exists, and whether it does what the page says.

use super::binary::{Binary, Ran};
use super::shell::Command;

/// Scripts of the repository that hand their arguments to a subcommand.
const SCRIPTS: [(&str, &str); 2] = [("ci/matrix", "run"), ("ci/prove", "prove")];

/// Subcommands that answer at once, without torch, and write nothing. `plan`, `run` and `doctor` depend on the machine.
const QUICK: [&str; 7] = [
    "list",
    "explain",
    "repro",
    "diagnose",
    "schema",
    "help",
    "--version",
];
/// Options with which they do not.
const NOT_QUICK: [&str; 5] = [
    "--requirements",
    "--out",
    "--shrink",
    "--run",
    "--known-failures",
];

/// What is wrong with a command: no such subcommand or option. None for commands that are not `allranks`.
pub fn unknown(words: &[String], binary: &Binary) -> Option<String> {
    let (name, arguments) = split(words)?;
    if matches!(name, "--help" | "--version" | "-h" | "-V") {
        return None;
    }
    let Some(subcommand) = binary.subcommand(name) else {
        return Some(format!("there is no subcommand {name}"));
    };
    arguments
        .iter()
        .take_while(|word| *word != "--")
        .filter(|word| word.starts_with("--"))
        .map(|word| word.split('=').next().unwrap_or(word))
        .find(|option| !subcommand.options.contains_key(*option) && *option != "--help")
        .map(|option| format!("allranks {name} has no option {option}"))
}

/// The arguments of a command to run: one of the quick subcommands, in a console block, with nothing left for
/// the reader to fill in.
pub fn runnable(command: &Command) -> Option<&[String]> {
    command.output.as_ref()?;
    let arguments = command.words.strip_prefix(&["allranks".to_owned()])?;
    let name = arguments.first()?;
    let is_quick = QUICK.contains(&name.as_str()) || arguments.iter().any(|word| word == "--help");
    let is_slow = arguments
        .iter()
        .any(|word| NOT_QUICK.contains(&word.as_str()));
    let is_whole = !arguments.iter().any(|word| is_placeholder(word)) && !command.has_operator;
    (is_quick && !is_slow && is_whole).then_some(arguments)
}

/// How the result of a command differs from what the page says: another exit code, or a line that is not in the output
/// after the line before it. A line `...` stands for any lines.
pub fn differs(command: &Command, ran: &Ran) -> Option<String> {
    if ran.code != Some(command.exit) {
        let code = ran
            .code
            .map_or("a signal".to_owned(), |code| format!("exit code {code}"));
        return Some(format!(
            "ended with {code}, not {}:\n{}",
            command.exit, ran.output
        ));
    }
    let mut printed = ran.output.lines();
    let shown = command.output.iter().flatten();
    let mut shown = shown.filter(|line| !line.is_empty() && line.trim() != "...");
    shown
        .find(|line| !printed.any(|one| one.trim_end() == line.as_str()))
        .map(|line| format!("does not print, where the page shows it:\n{line}"))
}

/// The subcommand, or what stands in its place, and what follows it.
fn split(words: &[String]) -> Option<(&str, &[String])> {
    if let Some(at) = words.iter().position(|word| word == "allranks") {
        let (name, arguments) = words[at + 1..].split_first()?;
        return Some((name, arguments));
    }
    let (program, arguments) = words.split_first()?;
    let (_, name) = SCRIPTS.iter().find(|(script, _)| script == program)?;
    Some((name, arguments))
}

/// `RUN`, `OLD`, `ID`: for the reader to fill in.
fn is_placeholder(word: &str) -> bool {
    word.len() > 1
        && word
            .chars()
            .all(|letter| letter.is_ascii_uppercase() || letter == '_')
}

#[cfg(test)]
fn of(text: &str) -> Command {
    let page = super::page::Page::parse(&format!("```console\n$ {text}\n```\n"));
    super::shell::commands(&page).remove(0)
}

#[test]
fn commands_that_do_not_exist_are_found() {
    let binary = Binary::ask();
    let problem = |text: &str| unknown(&of(text).words, &binary);
    for right in [
        "allranks --version",
        "allranks run --filter 'dtype=int8' --world-size=2",
        "allranks watch --stacks off -- torchrun --nproc-per-node 4 train.py",
        "srun -N2 allranks doctor --json | jq .",
        "ci/matrix --profile smoke",
        "ci/test --test conformance",
        "torchrun --whatever",
    ] {
        assert_eq!(problem(right), None, "{right}");
    }
    for (wrong, said) in [
        ("allranks rum", "there is no subcommand rum"),
        (
            "allranks diagnose --steps x",
            "allranks diagnose has no option --steps",
        ),
        (
            "allranks run --worldsize=2",
            "allranks run has no option --worldsize",
        ),
        (
            "A=b srun allranks plan --out x",
            "allranks plan has no option --out",
        ),
        (
            "ci/matrix --requirements",
            "allranks run has no option --requirements",
        ),
    ] {
        assert_eq!(problem(wrong).as_deref(), Some(said));
    }
}

#[test]
fn only_quick_and_whole_commands_are_run() {
    for text in [
        "allranks list cases/work",
        "allranks run --help",
        "allranks --version",
        "allranks diagnose fixtures/logs/timeout # exit code 1",
    ] {
        assert!(runnable(&of(text)).is_some(), "{text}");
    }
    for text in [
        "allranks run",
        "allranks explain ID",
        "allranks list | head",
        "allranks list --requirements",
        "allranks repro ID --out x.py",
        "ci/matrix --help",
    ] {
        assert!(runnable(&of(text)).is_none(), "{text}");
    }
}

#[test]
fn another_exit_code_or_output_is_found() {
    let ran = |code, output: &str| Ran {
        code,
        output: output.to_owned(),
    };
    let mut command = of("allranks list # exit code 1");
    command.output = Some(vec!["one".to_owned(), "...".to_owned(), "three".to_owned()]);
    assert_eq!(differs(&command, &ran(Some(1), "one\ntwo\nthree\n")), None);
    let differs = |code, output: &str| differs(&command, &ran(code, output)).unwrap();
    assert!(differs(Some(0), "one\nthree\n").starts_with("ended with exit code 0, not 1"));
    assert!(differs(None, "one\nthree\n").starts_with("ended with a signal, not 1"));
    assert!(differs(Some(1), "one\ntwo\n").ends_with("\nthree"));
    assert!(differs(Some(1), "three\none\n").ends_with("\nthree"));
}
