//! Decides when hang evidence of one world is reported: what has moved in it, what is proved of it, and what was reported last.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::event::Event;
use super::moves::{Calls, RankMoves, STANDSTILL, held, is_at_end, is_held};
use crate::watch::endpoints::hosts::Hosts;
use crate::watch::endpoints::listeners::endpoints_without_listener;
use crate::watch::endpoints::reach::Reach;
use crate::watch::evidence::hang_evidence::{as_assigned, evidence, evidence_of_ranks};
use crate::watch::evidence::world_view::{Ranks, WorldView};
use crate::watch::ranks::rank_process::{RankProcess, is_one_left};
use crate::watch::trace::call_trace::CallTrace;
use crate::watch::trace::own_wait::OwnWait;
use crate::watch::waits::below::Below;
use crate::watch::waits::late_rank::{
    SHORTEST_LIMIT, awaits_news, fact_of, has_left_a_request, is_silent, late_verdict,
    may_wait_for_device, own_wait, processor_ticks, sleep_of, without_waiting_for_answers,
};
use crate::watch::waits::patiences::{IDLE_PATIENCES, LateRank, WAITING_PATIENCES};
use allranks_diagnose::{HangEvidence, diagnose};
use allranks_host::Activity;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Detects hangs in one world.
#[derive(Debug)]
pub struct WorldDetector {
    patience: Duration,
    /// What each rank did when it last changed.
    last: BTreeMap<Rank, RankMoves>,
    /// When any rank last moved, down to a line of its own code.
    moved: Instant,
    /// When any rank last began or ended a call, started, or ended.
    called: Instant,
    /// When data last came to a rank's main thread at a connection of the program's own.
    received: BTreeMap<Rank, Instant>,
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

/// What two verdicts must have in common to be the same: kind, culprits, and that the culprits have not moved.
type VerdictKey = (HangKind, Vec<Rank>, Calls);

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

impl WorldDetector {
    /// Makes a detector of a world that moves now.
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            last: BTreeMap::new(),
            moved: Instant::now(),
            called: Instant::now(),
            received: BTreeMap::new(),
            reach: Reach::default(),
            below: Below::default(),
            proof: None,
            last_report: None,
            stopped: BTreeMap::new(),
            is_paced: false,
        }
    }

    /// Returns true if one of its ranks has this process id.
    pub fn has(&self, pid: u32) -> bool {
        self.last.values().any(|trace| trace.pid == pid)
    }

    /// Returns for how long nothing has moved in the world.
    pub fn still(&self, ranks: &Ranks<'_>) -> Duration {
        match is_held(ranks) {
            false => self.moved.elapsed(),
            true => self.called.elapsed(),
        }
    }

    /// Returns the endpoints on other machines that ranks in a call dial and that cannot be reached from here, each with the reason.
    pub fn unreached(&mut self, ranks: &Ranks<'_>, hosts: &mut Hosts) -> Vec<(String, String)> {
        if !is_held(ranks) {
            return Vec::new();
        }
        let evidence = evidence_of_ranks(ranks, hosts, Duration::ZERO, false);
        let tried = evidence.and_then(|seen| endpoints_without_listener(&seen, &mut self.reach));
        tried.unwrap_or_default()
    }

    /// Takes the world's current state. Returns what must be reported.
    pub fn consider(
        &mut self,
        ranks: &Ranks<'_>,
        is_ours: &dyn Fn(u32) -> bool,
        hosts: &mut Hosts,
    ) -> Vec<Event> {
        let now = Instant::now();
        self.note_moves(ranks, now);
        let held: Vec<Rank> = held(ranks).collect();
        // While a rank is held in a call, what the others do in code of their own is no progress.
        let since = match held.is_empty() {
            true => self.moved,
            false => self.called,
        };
        let mut events = Vec::new();
        events.extend(self.review_last_report(since, now));
        if (self.last_report.as_ref()).is_some_and(|last_report| last_report.is_verdict) {
            return events;
        }
        let still = now.duration_since(since);
        self.look_below(ranks, still);
        let mut view = WorldView {
            ranks,
            is_ours,
            hosts,
            still,
            receiving: self.receiving(),
        };
        let mut report = None;
        // A rank at the end of its program, or after all others, makes no call, and may be deadlocked.
        let may_be_stuck = is_one_left(ranks) || ranks.iter().any(|(_, rank)| is_at_end(rank));
        let proved = match held.is_empty() && !may_be_stuck {
            true => {
                self.proof = None;
                None
            }
            false => self.proved(&mut view, now),
        };
        if let Some(verdict) = proved {
            report = Some(Event::Verdict(verdict));
        } else if self.last_report.is_none() && still >= self.patience {
            report = self.likely(&mut view);
        } else if self
            .last_report
            .as_ref()
            .is_some_and(|last_report| !last_report.is_verdict)
            && still >= self.patience * WAITING_PATIENCES
        {
            report = self.escalated(&mut view);
        }
        if let Some(event) = report {
            self.last_report = Some(LastReport {
                is_verdict: matches!(event, Event::Verdict(_)),
                stopped: match &event {
                    Event::Verdict(verdict) if event.is_of_stopped() => verdict.culprits.clone(),
                    _ => Vec::new(),
                },
                calls: self.calls(&held),
                since,
            });
            events.push(event);
        }
        events
    }

    /// Keeps what each rank does now, and when it last changed.
    fn note_moves(&mut self, ranks: &Ranks<'_>, now: Instant) {
        let traces: BTreeMap<Rank, RankMoves> = ranks
            .iter()
            .map(|(rank, process)| (*rank, RankMoves::of(process)))
            .collect();
        let calls = |trace: &RankMoves| (trace.calls(), trace.is_stopped, trace.is_gone);
        if !traces.values().map(calls).eq(self.last.values().map(calls)) {
            self.called = now;
        }
        for (rank, trace) in &traces {
            let before = self.last.get(rank).and_then(|before| before.receives);
            if trace.receives.is_some() && before.is_some() && before != trace.receives {
                self.received.insert(*rank, now);
            }
        }
        if traces != self.last {
            self.last = traces;
            self.moved = now;
        }
        let stopped = self.last.iter().filter(|(_, trace)| trace.is_stopped);
        let since = |rank: &Rank| self.stopped.get(rank).copied().unwrap_or(now);
        self.stopped = stopped.map(|(rank, _)| (*rank, since(rank))).collect();
    }

    /// Returns the ranks to whose main threads data has come within the patience.
    fn receiving(&self) -> BTreeSet<Rank> {
        let received = self.received.iter();
        let of_late = received.filter(|(_, at)| at.elapsed() < self.patience);
        of_late.map(|(rank, _)| *rank).collect()
    }

    /// Drops the last report once ranks have moved since. Returns what must be reported about it. `since`: since when nothing has
    /// moved.
    fn review_last_report(&mut self, since: Instant, now: Instant) -> Option<Event> {
        let last_report = self.last_report.as_mut()?;
        let has_moved = |(rank, calls): (&Rank, &(u32, u64))| {
            self.last
                .get(rank)
                .is_none_or(|trace| trace.calls() != *calls)
        };
        let goes_on = |rank: &Rank| !self.stopped.contains_key(rank);
        let was_let_go_on = last_report.stopped.iter().any(goes_on);
        if was_let_go_on || last_report.calls.iter().any(has_moved) {
            self.is_paced |= was_let_go_on;
            self.last_report = None;
            return Some(Event::Moves);
        }
        if last_report.is_verdict {
            let limit = self.patience * WAITING_PATIENCES;
            if !last_report.stopped.is_empty() && now.duration_since(last_report.since) >= limit {
                last_report.stopped.clear();
                return Some(Event::StillStopped);
            }
        } else if last_report.since != since {
            self.last_report = None;
        }
        None
    }

    /// Follows the processes below the ranks once nothing has moved for the patience.
    fn look_below(&mut self, ranks: &Ranks<'_>, still: Duration) {
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
    }

    /// Returns the progress of these ranks.
    fn calls(&self, ranks: &[Rank]) -> Calls {
        ranks
            .iter()
            .filter_map(|rank| Some((*rank, self.last.get(rank)?.calls())))
            .collect()
    }

    /// Returns a verdict that is proved and has stood for [`STANDSTILL`], or for the patience where a launcher may be about to end the
    /// job; otherwise none.
    fn proved(&mut self, view: &mut WorldView<'_>, now: Instant) -> Option<Diagnosis> {
        // A dump that is older than the rank's last call proves nothing.
        let is_stale = |rank: &RankProcess| {
            // A stopped process cannot write its dump, and issues nothing either.
            let runs = matches!(rank.activity, Some(Activity::Alive { .. }));
            runs && rank.call_trace.as_ref().is_some_and(CallTrace::is_stale)
        };
        if view.ranks.iter().any(|(_, rank)| is_stale(rank)) {
            self.proof = None;
            return None;
        }
        let found = evidence(view, false)
            .map(|evidence| diagnose(&evidence))
            .filter(|verdict| verdict.confidence == Confidence::Proved)
            .filter(|verdict| !self.is_paced || !self.is_momentary_stop(verdict, now));
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
                let least = match is_about_to_end(view, &verdict) {
                    true => self.patience.max(STANDSTILL),
                    false => STANDSTILL,
                };
                (now.duration_since(*since) >= least).then_some(verdict)
            }
            _ => {
                self.proof = Some((essence, now));
                None
            }
        }
    }

    /// Returns true if a verdict names ranks as stopped of which one has not been so for as long as others may let it wait.
    fn is_momentary_stop(&self, verdict: &Diagnosis, now: Instant) -> bool {
        let limit = self.patience * WAITING_PATIENCES;
        let is_short = |rank: &Rank| {
            let since = self.stopped.get(rank);
            since.is_none_or(|since| now.duration_since(*since) < limit)
        };
        verdict.kind == HangKind::PeerStopped && verdict.culprits.iter().any(is_short)
    }

    /// Returns what is reported when patience has run out.
    fn likely(&mut self, view: &mut WorldView<'_>) -> Option<Event> {
        let (mut verdict, _) = best(view, &mut self.reach)?;
        if verdict.kind == HangKind::Slow {
            // It may be late, or never come: what it waits for is known at times.
            let late = (view.ranks.iter()).filter(|(rank, _)| verdict.culprits.contains(rank));
            for (rank, process) in late {
                let wait = sleep_of(process);
                verdict
                    .evidence
                    .extend(wait.map(|wait| fact_of(*rank, wait)));
                let known = own_wait(process).advice();
                let known = known.or(wait.map(|wait| wait.advice));
                if let Some(line) = known
                    && !verdict.advice.iter().any(|one| one == line)
                {
                    verdict.advice.push(line.to_owned());
                }
            }
        }
        Some(match verdict.kind {
            HangKind::Slow | HangKind::Unknown => Event::Still(verdict, view.still),
            _ => {
                verdict.confidence = Confidence::Likely;
                Event::Verdict(verdict)
            }
        })
    }

    /// Returns the verdict on a rank that others have waited for many times the patience while it was in its own code;
    /// none before that.
    fn escalated(&mut self, view: &mut WorldView<'_>) -> Option<Event> {
        let (verdict, evidence) = best(view, &mut self.reach)?;
        if verdict.kind != HangKind::Slow {
            return None;
        }
        let blamed: Vec<(Rank, &RankProcess)> = (view.ranks.iter().copied())
            .filter(|(rank, _)| verdict.culprits.contains(rank))
            .collect();
        if blamed.is_empty()
            && let Some(told) = allranks_diagnose::unreachable(&evidence)
        {
            let is_long = view.still >= SHORTEST_LIMIT.max(self.patience * IDLE_PATIENCES);
            return is_long.then_some(Event::Verdict(told));
        }
        // Nothing is known of a rank that is not on this host.
        if blamed.is_empty() || blamed.len() < verdict.culprits.len() {
            return None;
        }
        // A call that waits for a device may keep the interpreter from answering: then the others may be the ones that are late.
        let may_wait = |(_, process): &&(Rank, &RankProcess)| may_wait_for_device(process);
        if blamed.iter().filter(may_wait).count() * 2 >= evidence.ranks.len() {
            return None;
        }
        let busy = without_waiting_for_answers(blamed);
        let times = (busy.iter()).map(|(_, process)| self.patiences_for(process, &evidence));
        let times: Option<Vec<u32>> = times.collect();
        let times = times?.into_iter().max()?;
        let limit = SHORTEST_LIMIT.max(self.patience * times);
        if view.still < limit {
            return None;
        }
        // On a machine that is too busy, minutes are seconds to a rank.
        let wanted = processor_ticks(limit);
        if busy
            .iter()
            .any(|(_, process)| self.is_starved(process, wanted))
        {
            return None;
        }
        let ended = allranks_diagnose::ended_meanwhile(&evidence, &verdict.culprits);
        Some(Event::Verdict(
            ended.unwrap_or_else(|| late_verdict(verdict, view.ranks)),
        ))
    }

    /// Returns how many times the patience this rank may take; none if it may take for ever.
    fn patiences_for(&self, process: &RankProcess, evidence: &HangEvidence) -> Option<u32> {
        let wait = own_wait(process);
        let late = LateRank {
            wait,
            is_served: wait == OwnWait::Requests
                && !has_left_a_request(evidence, process, self.patience),
            has_news: awaits_news(evidence),
            has_work_below: self.below.has_worked_within(process.pid, self.patience),
            is_silent: is_silent(process),
            is_in_call: (process.call_trace.as_ref()).is_some_and(|trace| trace.inside.is_some()),
            is_at_work: self.moved.elapsed() < self.patience
                || !allranks_host::is_asleep(process.pid),
        };
        late.patiences()
    }

    /// Returns true if a rank wants the processor, or waits for processes that do, and has had less of it than this many ticks.
    fn is_starved(&mut self, process: &RankProcess, wanted: u64) -> bool {
        match process.activity {
            Some(Activity::Alive { ticks }) if allranks_host::state(process.pid) == Some('R') => {
                self.below.own(process.pid, ticks) < wanted
            }
            _ => {
                self.below.has_worked_within(process.pid, self.patience)
                    && self.below.used_below(process.pid) < wanted
            }
        }
    }

    /// Returns the diagnosis of the world at this moment, whether it is proved or not; none without ranks.
    pub fn diagnosis(
        &mut self,
        ranks: &Ranks<'_>,
        is_ours: &dyn Fn(u32) -> bool,
        hosts: &mut Hosts,
    ) -> Option<Diagnosis> {
        let mut view = WorldView {
            ranks,
            is_ours,
            hosts,
            still: self.still(ranks),
            receiving: self.receiving(),
        };
        best(&mut view, &mut self.reach).map(|(verdict, _)| verdict)
    }
}

/// Returns the verdict that fits the evidence best, whether it is proved or not, and that evidence; none while addresses are being
/// looked up or tried.
fn best(view: &mut WorldView<'_>, reach: &mut Reach) -> Option<(Diagnosis, HangEvidence)> {
    let mut evidence = evidence(view, true)?;
    evidence.endpoints_without_listener = endpoints_without_listener(&evidence, reach)?;
    let mut verdict = diagnose(&evidence);
    if verdict.kind == HangKind::Unknown
        && let Some(assigned) = as_assigned(&evidence, view)
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

/// Returns true if an error has ended the program of a rank that a verdict names, and its process still runs: it may be on its way out, and
/// launchers end a job, or start it again, once it is.
fn is_about_to_end(view: &WorldView<'_>, verdict: &Diagnosis) -> bool {
    let is_ending = |process: &RankProcess| {
        let trace = process.call_trace.as_ref();
        process.lives() && trace.is_some_and(|trace| trace.fatal.is_some())
    };
    let mut named = (view.ranks.iter()).filter(|(rank, _)| verdict.culprits.contains(rank));
    verdict.kind == HangKind::PeerRaised && named.any(|(_, process)| is_ending(process))
}
