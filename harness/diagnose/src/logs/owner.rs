//! Finds the ranks that wrote log files, by their names: `rank0.log`, `rank_3.txt`, `12/stdout.log`, `job.0003.log`, `3.out`.
//!
//! A number beside the word `rank` is a rank. Any other number may be a date, or the id of a job, a process or an issue: it
//! is a rank only if the numbers of all names are 0 to n-1.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::line::RANKS;

static RANK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)(?:^|[^a-z])rank[-_. ]?(\d+)(?:\D|$)").ok());
/// The name of a folder of one rank's files; the name of a job's folder may say more, and name a rank for another reason.
static FOLDER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)^(?:global[-_])?rank[-_. ]?(\d+)$").ok());
static WORKER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)(?:^|[^a-z])(?:worker|trainer)[-_. ]?(\d+)(?:\D|$)").ok());
/// The pods of Kubeflow's `PyTorchJob`: the master is rank 0, and the workers, which are counted from 0, are the next.
static MASTER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)^(.+)-master-0(?:\.[a-z]+)*$").ok());
static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)(?:^|[-_.])(\d+)(?:\.(?:log|txt|out|err|stdout|stderr|json|pickle|pkl))*$")
        .ok()
});

/// What the names of files begin with that a host or a cluster has written, and no rank.
const SYSTEMS: &[&str] = &[
    "dmesg",
    "syslog",
    "kern",
    "messages",
    "journal",
    "events",
    "nvidia-smi",
    "rocm-smi",
    "npu-smi",
    "sacct",
    "squeue",
    "scontrol",
    "README",
];

/// Returns the rank of each file; `None` for a file whose name shows no rank.
pub(super) fn by_names(paths: &[&Path]) -> Vec<Option<u32>> {
    let named_rank: Vec<Option<u32>> = paths.iter().map(|path| named_rank(path)).collect();
    let masters: BTreeSet<&str> = paths.iter().filter_map(|path| master_of(path)).collect();
    let is_worker_of = |path: &Path, master: &str| {
        let rest = names(path).0.and_then(|name| name.strip_prefix(master));
        rest.is_some_and(|rest| rest.starts_with("-worker-"))
    };
    let numbers: Vec<Option<u32>> = paths
        .iter()
        .map(|path| {
            let is_worker = masters.iter().any(|master| is_worker_of(path, master));
            number(path).map(|number| number + u32::from(is_worker))
        })
        .collect();
    let others = named_rank
        .iter()
        .zip(&numbers)
        .filter(|(named_rank, _)| named_rank.is_none());
    let found: BTreeSet<u32> = others.filter_map(|(_, number)| *number).collect();
    let is_whole = found.len() > 1 && found.iter().copied().eq((0..).take(found.len()));
    named_rank
        .into_iter()
        .zip(numbers)
        .map(|(named_rank, number)| named_rank.or(number.filter(|_| is_whole)))
        .collect()
}

/// Returns the rank of a flight recorder's dump: torch ends the name with it.
pub(super) fn of_dump(path: &Path) -> Option<u32> {
    named_rank(path).or_else(|| number(path))
}

/// Returns true if a name has a number that could be taken for a rank.
pub(super) fn has_number(path: &Path) -> bool {
    named_rank(path).or_else(|| number(path)).is_some()
}

fn captured(pattern: &LazyLock<Option<Regex>>, text: &str) -> Option<u32> {
    let found = pattern.as_ref()?.captures(text)?;
    let number = found.get(1)?.as_str().parse().ok()?;
    (number < RANKS).then_some(number)
}

/// Returns the name of the job whose master's a file is; `None` if it is another pod's, or no pod's.
fn master_of(path: &Path) -> Option<&str> {
    let found = MASTER.as_ref()?.captures(names(path).0?)?;
    Some(found.get(1)?.as_str())
}

/// Returns the names of the file and of its folder.
fn names(path: &Path) -> (Option<&str>, Option<&str>) {
    let name = path.file_name().and_then(|name| name.to_str());
    let folder = path.parent().and_then(Path::file_name);
    (name, folder.and_then(|name| name.to_str()))
}

/// Returns the number beside the word `rank` in a name.
pub(super) fn named_rank(path: &Path) -> Option<u32> {
    let (name, folder) = names(path);
    captured(&RANK, name?).or_else(|| captured(&FOLDER, folder?))
}

/// Returns the number that a name has where others have their rank.
fn number(path: &Path) -> Option<u32> {
    let (name, folder) = names(path);
    let name = name?;
    if let Some(number) = captured(&WORKER, name) {
        return Some(number);
    }
    if let Some(folder) = folder {
        let number = folder.parse().ok().filter(|number| *number < RANKS);
        if let Some(number) = number.or_else(|| captured(&WORKER, folder)) {
            return Some(number);
        }
    }
    if SYSTEMS.iter().any(|system| name.starts_with(system)) {
        return None;
    }
    // A batch system's file of a whole job: slurm-123.out.
    if name.starts_with("slurm-") && !name.contains('_') {
        return None;
    }
    captured(&NUMBER, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(paths: &[&str]) -> Vec<Option<u32>> {
        let paths: Vec<&Path> = paths.iter().map(Path::new).collect();
        by_names(&paths)
    }

    #[test]
    fn a_rank_by_name_is_one() {
        for (path, rank) in [
            ("rank0.log", Some(0)),
            ("logs/rank_3.txt", Some(3)),
            ("run-rank-12.out", Some(12)),
            ("rank1/train.log", Some(1)),
            ("stopped_on_rank1/train.log", None),
            ("job.log", None),
            ("frank.log", None),
            ("llamafactory_7396.log", None),
            ("5.out", None),
        ] {
            assert_eq!(ranks(&[path]), [rank], "{path}");
        }
    }

    #[test]
    fn other_numbers_are_ranks_from_0_only() {
        let all = |names: [&str; 3]| ranks(&names).into_iter().collect::<Option<Vec<u32>>>();
        assert_eq!(
            all(["2/stdout.log", "0/stdout.log", "1/stdout.log"]),
            Some(vec![2, 0, 1])
        );
        assert_eq!(
            all(["job.0000.out", "job.0001.out", "job.0002.out"]),
            Some(vec![0, 1, 2])
        );
        assert_eq!(
            all(["train_2.err", "train_0.err", "train_1.err"]),
            Some(vec![2, 0, 1])
        );
        assert_eq!(
            all(["a/attempt_0/0/x.log", "a/attempt_0/1/x.log", "out.2"]),
            Some(vec![0, 1, 2])
        );
        assert_eq!(
            ranks(&["7-0.out", "7-1.out", "dmesg_n-0.txt"]),
            [Some(0), Some(1), None]
        );
        assert_eq!(
            all(["j-master-0.log", "j-worker-0.log", "j-worker-1.log"]),
            Some(vec![0, 1, 2])
        );
        assert_eq!(ranks(&["job.1.out", "job.2.out"]), [None, None]);
        assert_eq!(ranks(&["issue_5484.log", "issue_7396.log"]), [None, None]);
        assert_eq!(ranks(&["slurm-0.out", "slurm-1.out"]), [None, None]);
        assert_eq!(
            ranks(&["launcher.log", "0/a.log", "1/a.log"]),
            [None, Some(0), Some(1)]
        );
        assert!(has_number(Path::new("run.20.log")) && !has_number(Path::new("run.log")));
    }
}
