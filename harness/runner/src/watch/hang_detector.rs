//! Decides when hang evidence is reported. A proved verdict is reported once it has stood for a moment; a likely one
//! only after nothing has moved for the user's patience. A program that is merely slow is never accused.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::below::Below;
use super::call_trace::{Call, CallTrace};
use super::evidence::{as_assigned, endpoints_without_listener, evidence, evidence_of_ranks};
use super::hosts::Hosts;
use super::job::{Job, RankProcess};
use super::kernel_wait::{KernelWait, kernel_wait};
use super::reach::Reach;
use super::recorder;
use crate::world::Orphan;
use allranks_diagnose::{EventKind, HangEvidence, RankState, diagnose};
use allranks_host::Activity;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// How long a proof must stand, while the ranks that it blames do not move.
const MOMENT: Duration = Duration::from_millis(1000);

/// What the hang detector reports.
#[derive(Clone, Debug)]
pub enum Event {
    /// A hang verdict.
    Verdict(Diagnosis),
    /// Nothing has moved for this long, and there is no verdict; the diagnosis says where each rank is.
    Still(Diagnosis, Duration),
    /// Ranks that a verdict has named as stopped are still stopped after 3 times the patience, in which a scheduler or a debugger
    /// could have let them go on.
    StillStopped,
    /// A world that was reported before moves again.
    Moves,
    /// A job that was attached to does not hang; what is seen of it.
    NotHung(String),
    /// What must be known of the program, and accuses no rank.
    Note(String),
    /// Processes of the command that could not be killed.
    Unkilled(Vec<Orphan>),
}

/// How long, in multiples of the user's patience, a rank that others wait for may be in a wait of its own (a lock, a
/// data loader, a breakpoint), idle, or at work, before it is reported as behind.
pub const WAITING_PATIENCES: u32 = 3;
pub const IDLE_PATIENCES: u32 = 5;
const WORKING_PATIENCES: u32 = 10;
/// The shortest time after which a rank is reported as behind, however small the patience.
pub const SHORTEST_LIMIT: Duration = Duration::from_secs(20);

/// Detects hangs in all worlds of a program, each by itself.
#[derive(Debug)]
pub struct HangDetector {
    patience: Duration,
    hosts: Hosts,
    /// Detectors of the worlds, by the lowest process id of each.
    worlds: BTreeMap<u32, WorldDetector>,
}

/// Detects hangs in one world.
#[derive(Debug)]
struct WorldDetector {
    patience: Duration,
    /// What each rank did when it last changed.
    last: BTreeMap<Rank, Trace>,
    /// When any rank last moved, down to a line of its own code.
    moved: Instant,
    /// When any rank last began or ended a call, started, or ended.
    called: Instant,
    /// Whether the endpoints that its ranks dial can be reached.
    reach: Reach,
    /// What the processes below its ranks do, once nothing has moved for the patience.
    below: Below,
    proof: Option<(VerdictKey, Instant)>,
    last_report: Option<LastReport>,
    /// Since when each stopped rank has been so at every look.
    stopped: BTreeMap<Rank, Instant>,
    /// True once a rank that was reported as stopped went on: something stops its ranks and lets them go on, as a scheduler does.
    is_paced: bool,
}

/// The ranks of one world.
type Ranks<'a> = [(Rank, &'a RankProcess)];

/// What changes of a rank when it moves.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trace {
    pid: u32,
    moves: u64,
    at: Option<String>,
    is_stopped: bool,
    is_gone: bool,
}

/// What two verdicts must have in common to be the same: kind, culprits, and that the culprits have not moved.
type VerdictKey = (HangKind, Vec<Rank>, Calls);

/// By rank: its process id, and its progress (see [`CallTrace::progress`]).
type Calls = BTreeMap<Rank, (u32, u64)>;

/// The last report on a world.
#[derive(Debug)]
struct LastReport {
    is_verdict: bool,
    /// The ranks that it is a verdict on because they are stopped; none once it has been reported that it holds.
    stopped: Vec<Rank>,
    calls: Calls,
    /// Since when nothing had moved.
    since: Instant,
}

