//! A parsed text in which every part knows its place.

use std::ops::Range;

use serde_yaml::Value;

use super::parse::{self, Builder};
use super::{Diagnostic, Source};

/// One step on the way to a part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The value of a key.
    Key(String),
    /// An item of a list.
    Index(usize),
}

/// The way to a part of a document, from its root.
pub type Path = [Segment];

impl From<&str> for Segment {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Segment {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// What of an entry a problem is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// Its key.
    Key,
    /// Its value.
    Value,
}

/// A parsed text: its value, and where each part of it is written.
#[derive(Clone, Debug)]
pub struct Document {
    source: Source,
    /// What serde reads.
    pub(super) value: Value,
    root: Node,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Bytes of the text; empty for an empty value.
    pub bytes: Range<usize>,
    pub children: Children,
}

#[derive(Clone, Debug)]
pub(super) enum Children {
    None,
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub key_bytes: Range<usize>,
    pub value: Node,
}

impl Document {
    /// Parses a text under the rules of [`crate`].
    ///
    /// # Errors
    /// Everything that breaks those rules; a syntax error ends the list.
    pub fn parse(mut source: Source) -> Result<Self, Vec<Diagnostic>> {
        // Some editors put a byte order mark in front; nobody sees it.
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

    /// The text it was parsed from.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The keys of a map, in order; none if there is no map.
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

    /// The line on which a part is written, from 1.
    #[must_use]
    pub fn line(&self, path: &Path) -> usize {
        let at = self.bytes(path, Focus::Key).start;
        self.source.text[..at].matches('\n').count() + 1
    }

    /// A problem at a part. The way may go on into a value that is not a list (`x` where `[x]` was possible):
    /// then the value itself is meant.
    #[must_use]
    pub fn problem(&self, path: &Path, focus: Focus, message: impl Into<String>) -> Diagnostic {
        let bytes = self.bytes(path, focus);
        Diagnostic::at(&self.source.path, &self.source.text, bytes, message)
    }

    /// Takes a part out, so that what is left can be looked at again. What is alone in its list or map takes that
    /// with it: an empty one would only be the next problem.
    /// Gives the way to what went, or none if that is the whole document.
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

    /// The longest beginning of the way that exists.
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

    /// What to underline for a part: a key; a value, unless it is empty or spread over lines of its own, for then
    /// its key says more.
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

impl Node {
    fn child(&self, segment: &Segment) -> Option<&Self> {
        match (segment, &self.children) {
            (Segment::Index(index), Children::List(nodes)) => nodes.get(*index),
            (Segment::Key(key), Children::Map(entries)) => {
                let entry = entries.iter().find(|entry| entry.key == *key)?;
                Some(&entry.value)
            }
            _ => None,
        }
    }

    /// Whether it is a list or a map written without brackets.
    fn is_block(&self) -> bool {
        match &self.children {
            Children::None => false,
            // A bracketed one ends behind its last part; the bytes of one without brackets are empty.
            Children::List(_) | Children::Map(_) => self.bytes.is_empty(),
        }
    }

    /// Its own bytes, or for a block those of its first key or item.
    fn first_word(&self) -> Range<usize> {
        match &self.children {
            Children::Map(entries) if self.is_block() && !entries.is_empty() => {
                entries[0].key_bytes.clone()
            }
            Children::List(nodes) if self.is_block() && !nodes.is_empty() => nodes[0].first_word(),
            Children::None | Children::List(_) | Children::Map(_) => self.bytes.clone(),
        }
    }
}

fn node_mut<'n>(mut node: &'n mut Node, path: &Path) -> &'n mut Node {
    for segment in path {
        node = match (segment, &mut node.children) {
            (Segment::Index(index), Children::List(nodes)) => &mut nodes[*index],
            (Segment::Key(key), Children::Map(entries)) => {
                let entry = entries.iter_mut().find(|entry| entry.key == *key);
                &mut entry.expect("an existing way").value
            }
            _ => unreachable!("an existing way"),
        };
    }
    node
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
