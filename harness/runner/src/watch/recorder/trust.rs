//! Decides how far torch's flight recorder is believed on a rank, by the calls that the call trace saw.

use std::collections::{BTreeMap, BTreeSet};

use super::issued::{Issued, caller_of, collective, is_alone, is_within, issued, traced_in};
use crate::watch::trace::call_trace::CallTrace;
use crate::watch::trace::recorder_dump::CLOCK;

/// Collectives that no recorder keeps, although they count in their group.
pub const UNRECORDED: &[&str] = &["monitored_barrier", "new_group", "split_group"];

/// Returns the keys of groups in which a rank's dump is not trusted: calls that the trace saw return are not in it,
/// or it leaves out numbers that nothing explains.
#[must_use]
pub fn distrusted(call_trace: &CallTrace) -> BTreeSet<String> {
    let issued = match &call_trace.dump {
        Some(dump) => issued(dump, call_trace),
        None => BTreeMap::new(),
    };
    let mut bad = BTreeSet::new();
    for entry in &call_trace.entries {
        let Some((key, name)) = collective(entry) else {
            continue;
        };
        if entry.waits
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
            collective(entry).is_some_and(|(own, name)| own == key && UNRECORDED.contains(&name))
        });
        if gaps > unrecorded.count() {
            bad.insert(key.clone());
        }
    }
    bad
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
