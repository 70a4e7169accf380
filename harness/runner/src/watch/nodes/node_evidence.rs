//! What the watch of one node has seen of one world, as a file; and the verdict on a world from the files of its nodes.
//!
//! A file holds facts, not conclusions: which rank made which calls. So nodes are merged before the rules are asked. Times are those
//! of the node's clock, and are moved to the reader's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::watch::endpoints::hosts::Hosts;
use crate::watch::evidence::hang_evidence::{assigned_endpoint, evidence_of_ranks};
use crate::watch::ranks::job::{Job, RankProcess};
use crate::watch::trace::call_trace::{Call, CallTrace};
use crate::watch::trace::record::Record;
use crate::world::OF_OTHER_LAUNCHERS;
use allranks_diagnose::{
    EventKind, HangEvidence, RankState, Rendezvous, SeenCall, TraceEvent, diagnose, list,
};
use allranks_host::Activity;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Version of the file.
const FORMAT: u32 = 1;
/// How the name of every file ends.
const SUFFIX: &str = ".evidence.json";
/// What of an environment is kept: nothing that could be a secret.
const KEPT: &[&str] = &[
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
];

/// Returns true for a variable that tells the place of a rank.
fn is_kept(name: &str) -> bool {
    KEPT.contains(&name) || OF_OTHER_LAUNCHERS.iter().any(|dialect| dialect.has(name))
}

/// Before that, what ranks do counts as progress.
const MOMENT: f64 = 1.0;

/// What one node saw of one world.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeEvidence {
    format: u32,
    /// Where its ranks meet, and the attempt of their launcher: `10.0.0.1:29500 0`.
    world: String,
    /// The node's name.
    host: String,
    /// When the first of its ranks was seen, in seconds since 1970.
    began: f64,
    /// When it was written last, likewise.
    at: f64,
    /// For how many seconds nothing had moved then.
    still_s: f64,
    /// After how many seconds without progress its user wants to hear what is only likely.
    patience_s: f64,
    /// Whether all ranks of the world are on this node.
    is_whole: bool,
    ranks: Vec<StoredRank>,
    /// The process id of the watch that wrote it; 0 if that is not known.
    #[serde(default)]
    writer: u32,
    /// Whether the command of that watch has ended, and nothing more will come.
    #[serde(skip)]
    is_over: bool,
}

/// One rank, as far as it was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredRank {
    rank: u32,
    pid: u32,
    environment: BTreeMap<String, String>,
    /// `alive`, `stopped`, `gone`; none: it could not be seen.
    process: Option<String>,
    /// Seconds since it last gave a sign of life.
    silence_s: f64,
    /// Its calls; none if it keeps no trace.
    trace: Option<CallTrace>,
    /// What torch's flight recorder has written.
    recorder: Option<Record>,
    /// Where its stack shows it to be; none of a rank that keeps a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<SeenPlace>,
}

/// Where the stack of a rank shows it to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeenPlace {
    /// `init`, `call`, `own`.
    what: String,
    /// The name of the call, or the line of its own code.
    text: String,
    /// Whether the call is a collective.
    is_collective: bool,
    /// Whether it is known to be one of the default group.
    is_default_group: bool,
    /// The file and line of the program.
    at: String,
    /// For how many seconds it has been there.
    lasts_s: f64,
}

impl SeenPlace {
    /// Makes the record of where a rank is; `None` if it is in nothing that a stack shows.
    pub fn of(state: &RankState) -> Option<Self> {
        let (event, lasts) = state.doing.as_ref()?;
        let call = |call: &SeenCall| ("call", call.name.clone(), call.clone());
        let nothing = SeenCall {
            name: String::new(),
            is_collective: false,
            is_default_group: false,
        };
        let (what, text, seen) = match &event.what {
            EventKind::Init(_) => ("init", "init_process_group".to_owned(), nothing),
            EventKind::Seen(one) => call(one),
            EventKind::Own(text) => ("own", text.clone(), nothing),
            _ => return None,
        };
        Some(Self {
            what: what.to_owned(),
            text,
            is_collective: seen.is_collective,
            is_default_group: seen.is_default_group,
            at: event.at.clone(),
            lasts_s: lasts.as_secs_f64(),
        })
    }

