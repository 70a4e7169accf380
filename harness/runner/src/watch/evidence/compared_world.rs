//! Describes what each rank of one world has done and does, from its process and its call trace.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::kept_messages::{KeptMessages, MessageSort};
use super::sub_world::SubWorld;
use crate::watch::endpoints::hosts::Hosts;
use crate::watch::ranks::rank_process::RankProcess;
use crate::watch::recorder::device_messages;
use crate::watch::trace::call::{Call, Entry, Inside};
use crate::watch::trace::call_trace::{CallTrace, Waited};
use allranks_diagnose::{
    A_CALL, Collective, END_OF_PROGRAM, EventKind, GROUPS_OF_CALLER, Message, Process, RankState,
    RankWait, Remaining, Rendezvous, TraceEvent, list,
};
use allranks_host::Activity;
use allranks_model::names::Rank;

/// An interpreter without a heartbeat for this long may no longer be where its trace says it is.
const SILENCE: Duration = Duration::from_secs(2);
/// The largest group whose members are listed in its name.
const NAMED: usize = 8;

/// The world whose call traces are compared: its number on each rank, and the first collective of each group that all traces
/// still have.
pub struct ComparedWorld {
    /// The number of the world among those of its ranks, from 1.
    epoch: u32,
    /// Where it meets, if ranks of the job make worlds of their own.
    sub_world: Option<SubWorld>,
    /// By name of the group, the number of the first collective to compare.
    pub starts: HashMap<String, usize>,
    /// The messages that all traces still have.
    messages: KeptMessages,
}

