//! Observes a job that runs already: its ranks are found from any of its processes, and nothing of it is stopped or signalled.
//! The only thing that is written to is torch's pipe for requests, where the job was started with one.
//!
//! What is known of a rank: its process, its environment, whether its threads have run since they were looked at last, and the
//! stack of its main thread. That is less than a call trace has: so no verdict names a rank unless none of those that wait has
//! run for as long as the user has patience, and each says which evidence is missing.
//!
//! | module | holds |
//! |---|---|
//! | `ranks` | which processes are ranks |
//! | `call_stack` | in which call a Python process is |
//! | `snapshot` | what a rank has done since the last look |
//! | `dump_pipe` | the flight recorder, where torch was told to give it |

mod call_stack;
mod dump_pipe;
mod ranks;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::watch::detector::event::Event;
use crate::watch::endpoints::hosts::Hosts;
use crate::watch::endpoints::listeners::foreign_listeners;
use crate::watch::evidence::whole_world::is_whole;
use crate::watch::nodes::node_evidence::{self, NodeEvidence};
use crate::watch::nodes::seen_place::SeenPlace;
use crate::watch::ranks::rank_process::RankProcess;
use crate::watch::ranks::worlds::numbered;
use crate::watch::trace::own_wait::OwnWait;
use crate::watch::waits::late_rank::behind;
use allranks_diagnose::{HangEvidence, Process, RankState, diagnose};
use allranks_host as host;
use allranks_host::ProcessEntry;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;
use call_stack::CallStacks;
use dump_pipe::DumpRequests;
use ranks::World;
use snapshot::RankSnapshot;

/// Time from one look to the next.
const PERIOD: Duration = Duration::from_millis(500);
/// Time without processor time after which a rank is said to wait.
const STANDSTILL: Duration = Duration::from_secs(2);

/// And before that, a look counts for nothing: on a busy machine a few seconds hold few of them.
const MIN_LOOKS: u32 = 8;

/// For so long a rank may be on its way out before the others are judged. On a busy machine that takes seconds.
const ENDING: Duration = Duration::from_secs(60);

/// What a job that was attached to has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// No process has one of these ids, or none of them belongs to a job.
    NoRank,
    /// No rank was accused.
    NoVerdict,
    /// There was a verdict.
    Verdict,
}

/// From one writing of evidence to the next, in looks.
const EVIDENCE_LOOKS: u32 = 4;

/// Looks at the job that these processes belong to, until there is something to say of each of its worlds, and says it. What is
/// seen of each goes into a file of the folder `evidence`, if there is one.
///
/// # Errors
/// The evidence cannot be written.
pub fn attach(
    pids: &[u32],
    patience: Duration,
    evidence: Option<&Path>,
    tell: &mut dyn FnMut(Event),
) -> io::Result<Attached> {
    let mut call_stacks = CallStacks::default();
    let worlds = ranks::find(pids, &host::processes(), &mut call_stacks);
    if worlds.is_empty() {
        return Ok(Attached::NoRank);
    }
    let is_one_of_many = worlds.len() > 1;
    let mut open: Vec<ObservedWorld> = worlds.into_iter().map(ObservedWorld::new).collect();
    let mut ending = Attached::NoVerdict;
    let mut hosts = Hosts::default();
    let mut trouble = None;
    while !open.is_empty() {
        let table = host::processes();
        open.retain_mut(|subject| {
            subject.look(&table, &mut call_stacks);
            let (events, is_done) = subject.consider(patience, &mut hosts);
            if let Some(folder) = evidence
                && (is_done || subject.looks.is_multiple_of(EVIDENCE_LOOKS))
                && let Err(error) = subject.keep(folder, &table, patience, &mut hosts)
            {
                trouble.get_or_insert(error);
            }
            for mut event in events {
                if let Event::Verdict(one) | Event::Still(one, _) = &mut event {
                    one.evidence.extend(subject.remarks(is_one_of_many));
                }
                if matches!(event, Event::Verdict(_)) {
                    ending = Attached::Verdict;
                }
                tell(event);
            }
            !is_done
        });
        if !open.is_empty() {
            thread::sleep(PERIOD);
        }
    }
    match trouble {
        Some(error) => Err(error),
        None => Ok(ending),
    }
}

/// A world under observation.
#[derive(Debug)]
struct ObservedWorld {
    world: World,
    began: Instant,
    looks: u32,
    snapshots: BTreeMap<u32, RankSnapshot>,
    /// Exit codes of launchers' children that have ended and not been waited for: they may be ranks.
    ended: Vec<Option<i32>>,
    /// How ranks ended that were alive when they were found, by process.
    own_ends: BTreeMap<u32, i32>,
    /// What the ranks' flight recorders hold; none before they are asked.
    records: Option<DumpRequests>,
    has_reported: bool,
}