impl Trace {
    fn of(process: &RankProcess) -> Self {
        let call_trace = process.call_trace.as_ref();
        Self {
            pid: process.pid,
            moves: call_trace.map_or(0, CallTrace::progress),
            at: call_trace.and_then(|call_trace| Some(call_trace.own.as_ref()?.at.clone())),
            is_stopped: process.activity == Some(Activity::Stopped),
            is_gone: process.activity == Some(Activity::Gone),
        }
    }

    fn calls(&self) -> (u32, u64) {
        (self.pid, self.moves)
    }
}

impl HangDetector {
    /// Starts a hang detector; patience counts from now.
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            hosts: Hosts::default(),
            worlds: BTreeMap::new(),
        }
    }

    /// Takes the job's current state. Returns what must be reported.
    pub fn consider(&mut self, job: &mut Job) -> Vec<Event> {
        let mut events = Vec::new();
        let worlds = job.worlds();
        let is_one_of_many = worlds.len() > 1;
        let mut kept = BTreeMap::new();
        for ranks in &worlds {
            // Where no rank lives, nothing hangs.
            if !ranks.iter().any(|(_, rank)| rank.lives()) {
                continue;
            }
            // Ranks come and go: the world is the one that had any of these processes.
            let known = self.worlds.iter().find_map(|(first, world)| {
                let had = |pid: u32| world.last.values().any(|trace| trace.pid == pid);
                ranks
                    .iter()
                    .any(|(_, rank)| had(rank.pid))
                    .then_some(*first)
            });
            let known = known.and_then(|first| self.worlds.remove(&first));
            let mut world = known.unwrap_or_else(|| WorldDetector::new(self.patience));
            let is_ours = |pid: u32| job.pids.contains(&pid);
            let mut found = world.consider(ranks, &is_ours, &mut self.hosts);
            for event in &mut found {
                if let Event::Verdict(one) | Event::Still(one, _) = event {
                    one.evidence.extend(lost(ranks));
                    name_process(one, ranks);
                }
                if let (true, Event::Verdict(one) | Event::Still(one, _)) = (is_one_of_many, event)
                {
                    let pids: Vec<String> =
                        ranks.iter().map(|(_, rank)| rank.pid.to_string()).collect();
                    one.evidence.push(format!(
                        "of several worlds, it is that of the processes {}",
                        pids.join(", ")
                    ));
                }
            }
            events.extend(found);
            let first = ranks
                .iter()
                .map(|(_, rank)| rank.pid)
                .min()
                .unwrap_or_default();
            kept.insert(first, world);
        }
        self.worlds = kept;
        events
    }

    /// The worlds that live, and for how long nothing of each has moved.
    pub fn stills<'a>(&self, job: &'a Job) -> Vec<(Vec<(Rank, &'a RankProcess)>, Duration)> {
        let still = |ranks: &Ranks<'_>| {
            let first = ranks.iter().map(|(_, rank)| rank.pid).min()?;
            let world = self.worlds.get(&first)?;
            Some(match held(ranks).next() {
                None => world.moved.elapsed(),
                Some(_) => world.called.elapsed(),
            })
        };
        let worlds = job.worlds().into_iter();
        worlds
            .filter_map(|ranks| {
                let still = still(&ranks)?;
                Some((ranks, still))
            })
            .collect()
    }

    /// Returns the endpoints on other machines that ranks in a call dial and that cannot be reached from here, each with the reason.
    /// What was found is a few seconds old at most.
    pub fn unreached(&mut self, job: &Job) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for ranks in job.worlds() {
            let first = ranks.iter().map(|(_, rank)| rank.pid).min();
            let Some(world) = first.and_then(|first| self.worlds.get_mut(&first)) else {
                continue;
            };
            if held(&ranks).next().is_none() {
                continue;
            }
            let evidence = evidence_of_ranks(&ranks, &mut self.hosts, Duration::ZERO, false);
            let tried =
                evidence.and_then(|seen| endpoints_without_listener(&seen, &mut world.reach));
            found.extend(tried.unwrap_or_default());
        }
        found
    }

    /// Returns the diagnosis of the job's largest world at this moment, whether it is proved or not; none for a job
    /// without ranks.
    pub fn diagnosis(&mut self, job: &Job) -> Option<Diagnosis> {
        let ranks = job.ranks();
        let first = ranks.iter().map(|(_, rank)| rank.pid).min()?;
        let is_ours = |pid: u32| job.pids.contains(&pid);
        match self.worlds.get_mut(&first) {
            Some(world) => world.diagnosis(&ranks, &is_ours, &mut self.hosts),
            None => WorldDetector::new(self.patience).diagnosis(&ranks, &is_ours, &mut self.hosts),
        }
    }
}

