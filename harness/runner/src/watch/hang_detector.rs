//! When to speak. What is proved is said as soon as it has been so for a moment; what is likely, only after nothing has
//! moved for as long as the user has patience. A program that is slow is never accused.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::evidence::{as_told, evidence};
use super::hosts::Hosts;
use super::job::{Job, RankProcess};
use crate::world::Remnant;
use allranks_diagnose::diagnose;
use allranks_host::Activity;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// For how long a proof must stand, and those it is about must not have moved.
const MOMENT: Duration = Duration::from_millis(1000);

/// Something to tell.
#[derive(Clone, Debug)]
pub enum Event {
    /// A hang, and whose fault it is.
    Verdict(Diagnosis),
    /// Nothing has moved for so long, and no verdict; where each rank is.
    Still(Diagnosis, Duration),
    /// What was said to be still moves again.
    Moves,
    /// Processes of the command that could not be killed.
    Unkilled(Vec<Remnant>),
}

/// See the module.
#[derive(Debug)]
pub struct HangDetector {
    patience: Duration,
    hosts: Hosts,
    /// What each rank did when it last did something else.
    last: BTreeMap<Rank, Trace>,
    /// When anything last moved, down to a line of somebody's own code.
    moved: Instant,
    /// When anybody last began or ended a call, or came or went.
    called: Instant,
    proof: Option<(Essence, Instant)>,
    told: Option<Told>,
}

/// What of a rank changes when it moves.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trace {
    pid: u32,
    moves: u64,
    at: Option<String>,
    is_stopped: bool,
    is_gone: bool,
}

/// What makes two verdicts the same: whose fault it is, and that these have not moved.
type Essence = (HangKind, Vec<Rank>, Calls);

/// By rank: its process, and how many calls it has begun and ended.
type Calls = BTreeMap<Rank, (u32, u64)>;

/// What was told, and where those were whom it is about.
#[derive(Debug)]
struct Told {
    is_verdict: bool,
    calls: Calls,
    /// Since when nothing had moved.
    since: Instant,
}

impl Trace {
    fn of(process: &RankProcess) -> Self {
        let diary = process.diary.as_ref();
        Self {
            pid: process.pid,
            moves: diary.map_or(0, |diary| diary.moves),
            at: diary.and_then(|diary| Some(diary.own.as_ref()?.at.clone())),
            is_stopped: process.activity == Some(Activity::Stopped),
            is_gone: process.activity == Some(Activity::Gone),
        }
    }

    fn calls(&self) -> (u32, u64) {
        (self.pid, self.moves)
    }
}

impl HangDetector {
    /// A vigil that begins now.
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            hosts: Hosts::default(),
            last: BTreeMap::new(),
            moved: Instant::now(),
            called: Instant::now(),
            proof: None,
            told: None,
        }
    }

    /// What there is to say of the job as it is now.
    pub fn consider(&mut self, job: &mut Job) -> Vec<Event> {
        let traces: BTreeMap<Rank, Trace> = job
            .ranks()
            .into_iter()
            .map(|(rank, process)| (rank, Trace::of(process)))
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
        let held: Vec<Rank> = held(job).collect();
        // As long as somebody is held up in a call, what others do by themselves is no progress.
        let since = match held.is_empty() {
            true => self.moved,
            false => self.called,
        };
        let mut events = Vec::new();
        if let Some(told) = &self.told {
            let has_moved = |(rank, calls): (&Rank, &(u32, u64))| {
                self.last
                    .get(rank)
                    .is_none_or(|trace| trace.calls() != *calls)
            };
            if told.calls.iter().any(has_moved) {
                self.told = None;
                events.push(Event::Moves);
            } else if told.is_verdict {
                return events;
            } else if told.since != since {
                self.told = None;
            }
        }
        let still = now.duration_since(since);
        let mut told = None;
        let proved = match held.is_empty() {
            true => {
                self.proof = None;
                None
            }
            false => self.proved(job, still, now),
        };
        if let Some(verdict) = proved {
            told = Some(Event::Verdict(verdict));
        } else if self.told.is_none() && still >= self.patience {
            told = self.likely(job, still);
        }
        if let Some(event) = told {
            self.told = Some(Told {
                is_verdict: matches!(event, Event::Verdict(_)),
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

    /// A verdict that is proved and has stood for a moment.
    fn proved(&mut self, job: &Job, still: Duration, now: Instant) -> Option<Diagnosis> {
        let found = evidence(job, &mut self.hosts, still, false)
            .map(|evidence| diagnose(&evidence))
            .filter(|verdict| verdict.confidence == Confidence::Proved);
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

    /// What can be said when patience is at its end.
    fn likely(&mut self, job: &Job, still: Duration) -> Option<Event> {
        if job.ranks().is_empty() {
            return None;
        }
        let mut verdict = self.best(job, still)?;
        Some(match verdict.kind {
            HangKind::Slow | HangKind::Unknown => Event::Still(verdict, still),
            _ => {
                verdict.confidence = Confidence::Likely;
                Event::Verdict(verdict)
            }
        })
    }

    /// What can be said now, whatever it proves; none of a job without ranks.
    pub fn diagnosis(&mut self, job: &Job) -> Option<Diagnosis> {
        let since = match held(job).next() {
            None => self.moved,
            Some(_) => self.called,
        };
        if job.ranks().is_empty() {
            return None;
        }
        self.best(job, since.elapsed())
    }

    /// The verdict that fits best.
    fn best(&mut self, job: &Job, still: Duration) -> Option<Diagnosis> {
        let evidence = evidence(job, &mut self.hosts, still, true)?;
        let mut verdict = diagnose(&evidence);
        if verdict.kind == HangKind::Unknown
            && let Some(told) = as_told(&evidence, job, &mut self.hosts)
        {
            let by_claims = diagnose(&told);
            if !matches!(by_claims.kind, HangKind::Slow | HangKind::Unknown) {
                // Where they are is still not known.
                let places = verdict.places;
                verdict = Diagnosis {
                    places,
                    ..by_claims
                };
            }
        }
        Some(verdict)
    }
}

/// The ranks that have been in one call for a moment.
fn held(job: &Job) -> impl Iterator<Item = Rank> {
    job.ranks().into_iter().filter_map(|(rank, process)| {
        let inside = process.diary.as_ref()?.inside.as_ref()?;
        (process.lives() && inside.lasts() >= MOMENT).then_some(rank)
    })
}