    /// The event that the rank is in, and for how long when it was written.
    fn event(&self, process: &RankProcess) -> (TraceEvent, Duration) {
        let call = || {
            EventKind::Seen(SeenCall {
                name: self.text.clone(),
                is_collective: self.is_collective,
                is_default_group: self.is_default_group,
            })
        };
        let numbers = process.number("RANK").zip(process.number("WORLD_SIZE"));
        let what = match self.what.as_str() {
            "own" => EventKind::Own(self.text.clone()),
            "init" => match numbers.zip(assigned_endpoint(process)) {
                Some(((rank, world_size), place)) => EventKind::Init(Rendezvous {
                    method: "env".to_owned(),
                    place,
                    assigned: None,
                    rank,
                    world_size,
                }),
                None => call(),
            },
            _ => call(),
        };
        let at = self.at.clone();
        (
            TraceEvent { what, at },
            Duration::from_secs_f64(self.lasts_s.max(0.0)),
        )
    }
}

/// Returns the name of this host.
pub fn host_name() -> String {
    let own = rustix::system::uname();
    own.nodename().to_string_lossy().into_owned()
}

/// Returns a text with all characters replaced that are not meant for the name of a file.
pub fn file_name(text: &str) -> String {
    let is_kept = |one: char| one.is_ascii_alphanumeric() || "-.".contains(one);
    let kept = |one: char| if is_kept(one) { one } else { '_' };
    text.chars().map(kept).collect()
}

/// Returns the time in seconds since 1970, by this host's clock.
pub fn now() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

impl NodeEvidence {
    /// Collects what this node sees of a world now.
    pub fn of(
        ranks: &[(Rank, &RankProcess)],
        began: f64,
        still: Duration,
        patience: Duration,
        is_whole: bool,
    ) -> Self {
        let stored = ranks.iter().map(|(rank, process)| StoredRank {
            rank: rank.0,
            pid: process.pid,
            environment: (process.environment.iter())
                .filter(|(name, _)| is_kept(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            process: process.activity.map(|activity| {
                match activity {
                    Activity::Alive { .. } => "alive",
                    Activity::Stopped => "stopped",
                    Activity::Gone => "gone",
                }
                .to_owned()
            }),
            silence_s: (process.traced.as_ref())
                .map_or(0.0, |call_trace| call_trace.silence().as_secs_f64()),
            recorder: (process.traced.as_ref())
                .and_then(|call_trace| call_trace.record.as_deref().cloned()),
            trace: process.traced.clone(),
            seen: None,
        });
        Self {
            format: FORMAT,
            world: (ranks.first()).map_or_else(String::new, |(_, process)| process.place()),
            host: host_name(),
            began,
            at: now(),
            still_s: still.as_secs_f64(),
            patience_s: patience.as_secs_f64(),
            is_whole,
            ranks: stored.collect(),
            writer: std::process::id(),
            is_over: false,
        }
    }

    /// Adds where ranks are by their stacks.
    #[must_use]
    pub fn with_places(mut self, places: &BTreeMap<Rank, SeenPlace>) -> Self {
        for rank in &mut self.ranks {
            rank.seen = places.get(&Rank(rank.rank)).cloned();
        }
        self
    }

    /// Writes it into a folder, in the place of what this process wrote of the same world before.
    ///
    /// # Errors
    /// The folder cannot be made or written to.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let name = format!("{}.{}.{}", self.world.trim(), self.host, self.writer);
        let name = file_name(&name);
        let path = folder.join(format!("{name}{SUFFIX}"));
        let draft = folder.join(format!("{name}.new"));
        let written = fs::write(&draft, serde_json::to_vec(self)?);
        let written = written.and_then(|()| fs::rename(&draft, &path));
        if let Err(error) = written {
            // Half of it, on a full disk.
            let _ = fs::remove_file(draft);
            return Err(error);
        }
        Ok(path)
    }

    /// Returns where its ranks meet.
    pub fn world(&self) -> &str {
        self.world.trim()
    }

    /// Returns what tells the watch that wrote it from others of the job.
    pub fn writer(&self) -> String {
        file_name(&format!("{}.{}", self.host, self.writer))
    }

    /// Returns when it was written, in seconds since 1970 by the writer's clock.
    pub fn at(&self) -> f64 {
        self.at
    }

    /// Returns for how many seconds nothing had moved when it was written.
    pub fn still_s(&self) -> f64 {
        self.still_s
    }

    /// Returns the name of its host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns its ranks, in order.
    pub fn ranks(&self) -> Vec<Rank> {
        self.numbers().into_iter().map(Rank).collect()
    }

    /// Returns true if rank 0 is here and waits for the others in `init_process_group`.
    pub fn waits_as_first(&self) -> bool {
        let first = self.ranks.iter().find(|rank| rank.rank == 0);
        let inside = first.and_then(|rank| rank.trace.as_ref()?.inside.as_ref());
        inside.is_some_and(|inside| matches!(inside.entry.call, Call::Init { .. }))
    }

    /// Returns true if the command of its watch has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes it as written at this time of this host's clock, whatever the writer's clock said.
    pub fn move_to(&mut self, at: f64) {
        self.began += at - self.at;
        self.at = at;
    }

    /// Takes it as true until this time: the command has ended, and no rank of it moves any more.
    pub fn last_until(&mut self, now: f64) {
        self.still_s += (now - self.at).max(0.0);
        // What goes on is newer.
        self.at = self.at.max(now - 0.001);
        self.is_over = true;
    }

    /// Its ranks, with all times moved to the clock of this machine, and to now.
    pub fn processes(&self) -> impl Iterator<Item = RankProcess> + '_ {
        let passed = now() - self.at;
        self.ranks.iter().map(move |rank| {
            let trace = rank.trace.clone().map(|mut call_trace| {
                let record = rank.recorder.clone();
                call_trace.move_to_now(passed, rank.silence_s, record);
                call_trace
            });
            RankProcess {
                more_may_start: false,
                pid: rank.pid,
                environment: rank.environment.clone(),
                activity: match rank.process.as_deref() {
                    Some("alive") => Some(Activity::Alive { ticks: 0 }),
                    Some("stopped") => Some(Activity::Stopped),
                    Some("gone") => Some(Activity::Gone),
                    _ => None,
                },
                call_trace: None,
                traced: trace,
            }
        })
    }

