//! Finds the rank that a log belongs to by its name: `rank0.log`, `rank_3.txt`, `12/stdout.log`, `job.0003.log`,
//! `3.out`.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

/// Ranks are below this; larger numbers are ids of jobs and processes.
const RANKS: u32 = 100_000;

static RANK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)(?:^|[^a-z])(?:rank|worker|trainer)[-_. ]?(\d+)(?:\D|$)").ok()
});
static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)(?:^|[-_.])(\d+)(?:\.(?:log|txt|out|err|stdout|stderr))*$").ok()
});

/// Returns the rank in the name of a file or its folder; `None` if there is none.
pub(super) fn by_name(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let rank = |pattern: &LazyLock<Option<Regex>>, text: &str| -> Option<u32> {
        let found = pattern.as_ref()?.captures(text)?;
        let number = found.get(1)?.as_str().parse().ok()?;
        (number < RANKS).then_some(number)
    };
    if let Some(number) = rank(&RANK, name) {
        return Some(number);
    }
    let folder = path
        .parent()
        .and_then(Path::file_name)
        .and_then(|name| name.to_str());
    if let Some(folder) = folder {
        let number = folder.parse().ok().or_else(|| rank(&RANK, folder));
        if let Some(number) = number.filter(|number| *number < RANKS) {
            return Some(number);
        }
    }
    // A batch system's file of a whole job: slurm-123.out.
    if name.starts_with("slurm-") && !name.contains('_') {
        return None;
    }
    rank(&NUMBER, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        for (path, rank) in [
            ("rank0.log", Some(0)),
            ("logs/rank_3.txt", Some(3)),
            ("run-rank-12.out", Some(12)),
            ("12/stdout.log", Some(12)),
            ("run/attempt_0/7/stderr.log", Some(7)),
            ("job.0003.log", Some(3)),
            ("train_2.err", Some(2)),
            ("5.out", Some(5)),
            ("out.4", Some(4)),
            ("rank1/train.log", Some(1)),
            ("slurm-4711.out", None),
            ("job.log", None),
            ("frank.log", None),
            ("20261120123456.log", None),
        ] {
            assert_eq!(by_name(Path::new(path)), rank, "{path}");
        }
    }
}