impl ComparedWorld {
    /// Finds the oldest world in which a rank is inside a call, or the newest one.
    pub fn of(ranks: &[(Rank, &RankProcess)]) -> Self {
        let call_traces = || ranks.iter().filter_map(|(_, one)| one.call_trace.as_ref());
        let sub_world = SubWorld::of(ranks);
        // Ranks may be in different worlds; the oldest one in which a rank is inside a call is the one that matters.
        // A store that the program made itself may serve before there is any world.
        let held = call_traces()
            .filter_map(|call_trace| Some(call_trace.inside.as_ref()?.entry.epoch))
            .filter(|epoch| *epoch > 0);
        let newest = call_traces().map(|call_trace| call_trace.epoch).max();
        let epoch = held.min().or(newest).unwrap_or_default();
        let mut world = Self {
            epoch,
            sub_world,
            starts: HashMap::new(),
            messages: KeptMessages::default(),
        };
        let mut starts: HashMap<String, usize> = HashMap::new();
        for call_trace in call_traces() {
            let Some(epoch) = world.epoch_of(call_trace) else {
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
                    let start = starts.entry(world.called(key, call_trace)).or_default();
                    *start = (*start).max(first.unwrap_or(group.count));
                }
            }
        }
        // A rank that has entered no collective of a group sets no start. A start of 0 excludes nothing.
        starts.retain(|_, start| *start > 0);
        world.starts = starts;
        world.messages = world.kept_messages(ranks);
        world
    }

    /// Finds the messages that the traces of both their sides still have.
    fn kept_messages(&self, ranks: &[(Rank, &RankProcess)]) -> KeptMessages {
        let mut kept = KeptMessages::default();
        for (rank, process) in ranks {
            let Some(call_trace) = &process.call_trace else {
                continue;
            };
            let Some(epoch) = self.epoch_of(call_trace) else {
                continue;
            };
            kept.read(call_trace, |group, sends, peer, tag| {
                is_of(group, epoch).then(|| {
                    let group = self.called(group, call_trace);
                    MessageSort::new(group, *rank, sends, self.launched(peer), tag)
                })
            });
        }
        kept
    }

    /// Returns the rank that the launcher gave a rank of the world, or the same number where that is not known.
    fn launched(&self, rank: Rank) -> Rank {
        self.member(rank).unwrap_or(rank)
    }

    /// Returns the number that the world has among those of a rank; none if the rank has not come to it.
    fn epoch_of(&self, call_trace: &CallTrace) -> Option<u32> {
        match &self.sub_world {
            Some(sub_world) => sub_world.epoch(call_trace),
            None => Some(self.epoch),
        }
    }

    /// Returns the rank that the launcher gave a rank of the world.
    fn member(&self, rank: Rank) -> Option<Rank> {
        match &self.sub_world {
            Some(sub_world) => sub_world.member(rank),
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
        match &self.sub_world {
            Some(sub_world) => format!("{name} of {}", sub_world.place),
            None => name,
        }
    }

    /// Returns the ranks that the launcher gave to ranks of the world; those that are not known are left out.
    fn members_of(&self, members: &[Rank]) -> Vec<Rank> {
        let known = members.iter().filter_map(|rank| self.member(*rank));
        known.collect()
    }

    /// Returns the members of a group; none of a group that the call trace does not know.
    fn members(&self, key: &str, call_trace: &CallTrace) -> Arc<[Rank]> {
        let group = call_trace.groups.get(key);
        group.map_or_else(
            || Arc::from([]),
            |group| Arc::from(self.members_of(&group.members)),
        )
    }

    /// Returns what a rank has done in this world and what it does now; none while an address that it uses is being looked up.
    pub fn state(&self, rank: Rank, process: &RankProcess, hosts: &mut Hosts) -> Option<RankState> {
        let mut state = RankState {
            has_assigned_rank: process.number("RANK").is_some(),
            process: process_state(process),
            ..RankState::unknown(rank)
        };
        let Some(call_trace) = &process.call_trace else {
            return Some(state);
        };
        add_facts(&mut state, call_trace);
        let Some(epoch) = self.epoch_of(call_trace) else {
            state.doing = elsewhere(call_trace);
            return Some(state);
        };
        let is_here = |inside: &&Inside| {
            let is_of_store = matches!(inside.entry.call, Call::Store { .. });
            inside.entry.epoch == epoch || is_of_store && inside.entry.epoch == 0
        };
        let inside = call_trace.inside.as_ref().filter(is_here);
        // What C++ code issued before the process was stopped is not in a dump from before: without that, the rank's
        // collectives would have other numbers than those of the others.
        let is_cut_off =
            matches!(process.activity, Some(Activity::Stopped)) && call_trace.is_stale();
        let entries = (call_trace.entries.iter()).filter(|entry| entry.epoch == epoch);
        let has_left =
            |entry: &Entry| matches!(&entry.call, Call::End { of, ok: true } if of == "destroy");
        if entries.clone().any(has_left) || call_trace.epoch > epoch {
            // No more calls of this world will come.
            state.ahead = Remaining::Known(Vec::new());
        }
        // The message whose work the rank waits for.
        let mut awaited = None;
        // The id of each event, and when it began.
        let mut begun: Vec<(u64, Option<f64>)> = Vec::new();
        for entry in entries.filter(|entry| is_past(entry, inside, is_cut_off)) {
            let Some(event) = self.event(rank, entry, call_trace, process, hosts)? else {
                continue;
            };
            if let (EventKind::Message(message), Some(inside)) = (&event.what, inside) {
                // Its number among the messages that cannot be told from it, from 1.
                let number = || {
                    state
                        .done
                        .iter()
                        .filter(|one| one.what == event.what)
                        .count()
                        + 1
                };
                if inside.entry.id == entry.id {
                    awaited = Some(EventKind::AwaitMessage(message.clone(), number()));
                }
                if inside.entry.waits && inside.batch.contains(&entry.id) {
                    let number = number();
                    state.batch.push((message.clone(), number));
                }
            }
            if entry.dropped {
                state.dropped.push(state.done.len());
            }
            if let Some(thread) =
                (entry.thread).filter(|one| call_trace.ended_threads.contains(one))
            {
                state.by_ended_thread.insert(state.done.len(), thread);
            }
            state.done.push(event);
            begun.push((entry.id, entry.t));
        }
        state.waited = waited(call_trace, &begun);
        state.doing = self.doing(rank, process, call_trace, inside, hosts)?;
        if let Some((event, _)) = &mut state.doing {
            match (&event.what, awaited) {
                (EventKind::Collective(_) | EventKind::Await(..), _) if is_cut_off => {
                    event.what = EventKind::Own(event.what.to_string());
                }
                (EventKind::Message(_), Some(awaited)) => event.what = awaited,
                _ => {}
            }
        }
        Some(state)
    }

    /// Returns what the rank is in. An interpreter without a heartbeat may be anywhere.
    fn doing(
        &self,
        rank: Rank,
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
        let event = match inside {
            Some(inside) => match self.event(rank, &inside.entry, call_trace, process, hosts)? {
                Some(event) => Some((event, inside.lasts())),
                None => Some((own(A_CALL, ""), inside.lasts())),
            },
            None => own_line(call_trace),
        };
        Some(event)
    }

    /// Returns the event of an entry of a rank: none if it does not concern other ranks; the outer option is none while an
    /// address is being looked up.
    fn event(
        &self,
        own: Rank,
        entry: &Entry,
        call_trace: &CallTrace,
        process: &RankProcess,
        hosts: &mut Hosts,
    ) -> Option<Option<TraceEvent>> {
        let start = |group: &str| self.starts.get(group).copied().unwrap_or(0);
        let what = match &entry.call {
            init @ Call::Init { .. } => match rendezvous(init, process, hosts)? {
                Some(rendezvous) => EventKind::Init(rendezvous),
                None => return Some(None),
            },
            Call::NewGroup { ranks } => EventKind::NewGroup(self.members_of(ranks)),
            Call::Collective {
                group,
                number,
                name,
                nature,
                splits,
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
                        splits: splits.clone(),
                    }),
                }
            }
            message @ Call::Message { .. } => match self.message(own, message, call_trace) {
                Some(message) => message,
                None => return Some(None),
            },
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

    /// Returns a message that a rank sends or receives: none if it has arrived, or if this is another call.
    fn message(&self, own: Rank, call: &Call, call_trace: &CallTrace) -> Option<EventKind> {
        let Call::Message {
            group,
            sends,
            peer,
            tag,
            number,
        } = call
        else {
            return None;
        };
        let label = self.called(group, call_trace);
        let peer = peer.map(|peer| self.launched(peer));
        let sort = peer.map(|peer| MessageSort::new(label.clone(), own, *sends, peer, *tag));
        if self.messages.is_gone(sort.as_ref(), *number) {
            return None;
        }
        let message = EventKind::Message(Message {
            group: label,
            sends: *sends,
            peer,
            tag: *tag,
        });
        Some(match self.messages.is_uncertain(*number) {
            true => EventKind::Own(message.to_string()),
            false => message,
        })
    }
}

