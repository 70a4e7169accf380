//! Decodes a document into a typed value, and reports all problems rather than the first.
//!
//! serde stops at the first problem. So the part at which it stopped is reported and removed, and the rest is decoded again. A
//! problem that only arises because a part was removed is not reported.

use std::path;

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment as TrackSegment;

use super::{Diagnostic, Document, Focus, Segment, Source, one_of};

/// Most problems that are reported for one text.
const MAX_PROBLEMS: usize = 50;

/// Reads and decodes a file.
///
/// # Errors
/// Every problem found, in the order of the file.
pub fn load<T: DeserializeOwned>(path: &path::Path) -> Result<(T, Document), Vec<Diagnostic>> {
    let source = Source::read(path)?;
    decode(source)
}

/// Decodes a text.
///
/// # Errors
/// Every problem found, in the order of the text.
pub fn decode<T: DeserializeOwned>(source: Source) -> Result<(T, Document), Vec<Diagnostic>> {
    let document = Document::parse(source)?;
    let mut rest = document.clone();
    let mut removed: Vec<Vec<Segment>> = Vec::new();
    let mut problems = Vec::new();
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(&rest.value) {
            Ok(value) if problems.is_empty() => return Ok((value, document)),
            Ok(_) => break,
            Err(error) => error,
        };
        let mut path = segments(error.path());
        let finding = explain(&path, &error.inner().to_string());
        path.extend(finding.below.clone().map(Segment::Key));
        if finding.above {
            path.pop();
        }
        let caused = finding.missing.as_ref().is_some_and(|field| {
            let mut way = path.clone();
            way.push(Segment::Key(field.clone()));
            removed.contains(&way)
        });
        if !caused {
            let problem = rest.problem(&path, finding.focus, finding.message);
            problems.push(match finding.hint {
                Some(hint) => problem.hint(hint),
                None => problem,
            });
        }
        match rest.remove(&path) {
            Some(way) if problems.len() < MAX_PROBLEMS => removed.push(way),
            _ => break,
        }
    }
    problems.sort_by_key(|problem| (problem.line, problem.column));
    Err(problems)
}

fn segments(path: &serde_path_to_error::Path) -> Vec<Segment> {
    path.iter()
        .filter_map(|segment| match segment {
            TrackSegment::Seq { index } => Some(Segment::Index(*index)),
            TrackSegment::Map { key } => Some(Segment::Key(key.clone())),
            TrackSegment::Enum { .. } | TrackSegment::Unknown => None,
        })
        .collect()
}

/// A decoding error of serde's, rewritten for people who edit the file.
struct SchemaProblem {
    message: String,
    hint: Option<String>,
    focus: Focus,
    /// Name of the missing field, if a field is missing.
    missing: Option<String>,
    /// The key of the part at which the problem is; `None`: at the part itself.
    below: Option<String>,
    /// Whether the problem is at the part's parent.
    above: bool,
}

impl SchemaProblem {
    fn new(message: String, hint: Option<String>, focus: Focus) -> Self {
        Self {
            message,
            hint,
            focus,
            missing: None,
            below: None,
            above: false,
        }
    }
}

fn explain(path: &[Segment], text: &str) -> SchemaProblem {
    let key = path.iter().rev().find_map(|segment| match segment {
        Segment::Key(key) => Some(key.as_str()),
        Segment::Index(_) => None,
    });
    let at_value = |message, hint| SchemaProblem::new(message, hint, Focus::Value);
    if let Some(rest) = text.strip_prefix("unknown field ") {
        let (wrong, known) = quoted(rest);
        let hint = Some(one_of(wrong, &known));
        return SchemaProblem {
            below: (key != Some(wrong)).then(|| wrong.to_owned()),
            ..SchemaProblem::new(format!("unknown field `{wrong}`"), hint, Focus::Key)
        };
    }
    if let Some(rest) = text.strip_prefix("unknown variant ") {
        let (wrong, known) = quoted(rest);
        let hint = Some(one_of(wrong, &known));
        // A word that is itself a key: the op of a step, or a map where a word belongs.
        if key != Some(wrong) {
            let message = format!("unknown {} `{wrong}`", noun(key.unwrap_or_default()));
            return at_value(message, hint);
        }
        return match path {
            [.., Segment::Key(parent), _] => SchemaProblem {
                above: true,
                ..at_value(format!("expected a {}, found a map", noun(parent)), None)
            },
            _ => SchemaProblem::new(format!("unknown op `{wrong}`"), hint, Focus::Key),
        };
    }
    if let Some(rest) = text.strip_prefix("missing field ") {
        let (field, _) = quoted(rest);
        return SchemaProblem {
            missing: Some(field.to_owned()),
            ..at_value(format!("`{field}` is missing"), None)
        };
    }
    for prefix in ["invalid type: ", "invalid value: ", "invalid length "] {
        if let Some((found, expected)) = text
            .strip_prefix(prefix)
            .and_then(|rest| rest.split_once(", expected "))
        {
            // `expecting` may say more than what is expected: what is behind the colon says how.
            let (expected, how) = match expected.split_once(": ") {
                Some((expected, how)) => (expected, Some(how.to_owned())),
                None => (expected, None),
            };
            let expected = plain_type(expected);
            let found = plain_type(found);
            let unquoted = expected == "a string" && found.starts_with("the ");
            let hint = how.or_else(|| unquoted.then(|| "put it in quotes".to_owned()));
            return at_value(format!("expected {expected}, found {found}"), hint);
        }
    }
    match text.split_once("; hint: ") {
        Some((message, hint)) => at_value(message.to_owned(), Some(hint.to_owned())),
        None => at_value(text.to_owned(), None),
    }
}

