//! Builds hang evidence for each rank from processes and their call traces.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::call_trace::{Call, CallTrace, Entry, Inside};
use super::device_messages;
use super::file_locks;
use super::hosts::Hosts;
use super::job::RankProcess;
use super::reach::Reach;
use allranks_diagnose::ForeignListener;
use allranks_diagnose::{
    Collective, EventKind, HangEvidence, Message, Process, RankState, RankWait, Remaining,
    Rendezvous, TraceEvent, list,
};
use allranks_host::Activity;
use allranks_model::names::Rank;

/// An interpreter without a heartbeat for this long may no longer be where its trace says it is.
const SILENCE: Duration = Duration::from_secs(2);
/// The largest group whose members are listed in its name.
const NAMED: usize = 8;

/// Returns the hang evidence of a job at this moment; none while addresses that it uses are still being looked up.
///
/// `assume_whole`: true to assume that no more ranks will be started on this host.
pub fn evidence(
    ranks: &[(Rank, &RankProcess)],
    is_ours: &dyn Fn(u32) -> bool,
    hosts: &mut Hosts,
    still: Duration,
    assume_whole: bool,
) -> Option<HangEvidence> {
    let is_whole = is_whole(ranks, assume_whole);
    let mut evidence = evidence_of_ranks(ranks, hosts, still, is_whole)?;
    evidence.foreign_listeners = foreign_listeners(is_ours, &evidence);
    file_locks::note_waits(&mut evidence, ranks);
    Some(evidence)
}

/// The same without what else is on this machine: for ranks that were looked at elsewhere.
pub fn evidence_of_ranks(
    ranks: &[(Rank, &RankProcess)],
    hosts: &mut Hosts,
    still: Duration,
    is_whole: bool,
) -> Option<HangEvidence> {
    let frame = Frame::of(ranks);
    let mut states = Vec::new();
    for (rank, process) in ranks {
        states.push(frame.state(*rank, process, hosts)?);
    }
    let mut evidence = HangEvidence {
        ranks: states,
        is_whole,
        foreign_listeners: Vec::new(),
        endpoints_without_listener: Vec::new(),
        forgotten: frame.starts.into_iter().collect(),
        still,
    };
    agree_on_natures(&mut evidence);
    Some(evidence)
}

/// Removes parameters of a collective that only some of its ranks know, because they cannot be compared: a call that
/// C++ code made has no reduce op.
fn agree_on_natures(evidence: &mut HangEvidence) {
    type Key = (String, usize, String);
    let mut known: HashMap<Key, BTreeMap<&'static str, usize>> = HashMap::new();
    let mut counts: HashMap<Key, usize> = HashMap::new();
    let each = |evidence: &mut HangEvidence, act: &mut dyn FnMut(Key, &mut Collective)| {
        for state in &mut evidence.ranks {
            let mut numbers: HashMap<String, usize> = HashMap::new();
            let doing = state.doing.as_mut().map(|(event, _)| event);
            for event in state.done.iter_mut().chain(doing) {
                if let EventKind::Collective(one) = &mut event.what {
                    let number = numbers.entry(one.group.clone()).or_default();
                    act((one.group.clone(), *number, one.name.clone()), one);
                    *number += 1;
                }
            }
        }
    };
    each(evidence, &mut |key, one| {
        *counts.entry(key.clone()).or_default() += 1;
        let natures = known.entry(key).or_default();
        for name in one.nature.keys() {
            *natures.entry(name).or_default() += 1;
        }
    });
    each(evidence, &mut |key, one| {
        let all = counts[&key];
        one.nature
            .retain(|name, _| known[&key].get(name) == Some(&all));
    });
}

