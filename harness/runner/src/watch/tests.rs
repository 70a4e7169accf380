//! Tests from call traces to verdicts, without a process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::watch::endpoints::hosts::Hosts;
use crate::watch::evidence::hang_evidence::{as_assigned, evidence};
use crate::watch::evidence::world_view::{Ranks, WorldView};
use crate::watch::ranks::job::Job;
use crate::watch::ranks::rank_process::RankProcess;
use crate::watch::waits::late_rank::has_left_a_request;
use allranks_diagnose::diagnose;
use allranks_host::Activity;
use allranks_model::diagnosis::{Confidence, HangKind};

/// Returns a collective of the world, as a call trace has it.
fn call(id: u64, number: usize, name: &str) -> Value {
    json!({"id": id, "epoch": 1, "at": "train.py:7", "what": "collective", "group": "1.0", "number": number,
           "name": name, "nature": {"dtype": "float32"}})
}

/// Returns a rank whose call trace has these entries; it is in the last of them.
fn rank(number: u32, size: u32, count: usize, entries: &[Value]) -> RankProcess {
    let members: Vec<u32> = (0..size).collect();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let call_trace = json!({
        "moves": 1, "epoch": 1,
        "groups": {"1.0": {"name": "world", "members": members, "count": count}},
        "entries": entries,
        "inside": entries.last().map(|entry| json!({"entry": entry, "since": since.unwrap().as_secs_f64() - 5.0})),
        "own": {"text": "step()", "at": "train.py:7"},
    });
    let environment = [("RANK", number), ("WORLD_SIZE", size)];
    RankProcess {
        more_may_start: false,
        pid: number,
        environment: environment
            .map(|(name, value)| (name.to_owned(), value.to_string()))
            .into(),
        activity: Some(Activity::Alive { ticks: 0 }),
        call_trace: serde_json::from_value(call_trace).unwrap(),
        traced: None,
    }
}

/// Returns the view of a world none of whose other processes is its program's.
fn view<'a>(ranks: &'a Ranks<'a>, hosts: &'a mut Hosts, still: Duration) -> WorldView<'a> {
    WorldView {
        ranks,
        is_ours: &|_| false,
        hosts,
        still,
        receiving: BTreeSet::new(),
    }
}

fn verdict_on(ranks: Vec<RankProcess>) -> (HangKind, Confidence, String) {
    let job = Job::of(ranks);
    let evidence = evidence(
        &mut view(&job.ranks(), &mut Hosts::default(), Duration::from_secs(1)),
        false,
    );
    let verdict = diagnose(&evidence.unwrap());
    (verdict.kind, verdict.confidence, verdict.summary)
}

#[test]
fn what_two_ranks_are_in_contradicts() {
    let entries = |last: &str| [call(1, 0, "barrier"), call(2, 1, last)];
    let (kind, confidence, summary) = verdict_on(vec![
        rank(0, 3, 2, &entries("all_reduce")),
        rank(1, 3, 2, &entries("all_reduce")),
        rank(2, 3, 2, &entries("broadcast")),
    ]);
    assert_eq!(
        (kind, confidence),
        (HangKind::CollectiveMismatch, Confidence::Proved)
    );
    assert!(summary.contains("collective number 2 "), "{summary}");
}

#[test]
fn call_traces_that_have_lost_their_beginnings_are_laid_side_by_side() {
    // Rank 0 has kept numbers 70 to 99, rank 1 only from 90 on: only these can be compared.
    let entries = |from: usize, last: &str| -> Vec<Value> {
        let mut all: Vec<Value> = (from..99)
            .map(|number| {
                call(
                    number as u64,
                    number,
                    if number % 2 == 0 { "a" } else { "b" },
                )
            })
            .collect();
        all.push(call(99, 99, last));
        all
    };
    let same = vec![
        rank(0, 2, 100, &entries(70, "a")),
        rank(1, 2, 100, &entries(90, "a")),
    ];
    assert_eq!(verdict_on(same).0, HangKind::Unknown);
    let other = vec![
        rank(0, 2, 100, &entries(70, "a")),
        rank(1, 2, 100, &entries(90, "c")),
    ];
    let (kind, _, summary) = verdict_on(other);
    assert_eq!(kind, HangKind::CollectiveMismatch);
    assert!(summary.contains("collective number 100: "), "{summary}");
}