/// Returns where a rank meets the others: none if its numbers are not known, or if this is another call; the outer option is none
/// while an address is being looked up.
fn rendezvous(call: &Call, process: &RankProcess, hosts: &mut Hosts) -> Option<Option<Rendezvous>> {
    let Call::Init {
        method,
        place,
        rank,
        world_size,
    } = call
    else {
        return Some(None);
    };
    let assigned = match (method.as_str(), process.assigned_endpoint()) {
        ("env" | "tcp", Some(assigned_endpoint)) => Some(hosts.place(&assigned_endpoint)?),
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
    Some(Some(Rendezvous {
        method: method.clone(),
        place,
        assigned,
        rank,
        world_size,
    }))
}

/// Returns whether the process of a rank runs, as far as that is known.
fn process_state(process: &RankProcess) -> Process {
    match process.activity {
        Some(Activity::Alive { .. }) => Process::Running,
        Some(Activity::Stopped) => Process::Stopped,
        Some(Activity::Gone) => Process::Ended(process_end(process.call_trace.as_ref())),
        None => Process::Unknown,
    }
}

/// Adds to a rank's state what its call trace tells whatever world is compared: errors, keys of stores, threads, and messages on the
/// device.
fn add_facts(state: &mut RankState, call_trace: &CallTrace) {
    state.errors.clone_from(&call_trace.errors);
    state.thread_errors.clone_from(&call_trace.thread_errors);
    state.keys_set.clone_from(&call_trace.keys_set);
    state.keys_set_again.clone_from(&call_trace.keys_set_again);
    state.keys_deleted.clone_from(&call_trace.keys_deleted);
    state.reads.clone_from(&call_trace.reads);
    state.keys_by_threads = call_trace.keys_by_threads;
    state.calls_by_threads = call_trace.calls_by_threads;
    state.recorded = device_messages::under_way(call_trace);
}

/// Returns true if an entry counts as done: it was issued, and the rank is not inside its call, or only waits there for what it has
/// issued. Collectives of a rank whose record is `cut_off` do not count.
fn is_past(entry: &Entry, inside: Option<&Inside>, cut_off: bool) -> bool {
    let is_collective = matches!(entry.call, Call::Collective { .. });
    let waits_for_issued = |inside: &Inside| {
        inside.entry.waits && (is_collective || matches!(entry.call, Call::Message { .. }))
    };
    let is_issued = inside
        .filter(|inside| inside.entry.id == entry.id)
        .is_none_or(waits_for_issued);
    entry.is_issued && is_issued && !(is_collective && cut_off)
}

/// Returns which of these events, each with its id and its begin, were waited for, and how many of them had begun by then.
fn waited(call_trace: &CallTrace, begun: &[(u64, Option<f64>)]) -> BTreeMap<usize, usize> {
    let ended: HashMap<u64, f64> = (call_trace.waited.iter())
        .map(|Waited(id, ended, _)| (*id, *ended))
        .collect();
    let numbered = begun.iter().enumerate();
    let over = numbered.filter_map(|(number, (id, _))| Some((number, *ended.get(id)?)));
    over.map(|(number, ended)| {
        let before = begun
            .iter()
            .rposition(|(_, t)| t.is_some_and(|t| t <= ended));
        (number, before.map_or(0, |last| last + 1))
    })
    .collect()
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
    let threads: Vec<String> = (call_trace.threads.iter())
        .map(|thread| format!("{} (in `{}`, {})", thread.name, thread.text, thread.at))
        .collect();
    // At the end of the program the threads say more than the line of Python's own that waits for them.
    let is_told = !call_trace.finished || threads.is_empty();
    let line = call_trace.own.as_ref().filter(|_| is_told);
    let place = match call_trace.finished {
        true => "the end of its program",
        false => "its own code",
    };
    let (mut text, at) = match line {
        Some(line) => (format!("{place}, `{}`", line.text), line.at.as_str()),
        None if call_trace.finished => (place.to_owned(), ""),
        None => return None,
    };
    if !threads.is_empty() {
        text += &format!(", where it waits for thread {}", threads.join(", "));
    }
    Some((own(&text, at), call_trace.since_last_call()))
}

/// Returns an event in the program's own code.
fn own(what: &str, at: &str) -> TraceEvent {
    TraceEvent {
        what: EventKind::Own(what.to_owned()),
        at: at.to_owned(),
    }
}

/// Returns the parameters of a collective that all its ranks must agree on.
fn nature_of(nature: &BTreeMap<String, String>) -> BTreeMap<&'static str, String> {
    ["reduce op", "dtype", "elements", "root", GROUPS_OF_CALLER]
        .into_iter()
        .filter_map(|key| Some((key, nature.get(key)?.clone())))
        .collect()
}

/// Returns how a process ended, as far as other processes than its parent can tell.
fn process_end(call_trace: Option<&CallTrace>) -> String {
    match call_trace {
        Some(call_trace) if call_trace.ended => match call_trace.errors.last() {
            Some(error) => format!("raised {}", error.lines().next().unwrap_or_default()),
            None => END_OF_PROGRAM.to_owned(),
        },
        _ => "without a word, as by a signal".to_owned(),
    }
}