/// Returns the evidence with each rank that writes no call trace placed in the init that its launcher's variables
/// describe; none while an address is being looked up.
pub fn as_assigned(
    evidence: &HangEvidence,
    ranks: &[(Rank, &RankProcess)],
    is_ours: &dyn Fn(u32) -> bool,
    hosts: &mut Hosts,
) -> Option<HangEvidence> {
    let mut evidence = evidence.clone();
    for (state, (_, process)) in evidence.ranks.iter_mut().zip(ranks) {
        let numbers = process
            .number("RANK")
            .zip(process.number("WORLD_SIZE"))
            .zip(assigned_endpoint(process));
        if let Some(((rank, world_size), place)) = numbers
            && state.doing.is_none()
        {
            let rendezvous = Rendezvous {
                method: "env".to_owned(),
                place: hosts.place(&place)?,
                assigned: None,
                rank,
                world_size,
            };
            let event = TraceEvent {
                what: EventKind::Init(rendezvous),
                at: String::new(),
            };
            state.doing = Some((event, evidence.still));
        }
    }
    evidence.foreign_listeners = foreign_listeners(is_ours, &evidence);
    Some(evidence)
}

/// Returns true if all processes of the job are on this host.
pub fn is_whole(ranks: &[(Rank, &RankProcess)], assume: bool) -> bool {
    let largest = |name: &str| {
        let numbers = ranks.iter().filter_map(|(_, process)| process.number(name));
        numbers.max().map(|number| number as usize)
    };
    // Other nodes may have the missing ranks, unless the launcher says how many ranks this host has.
    match (largest("WORLD_SIZE"), largest("LOCAL_WORLD_SIZE")) {
        (Some(size), _) if ranks.len() >= size => true,
        (Some(size), Some(here)) => assume && here >= size,
        (Some(_), None) => assume && meets_on_this_host(ranks) && !is_elsewhere_here(ranks),
        (None, _) => assume,
    }
}

/// Returns true if all ranks meet at an address that no other host can reach.
fn meets_on_this_host(ranks: &[(Rank, &RankProcess)]) -> bool {
    ranks.iter().all(|(_, process)| {
        let address = process.environment.get("MASTER_ADDR").map(String::as_str);
        matches!(address, Some("localhost" | "127.0.0.1" | "::1"))
    })
}

/// Returns true if other processes of this host have the same endpoint, such as those of another launcher.
fn is_elsewhere_here(ranks: &[(Rank, &RankProcess)]) -> bool {
    let ports: BTreeSet<&String> = ranks
        .iter()
        .filter_map(|(_, process)| process.environment.get("MASTER_PORT"))
        .collect();
    let known: BTreeSet<Option<&String>> = ranks
        .iter()
        .map(|(_, process)| process.environment.get("RANK"))
        .collect();
    ports.iter().any(|port| {
        let members = allranks_host::members("MASTER_PORT", port);
        let mut others = members.iter().map(|one| one.environment.get("RANK"));
        others.any(|rank| rank.is_some() && !known.contains(&rank))
    })
}

/// The common frame in which all call traces are compared: one world, and the first collective of each group that all
/// traces still have.
struct Frame {
    /// The number of the world among those of its ranks, from 1.
    epoch: u32,
    /// Where it meets, if ranks of the job make worlds of their own.
    own_world: Option<OwnWorld>,
    /// By name of the group, the number of the first collective to compare.
    starts: HashMap<String, usize>,
    /// True if a call trace has dropped entries.
    has_lost: bool,
}

/// A world of some of a job's ranks, which have met at a place of their own, and may have been in different numbers of worlds before.
struct OwnWorld {
    place: String,
    /// Its members: the rank in this world, and the one that the launcher gave.
    members: BTreeMap<u32, Rank>,
}

impl OwnWorld {
    /// Returns the world that the rank whose calls wait longest is in, if ranks of this job have met at different places by stores
    /// that the program made; none if all are in one world.
    fn of(ranks: &[(Rank, &RankProcess)]) -> Option<Self> {
        let traced = || {
            let all = ranks.iter();
            all.filter_map(|(rank, one)| Some((*rank, one.call_trace.as_ref()?)))
        };
        let mut places: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for (_, call_trace) in traced() {
            for (epoch, one) in stores(call_trace) {
                places.entry(epoch).or_default().insert(one.place);
            }
        }
        if places.values().all(|places| places.len() < 2) {
            return None;
        }
        let held = traced().filter_map(|(_, call_trace)| {
            let inside = call_trace.inside.as_ref()?;
            let is_of_group = !matches!(inside.entry.call, Call::Store { .. } | Call::Rpc { .. });
            Some((!is_of_group, inside.entry.epoch, call_trace))
        });
        let (_, epoch, call_trace) =
            held.min_by_key(|(is_of_none, epoch, _)| (*is_of_none, *epoch))?;
        let place = stores(call_trace)
            .find(|(own, _)| *own == epoch)?
            .1
            .place
            .to_owned();
        let members = traced().filter_map(|(rank, call_trace)| {
            let (_, met) = stores(call_trace)
                .filter(|(_, one)| one.place == place)
                .last()?;
            Some((met.rank, rank))
        });
        let members = members.collect();
        Some(Self { place, members })
    }