    fn numbers(&self) -> BTreeSet<u32> {
        self.ranks.iter().map(|rank| rank.rank).collect()
    }

    fn is_beside(&self, other: &Self) -> bool {
        self.began <= other.at && other.began <= self.at
    }
}

/// Files of evidence could not be used.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// It is there and cannot be read.
    #[error("cannot read {path}: {1}", path = .0.display())]
    Unreadable(PathBuf, io::Error),
    /// It is no evidence, or that of a newer version.
    #[error("{path} is no evidence of format 1: {1}", path = .0.display())]
    Strange(PathBuf, String),
}

/// Returns true if a path is a file of evidence, or a folder with one.
#[must_use]
pub fn is_evidence(path: &Path) -> bool {
    !files(path).is_empty()
}

/// Returns the path if it is a file of evidence, or those in it if it is a folder, in order.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let is_named = |path: &PathBuf| path.to_string_lossy().ends_with(SUFFIX);
    let mut found: Vec<PathBuf> = match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path.to_owned()],
    };
    found.retain(|path| is_named(path) && path.is_file());
    found.sort();
    found
}

/// What the evidence of the nodes of one world comes to.
#[derive(Clone, Debug)]
pub struct WorldReport {
    /// Where its ranks meet.
    pub world: String,
    /// The verdict; none if the ranks moved when it was written.
    pub verdict: Option<Diagnosis>,
    /// What must be known to judge it.
    pub notes: Vec<String>,
}

/// Reads the evidence of these files and folders, and judges every world.
///
/// # Errors
/// A file cannot be read, or is none of evidence.
pub fn judge(paths: &[PathBuf]) -> Result<Vec<WorldReport>, EvidenceError> {
    let files = paths.iter().flat_map(|path| files(path));
    let nodes: Result<Vec<NodeEvidence>, _> = files.map(|path| read(&path)).collect();
    Ok(judge_nodes(nodes?))
}

/// Reads one file of evidence.
///
/// # Errors
/// It cannot be read, or is no evidence of this version.
pub fn read(path: &Path) -> Result<NodeEvidence, EvidenceError> {
    let text = fs::read(path).map_err(|error| EvidenceError::Unreadable(path.to_owned(), error))?;
    let one: NodeEvidence = serde_json::from_slice(&text)
        .map_err(|error| EvidenceError::Strange(path.to_owned(), error.to_string()))?;
    match one.format {
        FORMAT => Ok(one),
        other => {
            let format = format!("it has format {other}");
            Err(EvidenceError::Strange(path.to_owned(), format))
        }
    }
}

/// Judges every world that this evidence is of.
pub fn judge_nodes(nodes: Vec<NodeEvidence>) -> Vec<WorldReport> {
    let mut worlds: BTreeMap<String, Vec<NodeEvidence>> = BTreeMap::new();
    for one in nodes {
        worlds.entry(one.world.clone()).or_default().push(one);
    }
    worlds.into_values().map(report).collect()
}

