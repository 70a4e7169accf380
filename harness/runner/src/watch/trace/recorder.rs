//! Reads torch's flight recorder, which records the collectives that backends really issued on a rank, whatever code
//! asked for them, and merges it with the calls that the rank's Python code made.
//!
//! A backend's record is believed only where it agrees with the calls that the call trace saw: [`distrusted`] names the
//! groups in which it does not. In all others, [`merge`] puts the record's collectives in the place of the traced ones:
//! those of DDP's reducer, of FSDP, of functional and of compiled collectives are then there too.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::call_trace::{Call, CallTrace, Entry, Group, Inside};
use super::device_messages;
use super::own_wait::OwnWait;
use super::record::{CLOCK, Record, RecordEntry};

/// Collectives that no recorder keeps, although they count in their group.
const UNRECORDED: &[&str] = &["monitored_barrier", "new_group"];
/// Collectives whose input may have another size, or another dtype, on each member.
const UNEVEN: &[&str] = &["gather", "scatter", "alltoall", "all_to_all"];
/// Collectives that have a root.
const ROOTED: &[&str] = &["broadcast", "gather", "reduce", "scatter"];
/// The first id of entries that come from the record.
const IDS: u64 = 1 << 40;

/// One collective of a group, made of one entry or of several that were coalesced.
#[derive(Clone, Debug)]
struct Issued {
    /// The group's key, `EPOCH.NAME`, as in the call trace.
    key: String,
    /// Its number in the group, from 0.
    number: usize,
    name: String,
    nature: BTreeMap<String, String>,
    is_over: bool,
    /// When it was issued, in seconds since 1970.
    time: f64,
    in_backward: bool,
    /// True if the calling thread waits on the host for its end, as with Gloo.
    on_host: bool,
}

impl Record {
    /// Its collectives, in the order of their numbers, each group by itself.
    fn issued(&self, call_trace: &CallTrace) -> BTreeMap<String, Vec<Issued>> {
        // A library counts its groups anew for each world: which one it is, the time tells.
        let inits: Vec<(f64, u32)> = (call_trace.entries.iter())
            .filter(|entry| matches!(entry.call, Call::Init { .. }))
            .filter_map(|entry| Some((entry.t?, entry.epoch)))
            .collect();
        let mut groups: BTreeMap<String, BTreeMap<u64, Issued>> = BTreeMap::new();
        for entry in self.collectives() {
            let time = entry.time();
            let begun = inits.iter().rev().find(|(from, _)| *from <= time + CLOCK);
            let (Some(name), Some((_, epoch))) = (entry.process_group.first(), begun) else {
                continue;
            };
            let Some(number) = entry.collective_seq_id.checked_sub(1) else {
                continue;
            };
            let (backend, op) = split(&entry.profiling_name);
            let key = format!("{epoch}.{name}");
            let group = groups.entry(key.clone()).or_default();
            let one = group.entry(number).or_insert_with(|| Issued {
                key,
                number: number as usize,
                name: String::new(),
                nature: BTreeMap::new(),
                is_over: true,
                time,
                in_backward: false,
                on_host: backend == "gloo",
            });
            let is_first = one.name.is_empty();
            match is_first {
                true => op.clone_into(&mut one.name),
                false => one.name = format!("{}+{op}", one.name),
            }
            one.is_over &= entry.retired;
            let thread = entry.thread_name.as_deref().unwrap_or_default();
            one.in_backward |= thread.starts_with("pt_autograd");
            one.nature = match is_first && !UNEVEN.iter().any(|uneven| op.contains(uneven)) {
                true => entry.nature(op),
                false => BTreeMap::new(),
            };
        }
        let ordered = |(key, group): (String, BTreeMap<u64, Issued>)| {
            (key, group.into_values().collect::<Vec<_>>())
        };
        groups.into_iter().map(ordered).collect()
    }
}

impl RecordEntry {
    fn nature(&self, op: &str) -> BTreeMap<String, String> {
        let mut nature = BTreeMap::new();
        if let [dtype, ..] = self.input_dtypes.as_slice() {
            nature.insert("dtype".to_owned(), dtype_of(dtype));
        }
        // Lists of tensors may be split differently on each rank.
        let sizes = self.input_sizes.as_array().filter(|all| all.len() == 1);
        let shape = sizes.and_then(|all| all[0].as_array());
        if let Some(shape) = shape.filter(|_| op != "barrier") {
            let elements: u64 = shape.iter().filter_map(Value::as_u64).product();
            nature.insert("elements".to_owned(), elements.to_string());
        }
        nature
    }
}