    /// Returns the number of this world among those of a rank; none if it has not come to it.
    fn epoch(&self, call_trace: &CallTrace) -> Option<u32> {
        let met = stores(call_trace).filter(|(_, one)| one.place == self.place);
        met.last().map(|(epoch, _)| epoch)
    }

    fn member(&self, rank: Rank) -> Option<Rank> {
        self.members.get(&rank.0).copied()
    }
}

/// Where a rank has met others by a store that the program made.
struct Met<'a> {
    place: &'a str,
    rank: u32,
}

/// Returns the inits of a rank by stores that the program made, each with the number of its world.
fn stores(call_trace: &CallTrace) -> impl Iterator<Item = (u32, Met<'_>)> {
    call_trace
        .entries
        .iter()
        .filter_map(|entry| match &entry.call {
            Call::Init {
                method,
                place,
                rank: Some(rank),
                ..
            } if method == "store" => {
                let rank = (*rank).try_into().ok()?;
                Some((entry.epoch, Met { place, rank }))
            }
            _ => None,
        })
}

impl Frame {
    fn of(ranks: &[(Rank, &RankProcess)]) -> Self {
        let call_traces = || ranks.iter().filter_map(|(_, one)| one.call_trace.as_ref());
        let own_world = OwnWorld::of(ranks);
        // Ranks may be in different worlds; the oldest one in which a rank is inside a call is the one that matters.
        // A store that the program made itself may serve before there is any world.
        let held = call_traces()
            .filter_map(|call_trace| Some(call_trace.inside.as_ref()?.entry.epoch))
            .filter(|epoch| *epoch > 0);
        let newest = call_traces().map(|call_trace| call_trace.epoch).max();
        let epoch = held.min().or(newest).unwrap_or_default();
        let mut frame = Self {
            epoch,
            own_world,
            starts: HashMap::new(),
            has_lost: call_traces().any(|call_trace| call_trace.dropped > 0),
        };
        let mut starts: HashMap<String, usize> = HashMap::new();
        for call_trace in call_traces() {
            let Some(epoch) = frame.epoch_of(call_trace) else {
                continue;
            };
            for (key, group) in &call_trace.groups {
                let first = call_trace
                    .entries
                    .iter()
                    .find_map(|entry| match &entry.call {
                        Call::Collective {
                            group: own, number, ..
                        } if own == key => Some(*number),
                        _ => None,
                    });
                if is_of(key, epoch) {
                    let start = starts.entry(frame.called(key, call_trace)).or_default();
                    *start = (*start).max(first.unwrap_or(group.count));
                }
            }
        }
        // A rank that has entered no collective of a group sets no start. A start of 0 excludes nothing.
        starts.retain(|_, start| *start > 0);
        frame.starts = starts;
        frame
    }

    /// Returns the number that the world has among those of a rank; none if the rank has not come to it.
    fn epoch_of(&self, call_trace: &CallTrace) -> Option<u32> {
        match &self.own_world {
            Some(own_world) => own_world.epoch(call_trace),
            None => Some(self.epoch),
        }
    }

    /// Returns the rank that the launcher gave a rank of the world.
    fn member(&self, rank: Rank) -> Option<Rank> {
        match &self.own_world {
            Some(own_world) => own_world.member(rank),
            None => Some(rank),
        }
    }

    /// Returns the name of a group for verdicts.
    fn called(&self, key: &str, call_trace: &CallTrace) -> String {
        let name = key.split_once('.').map_or(key, |(_, name)| name);
        let name = match call_trace.groups.get(key) {
            Some(group) if !group.name.is_empty() => group.name.clone(),
            Some(group) if group.members.len() <= NAMED => {
                let members = self.members_of(&group.members);
                format!("group {name} (ranks {})", list(&members))
            }
            Some(group) => format!("group {name} ({} ranks)", group.members.len()),
            None => format!("group {name}"),
        };
        match &self.own_world {
            Some(own_world) => format!("{name} of {}", own_world.place),
            None => name,
        }
    }

