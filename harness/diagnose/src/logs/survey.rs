//! Reads a source for the first time: which ranks its lines are of, and what the numbers are that its lines begin with.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use regex::Regex;

use super::arrival::arrival;
use super::collector::Collector;
use super::communicator::Communicator;
use super::deepspeed_launch::DeepSpeedLaunch;
use super::environment::Environment;
use super::line::{LogLine, RANKS, may_name_a_rank, parts};
use super::moment::is_clock;
use super::own_process::{own_pid, own_process, process_of_command, rank_of_world};
use super::rank_claims::claim;
use super::rank_list::ranks_of_list;
use super::recorder_dump::{self, Dump};
use super::signature::{Signatures, signature};
use super::source::Source;
use super::writers::Writers;

/// What a source shows of its ranks at a first reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    /// Ranks that lines begin with.
    pub(super) ranks: BTreeSet<u32>,
    /// Ranks by their numbers within the host.
    pub(super) locals: BTreeMap<u32, u32>,
    /// Ranks of processes that a launcher names; no rank if it has none, or several.
    pub(super) processes: BTreeMap<String, Option<u32>>,
    /// Ranks of process ids that lines such as `pid=30445 RANK=11` name.
    pids: BTreeMap<String, BTreeSet<u32>>,
    /// The largest communicator of NCCL that each process has made.
    pub(super) communicators: BTreeMap<String, Communicator>,
    /// What a collector has put before its lines.
    pub(super) collector: Collector,
    /// The processes that wrote its lines, as the collector says.
    pub(super) writers: Writers,
    /// Whether torchrun put the number within the host before lines.
    is_torchruns: bool,
    /// What the numbers are that its lines begin with.
    pub(super) numbers: Numbers,
    /// Whether the tasks of `srun` that a source of the job names by their numbers are its ranks.
    pub(super) tasks_are_ranks: bool,
    /// The values of `RANK` that lines without a rank of their own print, and the ranks of a world that they claim.
    pub(super) printed: BTreeSet<u32>,
    /// The processes that DeepSpeed's launchers have started.
    deepspeed_launch: DeepSpeedLaunch,
    /// The ranks that messages begin with where no header names one.
    signatures: Signatures,
    /// Whether the rank that a message begins with is the one that wrote it.
    is_signed: bool,
    /// The dump of a flight recorder, or what is wrong with it.
    pub(super) dump: Option<Result<Dump, String>>,
}

/// What numbers that lines begin with are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Numbers {
    /// No line begins with a number.
    #[default]
    None,
    /// The numbers of the ranks that wrote the lines.
    Ranks,
    /// The numbers of the lines in the log.
    Lines,
}

