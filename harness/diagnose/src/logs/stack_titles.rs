//! Reads the titles that people and scripts put before the stack of each rank, `===== rank 3 =====`, `--- rank 0 (pid 7120) ---`,
//! `# RANK=1` and `$ py-spy dump --pid 7120  # rank 0`, and gives the lines of a `faulthandler` dump below one to its rank.

use std::sync::LazyLock;

use regex::Regex;

use super::line::LogLine;
use super::pattern::pattern;

static TITLE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"(?i)^(?:[=*-]{2,}|#+).*?\brank[ :#=]*(\d+)(?:,? \(?pid[ :=]*\d+\)?)?\s*[=#*-]*$")
});

/// The command that prints the stack of a process, and what its comment says of the rank.
static COMMAND: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"(?i)^\S{0,60}[$#>] (?:sudo )?py-spy dump\b[^#]*#.*?\brank[ :#=]*(\d+)\b")
});
/// A comment about the process that the next stack is of.
static COMMENT: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(?i)^#+ (?:[^#]*\W)?(?:process|stack|dump) of rank[ :#=]*(\d+)\b"));

/// Returns the rank of which a command prints the stack, as its comment says; `None` if a line is no such command.
pub(super) fn rank_of_command(text: &str) -> Option<u32> {
    if !text.contains("py-spy dump") {
        return None;
    }
    COMMAND.as_ref()?.captures(text)?[1].parse().ok()
}

/// Returns the rank that a title names; `None` if a line is no such title.
pub(super) fn titled_rank(text: &str) -> Option<u32> {
    if let Some(rank) = rank_of_command(text) {
        return Some(rank);
    }
    if let Some(rank) = text.strip_prefix("RANK=") {
        return rank.parse().ok();
    }
    if !text.starts_with(['=', '#', '*', '-']) {
        return None;
    }
    let found = TITLE.as_ref()?.captures(text);
    let found = found.or_else(|| COMMENT.as_ref()?.captures(text));
    found?[1].parse().ok()
}

/// The title that the lines are below.
#[derive(Clone, Debug, Default)]
pub(super) struct StackTitles {
    /// The rank of the last title; `None` if a line came since that is of no dump.
    rank: Option<u32>,
}

impl StackTitles {
    /// Gives a line without a rank that of the title above the dump that it is of.
    pub(super) fn attribute(&mut self, line: &mut LogLine<'_>) {
        let text = &*line.text;
        if let Some(rank) = titled_rank(text) {
            self.rank = Some(rank);
            return;
        }
        let is_of_dump = text.is_empty()
            || text.ends_with("(most recent call first):")
            || text.trim_start().starts_with("File \"");
        if !is_of_dump {
            self.rank = None;
        } else if line.rank.is_none() && line.process.is_none() {
            line.rank = self.rank;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_name_ranks() {
        for (text, rank) in [
            ("===== rank 3 =====", Some(3)),
            ("=== py-spy dump of rank 3, pid 77 ===", Some(3)),
            ("--- rank 0 (pid 7120) ---", Some(0)),
            ("# RANK=1", Some(1)),
            ("RANK=1", Some(1)),
            ("RANK=1 WORLD_SIZE=4", None),
            ("$ py-spy dump --pid 8811   # rank 1", Some(1)),
            (
                "u@n1:~$ sudo py-spy dump --pid 8811 # rank 2, stuck",
                Some(2),
            ),
            (
                "# node 1, process of rank 11 (LOCAL_RANK=3), 17:05",
                Some(11),
            ),
            ("# rank 3 is late", None),
            ("- rank 3 is late", None),
            ("rank 3", None),
            ("# ranks 3", None),
        ] {
            assert_eq!(titled_rank(text), rank, "{text}");
        }
    }

    #[test]
    fn a_dump_below_a_title_is_of_its_rank() {
        let mut titles = StackTitles::default();
        let mut rank = |text: &str| {
            let mut line = LogLine::read(text);
            titles.attribute(&mut line);
            line.rank
        };
        assert_eq!(rank("--- rank 2 (pid 7) ---"), None);
        assert_eq!(
            rank("Current thread 0x1 (most recent call first):"),
            Some(2)
        );
        assert_eq!(rank("  File \"a.py\", line 7 in f"), Some(2));
        assert_eq!(rank("$ dmesg"), None);
        assert_eq!(rank("  File \"a.py\", line 7 in f"), None);
    }
}
