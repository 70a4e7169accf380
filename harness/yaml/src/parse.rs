//! Builds the tree of places of a text from the parser's events, and reports what strict YAML does not allow.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::node::{Children, Entry, Node};
use super::{Diagnostic, Source};

/// Builds the tree of places of one text.
pub(super) struct Builder<'s> {
    source: &'s Source,
    parser: Parser<'s, saphyr_parser::StrInput<'s>>,
    /// Byte offset of each character; `None` for an ASCII text, where both are equal.
    characters: Option<Vec<usize>>,
    pub problems: Vec<Diagnostic>,
}

/// Deepest nesting of lists and maps that is accepted.
const MAX_DEPTH: usize = 32;

impl<'s> Builder<'s> {
    pub fn new(source: &'s Source) -> Self {
        let text = source.text.as_str();
        Self {
            source,
            parser: Parser::new_from_str(text),
            characters: (!text.is_ascii())
                .then(|| text.char_indices().map(|(byte, _)| byte).collect()),
            problems: Vec::new(),
        }
    }

    fn bytes(&self, span: Span) -> Range<usize> {
        let byte = |index: usize| match &self.characters {
            None => index,
            Some(bytes) => bytes.get(index).copied().unwrap_or(self.source.text.len()),
        };
        byte(span.start.index())..byte(span.end.index())
    }

    fn refuse(&mut self, bytes: Range<usize>, message: &str, hint: &str) {
        let problem = Diagnostic::at(&self.source.path, &self.source.text, bytes, message);
        self.problems.push(problem.hint(hint));
    }

    /// Returns the next event; `None` after a syntax error, which is added to the problems.
    fn next(&mut self) -> Option<(Event<'s>, Range<usize>)> {
        match self.parser.next_event()? {
            Ok((event, span)) => {
                let bytes = self.bytes(span);
                Some((event, bytes))
            }
            Err(error) => {
                let mark = *error.marker();
                let bytes = self.bytes(Span::empty(mark));
                let problem = Diagnostic::at(
                    &self.source.path,
                    &self.source.text,
                    bytes.start..bytes.start + 1,
                    error.info(),
                );
                self.problems.push(match syntax_hint(error.info()) {
                    Some(hint) => problem.hint(hint),
                    None => problem,
                });
                None
            }
        }
    }

    /// Returns the tree of the stream's only document; `None` if there is a problem that ends the parsing.
    pub fn document(&mut self) -> Option<Node> {
        let mut root = None;
        loop {
            let (event, bytes) = self.next()?;
            match event {
                Event::DocumentStart(_) if root.is_some() => {
                    self.refuse(
                        bytes,
                        "a second document starts here",
                        "put it in a file of its own",
                    );
                    return None;
                }
                Event::DocumentStart(_) => {
                    let (event, bytes) = self.next()?;
                    root = Some(self.node(event, bytes, 0)?);
                }
                Event::StreamEnd => break,
                _ => {}
            }
        }
        if root.is_none() {
            self.problems
                .push(Diagnostic::of_file(&self.source.path, "the file is empty"));
        }
        root
    }

