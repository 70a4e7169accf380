//! Puts the collectives that backends really issued on a rank, whatever code asked for them, in the place of those that its call trace
//! saw: those of DDP's reducer, of FSDP, of functional and of compiled collectives are then there too.
//!
//! A backend's dump is believed only where it agrees with the calls that the call trace saw: [`distrusted`] names the
//! groups in which it does not.
//!
//! [`distrusted`]: super::trust::distrusted

use std::collections::{BTreeMap, BTreeSet};

use super::device_messages;
use super::device_order::DeviceOrder;
use super::issued::{Issued, caller_of, collective, has_root_of, is_alone, issued, traced_in};
use super::trust::{UNRECORDED, captured, tells_ends};
use crate::watch::trace::call::{Call, Entry, Inside};
use crate::watch::trace::call_trace::{CallTrace, Group};
use crate::watch::trace::own_wait::OwnWait;
use crate::watch::trace::recorder_dump::CLOCK;

/// The first id of entries that come from the dump.
const IDS: u64 = 1 << 40;

/// Returns the call trace with the recorder's collectives in place of its own, in all groups that are not distrusted.
#[must_use]
pub fn merge(call_trace: &CallTrace, distrusted: &BTreeSet<String>) -> CallTrace {
    let Some(dump) = &call_trace.dump else {
        return call_trace.clone();
    };
    let mut merged = call_trace.clone();
    let issued = issued(dump, call_trace);
    let is_recorded = |key: &str| issued.contains_key(key) && !distrusted.contains(key);
    let tells_ends = tells_ends(call_trace, &issued);
    let captured = captured(call_trace, &issued);
    let is_unrecorded =
        |entry: &Entry, name: &str| UNRECORDED.contains(&name) || captured.contains(&entry.id);
    let mut timed: Vec<(f64, Entry)> = Vec::new();
    let mut now = 0.0_f64;
    for entry in &call_trace.entries {
        now = now.max(entry.t.unwrap_or(now));
        let is_replaced = collective(entry).is_some_and(|(key, name)| {
            is_recorded(key) && (!is_unrecorded(entry, name) || entry.raised.is_some())
        });
        if !is_replaced {
            timed.push((now, entry.clone()));
        } else if entry.raised.is_some() {
            let mut raised = entry.clone();
            raised.is_issued = false;
            timed.push((now, raised));
        }
    }
    let recorded = || issued.iter().filter(|(key, _)| is_recorded(key));
    let order = DeviceOrder::of(call_trace, recorded().filter(|_| tells_ends));
    for (_, entry) in &mut timed {
        entry.is_issued &= !order.comes_after_message(entry);
    }
    let mut under_way: Vec<UnderWay<'_>> = Vec::new();
    let mut id = IDS;
    for (key, ops) in recorded() {
        let traced = traced_in(call_trace, key);
        for one in ops {
            id += 1;
            let mut entry = entry_of(one, id, ops, caller_of(one, &traced));
            let before = order.message_before(one, entry.stream);
            entry.is_issued = before.is_none() && !order.comes_after_collective(one, entry.stream);
            if tells_ends && !one.is_over {
                under_way.push(UnderWay {
                    one,
                    entry: entry.clone(),
                    before: before.cloned(),
                });
            }
            timed.push((one.time, entry));
        }
        let group = merged.groups.entry(key.clone()).or_insert_with(|| Group {
            name: String::new(),
            members: Vec::new(),
            count: 0,
        });
        group.count = ops.last().map_or(0, |last| last.number + 1);
    }
    timed.sort_by(|one, other| one.0.total_cmp(&other.0));
    for (key, count) in renumber(&mut timed, &is_recorded) {
        if let Some(group) = merged.groups.get_mut(&key) {
            group.count = group.count.max(count);
        }
    }
    merged.entries = timed.into_iter().map(|(_, entry)| entry).collect();
    merged.inside = inside(call_trace, &merged, &under_way, &is_recorded);
    merged
}

/// A collective that is under way, as an entry, and the message under way that the device carries out before it, if there is one.
struct UnderWay<'a> {
    one: &'a Issued,
    entry: Entry,
    before: Option<Inside>,
}