impl ObservedWorld {
    fn new(world: World) -> Self {
        Self {
            world,
            began: Instant::now(),
            looks: 0,
            snapshots: BTreeMap::new(),
            ended: Vec::new(),
            own_ends: BTreeMap::new(),
            records: None,
            has_reported: false,
        }
    }

    fn look(&mut self, table: &[ProcessEntry], call_stacks: &mut CallStacks) {
        self.looks += 1;
        let pids: BTreeSet<u32> = self.world.ranks.iter().map(|rank| rank.pid).collect();
        let parents: BTreeSet<u32> = (table.iter())
            .filter(|one| pids.contains(&one.pid))
            .map(|one| one.parent)
            .collect();
        let is_ended = |one: &&ProcessEntry| {
            one.state == 'Z' && parents.contains(&one.parent) && !pids.contains(&one.pid)
        };
        self.ended = (table.iter().filter(is_ended))
            .map(|one| one.status)
            .collect();
        let own = table.iter().filter(|one| pids.contains(&one.pid));
        self.own_ends
            .extend(own.filter_map(|one| Some((one.pid, one.status?))));
        for rank in &mut self.world.ranks {
            rank.activity = host::activity(rank.pid);
            let before = self.snapshots.remove(&rank.pid);
            let now = RankSnapshot::look(rank, before, table, call_stacks);
            self.snapshots.insert(rank.pid, now);
        }
    }

    /// Returns the events to report now, and whether they are the last.
    fn consider(&mut self, patience: Duration, hosts: &mut Hosts) -> (Vec<Event>, bool) {
        let ranks = numbered(&self.world.ranks.iter().collect::<Vec<_>>());
        let living: Vec<(Rank, &RankSnapshot)> = ranks
            .iter()
            .filter(|(_, process)| process.lives())
            .filter_map(|(rank, process)| Some((*rank, self.snapshots.get(&process.pid)?)))
            .collect();
        let moving: Vec<Rank> = (living.iter().filter(|(_, one)| one.has_moved))
            .map(|(rank, _)| *rank)
            .collect();
        if living.is_empty() {
            return (
                vec![Event::NotHung("its ranks have ended".to_owned())],
                true,
            );
        }
        let moves = || Event::NotHung(format!("{} move", named(&moving)));
        if moving.len() == living.len() && living.len() > 1 {
            return (vec![moves()], true);
        }
        let watched = self.began.elapsed();
        let is_ending = (ranks.iter()).any(|(_, process)| host::is_ending(process.pid));
        if watched < STANDSTILL || is_ending && watched < ENDING {
            return (Vec::new(), false);
        }
        let is_over = watched >= patience.max(STANDSTILL) && self.looks >= MIN_LOOKS;
        let held: Vec<&RankSnapshot> = (living.iter().map(|(_, one)| *one))
            .filter(|one| one.is_held() && one.still() >= STANDSTILL)
            .collect();
        let still = held.iter().map(|one| one.still()).min();
        let evidence = match self.evidence(&ranks, still.unwrap_or_default(), hosts) {
            Some(evidence) => evidence,
            None => return (Vec::new(), false),
        };
        let verdict = still.map(|_| self.verdict(&ranks, &evidence));
        if let Some(verdict) = verdict
            .clone()
            .filter(|one| one.confidence == Confidence::Proved)
        {
            return (vec![Event::Verdict(verdict)], true);
        }
        let processes: Vec<(Rank, &RankProcess)> = (ranks.iter())
            .filter(|(_, process)| process.lives())
            .copied()
            .collect();
        let records = (self.records).get_or_insert_with(|| DumpRequests::ask(&processes));
        if !records.look(patience, &processes) {
            return (Vec::new(), false);
        }
        if let Some(recorded) = records.diagnose(&evidence) {
            return report_recorded(&mut self.has_reported, recorded, &living, patience);
        }
        let Some((still, verdict)) = still.zip(verdict) else {
            let says = match (is_over, moving.is_empty()) {
                (false, _) => return (Vec::new(), false),
                (true, false) => moves(),
                (true, true) => Event::NotHung("no rank is seen to wait for another".to_owned()),
            };
            return (vec![says], true);
        };
        // Ranks that waited when they were first seen, and have gone on, are not those that wait now.
        if still < patience {
            let has_time = !is_over || held.iter().any(|one| !one.has_moved);
            return match has_time {
                true => (Vec::new(), false),
                false => (vec![moves()], true),
            };
        }
        match verdict.kind {
            HangKind::Slow => slow(&mut self.has_reported, verdict, &living, still, patience),
            HangKind::Unknown => (vec![Event::Still(verdict, still)], true),
            _ => (vec![Event::Verdict(verdict)], true),
        }
    }