impl WorldDetector {
    fn new(patience: Duration) -> Self {
        Self {
            patience,
            last: BTreeMap::new(),
            moved: Instant::now(),
            called: Instant::now(),
            reach: Reach::default(),
            below: Below::default(),
            proof: None,
            last_report: None,
            stopped: BTreeMap::new(),
            is_paced: false,
        }
    }

    /// Takes the world's current state. Returns what must be reported.
    fn consider(
        &mut self,
        ranks: &Ranks<'_>,
        is_ours: &dyn Fn(u32) -> bool,
        hosts: &mut Hosts,
    ) -> Vec<Event> {
        let traces: BTreeMap<Rank, Trace> = ranks
            .iter()
            .map(|(rank, process)| (*rank, Trace::of(process)))
            .collect();
        let now = Instant::now();
        let calls = |trace: &Trace| (trace.calls(), trace.is_stopped, trace.is_gone);
        if !traces.values().map(calls).eq(self.last.values().map(calls)) {
            self.called = now;
        }
        if traces != self.last {
            self.last = traces;
            self.moved = now;
        }
        let stopped = self.last.iter().filter(|(_, trace)| trace.is_stopped);
        let since = |rank: &Rank| self.stopped.get(rank).copied().unwrap_or(now);
        self.stopped = stopped.map(|(rank, _)| (*rank, since(rank))).collect();
        let held: Vec<Rank> = held(ranks).collect();
        // While a rank is held in a call, what the others do in code of their own is no progress.
        let since = match held.is_empty() {
            true => self.moved,
            false => self.called,
        };
        let mut events = Vec::new();
        if let Some(last_report) = &mut self.last_report {
            let has_moved = |(rank, calls): (&Rank, &(u32, u64))| {
                self.last
                    .get(rank)
                    .is_none_or(|trace| trace.calls() != *calls)
            };
            let goes_on = |rank: &Rank| !self.stopped.contains_key(rank);
            if last_report.stopped.iter().any(goes_on) {
                self.is_paced = true;
                self.last_report = None;
                events.push(Event::Moves);
            } else if last_report.calls.iter().any(has_moved) {
                self.last_report = None;
                events.push(Event::Moves);
            } else if last_report.is_verdict {
                let limit = self.patience * WAITING_PATIENCES;
                if !last_report.stopped.is_empty() && now.duration_since(last_report.since) >= limit
                {
                    last_report.stopped.clear();
                    events.push(Event::StillStopped);
                }
                return events;
            } else if last_report.since != since {
                self.last_report = None;
            }
        }
        let still = now.duration_since(since);
        match still >= self.patience {
            true => {
                let living = ranks.iter().filter(|(_, process)| process.lives());
                let pids: Vec<u32> = living.map(|(_, process)| process.pid).collect();
                self.below.look(&pids);
                for (_, process) in ranks {
                    if let Some(Activity::Alive { ticks }) = process.activity {
                        self.below.own(process.pid, ticks);
                    }
                }
            }
            false => self.below = Below::default(),
        }
        let mut last_report = None;
        let proved = match held.is_empty() {
            true => {
                self.proof = None;
                None
            }
            false => self.proved(ranks, is_ours, hosts, still, now),
        };
        if let Some(verdict) = proved {
            last_report = Some(Event::Verdict(verdict));
        } else if self.last_report.is_none() && still >= self.patience {
            last_report = self.likely(ranks, is_ours, hosts, still);
        } else if self
            .last_report
            .as_ref()
            .is_some_and(|last_report| !last_report.is_verdict)
            && still >= self.patience * WAITING_PATIENCES
        {
            last_report = self.escalated(ranks, is_ours, hosts, still);
        }
        if let Some(event) = last_report {
            self.last_report = Some(LastReport {
                is_verdict: matches!(event, Event::Verdict(_)),
                stopped: match &event {
                    Event::Verdict(verdict) if is_of_stopped(&event) => verdict.culprits.clone(),
                    _ => Vec::new(),
                },
                calls: self.calls(&held),
                since,
            });
            events.push(event);
        }
        events
    }

