//! Takes all sources of a job apart: decides which of them are whose, and reads the dumps among them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use rayon::prelude::*;

use super::communicator::Communicator;
use super::owner;
use super::recorder_dump::Dump;
use super::source::{LogError, Source};
use super::source_logs::SourceLogs;
use super::survey::{Numbers, Survey, pid_of, world_ranks};

/// Returns all sources taken apart, and what flight recorders held, by rank.
pub(super) fn split_sources(
    sources: &[Source],
    notes: &mut Vec<String>,
) -> Result<(Vec<SourceLogs>, BTreeMap<u32, Dump>), LogError> {
    let paths: Vec<&Path> = sources.iter().map(|source| source.path.as_path()).collect();
    let mut names = owner::by_names(&paths);
    let unreadable = |source: &Source| {
        let path = source.path.clone();
        move |error: io::Error| LogError::Unreadable(path, error)
    };
    let surveys = sources
        .par_iter()
        .zip(&names)
        .map(|(source, name)| Survey::of(source, name.is_some()).map_err(unreadable(source)));
    let mut surveys: Vec<Survey> = surveys.collect::<Result<_, _>>()?;
    // The tasks that have labels are the ranks, and another file may tell how they ended.
    let has_labels = |survey: &Survey| survey.numbers == Numbers::Ranks;
    let tasks_are_ranks = surveys.iter().any(has_labels);
    for survey in &mut surveys {
        survey.tasks_are_ranks = tasks_are_ranks;
    }
    let mut dumps = BTreeMap::new();
    for (survey, path) in surveys.iter_mut().zip(&paths) {
        let Some(dump) = survey.dump.as_mut() else {
            continue;
        };
        let rank = owner::of_dump(path);
        let path = path.display();
        match (std::mem::replace(dump, Err(String::new())), rank) {
            (Ok(dump), Some(rank)) => drop(dumps.insert(rank, dump)),
            (Ok(_), None) => notes.push(format!(
                "{path}: no number in its name says which rank dumped it"
            )),
            (Err(error), _) => notes.push(format!("{path}: the dump cannot be read: {error}")),
        }
    }
    if let Some(printed) = owners_by_environment(&surveys, &paths) {
        names = printed;
    } else if sources.len() > 1 {
        for (name, survey) in names.iter_mut().zip(&surveys) {
            *name = name.or_else(|| survey.only_signature());
        }
        name_the_last(&mut names, &surveys);
    }
    // Files in each of which one rank signs are that rank's, if no two are the same rank's.
    let singles: Vec<u32> = surveys
        .iter()
        .flat_map(|survey| &survey.ranks)
        .copied()
        .collect();
    let is_only = sources.len() > 1
        && surveys.iter().all(|survey| survey.ranks.len() < 2)
        && singles.iter().collect::<BTreeSet<_>>().len() == singles.len();
    let rank_of = |surveys: &[Survey], pid: &str| {
        let ranks: BTreeSet<u32> = surveys
            .iter()
            .flat_map(|survey| survey.ranks_of(pid))
            .collect();
        let mut ranks = ranks.into_iter();
        ranks.next().filter(|_| ranks.next().is_none())
    };
    name_processes_of_all(&mut surveys, rank_of);
    // The kernel's log of a host has the ids of processes that name themselves elsewhere.
    let rank_of = |pid: &str| rank_of(&surveys, pid);
    let source_logs = sources.par_iter().zip(&surveys).zip(&names);
    let source_logs = source_logs.filter(|((_, survey), _)| survey.dump.is_none());
    let source_logs = source_logs.map(|((source, survey), name)| {
        let owner = survey.owner(*name, is_only);
        SourceLogs::of(source, survey, owner, rank_of).map_err(unreadable(source))
    });
    let mut source_logs: Vec<SourceLogs> = source_logs.collect::<Result<_, _>>()?;
    for one in &mut source_logs {
        one.lines.name_processes(rank_of);
    }
    show_locals(&mut source_logs);
    Ok((source_logs, dumps))
}

