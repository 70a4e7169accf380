//! The pages of the reference that say what the kinds of hangs and the classes of mismatches mean.

use std::fmt::Write;

use allranks_diagnose::{advice, refutation};
use allranks_model::diagnosis::HangKind;
use allranks_oracle::{Class, stack_classes};
use strum::IntoEnumIterator;

const NOTE: &str =
    "<!-- Written by `ALLRANKS_UPDATE=1 cargo test -p allranks --test book`; do not edit. -->";

/// Returns the page of all kinds of hang verdicts.
pub fn hang_kinds() -> String {
    let mut page = format!(
        "# Kinds of hangs\n\n{NOTE}\n\n\
         The first word of a [hang verdict](../guides/watch.md#the-parts-of-a-verdict), and what to do about it. `allranks explain KIND`\n\
         prints one of them. [Hang rules](../internals/hang-rules.md) says how a verdict is found.\n"
    );
    for kind in HangKind::iter() {
        let _ = write!(page, "\n## {kind}\n\n{}\n", kind.meaning());
        let lines = advice(kind);
        if !lines.is_empty() {
            page += "\nWhat to try:\n\n";
        }
        for line in lines {
            let _ = writeln!(page, "- {line}");
        }
        let _ = write!(page, "\nRefuted if {}.\n", refutation(kind));
    }
    page
}

/// Returns the page of all classes of mismatches.
pub fn classes() -> String {
    let mut page = format!(
        "# Classes of mismatches\n\n{NOTE}\n\n\
         `class` of a failed check names what its wrong bytes look like, and so which bug to look for\n\
         ([Read a report](../guides/read-a-report.md#what-a-mismatch-shows)). `allranks explain CLASS` prints one of them. Numbers in the\n\
         sentences are examples.\n\n## Ops of c10d\n\n| class | what the report says |\n|---|---|\n"
    );
    for class in Class::every() {
        let _ = writeln!(page, "| `{}` | {} |", class.name(), class.sentence());
    }
    page += "\n## Layers above c10d\n\n| class | what the report says |\n|---|---|\n";
    for (name, sentence) in stack_classes() {
        let _ = writeln!(page, "| `{name}` | {sentence} |");
    }
    page
}
