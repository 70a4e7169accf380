//! The part of a failure that an entry pins: outcome, class, message.

use crate::case::is_name;
use allranks_model::outcome::Outcome;
use allranks_model::record::CheckRecord;

/// Longest text that is pinned, in characters.
const LONGEST: usize = 80;
/// Shortest text that says something.
const SHORTEST: usize = 8;

/// The failures that one entry describes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FailureKind {
    /// What happened.
    pub outcome: Outcome,
    /// The class of a mismatch or an error; `None` if it has none that can be written.
    pub class: Option<String>,
    /// A part of the summary that has no numbers and no paths. `None`: there is none, or the class says enough.
    pub message: Option<String>,
}

impl FailureKind {
    /// Returns the kind of a failure.
    pub(super) fn of(record: &CheckRecord) -> Self {
        let outcome = record.outcome;
        let has_class = matches!(outcome, Outcome::Mismatch | Outcome::Error);
        let class = record
            .class
            .clone()
            .filter(|class| has_class && is_name(class));
        let message = match (outcome, &class) {
            (Outcome::Mismatch, Some(_)) => None,
            _ => message(outcome, happened(record)),
        };
        Self {
            outcome,
            class,
            message,
        }
    }
}

/// Returns the summary without what explains the verdict.
fn happened(record: &CheckRecord) -> &str {
    let summary = record.summary.as_str();
    match &record.remark {
        Some(remark) => summary.strip_suffix(&format!(" ({remark})")).unwrap_or(""),
        None => summary,
    }
}

/// Returns the part of a summary that is the same whenever this happens, as far as a text shows.
fn message(outcome: Outcome, summary: &str) -> Option<String> {
    match outcome {
        Outcome::Crash => {
            let mut words = summary.split(|c: char| !c.is_ascii_alphanumeric());
            let signal = words.find(|word| word.len() > 3 && word.starts_with("SIG"));
            if let Some(signal) = signal {
                return Some(signal.to_owned());
            }
        }
        Outcome::Hang => {
            // The kind of the hang verdict, which begins the summary.
            if let Some((kind, _)) = summary.split_once(": ")
                && kind.contains('-')
                && is_name(kind)
            {
                return Some(format!("{kind}:"));
            }
        }
        _ => {}
    }
    let end = summary.find("; ").unwrap_or(summary.len());
    let raised = ["Error: ", "Exception: "].iter().find_map(|word| {
        let at = summary.find(word)? + word.len();
        let rest = &summary[at..];
        Some(&rest[..rest.find("; ").unwrap_or(rest.len())])
    });
    let parts = [raised.unwrap_or(&summary[..end]), summary];
    parts.into_iter().find_map(longest_plain)
}

/// Returns the longest run of words without digits, paths or brackets.
fn longest_plain(text: &str) -> Option<String> {
    let is_plain = |word: &str| {
        !word.chars().any(|c| {
            c.is_ascii_digit()
                || c.is_control()
                || matches!(
                    c,
                    '/' | '\\' | '[' | ']' | '(' | ')' | '{' | '}' | '<' | '>'
                )
        })
    };
    let mut best = String::new();
    let mut run = String::new();
    // Words are taken with the one space between them only, so that the run stands in the summary as it is.
    for word in text.split(' ') {
        let is_full = run.chars().count() + word.chars().count() >= LONGEST;
        if !is_plain(word) || word.is_empty() || is_full {
            keep_longer(&mut best, &run);
            run.clear();
        }
        if is_plain(word) && !word.is_empty() && word.chars().count() < LONGEST {
            if !run.is_empty() {
                run.push(' ');
            }
            run.push_str(word);
        }
    }
    keep_longer(&mut best, &run);
    let best = best.trim_matches(|c: char| matches!(c, ':' | ';' | ',' | '.' | '\'' | '"' | '`'));
    (best.chars().count() >= SHORTEST).then(|| best.to_owned())
}

fn keep_longer(best: &mut String, run: &str) {
    if run.chars().count() > best.chars().count() {
        run.clone_into(best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_pinned_without_ranks_times_and_paths() {
        for (outcome, summary, text) in [
            (
                Outcome::Error,
                "3 of 3 ranks raised in all_reduce: RuntimeError: [/p/gloo/unbound_buffer.cc:129] Timed out waiting 3000ms for send operation to complete",
                Some("for send operation to complete"),
            ),
            (
                Outcome::Error,
                "refused: RuntimeError: Unconvertible NCCL type Short; afterwards the group is unusable: the call changed nothing",
                Some("Unconvertible NCCL type Short"),
            ),
            (
                Outcome::Crash,
                "rank 0: its process ended: signal 11 (SIGSEGV)",
                Some("SIGSEGV"),
            ),
            (
                Outcome::Hang,
                "collective-skipped: rank 1 leaves out collective number 2 (no rank moved for 5.0 s)",
                Some("collective-skipped:"),
            ),
            (
                Outcome::Hang,
                "no rank moved for 5.0 s",
                Some("no rank moved for"),
            ),
            (Outcome::Error, "1 2 3", None),
        ] {
            let found = message(outcome, summary);
            assert_eq!(found.as_deref(), text, "{summary}");
            assert!(found.is_none_or(|found| summary.contains(&found)));
        }
    }
}