#[test]
fn an_interpreter_that_does_not_answer_is_not_believed_to_wait() {
    let at = |name| [call(1, 0, name)];
    let mut ranks = vec![rank(0, 2, 1, &at("all_reduce")), rank(1, 2, 0, &[])];
    ranks[1].activity = Some(Activity::Gone);
    assert_eq!(verdict_on(ranks.clone()).0, HangKind::PeerDead);
    let hour = Duration::from_secs(3600);
    if let Some(call_trace) = &mut ranks[0].call_trace {
        call_trace.beat = Some(SystemTime::now() - hour);
    }
    assert_eq!(verdict_on(ranks).0, HangKind::Unknown);
}

#[test]
fn a_rank_that_is_in_the_next_world_does_not_contradict_those_in_this_one() {
    let init = |epoch: u32, size: u32| {
        json!({"id": epoch, "epoch": epoch, "what": "init", "method": "tcp", "place": "127.0.0.1:1", "rank": 0,
               "world_size": size})
    };
    let mut ranks = vec![
        rank(0, 2, 1, &[init(1, 2), call(3, 0, "all_reduce")]),
        rank(1, 2, 1, &[init(1, 2), call(3, 0, "all_reduce")]),
    ];
    let text = json!({"moves": 9, "epoch": 2, "entries": [init(1, 2), init(2, 1)], "inside": null, "own": null});
    ranks[1].call_trace = serde_json::from_value(text).unwrap();
    // It has left this world without that collective.
    assert_eq!(verdict_on(ranks).0, HangKind::CollectiveSkipped);
}

#[test]
fn worlds_that_ranks_make_at_places_of_their_own_are_not_compared_with_each_other() {
    // Ranks 0 and 1 have made more collectives in their world of two than ranks 2 and 3 in theirs, and wait elsewhere.
    let met = |place: &str, own: u32| {
        json!({"id": 1, "epoch": 1, "at": "sweep.py:3", "what": "init", "method": "store",
               "place": format!("127.0.0.1:29500/{place}"), "rank": own, "world_size": 2})
    };
    let keys =
        || json!({"id": 9, "epoch": 1, "at": "sweep.py:9", "what": "store", "keys": ["over"]});
    let of = |number: u32, place: &str, count: usize, last: Option<Value>| {
        let mut entries = vec![met(place, number % 2)];
        entries.extend((0..count).map(|one| call(one as u64 + 2, one, "all_reduce")));
        entries.extend(last.clone());
        let mut process = rank(number, 4, count, &entries);
        if let Some(call_trace) = &mut process.call_trace {
            let group = call_trace.groups.get_mut("1.0").unwrap();
            group.members.truncate(2);
            if last.is_none() && number == 3 {
                call_trace.inside = None;
            }
        }
        process
    };
    let job = Job::of(vec![
        of(0, "first", 5, Some(keys())),
        of(1, "first", 5, Some(keys())),
        of(2, "second", 2, None),
        of(3, "second", 1, None),
    ]);
    let still = Duration::from_secs(1);
    let seen = evidence(&mut view(&job.ranks(), &mut Hosts::default(), still), false);
    let verdict = diagnose(&seen.unwrap());
    assert_eq!(verdict.kind, HangKind::Slow, "{}", verdict.summary);
    assert_eq!(verdict.culprits, [allranks_model::names::Rank(3)]);
}