    /// Returns the ranks that the launcher gave to ranks of the world; those that are not known are left out.
    fn members_of(&self, members: &[Rank]) -> Vec<Rank> {
        let known = members.iter().filter_map(|rank| self.member(*rank));
        known.collect()
    }

    fn members(&self, key: &str, call_trace: &CallTrace) -> Arc<[Rank]> {
        let group = call_trace.groups.get(key);
        group.map_or_else(
            || Arc::from([]),
            |group| Arc::from(self.members_of(&group.members)),
        )
    }

    fn state(&self, rank: Rank, process: &RankProcess, hosts: &mut Hosts) -> Option<RankState> {
        let state = match process.activity {
            Some(Activity::Alive { .. }) => Process::Running,
            Some(Activity::Stopped) => Process::Stopped,
            Some(Activity::Gone) => Process::Ended(process_end(process.call_trace.as_ref())),
            None => Process::Unknown,
        };
        let mut state = RankState {
            process: state,
            ..RankState::unknown(rank)
        };
        let Some(call_trace) = &process.call_trace else {
            return Some(state);
        };
        state.errors.clone_from(&call_trace.errors);
        state.keys_set.clone_from(&call_trace.keys_set);
        state.recorded = device_messages::under_way(call_trace);
        let Some(epoch) = self.epoch_of(call_trace) else {
            state.doing = elsewhere(call_trace);
            return Some(state);
        };
        let inside = call_trace.inside.as_ref();
        let is_here = |inside: &&Inside| {
            let is_of_store = matches!(inside.entry.call, Call::Store { .. });
            inside.entry.epoch == epoch || is_of_store && inside.entry.epoch == 0
        };
        let inside = inside.filter(is_here);
        // What C++ code issued before the process was stopped is not in a record from before: without that, the rank's
        // collectives would have other numbers than those of the others.
        let is_cut_off =
            matches!(process.activity, Some(Activity::Stopped)) && call_trace.is_stale();
        // The message whose work the rank waits for.
        let mut awaited = None;
        for entry in call_trace
            .entries
            .iter()
            .filter(|entry| entry.epoch == epoch)
        {
            if let Call::End { of, ok: true } = &entry.call
                && of == "destroy"
            {
                // The rank has left this world: no more calls of it will come.
                state.ahead = Remaining::Known(Vec::new());
            }
            let is_numbered = matches!(entry.call, Call::Collective { .. });
            if !entry.is_issued || is_numbered && is_cut_off {
                continue;
            }
            // A rank that waits for a collective or a message has issued it.
            let here = inside.filter(|inside| inside.entry.id == entry.id);
            let is_issued = here.is_none_or(|inside| {
                inside.entry.waits
                    && matches!(entry.call, Call::Collective { .. } | Call::Message { .. })
            });
            if is_issued && let Some(event) = self.event(entry, call_trace, process, hosts)? {
                if entry.dropped {
                    state.dropped.push(state.done.len());
                }
                if let (Some(_), EventKind::Message(message)) = (here, &event.what) {
                    let alike = |before: &&TraceEvent| before.what == event.what;
                    let before = state.done.iter().filter(alike).count();
                    awaited = Some(EventKind::AwaitMessage(message.clone(), before + 1));
                }
                state.done.push(event);
            }
        }
        if call_trace.epoch > epoch {
            state.ahead = Remaining::Known(Vec::new());
        }
        state.doing = self.doing(process, call_trace, inside, hosts)?;
        if is_cut_off
            && let Some((event, _)) = &mut state.doing
            && matches!(event.what, EventKind::Collective(_) | EventKind::Await(..))
        {
            event.what = EventKind::Own(event.what.to_string());
        }
        if let (Some((event, _)), Some(awaited)) = (&mut state.doing, awaited)
            && matches!(event.what, EventKind::Message(_))
        {
            event.what = awaited;
        }
        Some(state)
    }