/// Splits `nccl:_all_gather_base` into the backend and the op, by its name in `torch.distributed`.
fn split(name: &str) -> (&str, &str) {
    let (backend, op) = name.split_once(':').unwrap_or(("", name));
    (backend, python_name(op))
}

/// Returns the name in `torch.distributed` of an op as ProcessGroupNCCL.cpp records it. The record of one rank is compared with the
/// calls of another whose record cannot be read.
fn python_name(op: &str) -> &str {
    match op {
        "_all_gather_base" => "all_gather_into_tensor",
        "_reduce_scatter_base" => "reduce_scatter_tensor",
        "_broadcast_oop" => "broadcast",
        "_reduce_oop" => "reduce",
        other => other,
    }
}

/// Returns Python's name of a C++ dtype.
fn dtype_of(name: &str) -> String {
    match name {
        "Float" => "float32",
        "Double" => "float64",
        "Half" => "float16",
        "BFloat16" => "bfloat16",
        "Long" => "int64",
        "Int" => "int32",
        "Short" => "int16",
        "Char" => "int8",
        "Byte" => "uint8",
        "Bool" => "bool",
        other => return other.to_lowercase(),
    }
    .to_owned()
}

fn collective(entry: &Entry) -> Option<(&str, &str)> {
    match &entry.call {
        Call::Collective { group, name, .. } => Some((group, name)),
        _ => None,
    }
}

/// Returns true if a collective of the record was issued during a traced call.
fn is_within(one: &Issued, entry: &Entry) -> bool {
    let Some(begun) = entry.t else { return false };
    let ended = entry.end.unwrap_or(f64::INFINITY);
    one.time >= begun - CLOCK && one.time <= ended + CLOCK
}

/// Returns the traced collectives of a group, in their order.
fn traced_in<'a>(call_trace: &'a CallTrace, key: &str) -> Vec<&'a Entry> {
    (call_trace.entries.iter())
        .filter(|entry| collective(entry).is_some_and(|(own, _)| own == key))
        .collect()
}

/// Returns the last of a group's traced calls during which a collective was issued; none if C++ code issued it.
fn caller_of<'a>(one: &Issued, traced: &[&'a Entry]) -> Option<&'a Entry> {
    let within = traced.iter().rev().find(|entry| is_within(one, entry));
    within.copied()
}

/// Returns true if a traced call has issued one of a group's collectives and no more.
fn is_alone(caller: &Entry, ops: &[Issued]) -> bool {
    ops.iter().filter(|one| is_within(one, caller)).count() == 1
}

/// Returns true if a collective, one of several that a call on objects is made of, has the root of that call.
fn has_root_of(caller: &Entry, one: &Issued) -> bool {
    let is_of_objects = collective(caller).is_some_and(|(_, name)| name.contains("_object"));
    is_of_objects && ROOTED.contains(&one.name.as_str())
}

