//! Finds the messages that a rank has issued to its device and that the device has not carried out, by torch's flight recorder.
//!
//! On a stream the wait for a message returns at once. Whatever makes the host wait for the device later, such as
//! `torch.cuda.synchronize()`, then waits for the message.

use std::collections::{BTreeMap, BTreeSet};

use crate::watch::trace::call::{Call, Entry, Inside};
use crate::watch::trace::call_trace::{CallTrace, Waited};
use crate::watch::trace::own_wait::OwnWait;
use crate::watch::trace::recorder_dump::CLOCK;
use allranks_model::flight_recorder::{RecordedOp, RecorderDump, RecorderEntry};

/// Returns the messages of a dump that are under way, in the order in which they were issued. Empty as well if no message has ended:
/// then it is unknown whether this backend records ends at all.
fn messages_under_way(dump: &RecorderDump) -> Vec<&RecorderEntry> {
    let batch = |entry: &RecorderEntry| (entry.group().to_owned(), entry.p2p_seq_id);
    let ended: BTreeSet<(String, u64)> = (dump.entries.iter())
        .filter(|entry| entry.retired && entry.is_batch())
        .map(batch)
        .collect();
    let has_ended = |entry: &RecorderEntry| entry.retired || ended.contains(&batch(entry));
    let messages = || dump.entries.iter().filter(|entry| entry.is_p2p);
    match messages().any(has_ended) {
        true => messages().filter(|entry| !has_ended(entry)).collect(),
        false => Vec::new(),
    }
}

/// Returns the messages under way on a rank's device while its host is in no call of torch.distributed other than the
/// wait for a message; empty otherwise. Of those between the same ranks in the same direction it has the first.
#[must_use]
pub fn under_way(call_trace: &CallTrace) -> Vec<RecordedOp> {
    let is_elsewhere = call_trace.inside.as_ref().is_some_and(|inside| {
        !inside.entry.waits || !matches!(inside.entry.call, Call::Message { .. })
    });
    let Some(dump) = call_trace.dump.as_ref().filter(|_| !is_elsewhere) else {
        return Vec::new();
    };
    let mut seen = BTreeSet::new();
    let mut messages = messages_under_way(dump);
    messages.retain(|entry| seen.insert((&entry.process_group, entry.op())));
    let recorded = messages.into_iter().map(|entry| RecordedOp {
        inputs: Vec::new(),
        ..RecordedOp::of(entry)
    });
    recorded.map(RecordedOp::cut).collect()
}

/// Returns the message that the host waits for: the first one under way, if the host is in torch's own code or waits for its device. None if
/// the call trace does not have the call that issued it.
#[must_use]
pub fn awaited(call_trace: &CallTrace) -> Option<Inside> {
    let own = call_trace
        .own
        .as_ref()
        .filter(|own| matches!(own.kind, OwnWait::Torch | OwnWait::Device))?;
    let first = *messages_under_way(call_trace.dump.as_ref()?).first()?;
    let mut inside = wait_for(first, call_trace)?;
    let of_batch = match &inside.entry.call {
        Call::Message { group, .. } => first_of_batches(call_trace, group),
        _ => None,
    };
    if let Some(of_batch) = of_batch.filter(|other| other.entry.id == inside.entry.id) {
        inside = of_batch;
    }
    inside.entry.at.clone_from(&own.at);
    Some(inside)
}

/// Returns the wait for the first message under way of a batch in a group, since when it was issued: the device carries out a group's
/// batches and collectives in their order, and has come to none that was issued later. `key` is the group's in the call trace.
#[must_use]
pub fn first_of_batches(call_trace: &CallTrace, key: &str) -> Option<Inside> {
    let dump = call_trace.dump.as_ref()?;
    let (_, group) = key.split_once('.')?;
    let mut messages = batched_under_way(dump, group);
    let first = messages.next()?;
    let mut inside = wait_for(first, call_trace)?;
    let others = messages.take_while(|entry| entry.p2p_seq_id == first.p2p_seq_id);
    let ids = others.filter_map(|entry| Some(wait_for(entry, call_trace)?.entry.id));
    inside.batch = std::iter::once(inside.entry.id).chain(ids).collect();
    if let Some(own) = &call_trace.own {
        inside.entry.at.clone_from(&own.at);
    }
    Some(inside)
}

/// Iterates over the messages of a group's batches that are under way, in the order of [`messages_under_way`].
fn batched_under_way<'a>(
    dump: &'a RecorderDump,
    group: &'a str,
) -> impl Iterator<Item = &'a RecorderEntry> {
    let batches: BTreeSet<u64> = (dump.entries.iter())
        .filter(|entry| entry.is_batch() && entry.group() == group)
        .map(|entry| entry.p2p_seq_id)
        .collect();
    let messages = messages_under_way(dump).into_iter();
    messages.filter(move |entry| entry.group() == group && batches.contains(&entry.p2p_seq_id))
}

