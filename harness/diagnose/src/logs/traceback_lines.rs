//! Attributes the lines of a traceback that a logger has written in one piece: only the first has the headers, or the message of an
//! error before it.

use super::line::LogLine;

/// The traceback that the lines are of.
#[derive(Clone, Debug, Default)]
pub(super) struct TracebackLines {
    /// The rank and the process that have written its first line; `None` if the lines are of no such traceback.
    writer: Option<(Option<u32>, Option<String>)>,
    /// Whether the line before was the message of an error: a traceback may follow, and nothing else of the same writer.
    may_begin: bool,
}

/// Returns true if a line is the first of a stack with the outermost frame first, as TensorRT-LLM's detector of hangs writes it.
pub(super) fn begins_stack(text: &str) -> bool {
    let is_thread = || text.starts_with("Thread ") && text.ends_with(" (most recent call last):");
    text.ends_with(" stack trace:") || is_thread()
}

/// What stands in the first line, at its end.
pub(super) const FIRST: &str = "Traceback (most recent call last):";

impl TracebackLines {
    /// Gives a line without headers the writer of the traceback that it is of.
    pub(super) fn attribute(&mut self, line: &mut LogLine<'_>) {
        let has_headers = line.moment.is_some()
            || line.rank.is_some()
            || line.process.is_some()
            || line.local_rank.is_some();
        if has_headers {
            let is_first = line.text.ends_with(FIRST) || begins_stack(&line.text);
            let is_signed = line.rank.is_some() || line.process.is_some();
            let is_announced = line.text.ends_with(':') && announces_error(&line.text);
            self.may_begin = (line.is_error || is_announced) && !is_first;
            self.writer = ((is_first || self.may_begin) && is_signed)
                .then(|| (line.rank, line.process.clone()));
            return;
        }
        if std::mem::take(&mut self.may_begin) && !line.text.starts_with(FIRST) {
            self.writer = None;
        }
        let Some((rank, process)) = &self.writer else {
            return;
        };
        line.rank = *rank;
        line.process.clone_from(process);
        let is_inside = line.text.is_empty() || line.text.starts_with([' ', '\t']);
        let goes_on = line.text.ends_with(FIRST)
            || line.text.ends_with("exception:")
            || line.text.ends_with("occurred:");
        if !is_inside && !goes_on {
            self.writer = None;
        }
    }
}

/// Returns true if a message is about an error, so that its traceback may follow: `Exception during training:`.
fn announces_error(text: &str) -> bool {
    ["xception", "rror", "raceback", "ailed"]
        .iter()
        .any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_without_headers_are_of_the_traceback_before_them() {
        let mut lines = TracebackLines::default();
        let mut rank = |text: &str| {
            let mut line = LogLine::read(text);
            lines.attribute(&mut line);
            line.rank
        };
        assert_eq!(rank("[Rank 1] Exception during training:"), Some(1));
        assert_eq!(rank("Traceback (most recent call last):"), Some(1));
        assert_eq!(rank("  File \"a.py\", line 1, in f"), Some(1));
        assert_eq!(rank("ValueError: x"), Some(1));
        assert_eq!(rank("another line"), None);
        assert_eq!(
            rank("[Rank 2] failed: Traceback (most recent call last):"),
            Some(2)
        );
        assert_eq!(rank("  File \"a.py\", line 1, in f"), Some(2));
        assert_eq!(rank("KeyError: 1"), Some(2));
        assert_eq!(rank("KeyError: 2"), None);
        assert_eq!(rank("[Rank 2] x"), Some(2));
        assert_eq!(rank("  y"), None);
        // What follows the message of an error is of its writer if it is a traceback.
        assert_eq!(
            rank("2026-01-02 10:00:00 | ERROR | Rank 3 | save failed"),
            Some(3)
        );
        assert_eq!(rank("Traceback (most recent call last):"), Some(3));
        assert_eq!(rank("  File \"a.py\", line 7, in save"), Some(3));
        assert_eq!(rank("OSError: full"), Some(3));
        assert_eq!(
            rank("2026-01-02 10:00:00 | ERROR | Rank 3 | save failed"),
            Some(3)
        );
        assert_eq!(rank("saving again"), None);
        assert_eq!(rank("Traceback (most recent call last):"), None);
    }
}