/// Returns the keys of groups in which a rank's record is not trusted: calls that the trace saw return are not in it,
/// or it leaves out numbers that nothing explains.
#[must_use]
pub fn distrusted(call_trace: &CallTrace) -> BTreeSet<String> {
    let issued = match &call_trace.record {
        Some(record) => record.issued(call_trace),
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
        // A record that is not up to date cannot have it yet.
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

/// Returns the number of collectives, over all groups, that the record has lost because it is a ring.
#[must_use]
pub fn lost(call_trace: &CallTrace) -> usize {
    let Some(record) = &call_trace.record else {
        return 0;
    };
    let issued = record.issued(call_trace);
    issued
        .values()
        .filter_map(|ops| ops.first())
        .map(|first| first.number)
        .sum()
}

/// Returns the call trace with the record's collectives in place of its own, in all groups that are not distrusted.
#[must_use]
pub fn merge(call_trace: &CallTrace, distrusted: &BTreeSet<String>) -> CallTrace {
    let Some(record) = &call_trace.record else {
        return call_trace.clone();
    };
    let mut merged = call_trace.clone();
    let issued = record.issued(call_trace);
    let is_recorded = |key: &str| issued.contains_key(key) && !distrusted.contains(key);
    let tells_ends = tells_ends(call_trace, &issued);
    let mut timed: Vec<(f64, Entry)> = Vec::new();
    let mut now = 0.0_f64;
    for entry in &call_trace.entries {
        now = now.max(entry.t.unwrap_or(now));
        let is_replaced = collective(entry).is_some_and(|(key, name)| {
            is_recorded(key) && (!UNRECORDED.contains(&name) || entry.raised.is_some())
        });
        if !is_replaced {
            timed.push((now, entry.clone()));
        } else if entry.raised.is_some() {
            let mut raised = entry.clone();
            raised.is_issued = false;
            timed.push((now, raised));
        }
    }
    let batches: BTreeMap<&str, Inside> = (issued.keys())
        .filter_map(|key| {
            Some((
                key.as_str(),
                device_messages::first_of_batches(call_trace, key)?,
            ))
        })
        .collect();
    let mut under_way: Vec<(&Issued, Entry)> = Vec::new();
    let mut id = IDS;
    for (key, ops) in issued.iter().filter(|(key, _)| is_recorded(key)) {
        let traced = traced_in(call_trace, key);
        for one in ops {
            id += 1;
            let mut entry = entry_of(one, id, ops, caller_of(one, &traced));
            // The device has not come to what was issued after a message that is under way.
            entry.is_issued =
                (batches.get(key.as_str())).is_none_or(|first| one.time <= first.since);
            if tells_ends && !one.is_over {
                under_way.push((one, entry.clone()));
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
    renumber(&mut timed, &is_recorded);
    merged.entries = timed.into_iter().map(|(_, entry)| entry).collect();
    merged.inside = inside(call_trace, &merged, &under_way, &batches, &is_recorded);
    merged
}

/// Returns the keys of groups of which the record has collectives that the traced calls do not tell one by one: those that C++ code
/// issued, and those of calls that are made of several, such as `all_gather_object`.
#[must_use]
pub fn untold(call_trace: &CallTrace) -> BTreeSet<String> {
    let issued = match &call_trace.record {
        Some(record) => record.issued(call_trace),
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

/// Returns the call trace of a rank whose record cannot be read, for comparison with those of others: in these groups its collectives
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

/// Returns true if the record can be trusted where it says that a collective has not ended. It cannot if calls that the
/// trace saw return have no ended collective in it.
fn tells_ends(call_trace: &CallTrace, issued: &BTreeMap<String, Vec<Issued>>) -> bool {
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

/// Numbers the collectives that no recorder keeps between those that it keeps.
fn renumber(timed: &mut [(f64, Entry)], is_recorded: &impl Fn(&str) -> bool) {
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
        call: Call::Collective {
            group: one.key.clone(),
            number: one.number,
            name: one.name.clone(),
            nature,
            splits,
        },
    }
}

/// Returns what the process is in: the record's collective that its call waits for, or that C++ code waits for.
fn inside(
    call_trace: &CallTrace,
    merged: &CallTrace,
    under_way: &[(&Issued, Entry)],
    batches: &BTreeMap<&str, Inside>,
    is_recorded: &impl Fn(&str) -> bool,
) -> Option<Inside> {
    let first = |key: Option<&str>, since: f64| {
        let fits =
            |one: &&Issued| key.is_none_or(|key| one.key == key) && one.time >= since - CLOCK;
        let mut fitting: Vec<&(&Issued, Entry)> =
            under_way.iter().filter(|(one, _)| fits(one)).collect();
        fitting.sort_by(|one, other| one.0.time.total_cmp(&other.0.time));
        fitting.first().copied()
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
            first(Some(key), begun).map(|(one, entry)| awaited(one, entry, &inside.entry.at));
        return found.or_else(|| traced_inside(inside, key, merged));
    }
    let own = call_trace.own.as_ref();
    let kind = own.map_or(OwnWait::Unknown, |own| own.kind);
    let Some((one, entry)) = first(None, 0.0) else {
        return device_messages::awaited(call_trace);
    };
    if let Some(message) = (batches.get(one.key.as_str())).filter(|first| first.since < one.time) {
        return Some(message.clone());
    }
    // A device's collective is under way whatever the host does; a collective on the host is waited for in torch's own
    // code.
    if one.on_host && !matches!(kind, OwnWait::Torch | OwnWait::Backward) {
        return None;
    }
    let at = own.map(|own| match kind == OwnWait::Backward || one.in_backward {
        true => format!("{}, in backward", own.at),
        false => own.at.clone(),
    });
    Some(awaited(one, entry, &at.unwrap_or_default()))
}

/// Returns what a process is in if its record has nothing under way for the call that its trace is in: a group's first
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

    #[test]
    fn ops_have_the_names_of_calls() {
        for (recorded, backend, op) in [
            ("nccl:_all_gather_base", "nccl", "all_gather_into_tensor"),
            ("nccl:_reduce_scatter_base", "nccl", "reduce_scatter_tensor"),
            ("gloo:all_reduce", "gloo", "all_reduce"),
            ("barrier", "", "barrier"),
        ] {
            assert_eq!(split(recorded), (backend, op));
        }
    }
}
