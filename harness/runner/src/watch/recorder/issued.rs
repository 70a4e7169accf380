//! The collectives that backends issued, as torch's flight recorder has them, and the traced calls that issued them.

use std::collections::BTreeMap;

use crate::watch::trace::call::{Call, Entry};
use crate::watch::trace::call_trace::CallTrace;
use crate::watch::trace::recorder_dump::CLOCK;
use allranks_diagnose::has_shares;
use allranks_model::flight_recorder::{RecorderDump, RecorderEntry};

/// Collectives of shares that work on one tensor, of the same size on each member.
const EVEN: &[&str] = &["all_gather_into_tensor", "reduce_scatter_tensor"];
/// Collectives that have a root.
const ROOTED: &[&str] = &["broadcast", "gather", "reduce", "scatter"];

/// One collective of a group, made of one entry or of several that were coalesced.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The group's key, `EPOCH.NAME`, as in the call trace.
    pub key: String,
    /// Its number in the group, from 0.
    pub number: usize,
    pub name: String,
    pub nature: BTreeMap<String, String>,
    pub is_over: bool,
    /// When it was issued, in seconds since 1970.
    pub time: f64,
    pub in_backward: bool,
    /// True if the calling thread waits on the host for its end, as with Gloo.
    pub on_host: bool,
}

/// Returns the collectives of a dump, in the order of their numbers, each group by itself.
pub fn issued(dump: &RecorderDump, call_trace: &CallTrace) -> BTreeMap<String, Vec<Issued>> {
    // A library counts its groups anew for each world: which one it is, the time tells.
    let inits: Vec<(f64, u32)> = (call_trace.entries.iter())
        .filter(|entry| matches!(entry.call, Call::Init { .. }))
        .filter_map(|entry| Some((entry.t?, entry.epoch)))
        .collect();
    let is_unretired = !dump.entries.iter().any(is_retired_by_nccl);
    let is_counted = (call_trace.recorder.as_ref()).is_none_or(|counts| counts.counted);
    let mut groups: BTreeMap<String, BTreeMap<u64, Issued>> = BTreeMap::new();
    for entry in dump.collectives() {
        let time = entry.time();
        let begun = inits.iter().rev().find(|(from, _)| *from <= time + CLOCK);
        let (Some(name), Some((_, epoch))) = (entry.process_group.first(), begun) else {
            continue;
        };
        let Some(number) = entry.collective_seq_id.checked_sub(1) else {
            continue;
        };
        let (backend, op) = entry.backend_and_op();
        let op = python_name(op);
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
        one.is_over &= entry.retired || is_unretired && is_completed(entry);
        let thread = entry.thread_name.as_deref().unwrap_or_default();
        one.in_backward |= thread.starts_with("pt_autograd");
        one.nature = match is_first && !may_be_uneven(op) {
            true => nature(entry, op),
            false => BTreeMap::new(),
        };
    }
    let ordered = |(key, group): (String, BTreeMap<u64, Issued>)| {
        let mut ops: Vec<Issued> = group.into_values().collect();
        if is_unretired {
            end_in_order(&mut ops, is_counted);
        }
        (key, ops)
    };
    groups.into_iter().map(ordered).collect()
}

/// Returns true if the members of a collective may give another size each.
fn may_be_uneven(op: &str) -> bool {
    has_shares(op) && !EVEN.contains(&op)
}

/// Returns true if NCCL's watchdog has seen the end of an op. With `TORCH_NCCL_BLOCKING_WAIT` it looks at none: then the state alone
/// tells what is over.
fn is_retired_by_nccl(entry: &RecorderEntry) -> bool {
    entry.retired && entry.backend_and_op().0 == "nccl"
}

/// Returns true if the recorder has found an op of NCCL completed when the dump was written.
fn is_completed(entry: &RecorderEntry) -> bool {
    entry.backend_and_op().0 == "nccl" && entry.state == "completed"
}

/// Marks the collectives of a group as over that come before one that is over: a device carries them out in their order. With
/// `TORCH_NCCL_BLOCKING_WAIT`, where the recorder does not count, it also marks all before the last one: the host waits for each,
/// and the event that tells the end of one may be used again before its state is read.
fn end_in_order(ops: &mut [Issued], is_counted: bool) {
    let over = match is_counted {
        true => ops.iter().rposition(|one| one.is_over && !one.on_host),
        false => ops.iter().rposition(|one| !one.on_host),
    };
    for one in &mut ops[..over.unwrap_or(0)] {
        one.is_over |= !one.on_host;
    }
}

/// Returns what must be the same on all members of a collective, as far as its entry tells.
fn nature(entry: &RecorderEntry, op: &str) -> BTreeMap<String, String> {
    let mut nature = BTreeMap::new();
    if let [dtype, ..] = entry.input_dtypes.as_slice() {
        nature.insert("dtype".to_owned(), dtype_of(dtype));
    }
    // Lists of tensors may be split differently on each rank.
    if let [shape] = entry.input_sizes.as_slice()
        && op != "barrier"
    {
        let elements: u64 = shape.iter().product();
        nature.insert("elements".to_owned(), elements.to_string());
    }
    nature
}