/// Returns the call trace of a rank whose dump cannot be read, for comparison with those of others: in these groups its collectives
/// have other numbers than theirs, and are left out.
#[must_use]
pub fn unnumbered(mut call_trace: CallTrace, groups: &BTreeSet<String>) -> CallTrace {
    let is_of = |entry: &Entry| collective(entry).is_some_and(|(key, _)| groups.contains(key));
    for entry in call_trace.entries.iter_mut().filter(|entry| is_of(entry)) {
        entry.is_issued = false;
    }
    if let Some(inside) = &mut call_trace.inside
        && is_of(&inside.entry)
        && let Call::Collective { name, .. } = &inside.entry.call
    {
        inside.entry.call = Call::Own { text: name.clone() };
    }
    call_trace
}

/// Numbers the collectives that no recorder keeps between those that it keeps. Returns by group how many there are.
fn renumber(
    timed: &mut [(f64, Entry)],
    is_recorded: &impl Fn(&str) -> bool,
) -> BTreeMap<String, usize> {
    let mut next: BTreeMap<String, usize> = BTreeMap::new();
    for (_, entry) in timed {
        let is_own = entry.id > IDS;
        if let Call::Collective {
            group, number: own, ..
        } = &mut entry.call
            && is_recorded(group)
            && entry.is_issued
        {
            let number = next.entry(group.clone()).or_default();
            if !is_own {
                *own = *number;
            }
            *number = *own + 1;
        }
    }
    next
}

fn entry_of(one: &Issued, id: u64, ops: &[Issued], caller: Option<&Entry>) -> Entry {
    let mut nature = one.nature.clone();
    let mut splits = None;
    let mut at = String::new();
    let mut raised = None;
    if let Some(caller) = caller {
        at.clone_from(&caller.at);
        raised.clone_from(&caller.raised);
        if let Call::Collective {
            nature: own,
            splits: exchanged,
            ..
        } = &caller.call
        {
            let is_alone = is_alone(caller, ops);
            if is_alone {
                splits.clone_from(exchanged);
            }
            let is_told = |key: &str| is_alone || key == "root" && has_root_of(caller, one);
            for key in ["reduce op", "root"] {
                if let Some(value) = own.get(key).filter(|_| is_told(key)) {
                    nature.insert(key.to_owned(), value.clone());
                }
            }
        }
    } else if one.in_backward {
        "in backward".clone_into(&mut at);
    }
    Entry {
        id,
        epoch: one
            .key
            .split('.')
            .next()
            .and_then(|epoch| epoch.parse().ok())
            .unwrap_or_default(),
        at,
        waits: false,
        t: Some(one.time),
        end: one.is_over.then_some(one.time),
        raised,
        dropped: false,
        is_issued: true,
        stream: caller.and_then(|caller| caller.stream),
        async_op: caller.is_some_and(|caller| caller.async_op),
        thread: caller.and_then(|caller| caller.thread),
        call: Call::Collective {
            group: one.key.clone(),
            number: one.number,
            name: one.name.clone(),
            nature,
            splits,
        },
    }
}

