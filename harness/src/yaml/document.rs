//! A parsed text in which every part knows its place.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_yaml::Value;

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
struct Node {
    /// Bytes of the text; empty for an empty value.
    bytes: Range<usize>,
    children: Children,
}

#[derive(Clone, Debug)]
enum Children {
    None,
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
struct Entry {
    key: String,
    key_bytes: Range<usize>,
    value: Node,
}

impl Document {
    /// Parses a text under the rules of [`crate::yaml`].
    ///
    /// # Errors
    /// Everything that breaks those rules; a syntax error ends the list.
    pub fn parse(source: Source) -> Result<Self, Vec<Diagnostic>> {
        let tabs = tabs(&source);
        if !tabs.is_empty() {
            return Err(tabs);
        }
        let mut builder = Builder::new(&source);
        let root = builder.document();
        let mut problems = builder.problems;
        let value = match serde_yaml::from_str::<Value>(&source.text) {
            Ok(value) => value,
            // The two parsers agree on nearly everything; where the second is stricter, it has the last word.
            Err(error) => {
                if problems.is_empty() {
                    let at = error.location().map_or(0, |location| location.index());
                    let text = error.to_string();
                    let reason = text.split(" at line ").next().unwrap_or(&text);
                    problems.push(Diagnostic::at(
                        &source.path,
                        &source.text,
                        at..at + 1,
                        reason,
                    ));
                }
                Value::Null
            }
        };
        match root {
            Some(root) if problems.is_empty() => {
                let document = Self {
                    source,
                    value,
                    root,
                };
                let keys = document.non_string_keys();
                if keys.is_empty() {
                    Ok(document)
                } else {
                    Err(keys)
                }
            }
            _ => Err(problems),
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

    /// Takes a part out, so that what is left can be looked at again. A list's only item goes with its list.
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

/// Tabs in front of a line's text: they look like indentation and are not.
fn tabs(source: &Source) -> Vec<Diagnostic> {
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

/// Builds the tree of places from the parser's events, and refuses what is not allowed on the way.
struct Builder<'s> {
    source: &'s Source,
    parser: Parser<'s, saphyr_parser::StrInput<'s>>,
    /// Byte of each character, for texts that are not ASCII.
    characters: Option<Vec<usize>>,
    problems: Vec<Diagnostic>,
}

/// How deep lists and maps may lie in each other: more than any file of ours needs, less than any stack holds.
const MAX_DEPTH: usize = 32;

impl<'s> Builder<'s> {
    fn new(source: &'s Source) -> Self {
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

    /// The next event; none after a syntax error, which is noted.
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
                self.problems.push(problem);
                None
            }
        }
    }

    /// The only document of the stream.
    fn document(&mut self) -> Option<Node> {
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

    /// The bytes of a list or map: up to its closing bracket, or none if it has no brackets.
    fn bracketed(&self, start: usize, end: usize) -> Range<usize> {
        if self.source.text[start..].starts_with(['[', '{']) && end > start {
            start..end
        } else {
            start..start
        }
    }
}
