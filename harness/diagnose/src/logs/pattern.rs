//! Compiles the patterns that lines of logs are compared with.

use regex::Regex;

/// Compiles a pattern; `None` if it is none, so that a slip costs what the pattern would find and no run.
pub(super) fn pattern(text: &str) -> Option<Regex> {
    Regex::new(text).ok()
}