    fn calls(&self, ranks: &[Rank]) -> Calls {
        ranks
            .iter()
            .filter_map(|rank| Some((*rank, self.last.get(rank)?.calls())))
            .collect()
    }

    /// Returns a verdict that is proved and has stood for [`MOMENT`]; otherwise none.
    fn proved(
        &mut self,
        ranks: &Ranks<'_>,
        is_ours: &dyn Fn(u32) -> bool,
        hosts: &mut Hosts,
        still: Duration,
        now: Instant,
    ) -> Option<Diagnosis> {
        // A record that is older than the rank's last call proves nothing.
        let is_stale = |rank: &RankProcess| {
            // A stopped process cannot write its record, and issues nothing either.
            let runs = matches!(rank.activity, Some(Activity::Alive { .. }));
            runs && rank.call_trace.as_ref().is_some_and(CallTrace::is_stale)
        };
        if ranks.iter().any(|(_, rank)| is_stale(rank)) {
            self.proof = None;
            return None;
        }
        let found = evidence(ranks, is_ours, hosts, still, false)
            .map(|evidence| diagnose(&evidence))
            .filter(|verdict| verdict.confidence == Confidence::Proved)
            .filter(|verdict| !self.is_paced || !self.is_moment(verdict, now));
        let Some(verdict) = found else {
            self.proof = None;
            return None;
        };
        let essence = (
            verdict.kind,
            verdict.culprits.clone(),
            self.calls(&verdict.culprits),
        );
        match &self.proof {
            Some((known, since)) if *known == essence => {
                (now.duration_since(*since) >= MOMENT).then_some(verdict)
            }
            _ => {
                self.proof = Some((essence, now));
                None
            }
        }
    }

    /// Returns true if a verdict names ranks as stopped of which one has not been so for as long as others may let it wait.
    fn is_moment(&self, verdict: &Diagnosis, now: Instant) -> bool {
        let limit = self.patience * WAITING_PATIENCES;
        let is_short = |rank: &Rank| {
            let since = self.stopped.get(rank);
            since.is_none_or(|since| now.duration_since(*since) < limit)
        };
        verdict.kind == HangKind::PeerStopped && verdict.culprits.iter().any(is_short)
    }

    /// Returns what is reported when patience has run out.
    fn likely(
        &mut self,
        ranks: &Ranks<'_>,
        is_ours: &dyn Fn(u32) -> bool,
        hosts: &mut Hosts,
        still: Duration,
    ) -> Option<Event> {
        let (mut verdict, _) = best(ranks, is_ours, hosts, &mut self.reach, still)?;
        if verdict.kind == HangKind::Slow {
            // It may be late, or never come: what it waits for is known at times.
            let late = (ranks.iter()).filter(|(rank, _)| verdict.culprits.contains(rank));
            for (rank, process) in late {
                let wait = sleep_of(process);
                verdict
                    .evidence
                    .extend(wait.map(|wait| fact_of(*rank, wait)));
                let kind = kind_of_wait(process).unwrap_or_default();
                let known = advice(&kind).or(wait.map(|wait| wait.advice));
                if let Some(line) = known
                    && !verdict.advice.iter().any(|one| one == line)
                {
                    verdict.advice.push(line.to_owned());
                }
            }
        }
        Some(match verdict.kind {
            HangKind::Slow | HangKind::Unknown => Event::Still(verdict, still),
            _ => {
                verdict.confidence = Confidence::Likely;
                Event::Verdict(verdict)
            }
        })
    }

