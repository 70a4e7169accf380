//! Builds the hang evidence of every rank in a step, and the query for what only the host can tell.
//!
//! The harness knows what every rank was asked to do and which calls it has entered. The rest is looked at from
//! outside: whether a process is stopped, and which processes listen where the ranks mean to meet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::phase::Phase;
use super::state::WorldState;
use crate::run::pending::Pending;
use crate::run::pending::Purpose;
use crate::script::Answer;
use crate::script::raised_in;
use crate::world::{HostFacts, HostQuery, MeetingHost};
use allranks_diagnose::Collective;
use allranks_diagnose::EventKind;
use allranks_diagnose::HangEvidence;
use allranks_diagnose::Process;
use allranks_diagnose::RankState;
use allranks_diagnose::Remaining;
use allranks_diagnose::TraceEvent;
use allranks_diagnose::diagnose;
use allranks_host::Activity;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::Rank;
use allranks_protocol::CallResult;
use allranks_protocol::CallStatus;

impl WorldState<'_> {
    /// Returns what is known of each rank in this step, without what the host knows.
    pub(super) fn states(&self, step: Option<&Pending>) -> Vec<RankState> {
        let ranks = self.size().ranks();
        // One list for all events of all ranks: a world may have thousands.
        let callers = step.map_or_else(Arc::default, |step| self.callers(step));
        ranks.map(|rank| self.state(rank, step, &callers)).collect()
    }

    /// Returns the query for what the host must tell.
    pub(super) fn query(&self, states: &[RankState]) -> HostQuery {
        let rank_runs = &self.result.ranks;
        let pid_of = |rank: Rank| {
            rank_runs[rank.index()]
                .hello
                .as_ref()
                .map(|hello| hello.pid)
        };
        let is_open = |rank: Rank| {
            rank_runs[rank.index()].end.is_none() && !self.script_events.is_paused(rank)
        };
        let ranks = || self.size().ranks();
        let entered = states.iter().flat_map(RankState::entered);
        let ports = entered.filter_map(|event| match &event.what {
            EventKind::Init(rendezvous) => rendezvous.address().map(|(_, port)| port),
            _ => None,
        });
        let hosts = states.iter().filter_map(|state| match state.now() {
            Some(EventKind::Init(rendezvous))
                if rendezvous.rank == 0 && rendezvous.method != "file" =>
            {
                let (host, port) = rendezvous.address()?;
                Some(MeetingHost {
                    rank: state.rank,
                    pid: pid_of(state.rank)?,
                    place: rendezvous.place.clone(),
                    host: host.to_owned(),
                    port,
                })
            }
            _ => None,
        });
        HostQuery {
            processes: ranks()
                .map(|rank| pid_of(rank).filter(|_| is_open(rank)))
                .collect(),
            ranks: ranks().filter_map(pid_of).collect(),
            ports: ports.collect(),
            hosts: hosts.collect(),
        }
    }

    /// Returns the verdict on ranks in these states, with what the host tells.
    pub(super) fn diagnosis(&self, mut states: Vec<RankState>, facts: HostFacts) -> Diagnosis {
        for (state, activity) in states.iter_mut().zip(&facts.processes) {
            state.process = self.process(state.rank, *activity);
        }
        diagnose(&HangEvidence {
            foreign_listeners: facts.foreign_listeners,
            endpoints_without_listener: facts.endpoints_without_listener,
            ranks: states,
            is_whole: true,
            still: self.now.saturating_sub(self.progress),
            ..HangEvidence::default()
        })
    }

    fn process(&self, rank: Rank, activity: Option<Activity>) -> Process {
        if let Some(end) = &self.result.ranks[rank.index()].end {
            return Process::Ended(end.to_string());
        }
        if self.script_events.is_paused(rank) {
            return Process::Running;
        }
        match activity {
            Some(Activity::Stopped) => Process::Stopped,
            Some(Activity::Gone) => Process::Ended("gone".to_owned()),
            Some(Activity::Alive { .. }) => Process::Running,
            None => Process::Unknown,
        }
    }

    fn state(&self, rank: Rank, pending: Option<&Pending>, callers: &Arc<[Rank]>) -> RankState {
        let rank_run = &self.result.ranks[rank.index()];
        let mut state = RankState::unknown(rank);
        if let Phase::Shutdown { leaving, .. } = &self.phase
            && leaving.contains(&rank)
        {
            let leave = TraceEvent {
                what: EventKind::Leave,
                at: String::new(),
            };
            let since = self.now.saturating_sub(self.progress);
            match rank_run.said_bye.is_some() && rank_run.end.is_some() {
                true => state.done.push(leave),
                false => state.doing = Some((leave, since)),
            }
            return state;
        }
        let Some(pending) = pending else {
            return state;
        };
        let mut events = self.events_of(pending, rank, callers);
        match &pending.answers[rank.index()] {
            Some(Answer::Reply(reply)) => {
                let calls = &reply.result.calls;
                let reached = calls
                    .iter()
                    .take_while(|call| call.status != CallStatus::NotReached)
                    .count();
                events.truncate(reached.min(events.len()));
                state.errors = calls.iter().filter_map(raised).collect();
                let failed = calls.iter().any(|call| call.status == CallStatus::Error);
                state.done = events;
                // After a step that all ranks make alike comes the next one, in which no rank waits yet.
                let is_seen = !state.done.iter().any(hides);
                if !failed && is_seen && pending.script().is_some() {
                    state.ahead = Remaining::Known(Vec::new());
                }
            }
            Some(Answer::Left(call, _)) => {
                events.truncate(call.map_or(events.len(), |call| call + 1));
                state.doing = events.pop().map(|event| (event, Duration::ZERO));
                state.done = events;
            }
            None => {
                let here = rank_run
                    .position
                    .filter(|(step, ..)| *step == pending.number);
                let entered = here.map_or(0, |(_, call, _)| call + 1).min(events.len());
                let coming = events.split_off(entered);
                let since =
                    here.map_or(Duration::ZERO, |(.., since)| self.now.saturating_sub(since));
                // A rank that is about to exit has not skipped the calls after that.
                state.ahead = match events.last().is_some_and(leaves) || events.iter().any(hides) {
                    true => Remaining::Unknown,
                    false => ahead(coming),
                };
                state.doing = events.pop().map(|event| (event, since));
                state.done = events;
                let recorded = rank_run.recorded.iter();
                let here = recorded.filter(|(step, _)| here.is_some_and(|(at, ..)| at == *step));
                state.recorded = here.flat_map(|(_, ops)| ops).cloned().collect();
            }
        }
        state
    }

    /// Returns the events of a rank in a step. A step that all ranks make alike is one event: ranks differ only in
    /// whether they have reached it.
    fn events_of(&self, pending: &Pending, rank: Rank, callers: &Arc<[Rank]>) -> Vec<TraceEvent> {
        let collective = |group: &str, name: &str| TraceEvent {
            what: EventKind::Collective(Collective {
                group: group.to_owned(),
                members: Arc::clone(callers),
                name: name.to_owned(),
                nature: BTreeMap::new(),
                splits: None,
            }),
            at: String::new(),
        };
        let calls = &pending.calls[rank.index()];
        match &pending.purpose {
            Purpose::Script(_, compiled) => compiled.events[rank.index()].clone(),
            _ if calls.is_empty() => Vec::new(),
            Purpose::Check(index, _)
            | Purpose::GroupTestAfter(index, _)
            | Purpose::GroupTestBefore(index, _) => {
                let group = &self.plan.scenario.checks[*index].group.name;
                vec![collective(group, &pending.label)]
            }
            Purpose::Closing => vec![TraceEvent {
                what: EventKind::Destroy("world".to_owned()),
                at: String::new(),
            }],
            Purpose::Imports | Purpose::Opening => {
                let alone = |name: &str| TraceEvent {
                    what: EventKind::Own(name.to_owned()),
                    at: String::new(),
                };
                calls
                    .iter()
                    .map(|name| match *name {
                        "prepare" => alone("import"),
                        name => collective("world", name),
                    })
                    .collect()
            }
        }
    }

    /// Returns the ranks that have calls to make in a step.
    fn callers(&self, pending: &Pending) -> Arc<[Rank]> {
        let calls = self.size().ranks().zip(&pending.calls);
        calls
            .filter(|(_, calls)| !calls.is_empty())
            .map(|(rank, _)| rank)
            .collect()
    }
}

