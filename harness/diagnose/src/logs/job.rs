//! What all ranks of a job have written, joined.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

use super::job_lines::JobLines;
use super::job_sources::split_sources;
use super::launcher::{ending, is_killed_by_signal};
use super::logged::{Logged, Step, logged};
use super::moment::Moment;
use super::owner;
use super::phase::Nature;
use super::rank_log::RankLog;
use super::recorder_dump::Dump;
use super::source::{LogError, Source};
use allranks_model::names::Rank;
use allranks_model::record::RankLine;

/// What the logs show of a job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// What each rank has written.
    pub(super) ranks: BTreeMap<u32, Logged>,
    /// How many ranks it has; none if nothing says so.
    pub(super) size: Option<u32>,
    /// What lines say of the job, or of other ranks than their writer.
    pub(super) lines: JobLines,
    /// What flight recorders held, by rank.
    pub(super) dumps: BTreeMap<u32, Dump>,
    /// Lines that belong to no rank, as far as anything says.
    pub(super) stray: RankLog,
    /// The time of the last line of any rank.
    pub(super) last: Option<Moment>,
    /// The time of the last line, of a rank or not.
    pub(super) end: Option<Moment>,
}

static PLACE_IN_SOURCE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\[\S+\.(?:cc|cpp|h):\d+\] ").ok());

impl Job {
    /// Reads all sources. Returns the job, and notes on how the logs were read.
    pub(super) fn of(sources: &[Source]) -> Result<(Self, Vec<String>), LogError> {
        let mut notes = Vec::new();
        let (sources_logs, dumps) = split_sources(sources, &mut notes)?;
        let mut rank_logs: BTreeMap<u32, RankLog> = BTreeMap::new();
        let (mut lines, mut stray) = (JobLines::default(), RankLog::default());
        let is_named =
            !dumps.is_empty() || sources_logs.iter().any(|one| !one.rank_logs.is_empty());
        let has_numbers = sources.iter().any(|source| owner::has_number(&source.path));
        let by_order = !is_named && !has_numbers && sources_logs.len() > 1;
        let has_processes = sources_logs.iter().any(|one| one.has_processes);
        for (number, source_logs) in (0..).zip(sources_logs) {
            lines.merge(source_logs.lines);
            let own = match by_order {
                true => Some((number, source_logs.stray)),
                false => {
                    stray.merge(source_logs.stray);
                    None
                }
            };
            for (rank, log) in source_logs.rank_logs.into_iter().chain(own) {
                match rank_logs.get_mut(&rank) {
                    Some(known) => known.merge(log),
                    None => drop(rank_logs.insert(rank, log)),
                }
            }
        }
        for rank in dumps.keys() {
            rank_logs.entry(*rank).or_default().has_written = true;
        }
        let makes_steps = has_processes && stray.step.is_some() && stray.errors.is_empty();
        let is_told = !lines.accusations.absent.is_empty()
            || !lines.lagging_ranks.is_empty()
            || !lines.process_table.lines.ranks.is_empty();
        if rank_logs.is_empty() && !is_told && !makes_steps {
            return Err(LogError::NoRank);
        }
        if by_order {
            notes.push(
                "no line and no file name says which rank it is: files were taken in the order given, from rank 0"
                    .to_owned(),
            );
        }
        if rank_logs.values().any(|log| log.is_cut) {
            notes.push(
                "of logs with very many phases only the later ones were kept: phases without a number were not counted"
                    .to_owned(),
            );
        }
        let announced = rank_logs.values().chain([&stray]);
        let announced = announced.filter_map(|log| log.environment.world_size);
        let counted = lines
            .counts
            .barriers
            .values()
            .map(|(counted, _)| counted.of);
        let joined = lines.counts.joined.map(|(_, of)| of);
        let members = dumps.values().flat_map(|dump| dump.groups.values());
        let members = members.filter_map(|group| group.members.last().map(|rank| rank + 1));
        let size = announced.chain(counted).chain(joined).chain(members).max();
        let last = latest(rank_logs.values().filter_map(|log| log.last));
        let end = latest(last.into_iter().chain(stray.last));
        let ranks = logged(rank_logs);
        let has_finished =
            |logged: &Logged| logged.log.is_finished && logged.log.final_errors().next().is_none();
        lines
            .accusations
            .withdraw(|rank| ranks.get(&rank).is_some_and(has_finished));
        let job = Self {
            ranks,
            size,
            lines,
            dumps,
            stray,
            last,
            end,
        };
        Ok((job, notes))
    }

    /// Returns true if the logs name no phase, no error and no end of a rank.
    pub(super) fn is_silent(&self) -> bool {
        let says = |logged: &Logged| {
            let log = &logged.log;
            !logged.begun.is_empty()
                || !log.errors.is_empty()
                || !log.watchdog.groups.is_empty()
                || log.message_timeouts.peer.is_some()
                || log.message_tags.awaited.is_some()
                || log.debugger.is_some()
                || !log.collective_trace.calls.is_empty()
                || log.is_finished
        };
        self.lines.launcher.exits.is_empty()
            && self.lines.accusations.absent.is_empty()
            && self.dumps.is_empty()
            && self.lines.dead_workers.lines.ranks.is_empty()
            && self.lines.process_table.lines.ranks.is_empty()
            && self.lines.stalled_tensors.missing.is_empty()
            && self.lines.bootstrap.is_well()
            && self.lines.counts.joined.is_none()
            && self.lines.lagging_ranks.is_empty()
            && !self.ranks.is_empty()
            && !self.ranks.values().any(says)
    }