    /// Returns the verdict on a rank that others have waited for many times the patience while it was in its own code;
    /// none before that.
    fn escalated(
        &mut self,
        ranks: &Ranks<'_>,
        is_ours: &dyn Fn(u32) -> bool,
        hosts: &mut Hosts,
        still: Duration,
    ) -> Option<Event> {
        let (verdict, evidence) = best(ranks, is_ours, hosts, &mut self.reach, still)?;
        if verdict.kind != HangKind::Slow {
            return None;
        }
        let blamed: Vec<&RankProcess> = (ranks.iter())
            .filter(|(rank, _)| verdict.culprits.contains(rank))
            .map(|(_, process)| *process)
            .collect();
        if blamed.is_empty()
            && let Some(told) = allranks_diagnose::unreachable(&evidence)
        {
            let is_long = still >= SHORTEST_LIMIT.max(self.patience * IDLE_PATIENCES);
            return is_long.then_some(Event::Verdict(told));
        }
        // Nothing is known of a rank that is not on this host.
        if blamed.is_empty() || blamed.len() < verdict.culprits.len() {
            return None;
        }
        let times = blamed.iter().map(|process| {
            let at_work =
                || self.moved.elapsed() < self.patience || !allranks_host::is_asleep(process.pid);
            let has_work_below = self.below.has_worked_within(process.pid, self.patience);
            let kind = kind_of_wait(process).unwrap_or_default();
            let is_served =
                kind == "requests" && !has_left_a_request(&evidence, process, self.patience);
            multiple(
                &kind,
                is_served,
                has_work_below,
                is_silent(process),
                at_work,
            )
        });
        let times: Option<Vec<u32>> = times.collect();
        let times = times?.into_iter().max()?;
        let limit = SHORTEST_LIMIT.max(self.patience * times);
        if still < limit {
            return None;
        }
        // On a machine that is too busy, minutes are seconds to a rank.
        let wanted = processor_ticks(limit);
        let (below, patience) = (&mut self.below, self.patience);
        let is_starved = |process: &&RankProcess| match process.activity {
            Some(Activity::Alive { ticks }) if allranks_host::state(process.pid) == Some('R') => {
                below.own(process.pid, ticks) < wanted
            }
            // It waits for processes that want the processor.
            _ => {
                below.has_worked_within(process.pid, patience)
                    && below.used_below(process.pid) < wanted
            }
        };
        if blamed.iter().any(is_starved) {
            return None;
        }
        let kinds = blamed.iter().filter_map(|process| kind_of_wait(process));
        let kinds: Vec<String> = kinds.collect();
        let mut verdict = behind(verdict, &kinds);
        if let Some(helper) = blamed.iter().find_map(|process| stopped_below(process.pid)) {
            // Which process has stopped it is not known: it may be that of a rank that waits for this one.
            verdict.culprits.clear();
            verdict.evidence.push(format!(
                "process {helper}, which the rank has started, is stopped (state T)"
            ));
            verdict.advice = vec![format!("let it go on: kill -CONT {helper}")];
            return Some(Event::Verdict(verdict));
        }
        let sleeps = (ranks.iter())
            .filter(|(rank, _)| verdict.culprits.contains(rank))
            .filter_map(|(rank, process)| Some((*rank, sleep_of(process)?)));
        for (rank, wait) in sleeps {
            verdict.evidence.push(fact_of(rank, wait));
            if kinds.iter().all(|kind| advice(kind).is_none()) {
                verdict.advice = vec![wait.advice.to_owned()];
            }
        }
        Some(Event::Verdict(verdict))
    }

