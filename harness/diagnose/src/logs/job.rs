//! Joins what all ranks of a job have written, and makes evidence for the rules of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use regex::Regex;

use super::arrival::Counts;
use super::failure::Accusations;
use super::job_sources::split_sources;
use super::launcher::{Launcher, ending, is_killed_by_signal};
use super::logged::{Logged, Step, logged};
use super::moment::Moment;
use super::node_failures::NodeFailures;
use super::owner;
use super::phase::Nature;
use super::process_lines::ProcessLines;
use super::rank_log::RankLog;
use super::recorder_dump::Dump;
use super::source::{LogError, Source};
use crate::evidence::verb;
use crate::{
    Collective, EventKind, HangEvidence, Message, Process, RankState, Remaining, Rendezvous,
    TraceEvent,
};
use allranks_model::diagnosis::rank_set::named;
use allranks_model::names::Rank;
use allranks_model::record::RankLine;

/// The group that calls are taken to use, since logs do not name one.
const WORLD: &str = "world";

/// What the logs show of a job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// What each rank has written.
    pub(super) ranks: BTreeMap<u32, Logged>,
    /// How many ranks it has; none if nothing says so.
    pub(super) size: Option<u32>,
    pub(super) launcher: Launcher,
    pub(super) accusations: Accusations,
    pub(super) counts: Counts,
    /// The workers that an engine or the kernel says have died.
    pub(super) dead_workers: ProcessLines,
    pub(super) node_failures: NodeFailures,
    /// The processes that a table of `ps` shows to be stopped.
    pub(super) process_table: ProcessLines,
    /// What flight recorders held, by rank.
    pub(super) dumps: BTreeMap<u32, Dump>,
    /// Lines that belong to no rank, as far as anything says.
    pub(super) stray: RankLog,
    /// The time of the last line of any rank.
    pub(super) last: Option<Moment>,
}

static PLACE_IN_SOURCE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\[\S+\.(?:cc|cpp|h):\d+\] ").ok());