/// Returns the remaining calls as known, unless one of them ends the rank: when a rank will die cannot be known
/// beforehand.
fn ahead(coming: Vec<TraceEvent>) -> Remaining {
    match coming.iter().any(leaves) {
        true => Remaining::Unknown,
        false => Remaining::Known(coming),
    }
}

fn leaves(event: &TraceEvent) -> bool {
    matches!(&event.what, EventKind::Own(name) if LEAVES.contains(&name.as_str()))
}

/// Returns true if the calls after this event are unknown: Python statements and threads may have called anything.
fn hides(event: &TraceEvent) -> bool {
    matches!(&event.what, EventKind::Own(name) if ["python", "together"].contains(&name.as_str()))
}

/// Calls after which a rank may have ended, or does something that cannot be seen.
const LEAVES: &[&str] = &["die", "exit", "pause", "python", "together"];

/// Returns what a call raised, whether it was allowed to or not; none if it returned.
fn raised(call: &CallResult) -> Option<String> {
    if let Some(error) = &call.error {
        return Some(format!("{}: {}", error.kind, error.message));
    }
    raised_in(&call.value)
}

#[cfg(test)]
mod tests {
    use crate::run::world::evidence::MeetingHost;
    use crate::run::world::fixture::ms;
    use crate::run::world::fixture::planned;
    use crate::run::world::simulation::Simulation;
    use allranks_model::diagnosis::HangKind;
    use allranks_model::names::Rank;
    use allranks_model::outcome::Outcome;
    use allranks_suite::expectation::Expectations;

