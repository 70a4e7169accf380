//! The tree of places of a text: where each part is written. It holds no values.

use std::ops::Range;

/// One segment of the path to a part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A key of a map.
    Key(String),
    /// An index into a list, from 0.
    Index(usize),
}

/// The path to a part of a document, from its root.
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

/// The place of one part of a text, and of the parts in it.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Range of bytes in the text; empty for an empty value.
    pub bytes: Range<usize>,
    pub children: Children,
}

/// The parts of a list or a map.
#[derive(Clone, Debug)]
pub(super) enum Children {
    None,
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// An entry of a map: its key, and the place of its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub key_bytes: Range<usize>,
    pub value: Node,
}

impl Node {
    /// Returns the part that this segment leads to; `None` if there is none.
    pub fn child(&self, segment: &Segment) -> Option<&Self> {
        match (segment, &self.children) {
            (Segment::Index(index), Children::List(nodes)) => nodes.get(*index),
            (Segment::Key(key), Children::Map(entries)) => {
                let entry = entries.iter().find(|entry| entry.key == *key)?;
                Some(&entry.value)
            }
            _ => None,
        }
    }

    /// Returns true if the node is a list or a map written without brackets.
    pub fn is_block(&self) -> bool {
        match &self.children {
            Children::None => false,
            // A bracketed one ends behind its last part; the bytes of one without brackets are empty.
            Children::List(_) | Children::Map(_) => self.bytes.is_empty(),
        }
    }

    /// Returns the node's bytes, or for a list or map without brackets those of its first key or item.
    pub fn first_word(&self) -> Range<usize> {
        match &self.children {
            Children::Map(entries) if self.is_block() && !entries.is_empty() => {
                entries[0].key_bytes.clone()
            }
            Children::List(nodes) if self.is_block() && !nodes.is_empty() => nodes[0].first_word(),
            Children::None | Children::List(_) | Children::Map(_) => self.bytes.clone(),
        }
    }
}

/// Returns the node at a path.
///
/// # Panics
/// The path leads nowhere.
pub(super) fn node_mut<'n>(mut node: &'n mut Node, path: &Path) -> &'n mut Node {
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
