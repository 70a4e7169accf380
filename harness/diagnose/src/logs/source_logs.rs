//! Divides the lines of one source among the ranks that wrote them. A line that cannot be attributed to a rank is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::LazyLock;

use rayon::prelude::*;
use regex::Regex;

use super::arrival::{Counts, arrival};
use super::call_stacks::CallStacks;
use super::communicator::Communicator;
use super::dead_workers::DeadWorkers;
use super::environment::Environment;
use super::failure::Accusations;
use super::launcher::Launcher;
use super::line::{LogLine, RANKS, may_name_a_rank, parts};
use super::node_failures::NodeFailures;
use super::owner;
use super::phase::Mark;
use super::process_lines::ProcessLines;
use super::process_table::ProcessTable;
use super::rank_log::RankLog;
use super::recorder_dump::{self, Dump};
use super::restart::Restart;
use super::source::{LogError, Source};
use super::srun::tasks_end;

/// What one source holds.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceLogs {
    /// What each rank wrote, for lines that belong to a rank.
    pub(super) rank_logs: BTreeMap<u32, RankLog>,
    /// Lines that belong to no rank, as far as anything says.
    pub(super) stray: RankLog,
    pub(super) launcher: Launcher,
    pub(super) accusations: Accusations,
    pub(super) counts: Counts,
    pub(super) dead_workers: DeadWorkers,
    pub(super) node_failures: NodeFailures,
    pub(super) process_table: ProcessTable,
    /// The calls that stacks show, by the number within the host.
    locals: Vec<(u32, Mark)>,
    restart: Restart,
    /// The workers that had died before a launcher said that a start of the job has failed.
    earlier_dead: ProcessLines,
}

/// What a source shows of its ranks at a first reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    /// Ranks that lines begin with.
    pub(super) ranks: BTreeSet<u32>,
    /// Ranks by their numbers within the host.
    locals: BTreeMap<u32, u32>,
    /// Ranks of processes that a launcher names; no rank if it has none, or several.
    processes: BTreeMap<String, Option<u32>>,
    /// Ranks of process ids that lines such as `pid=30445 RANK=11` name.
    pids: BTreeMap<String, BTreeSet<u32>>,
    /// The largest communicator of NCCL that each process has made.
    communicators: BTreeMap<String, Communicator>,
    /// Whether torchrun put the number within the host before lines.
    is_torchruns: bool,
    numbers: Numbers,
    /// The values of `RANK` that lines without a rank of their own print.
    printed: BTreeSet<u32>,
    /// The dump of a flight recorder, or what is wrong with it.
    pub(super) dump: Option<Result<Dump, String>>,
}

/// What numbers that lines begin with are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Numbers {
    /// There are none.
    #[default]
    None,
    /// Ranks.
    Ranks,
    /// Numbers of lines.
    Lines,
}

/// `3: text`, as `srun --label` writes, and `[3] text`.
static LABEL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\s*(?:(\d{1,5}): ?|\[(\d{1,9})\](?: |$))").ok());
/// The id of a process.
static PID: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(?i:pid)[=: ] ?(\d+)\b").ok());
/// A rank and the id of its process: `rank 9/16 started, pid 3102`.
static RANK_AND_PID: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\brank[ =:]+(\d+)(?:/\d+)?(?: started)?[,:;]? \(?pid[=: ] ?(\d+)\b").ok()
});
/// Lines that have to begin so before numbers are taken for ranks or lines.
const LABELS: usize = 5;
/// What lines of a launcher itself begin with, between those of its ranks.
const LAUNCHERS: &[&str] = &["srun:", "slurmstepd:", "salloc:", "mpirun:", "mpiexec:"];
/// Lines that are looked at for that.
const LOOK: usize = 200;

