//! Reads the process that a line of a communication library begins with.

use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

/// The header of a line of NCCL or RCCL: `n7:4012:4422 [3] NCCL INFO ...`.
static NCCL: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^([A-Za-z][\w.-]*):(\d+):\d+ \[-?\d+\] (?:\S+:\d+ )?NCCL "));
/// The header of a line of CANN: `HCCL(20036,python3):2024-07-03-11:02:10.341.009 [comm.cc:310]...`.
static CANN: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^[A-Z]{2,}\((\d+),[^)]*\):\d{4}-\d\d-\d\d-"));

/// Returns the process, `4012@n7` or `20036`; `None` if the line begins with none.
pub(super) fn process(text: &str) -> Option<String> {
    // Most lines begin with none, and a look is cheaper than the pattern.
    if text.contains("] ") && text.contains("NCCL ") {
        let found = NCCL.as_ref()?.captures(text)?;
        return Some(format!("{}@{}", &found[2], &found[1]));
    }
    if !text.contains("):2") {
        return None;
    }
    Some(CANN.as_ref()?.captures(text)?[1].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_libraries_are_read() {
        for (text, expected) in [
            (
                "n-7.x:12:14 [3] NCCL INFO comm 0x1 rank 3",
                Some("12@n-7.x"),
            ),
            (
                "n7:12:14 [0] ib_plugin.c:16 NCCL WARN NET/IB",
                Some("12@n7"),
            ),
            (
                "RUNTIME(20036,python3):2024-07-03-11:23:55.204 [a.cc:1]x",
                Some("20036"),
            ),
            ("[Rank 1] NCCL version 2", None),
            ("f(1,2):2", None),
        ] {
            assert_eq!(process(text).as_deref(), expected, "{text}");
        }
    }
}