/// Returns the name in `torch.distributed` of an op as ProcessGroupNCCL.cpp records it. The dump of one rank is compared with the
/// calls of another whose dump cannot be read.
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

/// Returns the key of the group and the name of a collective; none of another call.
pub fn collective(entry: &Entry) -> Option<(&str, &str)> {
    match &entry.call {
        Call::Collective { group, name, .. } => Some((group, name)),
        _ => None,
    }
}

/// Returns true if a collective of a dump was issued during a traced call.
pub fn is_within(one: &Issued, entry: &Entry) -> bool {
    let Some(begun) = entry.t else { return false };
    let ended = entry.end.unwrap_or(f64::INFINITY);
    one.time >= begun - CLOCK && one.time <= ended + CLOCK
}

/// Returns the traced collectives of a group, in their order.
pub fn traced_in<'a>(call_trace: &'a CallTrace, key: &str) -> Vec<&'a Entry> {
    (call_trace.entries.iter())
        .filter(|entry| collective(entry).is_some_and(|(own, _)| own == key))
        .collect()
}

/// Returns the last of a group's traced calls during which a collective was issued; none if C++ code issued it.
pub fn caller_of<'a>(one: &Issued, traced: &[&'a Entry]) -> Option<&'a Entry> {
    let within = traced.iter().rev().find(|entry| is_within(one, entry));
    within.copied()
}

/// Returns true if a traced call has issued one of a group's collectives and no more.
pub fn is_alone(caller: &Entry, ops: &[Issued]) -> bool {
    ops.iter().filter(|one| is_within(one, caller)).count() == 1
}

/// Returns true if a collective, one of several that a call on objects is made of, has the root of that call.
pub fn has_root_of(caller: &Entry, one: &Issued) -> bool {
    let is_of_objects = collective(caller).is_some_and(|(_, name)| name.contains("_object"));
    is_of_objects && ROOTED.contains(&one.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a dump of all-reduces on the device, each with its state, and whether NCCL's watchdog has seen its end.
    fn dump(ops: &[(&str, bool)]) -> RecorderDump {
        let entry = |(number, (state, retired)): (u64, &(&str, bool))| RecorderEntry {
            collective_seq_id: number,
            profiling_name: "nccl:all_reduce".into(),
            process_group: vec!["0".into(), "default_pg".into()],
            state: (*state).into(),
            retired: *retired,
            time_created_ns: number * 1_000_000_000,
            ..RecorderEntry::default()
        };
        RecorderDump {
            entries: (1..).zip(ops).map(entry).collect(),
        }
    }

    fn over(ops: &[(&str, bool)], counted: bool) -> Vec<bool> {
        let call_trace: CallTrace = serde_json::from_value(serde_json::json!({
            "moves": 1, "epoch": 1, "inside": null, "entries": [
                {"what": "init", "method": "env", "place": "127.0.0.1:1", "rank": 0, "world_size": 2, "epoch": 1, "id": 1, "t": 0.5}
            ],
            "recorder": {"counted": counted},
        }))
        .unwrap();
        let groups = issued(&dump(ops), &call_trace);
        groups["1.0"].iter().map(|one| one.is_over).collect()
    }

    #[test]
    fn the_state_tells_what_is_over_only_where_nothing_is_retired() {
        let (done, waits) = ("completed", "scheduled");
        // The event of the first was used again before its state was read.
        let unretired = [(waits, false), (done, false), (waits, false)];
        assert_eq!(over(&unretired, true), [true, true, false]);
        let retired = [(done, true), (done, false), (waits, false)];
        assert_eq!(over(&retired, true), [true, false, false]);
    }

    #[test]
    fn only_the_last_is_under_way_where_the_host_waits_for_each() {
        let (done, waits) = ("completed", "scheduled");
        let reused = [
            (done, false),
            (waits, false),
            (waits, false),
            (waits, false),
        ];
        assert_eq!(over(&reused, true), [true, false, false, false]);
        assert_eq!(over(&reused, false), [true, true, true, false]);
    }

    #[test]
    fn a_gathering_into_one_tensor_is_even() {
        assert!(may_be_uneven("all_gather") && may_be_uneven("alltoall_base"));
        assert!(!may_be_uneven("all_gather_into_tensor"));
    }

    #[test]
    fn ops_have_the_names_of_calls() {
        for (recorded, op) in [
            ("_all_gather_base", "all_gather_into_tensor"),
            ("_reduce_scatter_base", "reduce_scatter_tensor"),
            ("all_reduce", "all_reduce"),
        ] {
            assert_eq!(python_name(recorded), op);
        }
    }
}
