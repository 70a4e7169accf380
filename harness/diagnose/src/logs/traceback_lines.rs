//! Attributes the lines of a traceback that a logger has written in one piece: only the first has the headers.

use super::line::LogLine;

/// The traceback that the lines are of.
#[derive(Clone, Debug, Default)]
pub(super) struct TracebackLines {
    /// Who has written its first line; `None` if the lines are of no such traceback.
    writer: Option<(Option<u32>, Option<String>)>,
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
            let is_first =
                line.text.ends_with(FIRST) && (line.rank.is_some() || line.process.is_some());
            self.writer = is_first.then(|| (line.rank, line.process.clone()));
            return;
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
        assert_eq!(
            rank("[Rank 2] failed: Traceback (most recent call last):"),
            Some(2)
        );
        assert_eq!(rank("  File \"a.py\", line 1, in f"), Some(2));
        assert_eq!(rank("KeyError: 1"), Some(2));
        assert_eq!(rank("KeyError: 2"), None);
        assert_eq!(rank("[Rank 2] x"), Some(2));
        assert_eq!(rank("  y"), None);
    }
}
