//! Decides how far torch's flight recorder is believed on a rank, by the calls that the call trace saw.

use std::collections::{BTreeMap, BTreeSet};

use super::issued::{Issued, caller_of, collective, is_alone, is_within, issued, traced_in};
use crate::watch::trace::call::Entry;
use crate::watch::trace::call_trace::CallTrace;
use crate::watch::trace::recorder_dump::CLOCK;

/// Collectives that no recorder keeps, although they count in their group.
pub const UNRECORDED: &[&str] = &["monitored_barrier", "new_group", "split_group"];

/// Returns the keys of groups in which a rank's dump is not trusted: calls that the trace saw return are not in it,
/// or it leaves out numbers that nothing explains. What was captured into a CUDA graph explains both.
#[must_use]
pub fn distrusted(call_trace: &CallTrace) -> BTreeSet<String> {
    let issued = match &call_trace.dump {
        Some(dump) => issued(dump, call_trace),
        None => BTreeMap::new(),
    };
    let captured = captured(call_trace, &issued);
    let mut bad = BTreeSet::new();
    for entry in &call_trace.entries {
        let Some((key, name)) = collective(entry) else {
            continue;
        };
        if entry.waits
            || captured.contains(&entry.id)
            || UNRECORDED.contains(&name)
            || entry.end.is_none()
            || entry.raised.is_some()
        {
            continue;
        }
        let ops = issued.get(key).map(Vec::as_slice).unwrap_or_default();
        let is_older = ops
            .first()
            .zip(entry.t)
            .is_some_and(|(first, t)| t < first.time - CLOCK && first.number > 0);
        // A dump that is not up to date cannot have it yet.
        let is_newer = call_trace.is_stale()
            && ops
                .last()
                .is_none_or(|last| entry.t.is_some_and(|t| t > last.time));
        let is_alone = call_trace
            .groups
            .get(key)
            .is_some_and(|group| group.members.len() < 2);
        if !is_older && !is_newer && !is_alone && !ops.iter().any(|one| is_within(one, entry)) {
            bad.insert(key.to_owned());
        }
    }
    for (key, ops) in &issued {
        let gaps: usize = ops
            .windows(2)
            .map(|pair| pair[1].number - pair[0].number - 1)
            .sum();
        let unrecorded = call_trace.entries.iter().filter(|entry| {
            collective(entry).is_some_and(|(own, name)| {
                own == key && (UNRECORDED.contains(&name) || captured.contains(&entry.id))
            })
        });
        if gaps > unrecorded.count() {
            bad.insert(key.clone());
        }
    }
    bad
}

/// Returns the ids of traced calls that have issued a collective while a CUDA graph was captured: NCCL counts it, and its recorder leaves
/// it out. There are as many such calls between two recorded ones as numbers are missing there. After the last recorded one, those
/// count that come from a line of such a call.
pub fn captured(call_trace: &CallTrace, issued: &BTreeMap<String, Vec<Issued>>) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for (key, ops) in issued {
        let traced = traced_in(call_trace, key);
        let unrecorded: Vec<&Entry> = (traced.into_iter())
            .filter(|entry| entry.end.is_some() && entry.raised.is_none() && !entry.waits)
            .filter(|entry| !ops.iter().any(|one| is_within(one, entry)))
            .filter(|entry| collective(entry).is_some_and(|(_, name)| !UNRECORDED.contains(&name)))
            .collect();
        let is_between =
            |entry: &&&Entry, from: f64, to: f64| entry.t.is_some_and(|t| from < t && t < to);
        let mut lines: BTreeSet<&str> = BTreeSet::new();
        for pair in ops.windows(2).filter(|pair| !pair[0].on_host) {
            let between: Vec<&&Entry> = (unrecorded.iter())
                .filter(|entry| is_between(entry, pair[0].time, pair[1].time))
                .collect();
            if between.len() + pair[0].number + 1 == pair[1].number {
                lines.extend(between.iter().map(|entry| entry.at.as_str()));
                found.extend(between.iter().map(|entry| entry.id));
            }
        }
        let last = ops.last().map_or(f64::INFINITY, |last| last.time);
        let after = unrecorded
            .iter()
            .filter(|entry| is_between(entry, last, f64::INFINITY));
        if !call_trace.is_stale() {
            found.extend(
                after
                    .filter(|entry| lines.contains(entry.at.as_str()))
                    .map(|entry| entry.id),
            );
        }
    }
    found
}