    /// Returns the least number of ranks that the job can have.
    pub(super) fn least_size(&self) -> u32 {
        let highest = self
            .ranks
            .keys()
            .chain(self.lines.launcher.exits.keys())
            .max();
        self.size.max(highest.map(|rank| rank + 1)).unwrap_or(0)
    }

    /// Returns the ranks of which the logs show nothing, or only the environment. That says nothing against them.
    pub(super) fn absent(&self) -> Vec<Rank> {
        let is_here = |rank: &u32| {
            let logged = self.ranks.get(rank);
            logged.is_some_and(|logged| logged.log.has_written)
        };
        let absent = (0..self.least_size()).filter(|rank| !is_here(rank));
        absent.map(Rank).collect()
    }

    /// Returns true if every rank is said to have ended with exit code 0.
    pub(super) fn has_ended_well(&self) -> bool {
        let exits = &self.lines.launcher.exits;
        let mut all = 0..self.least_size();
        // One may be held up in its teardown, or at the end of its process.
        let is_in_teardown = |logged: &Logged| {
            let step = logged.step();
            logged.log.has_call_stack || step.is_some_and(|step| step.nature == Nature::Destroy)
        };
        let says_so = |logged: &Logged| {
            let log = &logged.log;
            let is_over = log.is_finished && log.step.is_none() && !logged.gave_up();
            is_over && !is_in_teardown(logged)
        };
        let all_say_so = || {
            let is_whole = self.absent().is_empty() && !self.stray.has_call_stack;
            is_whole && self.ranks.len() > 1 && self.ranks.values().all(says_so)
        };
        (!exits.is_empty() && all.all(|rank| exits.get(&rank) == Some(&0))) || all_say_so()
    }

    /// Describes how a rank's process ended, if [`is_killed_by_signal`], or if it failed without an error in its log;
    /// otherwise `None`.
    pub(super) fn ended(&self, rank: u32) -> Option<String> {
        let code = *self.lines.launcher.exits.get(&rank)?;
        let says_why = self.lines.launcher.shows_effect(rank)
            || self
                .ranks
                .get(&rank)
                .is_some_and(|logged| logged.log.final_errors().next().is_some());
        (is_killed_by_signal(code) || (code > 0 && !says_why)).then(|| ending(code))
    }

    /// Describes where every rank is, ranks without a log included, ordered by rank.
    pub(super) fn places(&self) -> Vec<RankLine> {
        let own = self.ranks.iter().filter(|(_, one)| one.log.has_written);
        let own = own.map(|(rank, logged)| RankLine {
            rank: Rank(*rank),
            text: self.place_of(*rank, logged),
        });
        let absent = self.absent().into_iter().map(|rank| RankLine {
            rank,
            text: "not in these logs".to_owned(),
        });
        let mut places: Vec<RankLine> = own.chain(absent).collect();
        places.sort_by_key(|line| line.rank);
        places
    }

    fn place_of(&self, rank: u32, logged: &Logged) -> String {
        if let Some(dump) = self.dumps.get(&rank).filter(|_| logged.begun.is_empty()) {
            let groups = dump.groups.iter();
            let groups = groups.map(|(name, group)| {
                let (issued, over) = (group.issued, group.over);
                format!(
                    "has issued {issued} collectives of {}, {over} are over",
                    group.title(name)
                )
            });
            return groups.collect::<Vec<_>>().join("; ");
        }
        let at = match logged.now().and_then(|now| logged.begun.get(now)) {
            Some(step) => {
                let seconds = self.time_in(step).as_secs_f64();
                match seconds > 0.0 {
                    true => format!("in {} for {seconds:.1} s", step.name),
                    false => format!("in {}", step.name),
                }
            }
            None => logged.begun.last().map_or_else(
                || "place unknown".to_owned(),
                |step| format!("after {}", step.name),
            ),
        };
        if let Some(how) = self.ended(rank) {
            return format!("its process ended {at}: {how}");
        }
        match (logged.log.cause(), logged.log.final_errors().last()) {
            (Some(error), _) => format!("{at}, raised {error}"),
            (None, Some(error)) => format!("{at}, gave up: {}", brief(error)),
            (None, None) => at,
        }
    }

    /// Returns how long the rank has been in a phase that is its last; zero if no times are known.
    pub(super) fn time_in(&self, step: &Step) -> Duration {
        let seconds = step
            .moment
            .and_then(|begun| self.last?.since(begun))
            .unwrap_or(0.0);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

fn latest(moments: impl Iterator<Item = Moment>) -> Option<Moment> {
    moments.reduce(|one, other| match other.since(one) {
        Some(seconds) if seconds > 0.0 => other,
        _ => one,
    })
}

/// Shortens an error, and leaves out the C++ source line that it comes from.
pub(super) fn brief(error: &str) -> String {
    const CHARACTERS: usize = 100;
    let error = match PLACE_IN_SOURCE.as_ref() {
        Some(place) => place.replace(error, ""),
        None => error.into(),
    };
    match error.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{} ...", &error[..end]),
        None => error.into_owned(),
    }
}