/// Gives processes the ranks that other sources tell: by communicators and schedulers of which each source has a part, and by lines
/// that name a rank and its process.
fn name_processes_of_all(surveys: &mut [Survey], rank_of: impl Fn(&[Survey], &str) -> Option<u32>) {
    // Of processes by their ids alone those of two hosts could be the same.
    let all = surveys.iter().flat_map(|survey| &survey.communicators);
    let all = all.filter(|(process, _)| process.contains('@'));
    let all: BTreeMap<String, Communicator> =
        all.map(|(process, one)| (process.clone(), *one)).collect();
    let mut ranks = world_ranks(&all);
    let processes: BTreeSet<&String> = surveys
        .iter()
        .flat_map(|survey| survey.processes.keys())
        .collect();
    ranks.extend(scheduler_ranks(processes.iter().copied()));
    // The same id may be that of processes on several hosts.
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for process in &processes {
        *counts.entry(pid_of(process)).or_default() += 1;
    }
    for process in &processes {
        let pid = pid_of(process);
        if pid.bytes().all(|byte| byte.is_ascii_digit())
            && (pid == process.as_str() || counts[pid] == 1)
            && let Some(rank) = rank_of(surveys, pid)
        {
            ranks.insert((*process).clone(), rank);
        }
    }
    for survey in surveys {
        survey.name_processes(&ranks);
    }
}

/// Returns the rank of each scheduler of SGLang's, `DP13 TP13`: the number among those that share tensors, if no two schedulers have
/// the same.
fn scheduler_ranks<'a>(processes: impl Iterator<Item = &'a String>) -> BTreeMap<String, u32> {
    let number = |name: &str| -> Option<u32> {
        let is_one = name.starts_with("DP") && !name.contains("PP");
        let parts = name.split(' ').filter(|_| is_one);
        parts
            .filter_map(|part| part.strip_prefix("TP"))
            .next()?
            .parse()
            .ok()
    };
    let named = processes.filter_map(|name| Some((name.clone(), number(name)?)));
    let named: BTreeMap<String, u32> = named.collect();
    let ranks: BTreeSet<u32> = named.values().copied().collect();
    let is_world = ranks.len() > 1 && ranks.iter().copied().eq((0..).take(named.len()));
    match is_world {
        true => named,
        false => BTreeMap::new(),
    }
}

/// Takes numbers within the host for ranks where stacks of all of 0 to n-1 are there, once each: the job has one host, as far as
/// anything shows.
fn show_locals(source_logs: &mut [SourceLogs]) {
    let all: Vec<u32> = source_logs
        .iter()
        .flat_map(|one| one.locals.iter().map(|(local, _)| *local))
        .collect();
    let numbers: BTreeSet<u32> = all.iter().copied().collect();
    let others = source_logs.iter().flat_map(|one| one.rank_logs.keys());
    let is_one_host = numbers.len() == all.len()
        && numbers.iter().copied().eq((0..).take(all.len()))
        && others.into_iter().all(|rank| numbers.contains(rank));
    for one in source_logs {
        for (local, mark) in std::mem::take(&mut one.locals) {
            match is_one_host {
                true => one.rank_logs.entry(local).or_default().show(mark),
                false => one.stray.show(mark),
            }
        }
    }
}

/// Gives the only file whose name shows no rank the rank that its lines claim, if no other file is that rank's: detectron2 writes the
/// lines of rank 0 into `log.txt`, and those of rank 1 into `log.txt.rank1`.
fn name_the_last(names: &mut [Option<u32>], surveys: &[Survey]) {
    let mut unnamed = (0..names.len()).filter(|number| names[*number].is_none());
    let (Some(last), None) = (unnamed.next(), unnamed.next()) else {
        return;
    };
    let survey = &surveys[last];
    let mut claimed = survey.printed.iter().copied();
    if let (Some(rank), None) = (claimed.next(), claimed.next())
        && survey.ranks.is_empty()
        && !names.contains(&Some(rank))
    {
        names[last] = Some(rank);
    }
}

