//! Writes the docstring of a reproducer: the requirement that it checks, what was seen, how to run it.

use super::script_program::{can_use_torchrun, has_early_end};
use super::{Notes, Subject};
use allranks_model::capability::Declared;
use allranks_model::op_check::OpCheck;
use allranks_suite::plan::Check;

/// The width of a line, in characters.
const WIDTH: usize = 116;
/// The column after the label of a line.
const INDENT: usize = 10;

/// Returns the docstring.
pub(super) fn header(subject: &Subject<'_>, notes: &Notes) -> String {
    let scenario = subject.scenario;
    let script = subject.check.and_then(|check| check.script());
    let what = match subject.check {
        Some(check) if script.is_some() => {
            format!("{}: {}", scenario.case.title, describe_check(check))
        }
        Some(check) => describe_check(check),
        None => "initialisation, groups and teardown".to_owned(),
    };
    let title = format!(
        "{what}: {} ranks, backend {}.",
        scenario.world_size, scenario.backend
    );
    let expected = match subject.check {
        Some(Check {
            declared: Declared::Unsupported(_),
            ..
        }) => "every rank raises a clear error, and the group works afterwards",
        _ if script.is_some_and(|script| has_early_end(script)) => {
            "every rank that stays says \"as expected\", and the others end as they say"
        }
        _ if script.is_some() => "every rank says \"as expected\"",
        _ => "every rank holds the values below and says \"as expected\"",
    };
    let observed = match (notes.observed.is_empty(), notes.torch.is_empty()) {
        (true, _) => String::new(),
        (false, true) => notes.observed.clone(),
        (false, false) => format!("{} (torch {})", notes.observed, notes.torch),
    };
    let size = scenario.world_size;
    let run = match script {
        Some(script) if !can_use_torchrun(scenario, script) => format!(
            "for r in {}; do RANK=$r LOCAL_RANK=$r WORLD_SIZE={size} MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python THIS_FILE & done; wait     (no torchrun: it ends all ranks when one ends, and keeps its store; exit code 1 of a rank if it fails)",
            size.ranks()
                .map(|rank| rank.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        ),
        _ => format!("torchrun --nproc-per-node {size} THIS_FILE     (exit code 1 if it fails)"),
    };
    let mut text = wrap(&title, 0, 3);
    text.push_str("\n\n");
    let mut paragraph = |word: &str, content: &str| {
        if !content.is_empty() {
            text.push_str(&format!(
                "{word:INDENT$}{}\n",
                wrap(content, INDENT, INDENT)
            ));
        }
    };
    for requirement in &notes.requirements {
        paragraph("promise", requirement);
    }
    paragraph("expected", expected);
    paragraph("observed", &observed);
    paragraph("known as", &notes.url);
    paragraph("reduced", &notes.shrunk);
    paragraph("run", &run);
    paragraph("made by", &notes.command);
    let text = text.replace('\\', "\\\\").replace("\"\"\"", "'''");
    format!("\"\"\"{text}\"\"\"\n")
}

/// Describes a check.
fn describe_check(check: &Check) -> String {
    let name = |op: &OpCheck| op.op.name().to_owned();
    let mut words: Vec<String> = check.op().map(name).into_iter().collect();
    let is_shown = |axis: &str| !matches!(axis, "call" | "method" | "numel");
    for (axis, value) in check.params.iter().filter(|(axis, _)| is_shown(axis)) {
        words.push(match axis.as_str() {
            "dtype" | "op" => value.clone(),
            _ => format!("{axis} {value}"),
        });
    }
    if let Some(op) = check.op().filter(|op| op.op.has_tensors()) {
        words.push(match op.extent {
            allranks_model::axes::Extent::Scalar => "0-dim tensors".to_owned(),
            allranks_model::axes::Extent::Flat(numel) => format!("{numel} elements"),
        });
    }
    words.join(", ")
}

/// Wraps a text into lines. The first line begins at column `from`; the others are indented.
fn wrap(text: &str, indent: usize, from: usize) -> String {
    let mut out = String::new();
    let mut column = from;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !out.is_empty() {
            if column + 1 + length > WIDTH {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                column = indent;
            } else {
                out.push(' ');
                column += 1;
            }
        }
        out.push_str(word);
        column += length;
    }
    out
}
