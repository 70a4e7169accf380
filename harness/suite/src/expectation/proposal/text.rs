//! Writes new entries as the text of a file of expectations. `reason` and `url` are empty in it: a file that has them so is
//! refused when it is loaded, until both are written.

use std::fmt::{self, Display};

use super::field::FIELDS;
use super::{Examples, NewEntry, Remark};

/// Longest line of a `match:` that stands on one.
const WIDTH: usize = 130;

impl Display for NewEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Examples { count, id, summary } = &self.of;
        let plural = if *count == 1 { "" } else { "s" };
        writeln!(f, "# {count} result{plural}, such as {}", comment(id))?;
        writeln!(f, "#   {}", comment(summary))?;
        let fields: Vec<String> = self
            .matches
            .iter()
            .map(|(name, values)| format!("{name}: {}", listed(values, is_number(name))))
            .collect();
        let line = fields.join(", ");
        if line.len() <= WIDTH {
            writeln!(f, "- match: {{{line}}}")?;
        } else {
            writeln!(f, "- match:")?;
            for field in &fields {
                writeln!(f, "    {field}")?;
            }
        }
        if let Some(torch) = &self.torch {
            writeln!(f, "  when: {{torch: \"={torch}\"}}")?;
        }
        let outcomes: Vec<String> = self.outcomes.iter().map(ToString::to_string).collect();
        writeln!(f, "  outcome: {}", listed(&outcomes, false))?;
        if !self.classes.is_empty() {
            writeln!(f, "  class: {}", listed(&self.classes, false))?;
        }
        if !self.messages.is_empty() {
            writeln!(f, "  message: {}", listed(&self.messages, false))?;
        }
        if self.is_intermittent {
            writeln!(f, "  intermittent: true")?;
        }
        if self.also_passes {
            writeln!(f, "  also_passes: \"\"")?;
        }
        writeln!(f, "  reason: \"\"\n  url: \"\"")
    }
}

impl Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfDate(at) => {
                write!(
                    f,
                    "{at} says that they fail, and they are right: remove it or make it narrower"
                )
            }
            Self::FailsOtherwise(at) => {
                write!(
                    f,
                    "{at} describes another failure: change what it pins or make it narrower"
                )
            }
            Self::Expired(at) => write!(f, "the waiver at {at} has expired"),
            Self::Undeclared => {
                f.write_str("they work, although the platform file does not declare them")
            }
            Self::OfTheWorld => {
                f.write_str("of a world's init or end, which only `init-failed` can be expected of")
            }
            Self::OfTheHarness => {
                f.write_str("the harness or the machine failed, which nothing excuses")
            }
            Self::Unplanned => {
                f.write_str("the suite has no such checks any more; `--cases` names the run's own")
            }
            Self::Inseparable => {
                f.write_str("`match:` cannot tell them from checks that did not fail so")
            }
        }
    }
}

fn is_number(name: &str) -> bool {
    let mut fields = FIELDS.iter();
    fields.any(|field| field.name == name && field.is_number)
}

/// Returns a value, or a list of several.
fn listed(values: &[String], are_numbers: bool) -> String {
    let written: Vec<String> = values.iter().map(|one| scalar(one, are_numbers)).collect();
    match &written[..] {
        [one] => one.clone(),
        _ => format!("[{}]", written.join(", ")),
    }
}

/// Returns a scalar of YAML: plain where that is the same text, else in quotes.
fn scalar(text: &str, is_number: bool) -> String {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_special = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/'));
    match (is_number && is_digits) || (is_word && !is_special) {
        true => text.to_owned(),
        // A string of JSON is one of YAML.
        false => serde_json::Value::from(text).to_string(),
    }
}

/// Returns a text that can stand in a comment.
pub(super) fn comment(text: &str) -> String {
    let is_break = |c: char| c.is_control() || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}');
    text.replace(is_break, " ")
}
