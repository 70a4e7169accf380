//! A problem in a file, with what is needed to show it: place, message, hint and excerpt.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};

/// Most bytes that are underlined: the start of a long value is enough to find it.
const MAX_MARKED: usize = 60;

/// One problem in a file.
///
/// `Display` draws it plainly, over several lines, without a final newline; [`Diagnostic::render`] can colour it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Path of the file, as shown in messages.
    pub path: String,
    /// Line, from 1; 0 if the problem concerns the whole file.
    pub line: usize,
    /// Column in characters, from 1; 0 if the problem concerns the whole file.
    pub column: usize,
    /// What is wrong, a lower-case fragment.
    pub message: String,
    /// How to correct it; `None` if that is not known.
    pub hint: Option<String>,
    /// The line of the file, without its line ending; empty if the problem concerns the whole file.
    pub excerpt: String,
    /// The part of the excerpt to underline, as a range of bytes.
    pub marked: Range<usize>,
}

impl Diagnostic {
    /// Returns a problem that concerns a whole file, without a line to show.
    #[must_use]
    pub fn of_file(path: &str, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line: 0,
            column: 0,
            message: message.into(),
            hint: None,
            excerpt: String::new(),
            marked: 0..0,
        }
    }

    /// Returns a problem at a range of bytes of a text; only the first line of the range is shown.
    #[must_use]
    pub fn at(path: &str, text: &str, bytes: Range<usize>, message: impl Into<String>) -> Self {
        let start = floor_boundary(text, bytes.start.min(text.len()));
        let end = floor_boundary(text, bytes.end.clamp(start, text.len()));
        let from = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let rest = &text[from..];
        let excerpt = rest[..rest.find('\n').unwrap_or(rest.len())].trim_end_matches('\r');
        let marked = (start - from).min(excerpt.len())..(end - from).min(excerpt.len());
        let marked =
            marked.start..floor_boundary(excerpt, marked.end.min(marked.start + MAX_MARKED));
        Self {
            path: path.to_owned(),
            line: text[..from].matches('\n').count() + 1,
            column: excerpt[..marked.start].chars().count() + 1,
            message: message.into(),
            hint: None,
            excerpt: excerpt.to_owned(),
            marked,
        }
    }

    /// Returns the problem with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Renders the problem with its excerpt, over several lines; with ANSI colours if `coloured`.
    #[must_use]
    pub fn render(&self, coloured: bool) -> String {
        let mut group = Level::ERROR
            .primary_title(self.message.as_str())
            .elements(Vec::<Snippet<'_, annotate_snippets::Annotation<'_>>>::new());
        if self.line == 0 {
            group = group.element(Origin::path(self.path.as_str()));
        } else {
            group = group.element(
                Snippet::source(self.excerpt.as_str())
                    .line_start(self.line)
                    .path(self.path.as_str())
                    .annotation(AnnotationKind::Primary.span(self.marked.clone())),
            );
        }
        if let Some(hint) = &self.hint {
            let hint = annotate_snippets::normalize_untrusted_str(hint);
            group = group.element(Level::HELP.with_name("hint").message(hint));
        }
        let renderer = if coloured {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        renderer.render(&[group])
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostic {}

/// Returns the index of the first byte of the character that contains `byte`.
fn floor_boundary(text: &str, mut byte: usize) -> usize {
    while !text.is_char_boundary(byte) {
        byte -= 1;
    }
    byte
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_line_and_column_in_characters_and_only_its_first_line_is_marked() {
        let text = "a: 1\nü: [x,\n  y]\n";
        let at = text.find('[').unwrap();
        let problem = Diagnostic::at("f.yaml", text, at..text.len(), "bad list").hint("none");
        assert_eq!((problem.line, problem.column), (2, 4));
        assert_eq!(problem.excerpt, "ü: [x,");
        assert_eq!(
            problem.to_string(),
            "error: bad list\n \
             --> f.yaml:2:4\n  \
              |\n\
             2 | ü: [x,\n  \
              |    ^^^\n  \
              |\n  \
              = hint: none"
        );
    }

    #[test]
    fn a_problem_of_the_whole_file_names_it() {
        let problem = Diagnostic::of_file("f.yaml", "the file is too long");
        assert_eq!(
            problem.to_string(),
            "error: the file is too long\n--> f.yaml"
        );
    }
}