impl Survey {
    /// Reads a source for the first time.
    pub(super) fn of(source: &Source, has_owner: bool) -> io::Result<Self> {
        let beginning = source.beginning(recorder_dump::SIGN)?;
        if recorder_dump::is_dump(&beginning) {
            let bytes = source.beginning(recorder_dump::LARGEST)?;
            let dump = Some(Dump::read(&bytes));
            return Ok(Self {
                dump,
                ..Self::default()
            });
        }
        let mut survey = Self {
            numbers: numbers(source)?,
            ..Self::default()
        };
        source.each_line(|raw| {
            survey.read(raw);
            ControlFlow::Continue(())
        })?;
        survey.name_processes();
        // Numbers that could be a rank's are none where lines or the file say another.
        if survey.numbers == Numbers::Ranks && has_owner {
            survey.numbers = Numbers::None;
            survey.ranks.clear();
            source.each_line(|raw| {
                survey.read(raw);
                ControlFlow::Continue(())
            })?;
        }
        Ok(survey)
    }

    fn read(&mut self, raw: &str) {
        let (label, raw) = self.numbers.take(raw);
        self.ranks.extend(label);
        if raw.contains("RANK") {
            let mut environment = Environment::default();
            environment.read(raw);
            self.printed.extend(environment.rank);
            let pid = PID.as_ref().and_then(|pid| pid.captures(raw));
            if let (Some(pid), Some(rank)) = (pid, environment.rank) {
                self.pids.entry(pid[1].to_owned()).or_default().insert(rank);
            }
        }
        if raw.contains("pid")
            && let Some(found) = RANK_AND_PID.as_ref().and_then(|both| both.captures(raw))
            && let Ok(rank) = found[1].parse()
        {
            self.pids
                .entry(found[2].to_owned())
                .or_default()
                .insert(rank);
        }
        if !may_name_a_rank(raw) {
            return;
        }
        for part in parts(raw) {
            let line = LogLine::read(part);
            self.ranks.extend(line.rank);
            if let Some(local) = line.local_rank {
                self.is_torchruns = true;
                if let Some(rank) = line.rank {
                    self.locals.insert(local, rank);
                }
            }
            if let Some(process) = line.process {
                if let Some(one) = Communicator::read(&line.text) {
                    let largest = self.communicators.entry(process.clone()).or_insert(one);
                    *largest = (*largest).max(one);
                }
                match (self.processes.get_mut(&process), line.rank) {
                    (None, rank) => drop(self.processes.insert(process, rank)),
                    (Some(known @ None), Some(rank)) => *known = Some(rank),
                    (Some(Some(_) | None), _) => {}
                }
            }
        }
    }

    /// Gives processes the ranks that they have in the largest communicator: the world's, if each of its ranks is one of them.
    fn name_processes(&mut self) {
        let Some(size) = self.communicators.values().map(|one| one.size).max() else {
            return;
        };
        let members = self
            .communicators
            .iter()
            .filter(|(_, one)| one.size == size);
        let ranks: BTreeSet<u32> = members.clone().map(|(_, one)| one.rank).collect();
        if ranks.len() != size as usize || members.clone().count() != ranks.len() {
            return;
        }
        for (process, one) in members {
            let known = self.processes.entry(process.clone()).or_default();
            *known = known.or(Some(one.rank));
        }
    }

    /// Returns the rank of a process by its id; `None` if it is not known, or processes of several hosts have that id.
    fn rank_of(&self, pid: &str) -> Option<u32> {
        let is_it = |process: &str| process.split('@').next() == Some(pid);
        let mut ranks = self.processes.iter().filter(|(process, _)| is_it(process));
        match (ranks.next(), ranks.next()) {
            (Some((_, rank)), None) => *rank,
            _ => None,
        }
    }

    /// Returns the ranks that the process with this id may be.
    fn ranks_of<'a>(&'a self, pid: &str) -> impl Iterator<Item = u32> + 'a {
        let told = self.pids.get(pid).into_iter().flatten().copied();
        told.chain(self.rank_of(pid))
    }

    /// Returns the rank that wrote all lines that no other signs: that of the file's name, or the only one that signs, if that
    /// can be so.
    pub(super) fn owner(&self, by_name: Option<u32>, is_only: bool) -> Option<u32> {
        let mut ranks = self.ranks.iter().copied();
        match (ranks.next(), ranks.next()) {
            _ if self.is_torchruns || self.processes.len() > 1 => None,
            (Some(_), Some(_)) => None,
            (Some(rank), None) if is_only || by_name.is_some() => Some(rank),
            (Some(_), None) => None,
            (None, _) => by_name,
        }
    }
}