    /// Returns the diagnosis of the world at this moment, whether it is proved or not; none without ranks.
    fn diagnosis(
        &mut self,
        ranks: &Ranks<'_>,
        is_ours: &dyn Fn(u32) -> bool,
        hosts: &mut Hosts,
    ) -> Option<Diagnosis> {
        let since = match held(ranks).next() {
            None => self.moved,
            Some(_) => self.called,
        };
        best(ranks, is_ours, hosts, &mut self.reach, since.elapsed()).map(|(verdict, _)| verdict)
    }
}

/// Returns true if an event is a verdict on ranks that a signal or a debugger has stopped, and may let go on.
#[must_use]
pub fn is_of_stopped(event: &Event) -> bool {
    matches!(event, Event::Verdict(one) if one.kind == HangKind::PeerStopped)
}

/// Returns a process that a rank has started, directly or by others, and that is stopped; none if none is.
fn stopped_below(pid: u32) -> Option<u32> {
    let below = allranks_host::processor_times_below(&[pid]);
    let mut pids = below.get(&pid)?.keys().copied();
    pids.find(|pid| allranks_host::state(*pid) == Some('T'))
}

/// Returns what a rank is in at its line of the program's own code, as its call trace has it.
fn kind_of_wait(process: &RankProcess) -> Option<String> {
    Some(process.call_trace.as_ref()?.own.as_ref()?.kind.clone())
}

/// Returns what the main thread of a rank waits for in the kernel; `None` if that is not known.
fn sleep_of(process: &RankProcess) -> Option<KernelWait> {
    kernel_wait(&allranks_host::sleeps_in(process.pid)?)
}

/// Describes what a rank waits for in the kernel.
fn fact_of(rank: Rank, wait: KernelWait) -> String {
    format!("the main thread of rank {rank} {}", wait.what)
}

/// Returns how many times the patience a rank may take that others wait for, by what it is in; none if that may take for ever.
fn multiple(
    kind: &str,
    is_served: bool,
    has_work_below: bool,
    is_silent: bool,
    is_at_work: impl Fn() -> bool,
) -> Option<u32> {
    match kind {
        // A server waits for as long as there are none.
        "requests" if is_served => None,
        "breakpoint" => Some(WAITING_PATIENCES),
        // Whatever may wake it is not seen: it gets as long as what works.
        "event loop" => Some(WORKING_PATIENCES),
        "unwoken event loop" => Some(WAITING_PATIENCES),
        _ if has_work_below => Some(WORKING_PATIENCES),
        "data loader" | "lock" => Some(WAITING_PATIENCES),
        // A training step does not keep the interpreter from answering for this long.
        _ if is_silent => Some(IDLE_PATIENCES),
        _ if is_at_work() => Some(WORKING_PATIENCES),
        _ => Some(IDLE_PATIENCES),
    }
}

/// Returns the processor time, in clock ticks of 10 ms, that a rank, or what it waits for below it, has had before it is reported as
/// behind after this limit, if it wants the processor: half of the limit.
fn processor_ticks(limit: Duration) -> u64 {
    limit.as_millis() as u64 / 20
}

/// Collectives that carry no request to the other ranks: a server that is idle does not call one of them before its next
/// request.
const WITHOUT_NEWS: &[&str] = &[
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "barrier",
];
/// The number of times that a rank must have called such a collective at once.
const HABIT: usize = 2;