/// Returns the number of collectives, over all groups, that the dump has lost because it is a ring.
#[must_use]
pub fn lost(call_trace: &CallTrace) -> usize {
    let Some(dump) = &call_trace.dump else {
        return 0;
    };
    let issued = issued(dump, call_trace);
    issued
        .values()
        .filter_map(|ops| ops.first())
        .map(|first| first.number)
        .sum()
}

/// Returns the keys of groups of which the dump has collectives that the traced calls do not tell one by one: those that C++ code
/// issued, and those of calls that are made of several, such as `all_gather_object`.
#[must_use]
pub fn untold(call_trace: &CallTrace) -> BTreeSet<String> {
    let issued = match &call_trace.dump {
        Some(dump) => issued(dump, call_trace),
        None => return BTreeSet::new(),
    };
    let is_told = |(key, ops): &(String, Vec<Issued>)| {
        let traced = traced_in(call_trace, key);
        ops.iter().all(|one| {
            caller_of(one, &traced).is_some_and(|caller| {
                let is_same = collective(caller).is_some_and(|(_, name)| name == one.name);
                is_same && is_alone(caller, ops)
            })
        })
    };
    let untold = issued.into_iter().filter(|group| !is_told(group));
    untold.map(|(key, _)| key).collect()
}

/// Returns true if the dump can be trusted where it says that a collective has not ended. It cannot if calls that the
/// trace saw return have no ended collective in it.
pub fn tells_ends(call_trace: &CallTrace, issued: &BTreeMap<String, Vec<Issued>>) -> bool {
    let has_ended = |one: &&Issued| {
        let mut entries = call_trace.entries.iter();
        entries.any(|entry| {
            let is_own = collective(entry).is_some_and(|(key, _)| key == one.key);
            is_own && entry.end.is_some() && entry.raised.is_none() && is_within(one, entry)
        })
    };
    let mut ended = issued.values().flatten().filter(has_ended).peekable();
    ended.peek().is_none() || ended.any(|one| one.is_over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// Builds the trace of a rank that has made an all-reduce in each second, with the numbers that the recorder has.
    fn trace(calls: u64, recorded: &[u64]) -> CallTrace {
        let init = json!({
            "what": "init", "method": "env", "place": "127.0.0.1:1", "rank": 0, "world_size": 2, "epoch": 1, "id": 1000, "t": 0.5,
        });
        let call = |number: u64| {
            json!({
                "what": "collective", "group": "1.0", "number": number - 1, "name": "all_reduce", "nature": {},
                "at": "decode.py:32", "t": number, "end": number as f64 + 0.5, "epoch": 1, "id": number,
            })
        };
        let entries: Vec<Value> = std::iter::once(init).chain((1..=calls).map(call)).collect();
        let mut call_trace: CallTrace = serde_json::from_value(json!({
            "moves": 1, "epoch": 1, "inside": null, "entries": entries,
            "groups": {"1.0": {"name": "world", "members": [0, 1], "count": calls}},
        }))
        .unwrap();
        let op = |number: &u64| {
            json!({
                "collective_seq_id": number, "retired": true, "profiling_name": "nccl:all_reduce", "process_group": ["0", "default_pg"],
                "state": "completed", "time_created_ns": number * 1_000_000_000 + 100_000_000,
            })
        };
        let ops: Vec<Value> = recorded.iter().map(op).collect();
        let dump = serde_json::from_value(json!({"entries": ops})).unwrap();
        call_trace.dump = Some(Arc::new(dump));
        call_trace
    }

    fn captured_of(call_trace: &CallTrace) -> Vec<u64> {
        let issued = issued(call_trace.dump.as_ref().unwrap(), call_trace);
        captured(call_trace, &issued).into_iter().collect()
    }

    #[test]
    fn a_number_that_the_recorder_leaves_out_is_that_of_a_call_that_was_captured() {
        let call_trace = trace(8, &[1, 2, 3, 5, 6, 7]);
        assert_eq!(captured_of(&call_trace), [4, 8]);
        assert!(distrusted(&call_trace).is_empty());
    }

    #[test]
    fn a_call_without_a_number_is_no_such_one() {
        // The recorder counts on without the fourth call.
        let mut call_trace = trace(6, &[1, 2, 3, 5, 6]);
        let mut dump = (**call_trace.dump.as_ref().unwrap()).clone();
        for entry in dump.entries.iter_mut().skip(3) {
            entry.collective_seq_id -= 1;
        }
        call_trace.dump = Some(Arc::new(dump));
        assert!(captured_of(&call_trace).is_empty());
        assert!(distrusted(&call_trace).contains("1.0"));
        // Nothing tells that the last call was captured.
        assert!(distrusted(&trace(4, &[1, 2, 3])).contains("1.0"));
    }
}
