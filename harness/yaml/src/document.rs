//! A parsed text that keeps the place at which each part is written.

use std::ops::Range;

use serde_yaml::Value;

use super::node::{Children, Node, Path, Segment, node_mut};
use super::parse::{self, Builder};
use super::{Diagnostic, Source};

/// Whether a problem is at the key or at the value of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// The problem is at the key.
    Key,
    /// The problem is at the value.
    Value,
}

/// A parsed text: its value, and the place at which each part is written.
#[derive(Clone, Debug)]
pub struct Document {
    source: Source,
    /// The value that serde decodes.
    pub(super) value: Value,
    root: Node,
}

impl Document {
    /// Parses a text under the rules of [`crate`].
    ///
    /// # Errors
    /// Every breach of those rules; nothing after a syntax error is reported.
    pub fn parse(mut source: Source) -> Result<Self, Vec<Diagnostic>> {
        // Some editors put an invisible byte order mark in front.
        if let Some(rest) = source.text.strip_prefix('\u{feff}') {
            source.text = rest.to_owned();
        }
        let tabs = parse::tabs(&source);
        if !tabs.is_empty() {
            return Err(tabs);
        }
        let mut builder = Builder::new(&source);
        let root = builder.document();
        let problems = builder.problems;
        let Some(root) = root.filter(|_| problems.is_empty()) else {
            return Err(problems);
        };
        // The two parsers agree on nearly everything; where this one is stricter, it has the last word.
        let value = serde_yaml::from_str(&source.text).map_err(|error| {
            let at = error.location().map_or(0, |location| location.index());
            let text = error.to_string();
            let reason = text.split(" at line ").next().unwrap_or(&text);
            vec![Diagnostic::at(
                &source.path,
                &source.text,
                at..at + 1,
                reason,
            )]
        })?;
        let document = Self {
            source,
            value,
            root,
        };
        let problems = document.non_string_keys();
        if problems.is_empty() {
            Ok(document)
        } else {
            Err(problems)
        }
    }

    /// Returns the text from which the document was parsed.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the keys of a map, in order; empty if there is no map at `path`.
    #[must_use]
    pub fn keys(&self, path: &Path) -> Vec<&str> {
        let mut node = &self.root;
        for segment in path {
            node = match node.child(segment) {
                Some(next) => next,
                None => return Vec::new(),
            };
        }
        match &node.children {
            Children::Map(entries) => entries.iter().map(|entry| entry.key.as_str()).collect(),
            Children::None | Children::List(_) => Vec::new(),
        }
    }

    /// Returns the line on which a part is written, from 1.
    #[must_use]
    pub fn line(&self, path: &Path) -> usize {
        let at = self.bytes(path, Focus::Key).start;
        self.source.text[..at].matches('\n').count() + 1
    }

    /// Returns a problem at a part. If the path goes further than the document, as with `x` where `[x]` was possible, the problem is at
    /// the last part that exists.
    #[must_use]
    pub fn problem(&self, path: &Path, focus: Focus, message: impl Into<String>) -> Diagnostic {
        let bytes = self.bytes(path, focus);
        Diagnostic::at(&self.source.path, &self.source.text, bytes, message)
    }

    /// Removes a part, so that the rest can be decoded again. A list or map whose only part it is, is removed with it: empty, it would be
    /// the next problem. Returns the path to what was removed, or `None` if that is the whole document.
    pub(super) fn remove(&mut self, path: &Path) -> Option<Vec<Segment>> {
        let mut path = self.existing(path);
        loop {
            let last = path.pop()?;
            let parent = node_mut(&mut self.root, &path);
            let value = value_mut(&mut self.value, &path);
            match (last, &mut parent.children, value) {
                (Segment::Index(index), Children::List(nodes), Value::Sequence(values)) => {
                    if nodes.len() == 1 {
                        continue;
                    }
                    nodes.remove(index);
                    values.remove(index);
                    path.push(Segment::Index(index));
                }
                (Segment::Key(key), Children::Map(entries), Value::Mapping(values)) => {
                    if entries.len() == 1 {
                        continue;
                    }
                    entries.retain(|entry| entry.key != key);
                    values.shift_remove(key.as_str());
                    path.push(Segment::Key(key));
                }
                _ => return None,
            }
            return Some(path);
        }
    }

    /// Returns the longest prefix of the path that exists.
    fn existing(&self, path: &Path) -> Vec<Segment> {
        let mut node = &self.root;
        let mut way = Vec::new();
        for segment in path {
            let Some(next) = node.child(segment) else {
                break;
            };
            way.push(segment.clone());
            node = next;
        }
        way
    }

    /// Returns the bytes to underline for a part: its key, or its value; the key also for a value that is empty or written on lines of
    /// its own.
    fn bytes(&self, path: &Path, focus: Focus) -> Range<usize> {
        let mut node = &self.root;
        let mut key = None;
        for segment in self.existing(path) {
            match (segment, &node.children) {
                (Segment::Index(index), Children::List(nodes)) => {
                    node = &nodes[index];
                    key = None;
                }
                (Segment::Key(name), Children::Map(entries)) => {
                    let entry = entries.iter().find(|entry| entry.key == name);
                    let entry = entry.expect("an existing way");
                    key = Some(entry.key_bytes.clone());
                    node = &entry.value;
                }
                _ => unreachable!("an existing way"),
            }
        }
        match (focus, key) {
            (Focus::Key, Some(key)) => key,
            (Focus::Value, Some(key)) if node.is_block() || node.bytes.is_empty() => key,
            (Focus::Key | Focus::Value, _) => node.first_word(),
        }
    }

    fn non_string_keys(&self) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        let mut rest = vec![(&self.root, &self.value)];
        while let Some((node, value)) = rest.pop() {
            match (&node.children, value) {
                (Children::List(nodes), Value::Sequence(values)) => {
                    rest.extend(nodes.iter().zip(values))
                }
                (Children::Map(entries), Value::Mapping(values)) => {
                    for (entry, (key, value)) in entries.iter().zip(values) {
                        if !key.is_string() {
                            let message = format!("the key `{}` is not a string", entry.key);
                            problems.push(
                                Diagnostic::at(
                                    &self.source.path,
                                    &self.source.text,
                                    entry.key_bytes.clone(),
                                    message,
                                )
                                .hint(format!("quote it: \"{}\"", entry.key)),
                            );
                        }
                        rest.push((&entry.value, value));
                    }
                }
                _ => {}
            }
        }
        problems.sort_by_key(|problem| (problem.line, problem.column));
        problems
    }
}

fn value_mut<'v>(mut value: &'v mut Value, path: &Path) -> &'v mut Value {
    for segment in path {
        value = match segment {
            Segment::Index(index) => &mut value[*index],
            Segment::Key(key) => &mut value[key.as_str()],
        };
    }
    value
}