/// Returns true if a rank that waits for requests has left one half done: all other ranks wait for it in a collective that
/// carries no request, and so far the rank has always called it within the patience after its call before.
pub(super) fn has_left_a_request(
    evidence: &HangEvidence,
    process: &RankProcess,
    patience: Duration,
) -> bool {
    // The recorder does not tell when calls ended.
    let traced = process.traced.as_ref().or(process.call_trace.as_ref());
    let Some(call_trace) = traced else {
        return false;
    };
    let held = evidence.ranks.iter().filter_map(RankState::now);
    let mut names: Vec<&str> = Vec::new();
    for event in held {
        match event {
            EventKind::Collective(one) if WITHOUT_NEWS.contains(&one.name.as_str()) => {
                names.push(&one.name);
            }
            EventKind::Own(_) => {}
            _ => return false,
        }
    }
    names.dedup();
    let [name] = names[..] else {
        return false;
    };
    let pauses = pauses_before(call_trace, name);
    pauses.len() >= HABIT && pauses.iter().all(|pause| *pause < patience.as_secs_f64())
}

/// Returns for how many seconds a rank was in no call before each collective of this name.
fn pauses_before(call_trace: &CallTrace, name: &str) -> Vec<f64> {
    let pairs = call_trace
        .entries
        .iter()
        .zip(call_trace.entries.iter().skip(1));
    pairs
        .filter_map(|(before, entry)| match &entry.call {
            Call::Collective { name: own, .. } if own == name => Some(entry.t? - before.end?),
            _ => None,
        })
        .collect()
}

/// Returns true if the interpreter has had no heartbeat for [`SHORTEST_LIMIT`].
fn is_silent(process: &RankProcess) -> bool {
    let call_trace = process.call_trace.as_ref();
    call_trace.is_some_and(|call_trace| call_trace.silence() > SHORTEST_LIMIT)
}

/// Returns a line for each flight recorder that has overwritten its first collectives.
fn lost(ranks: &Ranks<'_>) -> Vec<String> {
    let last_report = ranks.iter().filter_map(|(rank, process)| {
        let lost = recorder::lost(process.traced.as_ref()?);
        (lost > 0).then(|| {
            format!("the flight recorder of rank {rank} has lost its first {lost} collectives")
        })
    });
    last_report.collect()
}

/// Returns the verdict that fits the evidence best, whether it is proved or not, and that evidence; none while addresses are being
/// looked up or tried.
fn best(
    ranks: &Ranks<'_>,
    is_ours: &dyn Fn(u32) -> bool,
    hosts: &mut Hosts,
    reach: &mut Reach,
    still: Duration,
) -> Option<(Diagnosis, HangEvidence)> {
    let mut evidence = evidence(ranks, is_ours, hosts, still, true)?;
    evidence.endpoints_without_listener = endpoints_without_listener(&evidence, reach)?;
    let mut verdict = diagnose(&evidence);
    if verdict.kind == HangKind::Unknown
        && let Some(assigned) = as_assigned(&evidence, ranks, is_ours, hosts)
    {
        let by_claims = diagnose(&assigned);
        if !matches!(by_claims.kind, HangKind::Slow | HangKind::Unknown) {
            // Their places are still unknown.
            let places = verdict.places;
            verdict = Diagnosis {
                places,
                ..by_claims
            };
        }
    }
    Some((verdict, evidence))
}

/// Returns the verdict on ranks that have been late for too long, with advice for what they are in.
pub fn behind(verdict: Diagnosis, kinds: &[String]) -> Diagnosis {
    let advice = |kind: &String| {
        advice(kind).unwrap_or("look at what that rank does there: py-spy dump --pid PID")
    };
    let mut lines: Vec<String> = kinds.iter().map(|kind| advice(kind).to_owned()).collect();
    lines.dedup();
    Diagnosis {
        kind: HangKind::Behind,
        confidence: Confidence::Likely,
        advice: lines,
        refuted_by: "the named rank goes on by itself".to_owned(),
        ..verdict
    }
}