    /// Returns what the rank is in. An interpreter without a heartbeat may be anywhere.
    fn doing(
        &self,
        process: &RankProcess,
        call_trace: &CallTrace,
        inside: Option<&Inside>,
        hosts: &mut Hosts,
    ) -> Option<Option<(TraceEvent, Duration)>> {
        let silence = call_trace.silence();
        if silence > SILENCE && matches!(process.activity, Some(Activity::Alive { .. })) {
            let what = "something that keeps its interpreter from answering";
            return Some(Some((own(what, ""), silence)));
        }
        // A rank that retries a call is in that call, wherever it is between two attempts.
        if inside.is_none() && call_trace.is_retrying() {
            return Some(None);
        }
        // After an error has ended the thread or task that makes the calls, no more come: the error counts, and not the position.
        if call_trace.fatal.is_some() && inside.is_none() {
            return Some(None);
        }
        if call_trace.finished && inside.is_none() {
            let what =
                "no code of its own: its main thread has ended, and other threads keep the process";
            return Some(Some((own(what, ""), silence)));
        }
        let event = match inside {
            Some(inside) => match self.event(&inside.entry, call_trace, process, hosts)? {
                Some(event) => Some((event, inside.lasts())),
                None => Some((own("a call of torch.distributed", ""), inside.lasts())),
            },
            None => own_line(call_trace),
        };
        Some(event)
    }

    /// Returns the event of an entry: none if it does not concern other ranks; the outer option is none while an
    /// address is being looked up.
    fn event(
        &self,
        entry: &Entry,
        call_trace: &CallTrace,
        process: &RankProcess,
        hosts: &mut Hosts,
    ) -> Option<Option<TraceEvent>> {
        let start = |group: &str| self.starts.get(group).copied().unwrap_or(0);
        let what = match &entry.call {
            Call::Init {
                method,
                place,
                rank,
                world_size,
            } => {
                let assigned = match (method.as_str(), assigned_endpoint(process)) {
                    ("env" | "tcp", Some(assigned_endpoint)) => {
                        Some(hosts.place(&assigned_endpoint)?)
                    }
                    _ => None,
                };
                let known = |number: Option<i64>| number.and_then(|number| number.try_into().ok());
                let (Some(rank), Some(world_size)) = (known(*rank), known(*world_size)) else {
                    return Some(None);
                };
                let place = match method.as_str() {
                    "file" => place.clone(),
                    _ => hosts.place(place)?,
                };
                EventKind::Init(Rendezvous {
                    method: method.clone(),
                    place,
                    assigned,
                    rank,
                    world_size,
                })
            }
            Call::NewGroup { ranks } => EventKind::NewGroup(self.members_of(ranks)),
            Call::Collective {
                group,
                number,
                name,
                nature,
            } => {
                let label = self.called(group, call_trace);
                let Some(number) = number.checked_sub(start(&label)) else {
                    return Some(None);
                };
                match entry.waits {
                    true => EventKind::Await(label, number),
                    false => EventKind::Collective(Collective {
                        members: self.members(group, call_trace),
                        group: label,
                        name: name.clone(),
                        nature: nature_of(nature),
                    }),
                }
            }
            Call::Message {
                group,
                sends,
                peer,
                tag,
            } => {
                let peer = peer.map(|peer| self.member(peer).unwrap_or(peer));
                let message = EventKind::Message(Message {
                    group: self.called(group, call_trace),
                    sends: *sends,
                    peer,
                    tag: *tag,
                });
                // When entries have been dropped, it is unknown which receive belongs to which send.
                match self.has_lost {
                    true => EventKind::Own(message.to_string()),
                    false => message,
                }
            }
            Call::Destroy { group } => EventKind::Destroy(match group.as_str() {
                "world" => group.clone(),
                key => self.called(key, call_trace),
            }),
            Call::Own { text } => EventKind::Own(text.clone()),
            Call::Store { keys } => EventKind::AwaitKeys(keys.clone()),
            // The other side answers on threads of its own.
            Call::Rpc { text, to } => EventKind::AwaitRanks(RankWait {
                text: text.clone(),
                ranks: to.clone(),
                is_proved: false,
            }),
            Call::End { .. } => return Some(None),
        };
        let at = entry.at.clone();
        Some(Some(TraceEvent { what, at }))
    }
}