/// `3: text`, as `srun --label` writes, and `[3] text`.
static LABEL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\s*(?:(\d{1,5}): ?|\[(\d{1,9})\](?: |$))").ok());
/// What torchrun's agent says of the ranks that it starts.
static GLOBAL_RANKS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\sglobal_ranks=\[([\d, ]+)\]").ok());
/// The id of a process.
static PID: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(?i:pid)[=: ] ?(\d+)\b").ok());
/// Lines of tasks that have to begin so before numbers are taken for ranks or lines, or the share of all lines in percent.
const LABELS: usize = 5;
const SHARE: usize = 85;
/// What lines of a launcher itself begin with, between those of its ranks.
const LAUNCHERS: &[&str] = &[
    "srun:",
    "slurmstepd:",
    "salloc:",
    "mpirun:",
    "mpiexec:",
    "$ ",
];
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
        let collector = Collector::of(source)?;
        let numbers = match collector {
            Collector::None | Collector::Host => numbers(source, collector)?,
            _ => Numbers::None,
        };
        let mut survey = Self {
            numbers,
            collector,
            ..Self::default()
        };
        source.each_line(|raw| {
            survey.read(raw);
            ControlFlow::Continue(())
        })?;
        survey.writers.close();
        for (pid, rank) in survey.deepspeed_launch.processes() {
            survey.pids.entry(pid.to_owned()).or_default().insert(rank);
        }
        survey.name_processes(&world_ranks(&survey.communicators));
        // Numbers that could be a rank's are none where lines or the file say another.
        if survey.numbers == Numbers::Ranks && has_owner {
            survey.numbers = Numbers::None;
            survey.ranks.clear();
            source.each_line(|raw| {
                survey.read(raw);
                ControlFlow::Continue(())
            })?;
        }
        if !survey.is_torchruns && !has_owner {
            let signing = survey.signatures.ranks(!survey.ranks.is_empty());
            let signing: Vec<u32> = signing.collect();
            survey.is_signed = !signing.is_empty();
            survey.ranks.extend(signing);
        }
        Ok(survey)
    }

    fn read(&mut self, raw: &str) {
        let (origin, raw) = self.collector.take(raw);
        let (label, raw) = self.numbers.take(raw);
        self.ranks.extend(origin.rank.or(label));
        if let Some(writer) = origin.writer {
            self.writers.read(writer, None, None);
        }
        self.deepspeed_launch
            .read(origin.writer.unwrap_or_default(), raw);
        if let Some(ranks) = GLOBAL_RANKS
            .as_ref()
            .filter(|_| raw.contains(" global_ranks="))
            .and_then(|line| line.captures(raw))
        {
            self.locals.extend((0..).zip(ranks_of_list(&ranks[1])));
        }
        if raw.contains("RANK") {
            let mut environment = Environment::default();
            environment.read(raw);
            self.printed.extend(environment.rank);
            if let Some(writer) = origin.writer {
                self.writers.read(writer, environment.rank, None);
            }
            let pid = PID.as_ref().and_then(|pid| pid.captures(raw));
            if let (Some(pid), Some(rank)) = (pid, environment.rank) {
                self.pids.entry(pid[1].to_owned()).or_default().insert(rank);
            }
        }
        if raw.contains("ank") {
            self.printed.extend(claim(raw).map(|(rank, _)| rank));
        }
        if let Some((rank, pid)) = own_process(raw).or_else(|| process_of_command(raw)) {
            self.pids.entry(pid.to_owned()).or_default().insert(rank);
        }
        if !may_name_a_rank(raw) {
            return;
        }
        for part in parts(raw) {
            let line = LogLine::read(part);
            self.ranks.extend(line.rank);
            self.note_process(&line);
            let is_unsigned =
                line.rank.is_none() && line.local_rank.is_none() && line.process.is_none();
            let signed = is_unsigned
                .then(|| self.signatures.read(&line.text))
                .flatten();
            if let Some(writer) = origin.writer {
                let rank = line.rank.or(signed);
                self.writers.read(writer, rank, line.local_rank);
            }
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

    /// Notes the process ids that a line gives to ranks.
    fn note_process(&mut self, line: &LogLine<'_>) {
        let mut note = |rank: u32, pid: &str| {
            self.pids.entry(pid.to_owned()).or_default().insert(rank);
        };
        // A process may list others, each with its rank.
        if line.process.is_some()
            && let Some((rank, pid)) = own_process(&line.text)
        {
            note(rank, pid);
        }
        match (line.rank, &line.logger_pid) {
            (Some(rank), _) => {
                if let Some(pid) = own_pid(&line.text) {
                    note(rank, pid);
                }
            }
            (None, Some(pid)) => {
                if let Some(rank) = rank_of_world(&line.text) {
                    note(rank, pid);
                }
            }
            (None, None) => {}
        }
    }

    /// Gives the processes of this source the ranks that they have.
    pub(super) fn name_processes(&mut self, ranks: &BTreeMap<String, u32>) {
        for (process, rank) in ranks {
            let is_here = self.communicators.contains_key(process);
            if let Some(known) = self.processes.get_mut(process) {
                *known = known.or(Some(*rank));
            } else if is_here {
                self.processes.insert(process.clone(), Some(*rank));
            }
        }
    }

    /// Gives a line that names no rank that of its writer.
    pub(super) fn sign(&self, line: &mut LogLine<'_>, writer: &str) {
        if line.rank.is_none() && line.process.is_none() {
            let local = line.local_rank.take();
            line.rank = self.writers.rank(writer, local);
        }
    }

    /// Takes off a line the rank that its message begins with: that of the line's writer, or of a line that no header signs.
    pub(super) fn sign_by_message(&self, line: &mut LogLine<'_>, owner: Option<u32>) {
        let Some((rank, end)) = signature(&line.text) else {
            return;
        };
        match line.rank.or(owner) {
            None if self.is_signed && line.process.is_none() => line.rank = Some(rank),
            Some(writer) if writer == rank => {}
            _ => return,
        }
        let is_arrival = arrival(&line.text, Some(rank), owner).is_some();
        if !is_arrival {
            line.text = Cow::Owned(line.text[end..].to_owned());
        }
    }

    /// Returns the rank of which a line that nothing signs prints the environment, `RANK` beside `WORLD_SIZE`, if lines of this source
    /// do so of several ranks. The rank may have written it, or its launcher.
    pub(super) fn rank_of_environment(&self, line: &LogLine<'_>) -> Option<u32> {
        let is_signed = line.rank.is_some() || line.local_rank.is_some() || line.process.is_some();
        if is_signed || self.printed.len() < 2 || !line.text.contains("WORLD_SIZE") {
            return None;
        }
        let mut environment = Environment::default();
        environment.read(&line.text);
        environment.rank.filter(|rank| *rank < RANKS)
    }

    /// Returns the rank that lines give to the process with this id; `None` if they give none, or several.
    pub(super) fn told_rank(&self, pid: &str) -> Option<u32> {
        let mut ranks = self.pids.get(pid)?.iter().copied();
        ranks.next().filter(|_| ranks.next().is_none())
    }

    /// Returns the rank of a process by its id; `None` if it is not known, or processes of several hosts have that id.
    pub(super) fn rank_of(&self, pid: &str) -> Option<u32> {
        let mut ranks = self
            .processes
            .iter()
            .filter(|(process, _)| pid_of(process) == pid);
        match (ranks.next(), ranks.next()) {
            (Some((_, rank)), None) => *rank,
            _ => None,
        }
    }

    /// Returns the ranks that the process with this id may be.
    pub(super) fn ranks_of<'a>(&'a self, pid: &str) -> impl Iterator<Item = u32> + 'a {
        let told = self.pids.get(pid).into_iter().flatten().copied();
        told.chain(self.rank_of(pid))
    }

    /// Returns the only rank that messages begin with, where no header names any; `None` if there is none, or several.
    pub(super) fn only_signature(&self) -> Option<u32> {
        let has_headers = !self.ranks.is_empty() || self.is_torchruns;
        self.signatures.only().filter(|_| !has_headers)
    }

    /// Returns the rank that wrote all lines that no other signs: that of the file's name, or the only one that signs, if that
    /// can be so.
    pub(super) fn owner(&self, by_name: Option<u32>, is_only: bool) -> Option<u32> {
        let mut ranks = self.ranks.iter().copied();
        match (ranks.next(), ranks.next()) {
            _ if self.is_torchruns || self.processes.len() > 1 || self.writers.are_several() => {
                None
            }
            (Some(_), Some(_)) => None,
            (Some(rank), None) if is_only || by_name.is_some() => Some(rank),
            (Some(_), None) => None,
            (None, _) => by_name,
        }
    }
}