/// Returns the rank of each file if each prints `RANK` once, no two print the same, and no line and no name says another: numbers
/// of pods and hosts are not ranks.
fn owners_by_environment(surveys: &[Survey], paths: &[&Path]) -> Option<Vec<Option<u32>>> {
    let mut all = BTreeSet::new();
    for (survey, path) in surveys.iter().zip(paths) {
        let mut printed = survey.printed.iter().copied();
        let (Some(rank), None) = (printed.next(), printed.next()) else {
            return None;
        };
        if owner::named_rank(path).is_some() || !survey.ranks.is_empty() || !all.insert(rank) {
            return None;
        }
    }
    let of = |survey: &Survey| survey.printed.first().copied();
    (surveys.len() > 1).then(|| surveys.iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits files with these names and texts.
    fn split(files: &[(&str, &str)]) -> Vec<SourceLogs> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source::of_text(path, text))
            .collect();
        split_sources(&sources, &mut Vec::new()).unwrap().0
    }

    #[test]
    fn the_rank_that_a_file_prints_counts_above_a_number_of_its_name() {
        let ranks = |files: &[(&str, &str)]| {
            let all = split(files);
            let ranks = all.iter().flat_map(|one| one.rank_logs.keys().copied());
            ranks.collect::<Vec<_>>()
        };
        let of = |rank: u32| format!("RANK={rank}\nBefore x");
        let (zero, one, two) = (of(0), of(1), of(2));
        let pods = [
            ("master-0.txt", &*zero),
            ("worker-0.txt", &*one),
            ("worker-1.txt", &*two),
        ];
        assert_eq!(ranks(&pods), [0, 1, 2]);
        // Two say that they are the same rank.
        let same = [("worker-0.txt", &*zero), ("worker-1.txt", &*zero)];
        assert_eq!(ranks(&same), [0, 1]);
        let claims = |rank: u32| format!("rank={rank} world_size=3\nBefore x");
        let claims = [0, 1, 2].map(claims);
        let pods = [
            ("master-0.txt", &*claims[0]),
            ("worker-0.txt", &*claims[1]),
            ("worker-1.txt", &*claims[2]),
        ];
        assert_eq!(ranks(&pods), [0, 1, 2]);
        let signed = |rank: u32| format!("[n] rank {rank}: a\n[n] rank {rank}: Before x");
        let (four, five) = (signed(4), signed(5));
        assert_eq!(ranks(&[("a.txt", &*four), ("b.txt", &*five)]), [4, 5]);
        let named = [("rank0.txt", &*one), ("rank1.txt", &*zero)];
        assert_eq!(ranks(&named), [0, 1]);
    }

    #[test]
    fn the_kernels_log_names_a_process_that_names_itself_elsewhere() {
        let killed = "Memory cgroup out of memory: Killed process 45 (python) total-vm:1kB";
        let dead = |job: &str| {
            let all = split(&[("job.log", job), ("dmesg.txt", killed)]);
            all[1]
                .lines
                .dead_workers
                .lines
                .ranks
                .keys()
                .copied()
                .collect::<Vec<_>>()
        };
        assert_eq!(dead("host=a pid=44 RANK=0\nhost=b pid=45 RANK=1"), [1]);
        // Processes of two hosts have this id.
        assert!(dead("host=a pid=45 RANK=0\nhost=b pid=45 RANK=1").is_empty());
    }

    #[test]
    fn local_ranks_of_all_stacks_are_ranks() {
        let stack = |local: u32| {
            format!(
                "Process 9{local}: python a.py --local_rank={local}\nThread 9{local} (idle): \"MainThread\"\n    barrier (torch/distributed/distributed_c10d.py:7)"
            )
        };
        let shown = |locals: [u32; 2]| {
            let [one, other] = locals.map(stack);
            let all = split(&[("one.txt", &*one), ("other.txt", &*other)]);
            all.iter().map(|one| one.rank_logs.len()).sum::<usize>()
        };
        assert_eq!(shown([1, 0]), 2);
        assert_eq!(shown([0, 0]), 0);
        assert_eq!(shown([1, 2]), 0);
    }
}