/// Returns the ids of the messages of a group that the device carries out after a batch that is under way: those of its later batches.
#[must_use]
pub fn behind_batch(call_trace: &CallTrace, key: &str) -> BTreeSet<u64> {
    let (Some(dump), Some((_, group))) = (call_trace.dump.as_ref(), key.split_once('.')) else {
        return BTreeSet::new();
    };
    let mut messages = batched_under_way(dump, group);
    let Some(first) = messages.next() else {
        return BTreeSet::new();
    };
    let behind = messages.filter(|entry| entry.p2p_seq_id > first.p2p_seq_id);
    let calls = behind.filter_map(|entry| wait_for(entry, call_trace));
    calls.map(|inside| inside.entry.id).collect()
}

/// Returns the first message under way that each stream of the device waits for, and since when: the program has waited for its work on
/// that stream, where the wait returns at once, and what is issued there later comes after the message.
#[must_use]
pub fn first_waited(call_trace: &CallTrace) -> BTreeMap<i64, (f64, Inside)> {
    let mut found: BTreeMap<i64, (f64, Inside)> = BTreeMap::new();
    let Some(dump) = call_trace.dump.as_ref() else {
        return found;
    };
    for message in messages_under_way(dump) {
        let Some(mut inside) = wait_for(message, call_trace) else {
            continue;
        };
        // The stream waits for `recv` by itself, and for the work of `irecv` where the program has waited for that.
        let by_itself = inside.entry.stream.filter(|_| !inside.entry.async_op);
        let waited = call_trace.waited.iter();
        let mut waited = waited.filter(|waited| waited.0 == inside.entry.id);
        let (since, stream) = match (by_itself, waited.next().copied()) {
            (Some(stream), _) => (message.time(), stream),
            (None, Some(Waited(_, since, Some(stream)))) => (since, stream),
            (None, _) => continue,
        };
        if let Some(own) = &call_trace.own {
            inside.entry.at.clone_from(&own.at);
        }
        found.entry(stream).or_insert((since, inside));
    }
    found
}