impl Job {
    /// Reads all sources. Returns the job, and notes on how the logs were read.
    pub(super) fn of(sources: &[Source]) -> Result<(Self, Vec<String>), LogError> {
        let mut notes = Vec::new();
        let (sources_logs, dumps) = split_sources(sources, &mut notes)?;
        let mut rank_logs: BTreeMap<u32, RankLog> = BTreeMap::new();
        let (mut launcher, mut accusations) = (Launcher::default(), Accusations::default());
        let (mut counts, mut stray) = (Counts::default(), RankLog::default());
        let mut dead_workers = ProcessLines::default();
        let mut node_failures = NodeFailures::default();
        let mut process_table = ProcessLines::default();
        let is_named =
            !dumps.is_empty() || sources_logs.iter().any(|one| !one.rank_logs.is_empty());
        let has_numbers = sources.iter().any(|source| owner::has_number(&source.path));
        let by_order = !is_named && !has_numbers && sources_logs.len() > 1;
        for (number, source_logs) in (0..).zip(sources_logs) {
            launcher.merge(source_logs.launcher);
            accusations.merge(source_logs.accusations);
            counts.merge(source_logs.counts);
            dead_workers.merge(source_logs.dead_workers.lines);
            node_failures.merge(source_logs.node_failures);
            process_table.merge(source_logs.process_table.lines);
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
            rank_logs.entry(*rank).or_default();
        }
        if rank_logs.is_empty() && accusations.absent.is_empty() {
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
        let counted = counts.barriers.values().map(|(counted, _)| counted.of);
        let joined = counts.joined.map(|(_, of)| of);
        let members = dumps.values().flat_map(|dump| dump.groups.values());
        let members = members.filter_map(|group| group.members.last().map(|rank| rank + 1));
        let size = announced.chain(counted).chain(joined).chain(members).max();
        let last = latest(rank_logs.values().filter_map(|log| log.last));
        let ranks = logged(rank_logs);
        let job = Self {
            ranks,
            size,
            launcher,
            accusations,
            counts,
            dead_workers,
            node_failures,
            process_table,
            dumps,
            stray,
            last,
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
                || log.is_finished
        };
        self.launcher.exits.is_empty()
            && self.accusations.absent.is_empty()
            && self.dumps.is_empty()
            && !self.ranks.values().any(says)
    }

    /// Returns the least number of ranks that the job can have.
    pub(super) fn least_size(&self) -> u32 {
        let highest = self.ranks.keys().chain(self.launcher.exits.keys()).max();
        self.size.max(highest.map(|rank| rank + 1)).unwrap_or(0)
    }

    /// Ranks of which there are no logs here. That says nothing against them.
    pub(super) fn absent(&self) -> Vec<Rank> {
        let absent = (0..self.least_size()).filter(|rank| !self.ranks.contains_key(rank));
        absent.map(Rank).collect()
    }

    /// Describes how a rank's process ended, if [`is_killed_by_signal`], or if it failed without an error in its log;
    /// otherwise `None`.
    pub(super) fn ended(&self, rank: u32) -> Option<String> {
        let code = *self.launcher.exits.get(&rank)?;
        let says_why = self
            .ranks
            .get(&rank)
            .is_some_and(|logged| logged.log.final_errors().next().is_some());
        (is_killed_by_signal(code) || (code > 0 && !says_why)).then(|| ending(code))
    }

    /// Makes evidence for the rules.
    pub(super) fn evidence(&self) -> HangEvidence {
        let members: Arc<[Rank]> = match self.size {
            Some(size) => (0..size).map(Rank).collect(),
            None => self.ranks.keys().copied().map(Rank).collect(),
        };
        let shared = self.shared();
        let place = self.place();
        let state = |(rank, logged): (&u32, &Logged)| {
            let mut state = RankState::unknown(Rank(*rank));
            if let Some(how) = self.ended(*rank) {
                state.process = Process::Ended(how);
            }
            state.errors = logged.log.final_errors().map(str::to_owned).collect();
            state.ahead = Remaining::Unknown;
            let now = logged.now();
            for (number, step) in logged.begun.iter().enumerate() {
                if matches!(step.nature, Nature::Collective(_)) && !shared.contains(&step.key) {
                    continue;
                }
                let event = TraceEvent {
                    what: self.what(*rank, logged, step, &members, &place),
                    at: String::new(),
                };
                if Some(number) != now {
                    state.done.push(event);
                } else if logged.log.cause().is_none() {
                    state.doing = Some((event, self.time_in(step)));
                } else if step.nature == Nature::Init {
                    // A rank that raised an error in init did come to it. One that raised elsewhere did not take part
                    // in this call.
                    state.done.push(event);
                }
            }
            let says_init = state
                .entered()
                .any(|event| matches!(event.what, EventKind::Init(_)));
            if !says_init && logged.log.environment.place().is_some() {
                let rendezvous = self.rendezvous(*rank, logged, &place);
                let what = EventKind::Init(rendezvous);
                let at = String::new();
                state.done.insert(0, TraceEvent { what, at });
            }
            state
        };
        HangEvidence {
            ranks: self.ranks.iter().map(state).collect(),
            ..HangEvidence::default()
        }
    }

    /// Describes where every rank is, ranks without a log included, ordered by rank.
    pub(super) fn places(&self) -> Vec<RankLine> {
        let own = self.ranks.iter().map(|(rank, logged)| RankLine {
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

    fn time_in(&self, step: &Step) -> Duration {
        let seconds = step
            .moment
            .and_then(|begun| self.last?.since(begun))
            .unwrap_or(0.0);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Returns the keys of phases that most ranks have begun, or that a rank is in now. Other collectives are not calls
    /// of the whole world.
    fn shared(&self) -> HashSet<String> {
        let mut callers: HashMap<&str, usize> = HashMap::new();
        let mut current = HashSet::new();
        for logged in self.ranks.values() {
            let keys: HashSet<&str> = logged.begun.iter().map(|step| step.key.as_str()).collect();
            for key in keys {
                *callers.entry(key).or_default() += 1;
            }
            current.extend(logged.now().map(|now| logged.begun[now].key.as_str()));
        }
        let most = self.ranks.len() / 2;
        callers
            .into_iter()
            .filter(|(key, count)| *count > most || current.contains(key))
            .map(|(key, _)| key.to_owned())
            .collect()
    }

    /// Returns the endpoint that most ranks print; empty if no rank prints one.
    fn place(&self) -> String {
        let mut votes: BTreeMap<String, usize> = BTreeMap::new();
        for logged in self.ranks.values() {
            if let Some(place) = logged.log.environment.place() {
                *votes.entry(place).or_default() += 1;
            }
        }
        let most = votes.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(place, _)| place).unwrap_or_default()
    }

    fn rendezvous(&self, rank: u32, logged: &Logged, common: &str) -> Rendezvous {
        let environment = &logged.log.environment;
        // The rank that listens may call its own host by another name.
        let place = match (common.rsplit_once(':'), environment.port) {
            (Some((host, _)), Some(port)) if rank == 0 => format!("{host}:{port}"),
            _ => environment.place().unwrap_or_else(|| common.to_owned()),
        };
        Rendezvous {
            method: "env".to_owned(),
            place,
            assigned: None,
            rank: environment.rank.unwrap_or(rank),
            world_size: environment.world_size.unwrap_or_else(|| self.least_size()),
        }
    }

    fn what(
        &self,
        rank: u32,
        logged: &Logged,
        step: &Step,
        members: &Arc<[Rank]>,
        place: &str,
    ) -> EventKind {
        let collective = |name: String| {
            EventKind::Collective(Collective {
                group: WORLD.to_owned(),
                members: members.clone(),
                name,
                nature: BTreeMap::new(),
                splits: None,
            })
        };
        match &step.nature {
            Nature::Init => EventKind::Init(self.rendezvous(rank, logged, place)),
            Nature::NewGroup(ranks) if ranks.is_empty() => collective(step.key.clone()),
            Nature::NewGroup(ranks) => {
                EventKind::NewGroup(ranks.iter().copied().map(Rank).collect())
            }
            Nature::Collective(_) => collective(step.key.clone()),
            Nature::Message { sends, peer } => EventKind::Message(Message {
                group: WORLD.to_owned(),
                sends: *sends,
                peer: Some(Rank(*peer)),
                tag: 0,
            }),
            Nature::Destroy => EventKind::Destroy(WORLD.to_owned()),
            Nature::Own => EventKind::Own(step.name.clone()),
        }
    }
}

/// What stands in the way of saying that nothing is wrong.
impl Job {
    /// Returns what the logs leave open about the ranks, one sentence each.
    pub(super) fn not_known(&self) -> Vec<String> {
        let mut open = Vec::new();
        let absent = self.absent();
        if !absent.is_empty() {
            let are = if absent.len() == 1 { "is" } else { "are" };
            open.push(format!("{} {are} not in these logs", named(&absent)));
        }
        if self.size.is_none() && self.ranks.len() < 2 {
            open.push("nothing says how many ranks there are".to_owned());
        }
        let silent = self.those(|rank, logged| {
            logged.begun.is_empty() && !self.dumps.contains_key(&rank) && !logged.log.is_finished
        });
        if !silent.is_empty() {
            let say = if silent.len() == 1 { "says" } else { "say" };
            open.push(format!("{} {say} nothing of phases", named(&silent)));
        }
        let within = self.those(|_, logged| logged.step().is_some() && !logged.log.is_finished);
        if !within.is_empty() {
            let are = if within.len() == 1 { "is" } else { "are" };
            open.push(format!(
                "{} {are} in something that is not said to be over",
                named(&within)
            ));
        }
        let common = self.common();
        let without = self.those(|_, logged| {
            let begun: HashSet<&str> = logged.begun.iter().map(|step| step.key.as_str()).collect();
            !logged.begun.is_empty() && common.iter().any(|key| !begun.contains(*key))
        });
        if !without.is_empty() {
            let have = verb(&without, "has", "have");
            open.push(format!(
                "{} {have} not said a phase that most others have passed",
                named(&without)
            ));
        }
        let is_over = self.stray.is_finished;
        let stepping = self.those(|_, logged| logged.log.step.is_some() && !is_over);
        if !stepping.is_empty() {
            let last: Vec<&str> = stepping
                .iter()
                .filter_map(|rank| self.ranks[&rank.0].log.step.as_deref())
                .collect();
            let end = if stepping.len() == 1 { "ends" } else { "end" };
            open.push(format!(
                "the lines of {} {end} with steps (such as {}), and none says that it has finished",
                named(&stepping),
                last[0]
            ));
        }
        let caught = self.those(|_, logged| logged.log.cause().is_some());
        if let Some(first) = caught.first()
            && let Some(error) = self.ranks[&first.0].log.cause()
        {
            let have = verb(&caught, "has", "have");
            open.push(format!(
                "{} {have} raised an error and gone on, and none says that it has finished: {}",
                named(&caught),
                brief(error)
            ));
        }
        if let Some(error) = self.stray.cause() {
            open.push(format!("an error that no rank signs: {}", brief(error)));
        }
        open
    }

    fn those(&self, is: impl Fn(u32, &Logged) -> bool) -> Vec<Rank> {
        let ranks = self.ranks.iter();
        let ranks = ranks.filter(|(rank, logged)| is(**rank, logged));
        ranks.map(|(rank, _)| Rank(*rank)).collect()
    }

    /// Calls of all ranks that more than half have come to.
    fn common(&self) -> Vec<&str> {
        let mut callers: HashMap<&str, BTreeSet<u32>> = HashMap::new();
        for (rank, logged) in &self.ranks {
            let is_shared = |step: &&Step| {
                matches!(
                    step.nature,
                    Nature::Init | Nature::NewGroup(_) | Nature::Collective(_)
                )
            };
            for step in logged.begun.iter().filter(is_shared) {
                callers.entry(&step.key).or_default().insert(*rank);
            }
        }
        let half = self.ranks.len() / 2;
        let common = callers.into_iter().filter(|(_, ranks)| ranks.len() > half);
        common.map(|(key, _)| key).collect()
    }
}

fn latest(moments: impl Iterator<Item = Moment>) -> Option<Moment> {
    moments.reduce(|one, other| match other.since(one) {
        Some(seconds) if seconds > 0.0 => other,
        _ => one,
    })
}

/// Shortens an error, and leaves out the C++ source line that it comes from.
fn brief(error: &str) -> String {
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