#[test]
fn environments_alone_tell_claims() {
    let bare = |number: u32, port: u32| {
        let expectations: [(&str, u32); 3] =
            [("RANK", number), ("WORLD_SIZE", 3), ("MASTER_PORT", port)];
        let mut environment: BTreeMap<String, String> = expectations
            .map(|(name, value)| (name.to_owned(), value.to_string()))
            .into();
        environment.insert("MASTER_ADDR".to_owned(), "127.0.0.1".to_owned());
        RankProcess {
            more_may_start: false,
            pid: number,
            environment,
            activity: Some(Activity::Alive { ticks: 0 }),
            call_trace: None,
            traced: None,
        }
    };
    let job = Job::of(vec![bare(0, 1), bare(1, 1), bare(2, 2)]);
    let hosts = &mut Hosts::default();
    let seen = evidence(
        &mut view(&job.ranks(), hosts, Duration::from_secs(30)),
        true,
    )
    .unwrap();
    assert_eq!(diagnose(&seen).kind, HangKind::Unknown);
    let verdict_on = as_assigned(
        &seen,
        &mut view(&job.ranks(), hosts, Duration::from_secs(30)),
    )
    .unwrap();
    let verdict = diagnose(&verdict_on);
    assert_eq!(verdict.kind, HangKind::PortMismatch);
    assert_eq!(verdict.culprits.len(), 1);
}

/// What is asked of a server's rank 0 that is in no call, by how long it paused before its second reduction: whether it has left a
/// request half done, if the others are in a call of this name.
fn left(pause: f64, others_in: &str) -> bool {
    let at = |id: u64, name: &str, number: usize, begin: f64| {
        let mut entry = call(id, number, name);
        entry["t"] = json!(begin);
        entry["end"] = json!(begin + 0.1);
        entry
    };
    let served = [
        at(1, "broadcast", 0, 10.0),
        at(2, "all_reduce", 1, 10.2),
        at(3, "broadcast", 2, 500.0),
        at(4, "all_reduce", 3, 500.1 + pause),
        at(5, "broadcast", 4, 900.0),
    ];
    let mut server = rank(0, 2, 5, &served);
    server.call_trace.as_mut().unwrap().inside = None;
    let waiting = rank(1, 2, 6, &[&served[..], &[call(6, 5, others_in)]].concat());
    let job = Job::of(vec![server.clone(), waiting]);
    let still = Duration::from_secs(60);
    let evidence = evidence(&mut view(&job.ranks(), &mut Hosts::default(), still), false);
    has_left_a_request(&evidence.unwrap(), &server, Duration::from_secs(8))
}

#[test]
fn a_server_that_tells_the_others_of_a_request_may_be_idle_and_one_that_does_not_is_in_the_middle_of_one()
 {
    assert!(left(0.1, "all_reduce"));
    assert!(!left(0.1, "broadcast"));
    // It has gone to that call after a long pause before: it may be what it is idle before.
    assert!(!left(300.0, "all_reduce"));
}

#[test]
fn a_rank_that_was_stopped_before_its_record_was_written_contradicts_nobody() {
    // C++ code has issued an all_gather on each rank; the dump of the stopped one is from before.
    let recorded = |name: &str, number| call(number as u64 + 1, number, name);
    let others = [recorded("all_gather", 0), recorded("all_reduce", 1)];
    let mut ranks = vec![
        rank(0, 3, 2, &others),
        rank(1, 3, 1, &[recorded("all_reduce", 0)]),
        rank(2, 3, 2, &others),
    ];
    assert_eq!(verdict_on(ranks.clone()).0, HangKind::CollectiveSkipped);
    ranks[1].activity = Some(Activity::Stopped);
    assert_eq!(verdict_on(ranks.clone()).0, HangKind::CollectiveSkipped);
    if let Some(call_trace) = &mut ranks[1].call_trace {
        let counts = json!({"status": {"0": {"last_enqueued_collective": 2}}});
        call_trace.recorder = serde_json::from_value(counts).unwrap();
    }
    assert_eq!(verdict_on(ranks).0, HangKind::PeerStopped);
}