    #[test]
    fn the_host_is_asked_for_the_places_that_ranks_in_init_meet_at() {
        let script = "  - script: {name: s, hang: {kind: missing-rank, culprit: last}, moves: [{sleep: {ms: 1}}, {init: {method: tcp}}]}\n";
        let scenario = planned("{size: 3, starts: bare, deadline_s: 20}", script);
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        (0..3).for_each(|rank| world.enter(rank));
        world.enter(0);
        world.enter(1);
        world.wake();
        let query = &world.queries[0];
        assert_eq!(query.ports, [0, 0], "rank 2 is not there yet");
        let host = MeetingHost {
            rank: Rank(0),
            pid: 1000,
            place: "127.0.0.1:0".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        assert_eq!(query.hosts, [host]);
    }

    #[test]
    fn a_rank_that_is_stopped_for_a_while_counts_as_running() {
        let script = "  - script: {name: s, hang: {kind: slow, culprit: last}, moves: [{pause: {ms: 2500}, on: last}, {barrier: {}}]}\n";
        let scenario = planned("{size: 2, deadline_s: 20}", script);
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.enter(0);
        world.enter(1);
        while world.now < ms(2000) {
            world.wake();
            assert_eq!(world.queries[0].processes, [Some(1000), None]);
            world.tell_host(&[1]);
        }
        assert!(!world.is_killed());
        world.answer_all();
        world.tell_host(&[]);
        let check_result = &world.state.result.checks[&0];
        assert_eq!(check_result.outcome, Outcome::Pass, "{check_result:?}");
        let diagnosis = check_result.diagnosis.as_ref().unwrap();
        assert_eq!(diagnosis.kind, HangKind::Slow);
    }

    #[test]
    fn the_places_of_ranks_in_a_teardown_are_told() {
        let scenario = planned("{size: 3, deadline_s: 20}", "  - barrier: {}\n");
        let known = Expectations::default();
        let mut world = Simulation::opened(&scenario, &known);
        world.answer_all();
        (0..3).for_each(|rank| world.enter(rank));
        world.wake_until_killed(ms(60_000));
        let end = world.reaped().end.unwrap();
        let places = &end.diagnosis.as_ref().unwrap().places;
        assert_eq!(places.len(), 3);
        let text = "in destroy_process_group(world) for 20.0 s";
        assert!(places.iter().all(|line| line.text == text), "{places:?}");
    }
}