impl Numbers {
    /// Takes a number off a line: the rank that it is, and the rest.
    fn take(self, raw: &str) -> (Option<u32>, &str) {
        if self == Self::None {
            return (None, raw);
        }
        let Some(found) = LABEL.as_ref().and_then(|label| label.captures(raw)) else {
            return (None, raw);
        };
        let rank = found.get(1).or(found.get(2));
        let rank = rank.and_then(|rank| rank.as_str().parse().ok());
        let end = found.get(0).map_or(0, |all| all.end());
        (rank.filter(|_| self == Self::Ranks), &raw[end..])
    }
}

/// Decides what the numbers are with which the lines of a source begin. Those that rise with every line are numbers of lines. What a
/// batch script writes before its tasks do has none.
fn numbers(source: &Source) -> io::Result<Numbers> {
    let mut found: Vec<u32> = Vec::new();
    let mut is_all = true;
    let (mut seen, mut skipped, mut in_brackets) = (0, 0, false);
    let mut is_batch = false;
    source.each_line(|raw| {
        let is_launchers = LAUNCHERS.iter().any(|name| raw.starts_with(name));
        is_batch |= is_launchers || raw.contains("SLURM_");
        let label = LABEL.as_ref().and_then(|label| label.captures(raw));
        if is_batch && found.is_empty() && label.is_none() {
            skipped += 1;
        } else if !raw.trim().is_empty() && !is_launchers {
            seen += 1;
            in_brackets |= label.as_ref().is_some_and(|label| label.get(2).is_some());
            let number: Option<u32> =
                label.and_then(|label| label.get(1).or(label.get(2))?.as_str().parse().ok());
            found.extend(number);
            is_all &= number.is_some() || seen > LABELS;
        }
        match seen + skipped < LOOK && is_all {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    if !is_all || found.is_empty() {
        return Ok(Numbers::None);
    }
    let rises = found.len() > 2 && found.windows(2).all(|pair| pair[0] < pair[1]);
    let ranks: BTreeSet<u32> = found.iter().copied().collect();
    let from_0 = ranks.len() > 1 && ranks.iter().copied().eq((0..).take(ranks.len()));
    Ok(match (rises, in_brackets) {
        (true, true) => Numbers::Lines,
        (false, true) if from_0 => Numbers::Ranks,
        (_, true) => Numbers::None,
        (_, false) => Numbers::Ranks,
    })
}

impl SourceLogs {
    /// Takes a source apart. What no line signs is the owner's.
    pub(super) fn of(source: &Source, survey: &Survey, owner: Option<u32>) -> io::Result<Self> {
        let mut source_logs = Self::default();
        let mut stacks = CallStacks::default();
        let is_torn = source.each_line(|raw| {
            let (label, raw) = survey.numbers.take(raw);
            for part in parts(raw) {
                let mut line = LogLine::read(part);
                line.rank = label.or(line.rank);
                stacks.read(&line.text, line.rank, |pid| survey.rank_of(pid));
                // An engine that is one of several numbers its own workers from 0.
                if !part.contains("(EngineCore_DP") {
                    source_logs
                        .dead_workers
                        .read(&line.text, line.rank.or(owner));
                }
                source_logs.read(&line, survey, owner);
            }
            ControlFlow::Continue(())
        })?;
        stacks.end();
        source_logs.locals = stacks.locals;
        for mark in stacks.strays {
            source_logs.stray.show(mark);
        }
        for (rank, mark) in stacks.ranks {
            source_logs.rank_logs.entry(rank).or_default().show(mark);
        }
        if let Some(owner) = owner {
            source_logs.rank_logs.entry(owner).or_default().is_torn = is_torn;
        }
        source_logs.launcher.close();
        for log in source_logs.rank_logs.values_mut() {
            log.files = 1;
        }
        for log in source_logs
            .rank_logs
            .values_mut()
            .chain([&mut source_logs.stray])
        {
            if !source_logs.restart.is_one() {
                log.keep_attempt();
            }
            log.close();
        }
        let earlier = std::mem::take(&mut source_logs.earlier_dead);
        if !source_logs.restart.is_one() {
            source_logs.dead_workers.lines.merge(earlier);
        }
        source_logs
            .dead_workers
            .lines
            .name(|pid| survey.rank_of(pid));
        Ok(source_logs)
    }

    fn read(&mut self, line: &LogLine<'_>, survey: &Survey, owner: Option<u32>) {
        let text = &*line.text;
        self.launcher.read(text);
        if self.restart.read(text) {
            self.rank_logs.values_mut().for_each(RankLog::end_attempt);
            let dead = std::mem::take(&mut self.dead_workers);
            self.earlier_dead.merge(dead.lines);
        }
        self.accusations.read(text);
        self.counts.read(text);
        self.node_failures.read(text);
        self.process_table.read(text);
        // The tasks that have labels are the ranks.
        if survey.numbers == Numbers::Ranks
            && let Some(end) = tasks_end(text)
        {
            self.launcher.end_tasks(end);
        }
        if text.starts_with("All distributed processes registered") {
            self.rank_logs.values_mut().for_each(RankLog::meet);
        }
        if let Some(arrival) = arrival(text, line.rank.or(owner)) {
            let log = self.rank_logs.entry(arrival.rank).or_default();
            log.arrive(line, &arrival);
            if let Some(counted) = arrival.counted {
                self.counts.add(arrival.rank, counted);
            }
            return;
        }
        let process = line.process.as_ref();
        let rank = match process {
            // The lines of a process without a rank belong to no rank, whatever other lines say.
            Some(process) => line
                .rank
                .or(survey.processes.get(process).copied().flatten()),
            None => {
                let local = line.local_rank;
                let local = local.map(|local| survey.locals.get(&local).copied().unwrap_or(local));
                line.rank.or(local).or(owner)
            }
        };
        match rank.filter(|rank| *rank < RANKS) {
            Some(rank) => {
                let is_step = self.rank_logs.entry(rank).or_default().read(line);
                if is_step {
                    self.restart.step();
                }
            }
            None => {
                self.stray.read(line);
            }
        }
    }
}

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
    let source_logs = sources.par_iter().zip(&surveys).zip(&names);
    let source_logs = source_logs.filter(|((_, survey), _)| survey.dump.is_none());
    let source_logs = source_logs.map(|((source, survey), name)| {
        let owner = survey.owner(*name, is_only);
        SourceLogs::of(source, survey, owner).map_err(unreadable(source))
    });
    let mut source_logs: Vec<SourceLogs> = source_logs.collect::<Result<_, _>>()?;
    // The kernel's log of a host has the ids of processes that name themselves elsewhere.
    let rank_of = |pid: &str| {
        let ranks: BTreeSet<u32> = surveys
            .iter()
            .flat_map(|survey| survey.ranks_of(pid))
            .collect();
        let mut ranks = ranks.into_iter();
        ranks.next().filter(|_| ranks.next().is_none())
    };
    for one in &mut source_logs {
        one.dead_workers.lines.name(rank_of);
        one.process_table.lines.name(rank_of);
    }
    show_locals(&mut source_logs);
    Ok((source_logs, dumps))
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

    fn source_logs(path: &str, text: &str) -> SourceLogs {
        let source = Source::of_text(path, text);
        let by_name = owner::by_names(&[source.path.as_path()])[0];
        let survey = Survey::of(&source, by_name.is_some()).unwrap();
        let owner = survey.owner(by_name, false);
        SourceLogs::of(&source, &survey, owner).unwrap()
    }

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
        let named = [("rank0.txt", &*one), ("rank1.txt", &*zero)];
        assert_eq!(ranks(&named), [0, 1]);
    }

    #[test]
    fn the_kernels_log_names_a_process_that_names_itself_elsewhere() {
        let killed = "Memory cgroup out of memory: Killed process 45 (python) total-vm:1kB";
        let dead = |job: &str| {
            let all = split(&[("job.log", job), ("dmesg.txt", killed)]);
            all[1]
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

    fn marks(source_logs: &SourceLogs) -> Vec<(u32, usize)> {
        let rank_logs = source_logs.rank_logs.iter();
        rank_logs
            .map(|(rank, log)| (*rank, log.marks.len()))
            .collect()
    }

    #[test]
    fn lines_find_their_ranks() {
        for (path, text, expected) in [
            ("rank3.log", "Before x\nAfter x", vec![(3, 2)]),
            ("rank3.log", "[Rank 4] Before x\nAfter x", vec![(4, 2)]),
            (
                "job.log",
                "[Rank 4] Before x\n[Rank 5] After x",
                vec![(4, 1), (5, 1)],
            ),
            (
                "job.log",
                "[default0]:[rank4]: x\n[default0]:Before x",
                vec![(4, 1)],
            ),
            (
                "job.log",
                "0: Before x\n1: Before x\n0: After x",
                vec![(0, 2), (1, 1)],
            ),
            (
                "job.log",
                "srun: job 7 queued\n0: Before x\nsrun: error: x\n1: Before x\n0: After x",
                vec![(0, 2), (1, 1)],
            ),
            (
                "job.log",
                "srun: job 7 queued\nSLURM_JOB_NODELIST=n[5-6]\nloading modules\n0: Before x\n1: Before x",
                vec![(0, 1), (1, 1)],
            ),
            (
                "job.log",
                "[0] Before x\n[1] Before x\n[0] After x",
                vec![(0, 2), (1, 1)],
            ),
            (
                "job.log",
                "[7] [Rank 1] Before x\n[8] \n[9] [Rank 1] After x",
                vec![(1, 2)],
            ),
            (
                "job.log",
                "(W pid=7) [rank1]: x\n(W pid=7) Before x\n(W pid=8) Before x",
                vec![(1, 1)],
            ),
            ("job.log", "Before x", vec![]),
        ] {
            assert_eq!(marks(&source_logs(path, text)), expected, "{text}");
        }
    }

    #[test]
    fn a_communicator_of_all_tells_the_ranks_of_processes() {
        let init = |pid: u32, rank: u32, of: u32| {
            format!(
                "(W pid={pid}) h:{pid}:9 [0] NCCL INFO ncclCommInitRank comm 0x5f rank {rank} nranks {of} cudaDev 0 - Init COMPLETE\n"
            )
        };
        let of_two = format!("{}{}", init(7, 1, 2), init(8, 0, 2));
        assert_eq!(
            marks(&source_logs(
                "job.log",
                &format!("{of_two}(W pid=7) Before x")
            )),
            [(0, 0), (1, 1)]
        );
        let dead = format!(
            "{of_two}ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tpid: 8\n"
        );
        let dead_workers = source_logs("job.log", &dead).dead_workers;
        assert_eq!(
            dead_workers.lines.ranks.keys().copied().collect::<Vec<_>>(),
            [0]
        );
        let engine = "(EngineCore_DP1 pid=7) Worker proc VllmWorker-0 died unexpectedly, shutting down executor.";
        assert!(
            source_logs("job.log", engine)
                .dead_workers
                .lines
                .ranks
                .is_empty()
        );
        // Two communicators of two ranks each: neither is the world's.
        let pairs = format!(
            "{of_two}{}{}(W pid=7) Before x",
            init(9, 1, 2),
            init(10, 0, 2)
        );
        assert!(
            marks(&source_logs("job.log", &pairs))
                .iter()
                .all(|(_, marks)| *marks == 0)
        );
    }

    #[test]
    fn what_ended_an_earlier_start_is_no_cause() {
        let failed = "[Rank 0] step 3\n[Rank 0] Traceback (most recent call last):\n[Rank 0]   File \"a.py\", line 1, in <module>\n[Rank 0] KeyError: 'a'\nfailed (exitcode: 1) local_rank: 0 (pid: 9) of binary: python\n";
        let cause = |text: &str| {
            let source_logs = source_logs("job.log", text);
            source_logs.rank_logs[&0].cause().map(str::to_owned)
        };
        assert_eq!(cause(failed).as_deref(), Some("KeyError: 'a'"));
        let steps = "[Rank 0] step 1\n[Rank 0] step 2\n[Rank 0] step 3\n";
        assert_eq!(cause(&format!("{failed}{steps}")), None);
    }

    #[test]
    fn a_line_without_a_rank_belongs_to_no_rank() {
        let source_logs = source_logs("job.log", "[Rank 0] Before x\nAfter x\nKeyError: 'a'");
        assert_eq!(marks(&source_logs), [(0, 1)]);
        assert_eq!(source_logs.stray.errors.len(), 1);
    }
}
