//! Joins what all ranks of a job have written, and makes evidence for the rules of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rayon::prelude::*;
use regex::Regex;

use super::failure::Accusations;
use super::launcher::{Launcher, ending, is_struck};
use super::moment::Moment;
use super::phase::{Edge, Mark, Nature};
use super::source::{LogError, Source};
use super::story::{Story, Strand};
use crate::{
    Collective, EventKind, HangEvidence, Message, Process, RankState, Remaining, Rendezvous,
    TraceEvent,
};
use allranks_model::names::Rank;
use allranks_model::record::RankLine;

/// The group that calls are taken to use, since logs do not name one.
const WORLD: &str = "world";

/// What the logs show of a job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// What each rank has written.
    pub(super) ranks: BTreeMap<u32, Logged>,
    /// The number of ranks: the largest world size that a rank prints, or else one more than the highest rank that is
    /// named.
    pub(super) size: u32,
    pub(super) launcher: Launcher,
    pub(super) accusations: Accusations,
    /// The latest time on any line; `None` if no line has a time.
    pub(super) last: Option<Moment>,
}

/// What one rank has written, as a sequence of phases.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) story: Story,
    /// Phases it has begun, in order.
    pub(super) begun: Vec<Step>,
    /// Indices in `begun` of the phases that it is in, outermost first.
    pub(super) open: Vec<usize>,
}

/// A phase that a rank has begun.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The name of the phase, as the log has it.
    pub(super) name: String,
    /// A key that is the same on all ranks that do the same.
    pub(super) key: String,
    pub(super) nature: Nature,
    pub(super) moment: Option<Moment>,
}

static DIGITS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\d+").ok());

static PLACE_IN_SOURCE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\[\S+\.(?:cc|cpp|h):\d+\] ").ok());

impl Job {
    /// Reads all sources. Returns the job, and notes on how the logs were read.
    pub(super) fn of(sources: &[Source]) -> Result<(Self, Vec<String>), LogError> {
        let strands: Vec<Strand> = sources.par_iter().map(Strand::of).collect();
        let mut notes = Vec::new();
        let mut stories: BTreeMap<u32, Story> = BTreeMap::new();
        let (mut launcher, mut accusations) = (Launcher::default(), Accusations::default());
        let is_named = strands.iter().any(|strand| !strand.stories.is_empty());
        let by_order = !is_named && strands.len() > 1;
        for (number, strand) in (0..).zip(strands) {
            launcher.merge(strand.launcher);
            accusations.merge(strand.accusations);
            let own = strand.nobodys.filter(|_| by_order);
            let own = own.map(|story| (number, story));
            for (rank, story) in strand.stories.into_iter().chain(own) {
                match stories.get_mut(&rank) {
                    Some(known) => known.merge(story),
                    None => drop(stories.insert(rank, story)),
                }
            }
        }
        if stories.is_empty() {
            return Err(LogError::NoRank);
        }
        if by_order {
            notes.push(
                "no line and no file name says which rank it is: files were taken in the order given, from rank 0"
                    .to_owned(),
            );
        }
        if stories.values().any(|story| story.is_cut) {
            notes.push(
                "long logs were read at their beginning and their end only: phases without a number were not counted"
                    .to_owned(),
            );
        }
        let told = stories
            .values()
            .filter_map(|story| story.environment.world_size);
        let highest = stories.keys().chain(launcher.exits.keys()).max();
        let size = told.max().max(highest.map(|rank| rank + 1)).unwrap_or(0);
        let last = latest(stories.values().filter_map(|story| story.last));
        let ranks = logged(stories);
        let job = Self {
            ranks,
            size,
            launcher,
            accusations,
            last,
        };
        Ok((job, notes))
    }

    /// Returns true if the logs name no phase, no error and no end of a rank.
    pub(super) fn is_silent(&self) -> bool {
        let says = |logged: &Logged| {
            let story = &logged.story;
            !logged.begun.is_empty()
                || !story.errors.is_empty()
                || !story.watchdog.groups.is_empty()
        };
        self.launcher.exits.is_empty()
            && self.accusations.absent.is_empty()
            && !self.ranks.values().any(says)
    }