/// Returns what the process is in: the recorder's collective that its call waits for, or that C++ code waits for.
fn inside(
    call_trace: &CallTrace,
    merged: &CallTrace,
    under_way: &[UnderWay<'_>],
    is_recorded: &impl Fn(&str) -> bool,
) -> Option<Inside> {
    let first = |key: Option<&str>, since: f64| {
        let fits =
            |one: &&Issued| key.is_none_or(|key| one.key == key) && one.time >= since - CLOCK;
        let fitting = under_way.iter().filter(|one| fits(&one.one));
        fitting.min_by(|one, other| one.one.time.total_cmp(&other.one.time))
    };
    let awaited = |one: &Issued, entry: &Entry, at: &str| {
        let mut entry = entry.clone();
        if !at.is_empty() {
            at.clone_into(&mut entry.at);
        }
        let issued = merged.groups.get(&one.key).map_or(0, |group| group.count);
        // If several are under way, it waits for one that is not the last.
        entry.waits = one.number + 1 < issued;
        Inside {
            entry,
            since: one.time,
            batch: Vec::new(),
        }
    };
    if let Some(inside) = &call_trace.inside {
        let Some((key, _)) = collective(&inside.entry).filter(|(key, _)| is_recorded(key)) else {
            return Some(inside.clone());
        };
        let begun = match inside.entry.waits {
            true => inside.entry.t.unwrap_or(inside.since),
            false => inside.since,
        };
        let found =
            first(Some(key), begun).map(|found| awaited(found.one, &found.entry, &inside.entry.at));
        return found.or_else(|| traced_inside(inside, key, merged));
    }
    let own = call_trace.own.as_ref();
    let kind = own.map_or(OwnWait::Unknown, |own| own.kind);
    let Some(UnderWay { one, entry, before }) = first(None, 0.0) else {
        return device_messages::awaited(call_trace);
    };
    if before.is_some() {
        return before.clone();
    }
    // A device's collective is under way whatever the host does; a collective on the host is waited for in torch's own
    // code.
    if one.on_host && !matches!(kind, OwnWait::Torch | OwnWait::Device | OwnWait::Backward) {
        return None;
    }
    let at = own.map(|own| match kind == OwnWait::Backward || one.in_backward {
        true => format!("{}, in backward", own.at),
        false => own.at.clone(),
    });
    Some(awaited(one, entry, &at.unwrap_or_default()))
}

/// Returns what a process is in if its dump has nothing under way for the call that its trace is in: a group's first
/// collective, of which no end can have been recorded, or one that has not been issued, such as NCCL's first, which
/// must connect before that.
fn traced_inside(inside: &Inside, key: &str, merged: &CallTrace) -> Option<Inside> {
    let mut entry = inside.entry.clone();
    let kept = merged
        .entries
        .iter()
        .find(|kept| kept.id == entry.id && kept.is_issued);
    if let Some(kept) = kept {
        entry = kept.clone();
    } else if entry.waits {
        let begun = entry.t.unwrap_or(inside.since);
        let ended = entry.end.unwrap_or(inside.since);
        let is_awaited = |one: &&Entry| {
            let is_within = |time: f64| time >= begun - CLOCK && time <= ended.max(begun) + CLOCK;
            one.id > IDS
                && collective(one).is_some_and(|(own, _)| own == key)
                && one.t.is_some_and(is_within)
        };
        let awaited = merged.entries.iter().find(is_awaited)?;
        // It has ended: the wait is about to return.
        if awaited.end.is_some() {
            return None;
        }
        entry = Entry {
            at: entry.at,
            waits: true,
            ..awaited.clone()
        };
    } else if let Call::Collective { number, .. } = &mut entry.call {
        *number = merged.groups.get(key).map_or(0, |group| group.count);
    }
    Some(Inside {
        entry,
        since: inside.since,
        batch: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_on_objects_is_made_of_has_its_root_alone_where_it_has_one() {
        let call = |name: &str| -> Entry {
            serde_json::from_value(serde_json::json!({
                "id": 1, "epoch": 1, "at": "train.py:3", "waits": false, "t": 1.0, "end": null, "raised": null,
                "what": "collective", "group": "1.0", "number": 0, "name": name, "nature": {"root": "2"},
            }))
            .unwrap()
        };
        let issued = |number, name: &str| Issued {
            key: "1.0".to_owned(),
            number,
            name: name.to_owned(),
            nature: BTreeMap::new(),
            is_over: false,
            time: 1.5,
            in_backward: false,
            on_host: true,
        };
        let root = |caller: &str, op: &str| {
            let ops = [issued(0, "all_gather"), issued(1, op)];
            let entry = entry_of(&ops[1], 9, &ops, Some(&call(caller)));
            match entry.call {
                Call::Collective { nature, .. } => nature.get("root").cloned(),
                _ => None,
            }
        };
        assert_eq!(
            root("broadcast_object_list", "broadcast").as_deref(),
            Some("2")
        );
        assert_eq!(root("gather_object", "all_gather"), None);
        // Others may have issued this one meanwhile.
        assert_eq!(root("broadcast", "broadcast"), None);
    }
}