/// Returns true if a group's key, `EPOCH.NAME`, belongs to that world.
fn is_of(key: &str, epoch: u32) -> bool {
    key.split_once('.')
        .is_some_and(|(own, _)| own.parse() == Ok(epoch))
}

/// Returns where a rank is that has not come to the world that is looked at: whatever it waits for there, it may come.
fn elsewhere(call_trace: &CallTrace) -> Option<(TraceEvent, Duration)> {
    let Some(inside) = &call_trace.inside else {
        return own_line(call_trace);
    };
    let event = own("a call of another world", &inside.entry.at);
    Some((event, inside.lasts()))
}

/// Returns the line of the program's own code that a rank is in, and for how long it has made no call; none if that is not known.
fn own_line(call_trace: &CallTrace) -> Option<(TraceEvent, Duration)> {
    let line = call_trace.own.as_ref()?;
    let text = format!("its own code, `{}`", line.text);
    Some((own(&text, &line.at), call_trace.since_last_call()))
}

fn own(what: &str, at: &str) -> TraceEvent {
    TraceEvent {
        what: EventKind::Own(what.to_owned()),
        at: at.to_owned(),
    }
}

fn nature_of(nature: &BTreeMap<String, String>) -> BTreeMap<&'static str, String> {
    ["reduce op", "dtype", "elements", "root"]
        .into_iter()
        .filter_map(|key| Some((key, nature.get(key)?.clone())))
        .collect()
}

/// Returns the endpoint that the launcher told the process, `HOST:PORT`; none if it told none.
pub fn assigned_endpoint(process: &RankProcess) -> Option<String> {
    let value = |name: &str| process.environment.get(name);
    Some(format!(
        "{}:{}",
        value("MASTER_ADDR")?,
        value("MASTER_PORT")?
    ))
}

/// Returns how a process ended, as far as other processes than its parent can tell.
fn process_end(call_trace: Option<&CallTrace>) -> String {
    match call_trace {
        Some(call_trace) if call_trace.ended => match call_trace.errors.last() {
            Some(error) => format!("raised {}", error.lines().next().unwrap_or_default()),
            None => "came to the end of its program".to_owned(),
        },
        _ => "without a word, as by a signal".to_owned(),
    }
}

/// Returns the endpoints on other machines that ranks of this evidence dial, and the reason why nothing answers there; none while
/// an endpoint is being tried. An endpoint that any process of this machine has a connection to is reached.
pub fn endpoints_without_listener(
    evidence: &HangEvidence,
    reach: &mut Reach,
) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    let dialled: BTreeSet<&str> = (evidence.ranks.iter())
        .filter_map(|state| match state.now() {
            Some(EventKind::Init(rendezvous)) => Some(rendezvous.place.as_str()),
            _ => None,
        })
        .filter(|place| !place.starts_with("localhost:"))
        .collect();
    for place in dialled {
        let Some((host, port)) = place.rsplit_once(':') else {
            continue;
        };
        let Ok(port) = port.parse() else { continue };
        if allranks_host::is_connected_to(port) {
            continue;
        }
        if let Some(reason) = reach.unreachable_reason(host, port)? {
            found.push((place.to_owned(), reason));
        }
    }
    Some(found)
}

/// Returns foreign processes that listen where ranks want to meet.
pub fn foreign_listeners(
    is_ours: &dyn Fn(u32) -> bool,
    evidence: &HangEvidence,
) -> Vec<ForeignListener> {
    let meetings = evidence.ranks.iter().filter_map(|state| {
        let waits = matches!(state.now(), Some(EventKind::Init(_))) || !state.errors.is_empty();
        let last = state.entered().last().filter(|_| waits)?;
        match &last.what {
            EventKind::Init(rendezvous) if rendezvous.place.starts_with("localhost:") => {
                rendezvous.address()
            }
            _ => None,
        }
    });
    let mut ports: Vec<u16> = meetings.map(|(_, port)| port).collect();
    ports.sort_unstable();
    ports.dedup();
    crate::foreign_listeners::foreign_listeners(&ports, is_ours)
}
