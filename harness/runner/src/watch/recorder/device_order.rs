//! The order in which a rank's device carries out what was issued: it has not come to what follows a message or a collective that is
//! under way, in a batch, a group or a stream.

use std::collections::{BTreeMap, BTreeSet};

use super::device_messages::{behind_batch, first_of_batches, first_waited};
use super::issued::{Issued, caller_of, traced_in};
use crate::watch::trace::call::{Call, Entry, Inside};
use crate::watch::trace::call_trace::CallTrace;

/// The messages and collectives under way that the device of one rank carries out before what was issued later.
pub struct DeviceOrder<'a> {
    /// By group, the first message of a batch: a group has one order of batches and collectives.
    batches: BTreeMap<String, Inside>,
    /// The ids of the messages of later batches.
    of_later_batches: BTreeSet<u64>,
    /// By stream, the first message that the stream waits for, and since when, in seconds since 1970.
    messages: BTreeMap<i64, (f64, Inside)>,
    /// By stream, the group of the first collective that the stream waits for, and since when.
    collectives: BTreeMap<i64, (f64, &'a str)>,
}

impl<'a> DeviceOrder<'a> {
    /// Returns the order for what is under way, by the flight recorder. `issued`: by group, the collectives that the recorder has, of
    /// groups whose ends it tells.
    pub fn of(
        call_trace: &CallTrace,
        issued: impl Iterator<Item = (&'a String, &'a Vec<Issued>)>,
    ) -> Self {
        let issued: Vec<(&String, &Vec<Issued>)> = issued.collect();
        let messages = call_trace.entries.iter();
        let groups = messages.filter_map(|entry| match &entry.call {
            Call::Message { group, .. } => Some(group),
            _ => None,
        });
        let groups: BTreeSet<&String> = groups.collect();
        let batches: BTreeMap<String, Inside> = (groups.into_iter())
            .filter_map(|key| Some((key.clone(), first_of_batches(call_trace, key)?)))
            .collect();
        let of_later_batches = (batches.keys())
            .flat_map(|key| behind_batch(call_trace, key))
            .collect();
        let mut order = Self {
            batches,
            of_later_batches,
            messages: first_waited(call_trace),
            collectives: BTreeMap::new(),
        };
        for (key, ops) in issued {
            order.add(call_trace, key, ops);
        }
        order
    }

    /// Adds the first collective of a group that is under way, if the program has had the stream on which it was issued wait for it.
    fn add(&mut self, call_trace: &CallTrace, key: &'a str, ops: &[Issued]) {
        let traced = traced_in(call_trace, key);
        let mut under_way = ops.iter().filter(|one| !one.is_over);
        let found = under_way.find_map(|one| {
            let caller = caller_of(one, &traced).filter(|caller| !caller.async_op)?;
            Some((caller.stream?, one.time))
        });
        if let Some((stream, time)) = found {
            let first = self.collectives.entry(stream).or_insert((time, key));
            if time < first.0 {
                *first = (time, key);
            }
        }
    }

    /// Returns true if a traced call is a message that comes after another one under way.
    pub fn comes_after_message(&self, entry: &Entry) -> bool {
        let first = entry.stream.and_then(|stream| self.messages.get(&stream));
        let is_message = matches!(entry.call, Call::Message { .. });
        let is_later = first.is_some_and(|(since, _)| entry.t.is_some_and(|t| t > *since));
        self.of_later_batches.contains(&entry.id) || (is_message && is_later)
    }

    /// Returns the message under way that comes before a collective, which was issued on this stream; none if none is known.
    pub fn message_before(&self, one: &Issued, stream: Option<i64>) -> Option<&Inside> {
        let batch = self.batches.get(&one.key);
        let waited = stream.and_then(|stream| self.messages.get(&stream));
        let waited = waited.filter(|(since, _)| one.time > *since);
        batch
            .filter(|first| one.time > first.since)
            .or(waited.map(|(_, message)| message))
    }

    /// Returns true if a collective, which was issued on this stream, comes after one of another group for which the stream waits.
    pub fn comes_after_collective(&self, one: &Issued, stream: Option<i64>) -> bool {
        let first = stream.and_then(|stream| self.collectives.get(&stream));
        first.is_some_and(|(since, key)| one.time > *since && one.key != *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::recorder::issued::collective;
    use crate::watch::recorder::merged_trace::merge;

    #[test]
    fn a_device_has_not_come_to_what_its_stream_was_given_after_a_collective_under_way() {
        let call = |id: u64, group: &str, number: usize, is_async: bool| {
            serde_json::json!({
                "id": id, "epoch": 1, "at": "train.py:3", "waits": false, "t": id as f64, "end": id as f64 + 0.5, "stream": 0,
                "async_op": is_async, "what": "collective", "group": group, "number": number, "name": "all_reduce", "nature": {},
            })
        };
        let recorded = |time: u64, group: &str, number: u64, retired: bool| {
            serde_json::json!({
                "collective_seq_id": number, "p2p_seq_id": 0, "retired": retired, "profiling_name": "nccl:all_reduce",
                "process_group": [group, "x"], "is_p2p": false, "state": "scheduled",
                "time_created_ns": time * 1_000_000_000 + 100_000_000,
            })
        };
        let issued_of_1 = |is_async: bool| {
            let init = serde_json::json!({
                "what": "init", "method": "env", "place": "127.0.0.1:1", "rank": 0, "world_size": 2, "epoch": 1, "id": 1, "t": 0.5,
            });
            let entries = [
                init,
                call(2, "1.0", 0, false),
                call(3, "1.0", 1, is_async),
                call(4, "1.1", 0, false),
            ];
            let mut call_trace: CallTrace = serde_json::from_value(serde_json::json!({
                "moves": 1, "epoch": 1, "inside": null, "entries": entries,
                "own": {"text": "x.item()", "at": "train.py:4", "in": "device"},
            }))
            .unwrap();
            let record = [
                recorded(2, "0", 1, true),
                recorded(3, "0", 2, false),
                recorded(4, "1", 1, false),
            ];
            let dump = serde_json::from_value(serde_json::json!({"entries": record})).unwrap();
            call_trace.dump = Some(std::sync::Arc::new(dump));
            let merged = merge(&call_trace, &BTreeSet::new());
            let mut of_1 = merged
                .entries
                .iter()
                .filter(|entry| collective(entry).is_some_and(|(key, _)| key == "1.1"));
            of_1.next().unwrap().is_issued
        };
        assert!(!issued_of_1(false));
        // The stream goes on without waiting for it.
        assert!(issued_of_1(true));
    }
}