/// The evidence with each rank that keeps no trace where its stack was seen.
fn with_places(
    mut evidence: HangEvidence,
    ranks: &[(Rank, &RankProcess)],
    places: &BTreeMap<u32, &SeenPlace>,
) -> HangEvidence {
    for (state, (_, process)) in evidence.ranks.iter_mut().zip(ranks) {
        if let Some(place) = places.get(&state.rank.0)
            && process.traced.is_none()
            && state.doing.is_none()
        {
            state.doing = Some(place.event(process));
        }
    }
    evidence
}

fn report(mut nodes: Vec<NodeEvidence>) -> WorldReport {
    let mut notes = Vec::new();
    // The newest first: what is of an earlier run, or of a rank that is in a newer file, counts no more.
    nodes.sort_by(|one, other| other.at.total_cmp(&one.at));
    let mut kept: Vec<NodeEvidence> = Vec::new();
    for node in nodes {
        let is_old = kept
            .iter()
            .any(|newer| !newer.is_beside(&node) || !newer.numbers().is_disjoint(&node.numbers()));
        match is_old {
            true => notes.push(format!(
                "evidence of an earlier run on {} is left out: that of {}",
                node.host,
                named(&node.numbers().into_iter().map(Rank).collect::<Vec<_>>())
            )),
            false => kept.push(node),
        }
    }
    let world = kept
        .first()
        .map_or_else(String::new, |node| node.world.trim().to_owned());
    let processes: Vec<RankProcess> = kept.iter().flat_map(NodeEvidence::processes).collect();
    let job = Job::of_world(processes);
    let ranks = job.ranks();
    let seen: BTreeSet<Rank> = ranks.iter().map(|(rank, _)| *rank).collect();
    let size = (ranks.iter())
        .filter_map(|(_, process)| process.world_size())
        .max();
    let absent: Vec<Rank> = (0..size.unwrap_or(0))
        .map(Rank)
        .filter(|rank| !seen.contains(rank))
        .collect();
    let is_whole = absent.is_empty() || kept.len() == 1 && kept[0].is_whole;
    if !is_whole {
        notes.push(format!(
            "the evidence of {} is absent: run `allranks watch --evidence DIR` on their nodes, and name all folders",
            named(&absent)
        ));
    }
    let least =
        |value: fn(&NodeEvidence) -> f64| kept.iter().map(value).fold(f64::INFINITY, f64::min);
    let still = least(|node| node.still_s);
    let most = |value: fn(&NodeEvidence) -> f64| kept.iter().map(value).fold(0.0, f64::max);
    // Only what all nodes had stood in at one time is one picture.
    let is_one_picture = most(|node| node.at - node.still_s) <= least(|node| node.at);
    if !is_one_picture {
        notes.push("the nodes' evidence is of different times, and is not compared".to_owned());
    }
    let mut verdict = None;
    if still >= MOMENT && is_one_picture {
        let seen = evidence_of_ranks(
            &ranks,
            &mut Hosts::unresolved(),
            Duration::from_secs_f64(still),
            is_whole,
        );
        let has_stale = (ranks.iter())
            .any(|(_, rank)| rank.call_trace.as_ref().is_some_and(CallTrace::is_stale));
        let places: BTreeMap<u32, &SeenPlace> = (kept.iter().flat_map(|node| &node.ranks))
            .filter_map(|rank| Some((rank.rank, rank.seen.as_ref()?)))
            .collect();
        let seen = seen.map(|seen| with_places(seen, &ranks, &places));
        verdict = seen.map(|seen| diagnose(&seen));
        if let Some(one) = &mut verdict
            && (!is_whole || has_stale || !places.is_empty() && one.kind != HangKind::PeerStopped)
            && one.confidence == Confidence::Proved
        {
            one.confidence = Confidence::Likely;
        }
    }
    let patience = most(|node| node.patience_s);
    let is_due = |one: &Diagnosis| one.confidence == Confidence::Proved || still >= patience;
    if verdict.as_ref().is_some_and(|one| !is_due(one)) {
        notes.push(format!(
            "nothing had moved for {still:.0} s when the evidence was written: too short to judge it"
        ));
        verdict = None;
    } else if still < MOMENT {
        notes.push("not hung: ranks moved when the evidence was written".to_owned());
    }
    let hosts: Vec<String> = kept
        .iter()
        .map(|node| {
            let numbers: Vec<Rank> = node.numbers().into_iter().map(Rank).collect();
            format!("evidence of ranks {} is from {}", list(&numbers), node.host)
        })
        .collect();
    notes.splice(0..0, hosts);
    if let Some(one) = &mut verdict
        && matches!(one.kind, HangKind::Slow | HangKind::Unknown)
    {
        one.confidence = Confidence::None;
    }
    WorldReport {
        world,
        verdict,
        notes,
    }
}