/// Returns the first word in backticks, and the others.
fn quoted(text: &str) -> (&str, Vec<&str>) {
    let mut words = text.split('`').skip(1).step_by(2);
    (words.next().unwrap_or_default(), words.collect())
}

/// Returns what the values of a key are called in messages.
fn noun(key: &str) -> &'static str {
    match key {
        "dtype" | "dtypes" => "dtype",
        "op" | "reduce" => "reduce op",
        "ops" => "op",
        "layout" | "layouts" => "layout",
        "mode" | "modes" => "mode",
        "method" => "init method",
        "outcome" => "outcome",
        "evidence" => "kind of evidence",
        "level" => "level",
        "ranks" => "rule for members",
        "root" => "root",
        "splits" => "kind of splits",
        "sweep" => "kind of sweep",
        "start" => "way to start",
        "pairs" => "kind of pairs",
        "placement" | "placements" => "placement",
        "object" | "objects" => "kind of object",
        _ => "value",
    }
}

/// Replaces serde's names of types by plain ones: `sequence` by `a list`.
fn plain_type(text: &str) -> String {
    match text {
        "unit value" | "Option value" => "nothing".to_owned(),
        "u32" | "u64" | "usize" => "a whole number from 0 on".to_owned(),
        "f64" => "a number".to_owned(),
        "map" => "a map".to_owned(),
        "sequence" => "a list".to_owned(),
        "a sequence" => "a list".to_owned(),
        _ => {
            if text.starts_with("struct ") {
                return "a map".to_owned();
            }
            if text.starts_with("enum ") || text.starts_with("variant ") {
                return "a word".to_owned();
            }
            text.replace("string \"", "the text \"")
                .replace("integer `", "the number `")
                .replace("floating point `", "the number `")
                .replace("boolean `", "the truth value `")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only decoded")]
    struct Thing {
        name: String,
        #[serde(default)]
        sizes: Vec<u32>,
        #[serde(default)]
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only decoded")]
    struct Inner {
        a: u32,
        b: u32,
    }

    fn problems(text: &str) -> Vec<(usize, usize, String)> {
        let problems = decode::<Thing>(Source::new("t", text)).unwrap_err();
        problems
            .into_iter()
            .map(|problem| (problem.line, problem.column, problem.message))
            .collect()
    }

    #[test]
    fn all_problems_are_found_and_none_is_invented() {
        let text = "nam: x\nname: 7\nsizes: [1, x, 2, -1]\ninner: {a: y, c: 1}\n";
        let found = problems(text);
        let lines: Vec<_> = found
            .iter()
            .map(|(line, column, _)| (*line, *column))
            .collect();
        assert_eq!(
            lines,
            [(1, 1), (2, 7), (3, 12), (3, 18), (4, 12), (4, 15)],
            "{found:?}"
        );
    }

    #[test]
    fn a_missing_field_is_reported_at_its_map() {
        assert_eq!(
            problems("name: x\ninner:\n  a: 1\n"),
            [(2, 1, "`b` is missing".to_owned())]
        );
    }

    #[test]
    fn what_is_not_allowed_in_yaml_is_refused_with_its_place() {
        for (text, line, column) in [
            ("name: &x y\n", 1, 7),
            ("name: x\nsizes: *x\n", 2, 8),
            ("name: !t y\n", 1, 7),
            ("name: x\nname: y\n", 2, 1),
            ("name: x\n---\nname: y\n", 2, 1),
            ("name: x\n1: y\n", 2, 1),
            ("name: x\n<<: {a: 1}\n", 2, 1),
            ("name: x\n\tsizes: [1]\n", 2, 1),
            ("name: [x\n", 2, 1),
            ("", 0, 0),
            (&"[".repeat(100), 1, 34),
            ("name: x\r\nsizes: [1,\r\n  y]\r\n", 3, 3),
            ("\u{feff}name: x\nsizes: [é]\n", 2, 9),
        ] {
            let found = problems(text);
            let (l, c, message) = &found[0];
            assert_eq!((*l, *c), (line, column), "{text:?}: {message}");
        }
    }

    #[test]
    fn no_text_is_too_much() {
        for part in [
            "[", "{a: ", "- ", "? ", "\"", "&a ", "*a ", "a: [", "\u{0}", "é\n",
        ] {
            let found = problems(&part.repeat(60_000));
            assert!(!found.is_empty() && found.len() <= 60_000, "{part:?}");
        }
    }
}