    /// Writes what is seen now into a folder.
    fn keep(
        &self,
        folder: &Path,
        table: &[ProcessEntry],
        patience: Duration,
        hosts: &mut Hosts,
    ) -> io::Result<()> {
        let ranks = numbered(&self.world.ranks.iter().collect::<Vec<_>>());
        let watched = || {
            let all = ranks.iter();
            all.filter_map(|(rank, process)| {
                Some((*rank, *process, self.snapshots.get(&process.pid)?))
            })
        };
        let places: BTreeMap<Rank, SeenPlace> = watched()
            .filter_map(|(rank, process, one)| {
                let state = one.state(rank, process, hosts)?;
                Some((rank, SeenPlace::of(&state)?))
            })
            .collect();
        let held = watched().filter(|(_, _, one)| one.is_held());
        let still = held.map(|(_, _, one)| one.still()).min();
        // Other nodes may be looked at later: what counts is since when the ranks run.
        let pids: BTreeSet<u32> = ranks.iter().map(|(_, process)| process.pid).collect();
        let own = table.iter().filter(|one| pids.contains(&one.pid));
        let age = own.filter_map(|one| host::age(one.started)).max();
        let began = node_evidence::now() - age.unwrap_or_default().as_secs_f64();
        let is_whole = is_whole_here(&ranks);
        let still = still.unwrap_or_default();
        let evidence = NodeEvidence::of(&ranks, began, still, patience, is_whole);
        evidence.with_places(&places).write(folder)?;
        Ok(())
    }

    /// Returns what is known of the ranks; `None` while the addresses that they use are looked up.
    fn evidence(
        &self,
        ranks: &[(Rank, &RankProcess)],
        still: Duration,
        hosts: &mut Hosts,
    ) -> Option<HangEvidence> {
        let is_whole = is_whole_here(ranks);
        let mut states = Vec::new();
        for (rank, process) in ranks {
            let snapshot = self.snapshots.get(&process.pid);
            let mut state = match snapshot {
                Some(snapshot) => snapshot.state(*rank, process, hosts)?,
                None => RankState::unknown(*rank),
            };
            if let (Process::Ended(how), Some(status)) =
                (&mut state.process, self.own_ends.get(&process.pid))
            {
                *how = ended(*status);
            }
            states.push(state);
        }
        let absent = absent(ranks);
        // Those that never came are told apart from those that have gone by where the others are.
        let has_begun = self.snapshots.values().any(RankSnapshot::is_past_init);
        if is_whole && has_begun {
            for (index, rank) in absent.iter().enumerate() {
                let how = match self.ended.get(index).filter(|_| absent.len() == 1) {
                    Some(Some(status)) => ended(*status),
                    _ => "no process of it is left".to_owned(),
                };
                states.push(RankState {
                    process: Process::Ended(how),
                    ..RankState::unknown(*rank)
                });
            }
        }
        states.sort_by_key(|state| state.rank);
        let mut evidence = HangEvidence {
            ranks: states,
            is_whole,
            still,
            ..HangEvidence::default()
        };
        let is_ours = |pid: u32| self.world.related_processes.contains(&pid);
        evidence.foreign_listeners = foreign_listeners(&is_ours, &evidence);
        Some(evidence)
    }

    /// Returns the verdict that fits best.
    fn verdict(&self, ranks: &[(Rank, &RankProcess)], evidence: &HangEvidence) -> Diagnosis {
        let is_seen_to_end = self.ended.len() == absent(ranks).len();
        let mut verdict = diagnose(evidence);
        let is_from_kernel = match verdict.kind {
            HangKind::PeerStopped => true,
            HangKind::PeerDead => is_seen_to_end,
            _ => false,
        };
        if verdict.confidence == Confidence::Proved && !is_from_kernel {
            verdict.confidence = Confidence::Likely;
        }
        verdict
    }