    /// Returns the ranks of which there is no log.
    pub(super) fn absent(&self) -> Vec<Rank> {
        let absent = (0..self.size).filter(|rank| !self.ranks.contains_key(rank));
        absent.map(Rank).collect()
    }

    /// Describes how a rank's process ended, if [`is_struck`], or if it failed without an error in its log;
    /// otherwise `None`.
    pub(super) fn ended(&self, rank: u32) -> Option<String> {
        let code = *self.launcher.exits.get(&rank)?;
        let says_why = self
            .ranks
            .get(&rank)
            .is_some_and(|logged| logged.story.last_words().next().is_some());
        (is_struck(code) || (code > 0 && !says_why)).then(|| ending(code))
    }

    /// Makes evidence for the rules.
    pub(super) fn evidence(&self) -> HangEvidence {
        let members: Arc<[Rank]> = self.ranks.keys().copied().map(Rank).collect();
        let shared = self.shared();
        let place = self.place();
        let sight = |(rank, logged): (&u32, &Logged)| {
            let mut sight = RankState::unknown(Rank(*rank));
            if let Some(how) = self.ended(*rank) {
                sight.process = Process::Ended(how);
            }
            sight.errors = logged.story.last_words().map(str::to_owned).collect();
            sight.ahead = Remaining::Unknown;
            let now = logged.now();
            for (number, step) in logged.begun.iter().enumerate() {
                if matches!(step.nature, Nature::Collective(_)) && !shared.contains(&step.key) {
                    continue;
                }
                let deed = TraceEvent {
                    what: self.what(*rank, logged, step, &members, &place),
                    at: String::new(),
                };
                if Some(number) != now {
                    sight.done.push(deed);
                } else if logged.story.cause().is_none() {
                    sight.doing = Some((deed, self.time_in(step)));
                } else if step.nature == Nature::Init {
                    // A rank that raised an error in init did come to it. One that raised elsewhere did not take part
                    // in this call.
                    sight.done.push(deed);
                }
            }
            let says_init = sight
                .entered()
                .any(|deed| matches!(deed.what, EventKind::Init(_)));
            if !says_init && logged.story.environment.place().is_some() {
                let meeting = self.meeting(*rank, logged, &place);
                let what = EventKind::Init(meeting);
                let at = String::new();
                sight.done.insert(0, TraceEvent { what, at });
            }
            sight
        };
        HangEvidence {
            ranks: self.ranks.iter().map(sight).collect(),
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
            text: "no log".to_owned(),
        });
        let mut places: Vec<RankLine> = own.chain(absent).collect();
        places.sort_by_key(|line| line.rank);
        places
    }

    fn place_of(&self, rank: u32, logged: &Logged) -> String {
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
        match (logged.story.cause(), logged.story.last_words().last()) {
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
            if let Some(place) = logged.story.environment.place() {
                *votes.entry(place).or_default() += 1;
            }
        }
        let most = votes.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(place, _)| place).unwrap_or_default()
    }

    fn meeting(&self, rank: u32, logged: &Logged, common: &str) -> Rendezvous {
        let environment = &logged.story.environment;
        // The rank that listens may call its own host by another name.
        let place = match (common.rsplit_once(':'), environment.port) {
            (Some((host, _)), Some(port)) if rank == 0 => format!("{host}:{port}"),
            _ => environment.place().unwrap_or_else(|| common.to_owned()),
        };
        Rendezvous {
            method: "env".to_owned(),
            place,
            told: None,
            rank: environment.rank.unwrap_or(rank),
            world_size: environment.world_size.unwrap_or(self.size),
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
            })
        };
        match &step.nature {
            Nature::Init => EventKind::Init(self.meeting(rank, logged, place)),
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

impl Logged {
    /// Returns the index in `begun` of the innermost phase that it is in; `None` if it is in none.
    pub(super) fn now(&self) -> Option<usize> {
        self.open.last().copied()
    }

    /// Returns the innermost phase that it is in; `None` if it is in none.
    pub(super) fn step(&self) -> Option<&Step> {
        self.begun.get(self.now()?)
    }

    /// Counts how often it has begun the phase with this key.
    pub(super) fn times(&self, key: &str) -> usize {
        self.begun.iter().filter(|step| step.key == key).count()
    }

    /// Follows the marks of a rank. A phase whose end no rank ever writes is over when the next one begins; so are
    /// collectives and messages.
    fn of(mut story: Story, ended: &Ended, any_cut: bool) -> Self {
        let marks = std::mem::take(&mut story.marks);
        let mut logged = Self {
            begun: Vec::new(),
            open: Vec::new(),
            story,
        };
        let is_counted = |mark: &Mark| !any_cut || mark.name.contains(|c: char| c.is_ascii_digit());
        for (mark, moment) in marks.iter().filter(|(mark, _)| is_counted(mark)) {
            match mark.edge {
                Edge::Begin => {
                    let stays = |step: &Step| {
                        let is_call =
                            matches!(step.nature, Nature::Collective(_) | Nature::Message { .. });
                        ended.knows(&step.name, &step.nature) && !is_call
                    };
                    while let Some(step) = logged.step() {
                        if stays(step) {
                            break;
                        }
                        logged.open.pop();
                    }
                    logged.open.push(logged.begun.len());
                    logged.begin(mark, *moment);
                }
                Edge::End => {
                    let begun = logged.open.iter().rposition(|number| {
                        let step = &logged.begun[*number];
                        mark.ends(&step.name, &step.nature)
                    });
                    match begun {
                        Some(place) => logged.open.truncate(place),
                        None => logged.begin(mark, *moment),
                    }
                }
            }
        }
        logged.story.marks = marks;
        logged
    }

    fn begin(&mut self, mark: &Mark, moment: Option<Moment>) {
        self.begun.push(Step {
            name: mark.name.clone(),
            key: key(mark),
            nature: mark.nature.clone(),
            moment,
        });
    }
}

/// The phases of which some rank writes that they are over.
#[derive(Default)]
struct Ended {
    names: HashSet<String>,
    natures: Vec<Nature>,
}

impl Ended {
    fn knows(&self, name: &str, nature: &Nature) -> bool {
        self.names.contains(name) || (*nature != Nature::Own && self.natures.contains(nature))
    }
}

fn logged(stories: BTreeMap<u32, Story>) -> BTreeMap<u32, Logged> {
    let mut ended = Ended::default();
    for (mark, _) in stories.values().flat_map(|story| &story.marks) {
        if mark.edge == Edge::End {
            if !ended.names.contains(&mark.name) {
                ended.names.insert(mark.name.clone());
            }
            if !ended.natures.contains(&mark.nature) {
                ended.natures.push(mark.nature.clone());
            }
        }
    }
    let any_cut = stories.values().any(|story| story.is_cut);
    let all: Vec<(u32, Story)> = stories.into_iter().collect();
    all.into_par_iter()
        .map(|(rank, story)| (rank, Logged::of(story, &ended, any_cut)))
        .collect()
}

/// Returns a key that is the same on all ranks that do the same: a call's name and the numbers beside it; otherwise the
/// whole name.
fn key(mark: &Mark) -> String {
    let call = match mark.nature {
        Nature::Collective(call) => call,
        Nature::NewGroup(_) => "new_group",
        Nature::Init => "init_process_group",
        Nature::Destroy => "destroy_process_group",
        Nature::Message { .. } | Nature::Own => return mark.name.clone(),
    };
    let numbers = DIGITS.as_ref().map(|digits| digits.find_iter(&mark.name));
    let numbers = numbers.into_iter().flatten().map(|number| number.as_str());
    std::iter::once(call)
        .chain(numbers)
        .collect::<Vec<_>>()
        .join(" ")
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