/// Returns the id of a process without its host: `4009` of `4009@10.0.0.1`.
pub(super) fn pid_of(process: &str) -> &str {
    process.split('@').next().unwrap_or_default()
}

/// Returns the rank that each process has in the largest communicator: the world's, if each of its ranks is one of them.
pub(super) fn world_ranks(communicators: &BTreeMap<String, Communicator>) -> BTreeMap<String, u32> {
    let size = communicators
        .values()
        .map(|one| one.size)
        .max()
        .unwrap_or(0);
    let members = communicators.iter().filter(|(_, one)| one.size == size);
    let named: BTreeMap<String, u32> = members
        .map(|(process, one)| (process.clone(), one.rank))
        .collect();
    let ranks: BTreeSet<u32> = named.values().copied().collect();
    match ranks.len() == size as usize && named.len() == ranks.len() {
        true => named,
        false => BTreeMap::new(),
    }
}

impl Numbers {
    /// Takes a number off a line: the rank that it is, and the rest.
    pub(super) fn take(self, raw: &str) -> (Option<u32>, &str) {
        if self == Self::None {
            return (None, raw);
        }
        let Some(found) = label(raw) else {
            return (None, raw);
        };
        let rank = found.get(1).or(found.get(2));
        let rank = rank.and_then(|rank| rank.as_str().parse().ok());
        let end = found.get(0).map_or(0, |all| all.end());
        (rank.filter(|_| self == Self::Ranks), &raw[end..])
    }
}

/// Returns the label that a line begins with; `None` if it begins with none. `12:17:01.10` is a time.
fn label(raw: &str) -> Option<regex::Captures<'_>> {
    let found = LABEL.as_ref()?.captures(raw)?;
    let is_time = is_clock(&found[0], &raw[found[0].len()..]);
    (!is_time).then_some(found)
}

/// Decides what the numbers are with which the lines of a source begin, behind what a collector has put before them. Those that rise
/// with every line are numbers of lines. Some lines may have none: what a batch script and a launcher write, and what a task writes in
/// one piece.
fn numbers(source: &Source, collector: Collector) -> io::Result<Numbers> {
    let mut found: Vec<u32> = Vec::new();
    let (mut seen, mut in_brackets) = (0, false);
    let (mut is_batch, mut skipped) = (false, 0);
    // Whether the first lines of the tasks all have labels.
    let mut is_labelled = true;
    source.each_line(|raw| {
        let (_, raw) = collector.take(raw);
        let is_launchers = LAUNCHERS.iter().any(|name| raw.starts_with(name));
        // A shell with `set -x` writes its commands so.
        is_batch |= is_launchers || raw.contains("SLURM_") || raw.starts_with("+ ");
        let label = label(raw);
        if label.is_none() && found.is_empty() {
            skipped += usize::from(!raw.trim().is_empty() && !is_launchers);
        } else if !raw.trim().is_empty() && !is_launchers {
            seen += 1;
            in_brackets |= label.as_ref().is_some_and(|label| label.get(2).is_some());
            let number: Option<u32> =
                label.and_then(|label| label.get(1).or(label.get(2))?.as_str().parse().ok());
            found.extend(number);
            is_labelled &= number.is_some() || seen > LABELS;
        }
        match seen + skipped < LOOK {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    is_labelled &= skipped == 0 || is_batch;
    let is_share = found.len() > LABELS && found.len() * 100 >= (seen + skipped) * SHARE;
    if found.is_empty() || !(is_labelled || is_share) {
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