/// Returns the wait for a message, by the call that issued it; none if the call trace does not have that call.
fn wait_for(message: &RecorderEntry, call_trace: &CallTrace) -> Option<Inside> {
    let time = message.time();
    let is_send = message.op().starts_with("send");
    let issued_it = |entry: &&Entry| {
        let is_message = matches!(&entry.call, Call::Message { group, sends, .. }
            if *sends == is_send
                && group.split_once('.').is_some_and(|(_, name)| name == message.group()));
        let began = entry.t.is_some_and(|t| t <= time + CLOCK);
        is_message && began && entry.end.is_none_or(|end| end >= time - CLOCK)
    };
    let call = call_trace.entries.iter().rev().find(issued_it)?;
    Some(Inside {
        entry: Entry {
            waits: true,
            ..call.clone()
        },
        since: time,
        batch: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// Builds an entry of a dump, as NCCL makes them.
    fn recorded(name: &str, number: u64, retired: bool) -> Value {
        json!({
            "collective_seq_id": 0, "p2p_seq_id": number, "retired": retired,
            "profiling_name": format!("nccl:{name}"), "process_group": ["0", "default_pg"],
            "is_p2p": name != "coalesced", "state": "scheduled", "time_created_ns": number * 1_000_000_000 + 500_000_000,
        })
    }

    /// Builds the trace of rank 1, which has issued a batch of one message in each second, and is in its own code.
    fn trace(messages: &[(&str, bool)], kind: &str) -> CallTrace {
        let numbered = || (1..).zip(messages);
        let entries: Vec<Value> = numbered()
            .map(|(number, (name, _))| {
                json!({
                    "what": "message", "group": "1.0", "sends": name.starts_with("send"), "peer": 0, "tag": 0,
                    "at": "train.py:33", "t": number, "end": number + 1, "epoch": 1, "id": number,
                })
            })
            .collect();
        let record: Vec<Value> = numbered()
            .flat_map(|(number, (name, ended))| {
                [
                    recorded(name, number, false),
                    recorded("coalesced", number, *ended),
                ]
            })
            .collect();
        let mut call_trace: CallTrace = serde_json::from_value(json!({
            "moves": 1, "epoch": 1, "inside": null, "entries": entries,
            "own": {"text": "torch.cuda.synchronize()", "at": "train.py:34", "in": kind},
        }))
        .unwrap();
        let dump = serde_json::from_value(json!({"entries": record})).unwrap();
        call_trace.dump = Some(Arc::new(dump));
        call_trace
    }

    #[test]
    fn a_host_in_torch_waits_for_the_first_message_whose_batch_has_not_ended() {
        let messages = [
            ("recv 1<-0", true),
            ("recv 1<-0", false),
            ("send 1->0", false),
        ];
        let call_trace = trace(&messages, "torch");
        let inside = awaited(&call_trace).unwrap();
        assert_eq!((inside.entry.id, inside.entry.waits), (2, true));
        assert_eq!(inside.entry.at, "train.py:34");
        let ops: Vec<String> = under_way(&call_trace)
            .into_iter()
            .map(|one| one.op)
            .collect();
        assert_eq!(ops, ["recv 1<-0", "send 1->0"]);
    }

    #[test]
    fn a_host_elsewhere_is_not_placed_and_its_messages_are_told() {
        let call_trace = trace(&[("recv 1<-0", true), ("recv 1<-0", false)], "");
        assert!(awaited(&call_trace).is_none());
        assert_eq!(under_way(&call_trace).len(), 1);
    }

    #[test]
    fn a_batch_of_several_messages_ends_as_one() {
        let entries = [
            recorded("recv 1<-0", 1, false),
            recorded("send 1->2", 1, false),
            recorded("coalesced", 1, true),
            recorded("send 1->2", 2, false),
        ];
        let dump: RecorderDump = serde_json::from_value(json!({"entries": entries})).unwrap();
        let numbers: Vec<u64> = (messages_under_way(&dump).iter())
            .map(|entry| entry.p2p_seq_id)
            .collect();
        assert_eq!(numbers, [2]);
    }

    #[test]
    fn what_is_issued_after_a_batch_waits_for_it_wherever_the_host_is() {
        let messages = [("recv 1<-0", true), ("recv 1<-0", false)];
        let call_trace = trace(&messages, "");
        let first = |key| first_of_batches(&call_trace, key);
        let of_world = first("1.0").map(|inside| (inside.entry.id, inside.since));
        assert_eq!(of_world, Some((2, 2.5)));
        assert!(first("1.7").is_none());
        assert_eq!(first("1.0").map(|inside| inside.batch), Some(vec![2]));
        assert!(behind_batch(&call_trace, "1.0").is_empty());
        let later = [
            ("recv 1<-0", true),
            ("recv 1<-0", false),
            ("send 1->0", false),
        ];
        let behind = behind_batch(&trace(&later, ""), "1.0");
        assert_eq!(behind.into_iter().collect::<Vec<_>>(), [3]);
        // A message by itself has a stream of its own.
        let mut alone = call_trace.clone();
        let mut dump = (**alone.dump.as_ref().unwrap()).clone();
        dump.entries
            .retain(|entry| !(entry.is_batch() && entry.p2p_seq_id == 2));
        alone.dump = Some(Arc::new(dump));
        assert!(first_of_batches(&alone, "1.0").is_none());
    }

    #[test]
    fn a_stream_waits_for_the_first_message_under_way_that_it_has_waited_for() {
        let messages = [
            ("recv 1<-0", true),
            ("recv 1<-0", false),
            ("recv 1<-0", false),
        ];
        let mut call_trace = trace(&messages, "");
        assert!(first_waited(&call_trace).is_empty());
        let of_gloo = Waited(2, 2.75, None);
        call_trace.waited = vec![Waited(1, 1.75, Some(0)), of_gloo, Waited(3, 3.75, Some(0))];
        let found = first_waited(&call_trace);
        let (since, inside) = &found[&0];
        assert_eq!(
            (*since, inside.entry.id, inside.entry.waits),
            (3.75, 3, true)
        );
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn a_stream_waits_by_itself_for_a_message_that_is_not_asynchronous() {
        let messages = [("recv 1<-0", true), ("recv 1<-0", false)];
        let mut call_trace = trace(&messages, "");
        call_trace.entries[1].stream = Some(7);
        let since = |call_trace: &CallTrace| first_waited(call_trace).get(&7).map(|found| found.0);
        assert_eq!(since(&call_trace), Some(2.5));
        call_trace.entries[1].async_op = true;
        assert_eq!(since(&call_trace), None);
    }

    #[test]
    fn a_dump_in_which_no_message_ends_says_nothing() {
        let call_trace = trace(&[("recv 1<-0", false), ("recv 1<-0", false)], "torch");
        assert!(awaited(&call_trace).is_none());
        assert!(under_way(&call_trace).is_empty());
    }
}