/// Returns what to do about a rank that is in a wait of its own, by what it is in; `None` if it is in nothing that is known.
fn advice(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "breakpoint" => "a breakpoint or a debugger holds that rank: remove it, or let it go on",
        "data loader" => {
            "that rank waits for its data loader: try num_workers=0; look for workers that are stuck, or for a lock that was held at fork"
        }
        "lock" => {
            "that rank waits for a lock, a queue or a process of its own: look at which thread or process has it"
        }
        "child process" => {
            "that rank waits for a process that it has started: look at what that process does"
        }
        "connection" => {
            "that rank waits for another process to send to it or to read: ss -tnp | grep PID says which; give the connection a timeout"
        }
        "unwoken event loop" => {
            "callbacks are ready in that rank's event loop, and it sleeps: what another thread gives to it (a queue's item, a future's result) must go through loop.call_soon_threadsafe or asyncio.run_coroutine_threadsafe"
        }
        "event loop" => {
            "nothing can wake that rank's event loop: look for a task that has ended with an error, and for what should have set the future or event that is awaited there"
        }
        _ => return None,
    })
}

/// Puts the process id of a single culprit into the advice, where it stands for a process.
fn name_process(verdict: &mut Diagnosis, ranks: &Ranks<'_>) {
    let [culprit] = verdict.culprits[..] else {
        return;
    };
    let process = ranks.iter().find(|(rank, _)| *rank == culprit);
    if let Some((_, process)) = process {
        for line in &mut verdict.advice {
            *line = line.replace("PID", &process.pid.to_string());
        }
    }
}

/// Returns the ranks that have been in one call, or in retries, for a moment.
fn held<'a>(ranks: &'a Ranks<'_>) -> impl Iterator<Item = Rank> + 'a {
    ranks.iter().filter_map(|(rank, process)| {
        let call_trace = process.call_trace.as_ref()?;
        let is_inside = call_trace
            .inside
            .as_ref()
            .is_some_and(|inside| inside.lasts() >= MOMENT);
        (process.lives() && (is_inside || call_trace.is_retrying())).then_some(*rank)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_works_gets_more_time_than_what_waits_and_a_server_any() {
        let times =
            |kind: &str, has_work_below| multiple(kind, true, has_work_below, false, || false);
        assert_eq!(times("lock", false), Some(WAITING_PATIENCES));
        assert_eq!(times("data loader", false), Some(WAITING_PATIENCES));
        // A pool of processes that tokenises, and a data loader that decodes.
        assert_eq!(times("lock", true), Some(WORKING_PATIENCES));
        assert_eq!(times("data loader", true), Some(WORKING_PATIENCES));
        assert_eq!(times("child process", true), Some(WORKING_PATIENCES));
        assert_eq!(times("child process", false), Some(IDLE_PATIENCES));
        // Nothing below a rank brings it out of a debugger.
        assert_eq!(times("breakpoint", true), Some(WAITING_PATIENCES));
        assert_eq!(times("requests", false), None);
        let left = multiple("requests", false, false, false, || false);
        assert_eq!(left, Some(IDLE_PATIENCES));
        assert_eq!(times("event loop", false), Some(WORKING_PATIENCES));
        let silent = multiple("", true, false, true, || true);
        assert_eq!(silent, Some(IDLE_PATIENCES));
        let working = multiple("", true, false, false, || true);
        assert_eq!(working, Some(WORKING_PATIENCES));
    }

    #[test]
    fn advice_on_a_single_culprit_has_its_process_id() {
        let process = |pid| RankProcess {
            pid,
            environment: BTreeMap::new(),
            activity: None,
            call_trace: None,
            traced: None,
        };
        let (one, two) = (process(4711), process(4712));
        let ranks = [(Rank(0), &one), (Rank(1), &two)];
        let advice = |culprits: &[u32]| {
            let late = diagnose(&HangEvidence::default());
            let culprits = culprits.iter().copied().map(Rank).collect();
            let mut verdict = behind(Diagnosis { culprits, ..late }, &["connection".to_owned()]);
            name_process(&mut verdict, &ranks);
            verdict.advice.join("\n")
        };
        assert!(advice(&[1]).contains("ss -tnp | grep 4712"));
        assert!(advice(&[0, 1]).contains("grep PID"));
    }
}