    fn node(&mut self, event: Event<'s>, bytes: Range<usize>, depth: usize) -> Option<Node> {
        if depth > MAX_DEPTH {
            self.refuse(bytes, "nested too deep", "nothing here needs this");
            return None;
        }
        match event {
            Event::Scalar(_, style, anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), &bytes);
                let mut bytes = bytes;
                if style == ScalarStyle::Plain {
                    let text = &self.source.text[bytes.clone()];
                    bytes.end = bytes.start + text.trim_end().len();
                }
                Some(Node {
                    bytes,
                    children: Children::None,
                })
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), &bytes);
                let mut items = Vec::new();
                loop {
                    let (event, end) = self.next()?;
                    if event == Event::SequenceEnd {
                        let bytes = self.bracketed(bytes.start, end.end);
                        return Some(Node {
                            bytes,
                            children: Children::List(items),
                        });
                    }
                    items.push(self.node(event, end, depth + 1)?);
                }
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), &bytes);
                let mut entries: Vec<Entry> = Vec::new();
                loop {
                    let (event, end) = self.next()?;
                    if event == Event::MappingEnd {
                        let bytes = self.bracketed(bytes.start, end.end);
                        return Some(Node {
                            bytes,
                            children: Children::Map(entries),
                        });
                    }
                    let entry = self.entry(event, end, depth)?;
                    if let Some(first) = entries.iter().find(|other| other.key == entry.key) {
                        let line = self.source.text[..first.key_bytes.start]
                            .matches('\n')
                            .count()
                            + 1;
                        let message = format!("the key `{}` is given twice", entry.key);
                        let hint = format!("it is also on line {line}; keep one of them");
                        self.refuse(entry.key_bytes.clone(), &message, &hint);
                    }
                    entries.push(entry);
                }
            }
            Event::Alias(_) => {
                self.refuse(
                    bytes.clone(),
                    "aliases are not allowed",
                    "write the value out",
                );
                Some(Node {
                    bytes,
                    children: Children::None,
                })
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => None,
        }
    }

    fn entry(&mut self, event: Event<'s>, bytes: Range<usize>, depth: usize) -> Option<Entry> {
        let key = match &event {
            Event::Scalar(text, ..) => Some(text.to_string()),
            _ => None,
        };
        let node = self.node(event, bytes.clone(), depth + 1)?;
        let key = key.unwrap_or_else(|| {
            self.refuse(
                bytes,
                "a key is a word, not a list or a map",
                "quote it if it is text",
            );
            String::new()
        });
        if key == "<<" {
            self.refuse(
                node.bytes.clone(),
                "merge keys are not allowed",
                "write the entries out",
            );
        }
        let (event, bytes) = self.next()?;
        let value = self.node(event, bytes, depth + 1)?;
        Some(Entry {
            key,
            key_bytes: node.bytes,
            value,
        })
    }

    fn refuse_extras(&mut self, anchor: usize, tag: bool, bytes: &Range<usize>) {
        if anchor != 0 {
            self.refuse(
                bytes.clone(),
                "anchors are not allowed",
                "write the value out where it is used",
            );
        }
        if tag {
            self.refuse(
                bytes.clone(),
                "tags are not allowed",
                "leave the `!tag` out",
            );
        }
    }

    /// Returns the bytes of a list or map: up to its closing bracket, or none if it has no brackets.
    fn bracketed(&self, start: usize, end: usize) -> Range<usize> {
        if self.source.text[start..].starts_with(['[', '{']) && end > start {
            start..end
        } else {
            start..start
        }
    }
}

/// Returns a hint on what usually causes a complaint of the parser.
fn syntax_hint(complaint: &str) -> Option<&'static str> {
    if complaint.contains("mapping values are not allowed") {
        Some("check the indentation, and quote text that holds `: `")
    } else if complaint.contains("expected ','") {
        Some("a comma or a closing bracket is missing")
    } else if complaint.contains("did not find expected '-'")
        || complaint.contains("block collection")
    {
        Some("check the indentation")
    } else {
        None
    }
}

/// Tabs in front of a line's text: they look like indentation and are not.
pub(super) fn tabs(source: &Source) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    let mut start = 0;
    for line in source.text.split_inclusive('\n') {
        let blank = line.len() - line.trim_start().len();
        if let Some(tab) = line[..blank].find('\t') {
            let at = start + tab..start + tab + 1;
            problems.push(
                Diagnostic::at(&source.path, &source.text, at, "a tab in the indentation")
                    .hint("indent with spaces"),
            );
        }
        start += line.len();
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Document;
    use serde_yaml::Value;

    /// Whether `serde_yaml` makes a value of it, and whether it is strict YAML.
    fn accepted(text: &str) -> (bool, bool) {
        let value = serde_yaml::from_str::<Value>(text);
        let document = Document::parse(Source::new("t", text));
        (value.is_ok(), document.is_ok())
    }

    #[test]
    fn the_events_are_needed_for_what_makes_a_value_all_the_same() {
        for text in [
            "a: &x 1\n",
            "a: &x 1\nb: *x\n",
            "a: {b: 1}\n<<: {c: 1}\n",
            "a: !t 1\n",
        ] {
            assert_eq!(accepted(text), (true, false), "{text:?}");
        }
        assert_eq!(accepted("a: [1, x]\n"), (true, true));
    }
}
