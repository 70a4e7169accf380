//! Reads strict YAML, the format of every file that people write for allranks.
//!
//! A [`Source`] (a file's text) is decoded into a typed value together with its [`Document`], which keeps the place of each part in
//! the text, or into every problem found, each a [`Diagnostic`] with file, line, column, excerpt and hint. What a file means is
//! checked by the module that owns the type; it reports through [`Document::problem`], so all errors look the same.
//!
//! Strict means: at most [`MAX_BYTES`], UTF-8, one document, no anchors, aliases, merge keys or tags, no key twice,
//! string keys only. Two readers of such a file cannot understand it differently.
//!
//! # Why two parsers
//!
//! Each does what the other cannot, and both read every text:
//!
//! - `yaml_serde` (in the sources `serde_yaml`, whose continuation it is) makes the [`Document`]'s value: it decides what is a
//!   number, a truth value or a text, and serde reads types out of what it gives. It has no places: a value does not know its
//!   line, and only an error of syntax has a location. It also accepts what is refused here: anchors and aliases, which it
//!   resolves without a word, merge keys, and tags. The parser below it, `libyaml-rs`, has events with places, but only through
//!   raw pointers, and no crate of this workspace has unsafe code.
//! - `saphyr-parser` gives the events with their places, from which `parse` builds the tree of places: every line, column and
//!   excerpt is its. It does not say what a scalar is, and has no connection to serde.
//!
//! So neither can go. What they must agree on is the shape of a text, for which `Document::parse` asks both: a text that one of
//! them refuses is refused.

mod decode;
mod diagnostic;
mod document;
mod folder;
mod hint;
mod node;
mod parse;

pub use decode::{decode, load};
pub use diagnostic::Diagnostic;
pub use document::{Document, Focus};
pub use folder::yaml_files;
pub use hint::{did_you_mean, one_of};
pub use node::{Path, Segment};

use std::fs;
use std::io::{self, Read};
use std::path;

/// The longest file accepted, in bytes. People write these files; a longer one is a mistake.
pub const MAX_BYTES: u64 = 256 << 10;

/// A file's text, and its path for diagnostics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Path of the file, as shown in messages.
    pub path: String,
    /// Text of the file.
    pub text: String,
}

impl Source {
    /// Returns a source with this path and text; reads no file.
    #[must_use]
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, is longer than [`MAX_BYTES`], or is not UTF-8.
    pub fn read(path: &path::Path) -> Result<Self, Vec<Diagnostic>> {
        let name = path.display().to_string();
        let refuse = |message: String| Err(vec![Diagnostic::of_file(&name, message)]);
        let bytes = match read_capped(path) {
            Ok(bytes) if bytes.len() as u64 > MAX_BYTES => {
                return refuse(format!("the file is longer than {} KiB", MAX_BYTES >> 10));
            }
            Ok(bytes) => bytes,
            Err(error) => return refuse(format!("the file cannot be read: {error}")),
        };
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self { path: name, text }),
            Err(error) => {
                let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                refuse(format!("the file is not UTF-8 (line {line})"))
            }
        }
    }
}

/// Reads at most one byte more than [`MAX_BYTES`], so that a longer file is noticed.
fn read_capped(path: &path::Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A [`Path`] to a part of a document, from keys and indices: `way!["steps", 2, "numel", 0]`.
#[macro_export]
macro_rules! way {
    ($($segment:expr),* $(,)?) => {
        &[$($crate::Segment::from($segment)),*][..]
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Source, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.yaml");
        fs::write(&file, bytes).unwrap();
        Source::read(&file).map_err(|problems| problems[0].message.clone())
    }

    #[test]
    fn a_file_is_read_up_to_the_cap_and_as_utf_8_only() {
        let cap = MAX_BYTES as usize;
        assert_eq!(read(&vec![b'#'; cap]).unwrap().text.len(), cap);
        assert_eq!(
            read(&vec![b'#'; cap + 1]).unwrap_err(),
            "the file is longer than 256 KiB"
        );
        assert_eq!(
            read(b"a: 1\nb: \xff\n").unwrap_err(),
            "the file is not UTF-8 (line 2)"
        );
        let missing = Source::read(path::Path::new("/no/such/file")).unwrap_err();
        assert!(missing[0].message.starts_with("the file cannot be read: "));
    }
}