    /// Describes which processes the ranks are, how they were found, and which evidence is missing.
    fn remarks(&self, is_one_of_many: bool) -> Vec<String> {
        let ranks = numbered(&self.world.ranks.iter().collect::<Vec<_>>());
        let pids: Vec<String> = ranks
            .iter()
            .map(|(rank, process)| format!("rank {rank} is pid {}", process.pid))
            .collect();
        let of = match is_one_of_many {
            true => "of several worlds, it is that in which ",
            false => "",
        };
        let mut remarks = vec![format!("{of}{}", pids.join(", "))];
        remarks.extend(self.world.notes.iter().cloned());
        let absent = absent(&ranks);
        if !absent.is_empty() && !is_whole_here(&ranks) {
            remarks.push(format!(
                "missing: {} run on other hosts, and nothing is known of them here: attach there too",
                named(&absent)
            ));
        }
        let mut unread: BTreeMap<&str, Vec<Rank>> = BTreeMap::new();
        for (rank, process) in ranks.iter().filter(|(_, process)| process.lives()) {
            let snapshot = self.snapshots.get(&process.pid);
            if let Some(why) = snapshot.and_then(RankSnapshot::why_unread) {
                unread.entry(why).or_default().push(*rank);
            }
        }
        for (why, ranks) in unread {
            remarks.push(format!(
                "missing: the Python stacks of {}: {why}; be the user of the job or root, and see kernel.yama.ptrace_scope",
                named(&ranks)
            ));
        }
        let records = self.records.as_ref().filter(|records| !records.is_empty());
        match records {
            Some(records) => remarks.extend(records.failures().map(|(rank, why)| {
                format!("missing: the flight recorder of rank {rank}: {why}")
            })),
            None => remarks.push(
                "missing: the number, group, size and order of each collective: start the job under `allranks watch -- COMMAND`"
                    .to_owned(),
            ),
        }
        remarks
    }
}

/// Returns the events to report for what the ranks' recorders tell, and whether they are the last.
fn report_recorded(
    has_reported: &mut bool,
    recorded: Diagnosis,
    living: &[(Rank, &RankSnapshot)],
    patience: Duration,
) -> (Vec<Event>, bool) {
    // A rank that has not come to a collective may be busy with something that ends.
    let waits = |rank: &Rank| {
        living
            .iter()
            .any(|(one, snapshot)| one == rank && snapshot.is_held())
    };
    if recorded.kind != HangKind::Behind || recorded.culprits.iter().all(waits) {
        return (vec![Event::Verdict(recorded)], true);
    }
    let recorded = Diagnosis {
        kind: HangKind::Slow,
        confidence: Confidence::None,
        ..recorded
    };
    slow(has_reported, recorded, living, patience, patience)
}

/// Ranks in their own code that the others wait for: they are behind only if they have not run, and nothing that belongs to
/// them has, for many times the patience.
fn slow(
    has_reported: &mut bool,
    verdict: Diagnosis,
    living: &[(Rank, &RankSnapshot)],
    still: Duration,
    patience: Duration,
) -> (Vec<Event>, bool) {
    let blamed: Vec<&RankSnapshot> = (living.iter())
        .filter(|(rank, _)| verdict.culprits.contains(rank))
        .map(|(_, one)| *one)
        .collect();
    let limits: Option<Vec<(Duration, Duration)>> = (blamed.iter())
        .map(|one| Some((one.rest()?, one.limit(patience)?)))
        .collect();
    if let Some(limits) = limits.filter(|limits| !limits.is_empty()) {
        let is_due = |(rest, limit): &(Duration, Duration)| rest.min(&still) >= limit;
        if limits.iter().all(is_due) {
            let waits: Vec<OwnWait> = (blamed.iter().map(|one| one.own_wait())).collect();
            return (vec![Event::Verdict(behind(verdict, &waits))], true);
        }
        let says = match std::mem::replace(has_reported, true) {
            true => Vec::new(),
            false => vec![Event::Still(verdict, still)],
        };
        return (says, false);
    }
    match std::mem::replace(has_reported, true) {
        true => (Vec::new(), true),
        false => (vec![Event::Still(verdict, still)], true),
    }
}

/// Returns true if all ranks of the world are known to belong on this host.
fn is_whole_here(ranks: &[(Rank, &RankProcess)]) -> bool {
    let mut sizes = ranks
        .iter()
        .filter_map(|(_, process)| process.number("WORLD_SIZE"));
    sizes.next().is_some() && is_whole(ranks, true)
}

/// The ranks of the world that have no process here.
fn absent(ranks: &[(Rank, &RankProcess)]) -> Vec<Rank> {
    let sizes = ranks
        .iter()
        .filter_map(|(_, process)| process.number("WORLD_SIZE"));
    let seen: BTreeSet<Rank> = ranks.iter().map(|(rank, _)| *rank).collect();
    (0..sizes.max().unwrap_or(0))
        .map(Rank)
        .filter(|rank| !seen.contains(rank))
        .collect()
}

/// Describes how a process ended, by a status of `wait`.
fn ended(status: i32) -> String {
    match status & 0x7f {
        0 => format!("exit {}", (status >> 8) & 0xff),
        signal => format!("signal {signal}"),
    }
}
